# Random runs of everything, disturbed and continued; `./dev soak` runs them for longer.
if(NOT LEVIN_BUILD_TOOL OR NOT LEVIN_BUILD_EXAMPLES)
  return()
endif()
set(soak "${CMAKE_CURRENT_LIST_DIR}/soak.py" $<TARGET_FILE:levin_tool> "${levin_programs}")
add_test(NAME soak.oracle COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/oracle_test.py" $<TARGET_FILE:levin_tool>)
set_tests_properties(soak.oracle PROPERTIES LABELS multi_process TIMEOUT 300 COST 30)
if(LEVIN_SANITIZE)
  return()  # limits of memory would let the sanitizers' own allocations fail
endif()
add_test(NAME soak.short COMMAND Python3::Interpreter -B ${soak} --short)
set_tests_properties(soak.short PROPERTIES LABELS multi_process TIMEOUT 600 COST 60)
add_test(NAME soak COMMAND Python3::Interpreter -B ${soak} 10)
set_tests_properties(soak PROPERTIES LABELS "multi_process;nightly" TIMEOUT 1200 COST 600)
