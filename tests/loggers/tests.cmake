levin_test(loggers FILES
  loggers/csv_logger_test.cpp
  loggers/run_folder_test.cpp)
