# Several ranks: real processes and sockets. rank_program is a user's program; ranks_test.py runs it.
add_executable(rank_program ranks/rank_program.cpp)
target_link_libraries(rank_program PRIVATE levin_test_options)
target_precompile_headers(rank_program REUSE_FROM levin_test_torch_pch)
foreach(name equivalence notes agreement idle_rank launching faults stopping doors record fsdp fsdp_checkpoint recompute batches)
  add_test(NAME ranks.${name}
    COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/ranks/${name}_test.py" $<TARGET_FILE:rank_program>)
  set_tests_properties(ranks.${name} PROPERTIES LABELS multi_process TIMEOUT 300 COST 60)
endforeach()
set_tests_properties(ranks.fsdp ranks.fsdp_checkpoint PROPERTIES TIMEOUT 600 COST 120)

add_executable(model_program ranks/model_program.cpp)
target_link_libraries(model_program PRIVATE levin_test_options)
target_precompile_headers(model_program REUSE_FROM levin_test_torch_pch)
add_test(NAME ranks.model
  COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/ranks/model_test.py" $<TARGET_FILE:model_program>)
set_tests_properties(ranks.model PROPERTIES LABELS multi_process TIMEOUT 600 COST 60)

# The tool; real launchers; nodes that share nothing but a cable. Skipped, with the reason, where the machine has none.
if(NOT LEVIN_BUILD_TOOL OR NOT LEVIN_BUILD_EXAMPLES)
  return()
endif()
foreach(name tool log mpirun mpich torchrun namespaces)
  add_test(NAME ranks.${name} COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/ranks/${name}_test.py"
    $<TARGET_FILE:levin_tool> $<TARGET_FILE:rank_program>)
  set_tests_properties(ranks.${name} PROPERTIES LABELS multi_process TIMEOUT 300 COST 60 SKIP_RETURN_CODE 77)
endforeach()
