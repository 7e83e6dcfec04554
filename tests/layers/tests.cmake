add_test(NAME layers.tree COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/check_layers.py" "${PROJECT_SOURCE_DIR}")
add_test(NAME layers.finds_what_is_planted
  COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/check_layers_test.py")
set_tests_properties(layers.tree layers.finds_what_is_planted PROPERTIES LABELS layers TIMEOUT 120)

# Names that files of one unit share by accident.
add_test(NAME layers.unit_names_finds_what_is_planted
  COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/unit_names_test.py")
set_tests_properties(layers.unit_names_finds_what_is_planted PROPERTIES LABELS layers TIMEOUT 120 SKIP_RETURN_CODE 77)
if(LEVIN_UNITY)
  add_test(NAME layers.unit_names
    COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/unit_names.py" "${PROJECT_BINARY_DIR}")
  set_tests_properties(layers.unit_names PROPERTIES LABELS "layers;nightly" TIMEOUT 1800 SKIP_RETURN_CODE 77 PROCESSORS 2)
endif()
