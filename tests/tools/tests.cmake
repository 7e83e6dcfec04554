add_test(NAME tools.convert_checkpoint COMMAND Python3::Interpreter -B
  "${CMAKE_CURRENT_LIST_DIR}/convert_checkpoint_test.py" "${PROJECT_SOURCE_DIR}")
set_tests_properties(tools.convert_checkpoint PROPERTIES LABELS unit TIMEOUT 120)
add_test(NAME tools.gpu_figures COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/gpu_figures_test.py"
  "${PROJECT_SOURCE_DIR}")
set_tests_properties(tools.gpu_figures PROPERTIES LABELS unit TIMEOUT 60)
if(LEVIN_BUILD_TOOL)
  add_test(NAME tools.gpu_check COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/gpu_check_test.py"
    "${PROJECT_SOURCE_DIR}" "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  set_tests_properties(tools.gpu_check PROPERTIES LABELS dev TIMEOUT 300)
  add_test(NAME tools.gpu_check_calls COMMAND Python3::Interpreter -B
    "${CMAKE_CURRENT_LIST_DIR}/gpu_check_calls_test.py" "${PROJECT_SOURCE_DIR}" "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  set_tests_properties(tools.gpu_check_calls PROPERTIES LABELS dev TIMEOUT 300)
  add_test(NAME tools.gpu_options COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/gpu_options_test.py"
    "${PROJECT_SOURCE_DIR}" "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  set_tests_properties(tools.gpu_options PROPERTIES LABELS "dev;nightly" TIMEOUT 300)
endif()
