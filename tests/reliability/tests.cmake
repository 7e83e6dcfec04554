# Faults in every phase of a run, with the outcomes that docs/reliability.md promises: see matrix.py.
add_test(NAME reliability.page COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/matrix.py" check)
set_tests_properties(reliability.page PROPERTIES LABELS docs TIMEOUT 60)
add_test(NAME reliability.finds_what_is_planted COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/matrix_test.py")
set_tests_properties(reliability.finds_what_is_planted PROPERTIES LABELS docs TIMEOUT 60)

# Not one of levin_test_programs, because it replaces functions of libc, as rank_program does.
add_executable(fault_program "${CMAKE_CURRENT_LIST_DIR}/fault_program.cpp")
target_link_libraries(fault_program PRIVATE levin_test_options)
target_precompile_headers(fault_program REUSE_FROM levin_test_torch_pch)

# Skipped, with the reason, where the user cannot mount a file system.
foreach(group processes waits signals disks limits starts code)
  add_test(NAME reliability.${group} COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/system_faults.py"
    $<TARGET_FILE:fault_program> ${group})
  set_tests_properties(reliability.${group} PROPERTIES LABELS multi_process TIMEOUT 600 COST 50 SKIP_RETURN_CODE 77)
endforeach()
foreach(group processes waits signals disks limits starts code)
  add_test(NAME reliability.${group}_nightly COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/system_faults.py"
    $<TARGET_FILE:fault_program> --nightly ${group})
  set_tests_properties(reliability.${group}_nightly PROPERTIES LABELS "multi_process;nightly" TIMEOUT 3600 COST 100
    SKIP_RETURN_CODE 77)
endforeach()

if(LEVIN_BUILD_TOOL AND LEVIN_BUILD_EXAMPLES)
  add_test(NAME reliability.tool_statuses COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/tool_statuses_test.py"
    $<TARGET_FILE:levin_tool>)
  set_tests_properties(reliability.tool_statuses PROPERTIES LABELS examples TIMEOUT 300)
endif()
