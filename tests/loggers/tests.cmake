levin_test(loggers FILES
  loggers/append_file_test.cpp
  loggers/csv_full_disk_test.cpp
  loggers/csv_logger_test.cpp
  loggers/event_records_test.cpp
  loggers/histogram_test.cpp
  loggers/json_lines_logger_test.cpp
  loggers/log_stream_test.cpp
  loggers/logger_folder_test.cpp
  loggers/outbox_test.cpp
  loggers/prometheus_logger_test.cpp
  loggers/prometheus_text_test.cpp
  loggers/run_folder_test.cpp
  loggers/run_recorder_test.cpp
  loggers/send_outbox_test.cpp
  loggers/spill_file_test.cpp
  loggers/tensorboard_logger_test.cpp)

# A logger in a process that a test drives and kills. MLflow's server and Prometheus are real; skipped, with the reason,
# where there is none.
foreach(name sqlite prometheus mlflow)
  add_test(NAME loggers.${name} COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/loggers/${name}_test.py"
    "${levin_programs}/logger_program")
  set_tests_properties(loggers.${name} PROPERTIES LABELS multi_process TIMEOUT 300 COST 60 SKIP_RETURN_CODE 77)
endforeach()
set_tests_properties(loggers.mlflow PROPERTIES TIMEOUT 900 COST 200)

# Files read back by TensorBoard's own package (./dev setup installs it; skipped without), and its page in Chromium.
add_test(NAME loggers.tensorboard COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/tensorboard_test.py"
  "${levin_programs}/event_program" "${_levin_home}/python")
set_tests_properties(loggers.tensorboard PROPERTIES LABELS unit TIMEOUT 600 COST 60 SKIP_RETURN_CODE 77)
