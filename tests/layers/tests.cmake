add_test(NAME layers.tree COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/check_layers.py" "${PROJECT_SOURCE_DIR}")
add_test(NAME layers.finds_what_is_planted
  COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/check_layers_test.py")
set_tests_properties(layers.tree layers.finds_what_is_planted PROPERTIES LABELS layers TIMEOUT 120)

# Tests wait for events.
add_test(NAME layers.sleeps COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/sleeps.py" "${PROJECT_SOURCE_DIR}")
add_test(NAME layers.sleeps_finds_what_is_planted COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/sleeps_test.py")
set_tests_properties(layers.sleeps layers.sleeps_finds_what_is_planted PROPERTIES LABELS layers TIMEOUT 120)

# What files of one unit share by accident: names, and includes.
foreach(what unit_names single_files)
  add_test(NAME layers.${what}_finds_what_is_planted
    COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/${what}_test.py")
  set_tests_properties(layers.${what}_finds_what_is_planted PROPERTIES LABELS layers TIMEOUT 120 SKIP_RETURN_CODE 77)
  if(LEVIN_UNITY)
    add_test(NAME layers.${what}
      COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/${what}.py" "${PROJECT_BINARY_DIR}")
    set_tests_properties(layers.${what} PROPERTIES LABELS "layers;nightly" TIMEOUT 3600 SKIP_RETURN_CODE 77 PROCESSORS 2)
  endif()
endforeach()
