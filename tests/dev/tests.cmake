add_test(NAME dev.script COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/dev_test.py" "${PROJECT_SOURCE_DIR}")
add_test(NAME dev.system COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/system_test.py" "${PROJECT_SOURCE_DIR}")
add_executable(skipping_program dev/skipping_program.cpp)
target_compile_features(skipping_program PRIVATE cxx_std_20)
target_include_directories(skipping_program PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
target_link_libraries(skipping_program PRIVATE levin_warnings GTest::gtest)
add_test(NAME dev.check COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/check_test.py" "${PROJECT_SOURCE_DIR}"
  $<TARGET_FILE:skipping_program>)
add_test(NAME dev.compile COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/compile_test.py" "${PROJECT_SOURCE_DIR}"
  ${CMAKE_CXX_COMPILER})
add_test(NAME dev.tidy_database COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/tidy_database_test.py" "${PROJECT_SOURCE_DIR}"
  "${PROJECT_BINARY_DIR}")
set_tests_properties(dev.script dev.system dev.check dev.compile dev.tidy_database PROPERTIES LABELS dev TIMEOUT 120)
add_test(NAME dev.mutate COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/mutate_test.py" "${PROJECT_SOURCE_DIR}")
set_tests_properties(dev.mutate PROPERTIES LABELS dev TIMEOUT 600 COST 30)
