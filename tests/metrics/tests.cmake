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
  metrics/score_loops_test.cpp)

# Random cases beside torchmetrics. Skipped, with the reason, where there is no PyTorch for Python.
add_executable(classification_program metrics/classification_program.cpp)
target_link_libraries(classification_program PRIVATE levin_test_options)
target_precompile_headers(classification_program REUSE_FROM levin_test_module_pch)
add_test(NAME metrics.classification_peers COMMAND Python3::Interpreter -B
  "${CMAKE_CURRENT_LIST_DIR}/peers_test.py" $<TARGET_FILE:classification_program> record_cases)
set_tests_properties(metrics.classification_peers PROPERTIES LABELS peers TIMEOUT 300 COST 30 SKIP_RETURN_CODE 77)

add_executable(other_metrics_program metrics/other_metrics_program.cpp)
target_link_libraries(other_metrics_program PRIVATE levin_test_options)
target_precompile_headers(other_metrics_program REUSE_FROM levin_test_module_pch)
add_test(NAME metrics.other_peers COMMAND Python3::Interpreter -B
  "${CMAKE_CURRENT_LIST_DIR}/peers_test.py" $<TARGET_FILE:other_metrics_program> record_other_cases)
set_tests_properties(metrics.other_peers PROPERTIES LABELS peers TIMEOUT 600 COST 30 SKIP_RETURN_CODE 77)
