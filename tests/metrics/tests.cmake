levin_test(metrics FILES
  metrics/aggregation_test.cpp
  metrics/classification_input_test.cpp
  metrics/classification_reference_test.cpp
  metrics/classification_test.cpp
  metrics/metric_collection_test.cpp
  metrics/metric_test.cpp
  metrics/one_decision_test.cpp
  metrics/other_metrics_test.cpp
  metrics/other_reference_test.cpp
  metrics/label_loops_test.cpp
  metrics/score_loops_test.cpp)

# Random cases compared with torchmetrics. Skipped, with the reason, without PyTorch for Python.
add_test(NAME metrics.classification_peers COMMAND Python3::Interpreter -B
  "${CMAKE_CURRENT_LIST_DIR}/peers_test.py" "${levin_programs}/classification_program" record_cases)
set_tests_properties(metrics.classification_peers PROPERTIES LABELS peers TIMEOUT 300 COST 30 SKIP_RETURN_CODE 77)

add_test(NAME metrics.other_peers COMMAND Python3::Interpreter -B
  "${CMAKE_CURRENT_LIST_DIR}/peers_test.py" "${levin_programs}/other_metrics_program" record_other_cases)
set_tests_properties(metrics.other_peers PROPERTIES LABELS peers TIMEOUT 600 COST 30 SKIP_RETURN_CODE 77)
