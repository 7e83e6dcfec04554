levin_test(c_api FILES
  c/c_api_test.cpp
  c/guest_model.cpp)

# Programs in other languages, and what the Trainer makes of the same run file.
add_library(levin_c_test_model SHARED c/model.cpp)
target_link_libraries(levin_c_test_model PRIVATE levin::levin levin_warnings)
add_executable(trained_by_trainer c/trained_by_trainer.cpp)
target_link_libraries(trained_by_trainer PRIVATE levin_test_options)
target_precompile_headers(trained_by_trainer REUSE_FROM levin_test_module_pch)
if(NOT LEVIN_SANITIZE)  # a program without the sanitizer cannot load a library with it
  add_test(NAME c.languages COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/languages_test.py"
    "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}" "${PROJECT_BINARY_DIR}/include")
  set_tests_properties(c.languages PROPERTIES LABELS unit TIMEOUT 300)
endif()
