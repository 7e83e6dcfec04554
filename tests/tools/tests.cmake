add_test(NAME tools.convert_checkpoint COMMAND Python3::Interpreter -B
  "${CMAKE_CURRENT_LIST_DIR}/convert_checkpoint_test.py" "${PROJECT_SOURCE_DIR}")
set_tests_properties(tools.convert_checkpoint PROPERTIES LABELS unit TIMEOUT 120)
