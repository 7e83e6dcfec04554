if(NOT LEVIN_BUILD_TOOL OR NOT LEVIN_BUILD_EXAMPLES)
  return()
endif()
add_test(NAME submit COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/submit_test.py" $<TARGET_FILE:levin_tool>)
set_tests_properties(submit PROPERTIES LABELS unit TIMEOUT 120)

# A real Slurm of two nodes on this machine; see cluster.py. Skipped, with the reason, where none can be started.
add_test(NAME slurm COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/slurm_test.py" $<TARGET_FILE:levin_tool>
  "${levin_programs}/rank_program")
set_tests_properties(slurm PROPERTIES LABELS slurm TIMEOUT 600 COST 100 SKIP_RETURN_CODE 77)
