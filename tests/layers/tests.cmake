add_test(NAME layers.tree COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/check_layers.py" "${PROJECT_SOURCE_DIR}")
add_test(NAME layers.finds_what_is_planted
  COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/check_layers_test.py")
set_tests_properties(layers.tree layers.finds_what_is_planted PROPERTIES LABELS layers TIMEOUT 120)
