# Long runs in one process, whose memory must not grow. Sanitizers have their own malloc, which keeps freed memory.
if(LEVIN_SANITIZE)
  return()
endif()
set(endurance_test "${CMAKE_CURRENT_LIST_DIR}/endurance_test.py" "${levin_programs}/endurance_program")
add_test(NAME endurance.short COMMAND Python3::Interpreter -B ${endurance_test} short)
set_tests_properties(endurance.short PROPERTIES LABELS unit TIMEOUT 300 COST 40)
