add_test(NAME dev.script COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/dev_test.py" "${PROJECT_SOURCE_DIR}")
set_tests_properties(dev.script PROPERTIES LABELS dev TIMEOUT 120)
