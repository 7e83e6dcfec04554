# Several ranks: real processes and sockets. rank_program is a user's program; ranks_test.py runs it.
foreach(name equivalence fabric notes agreement idle_rank launching faults stopping doors record fsdp fsdp_checkpoint recompute batches)
  add_test(NAME ranks.${name}
    COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/ranks/${name}_test.py" "${levin_programs}/rank_program")
  set_tests_properties(ranks.${name} PROPERTIES LABELS multi_process TIMEOUT 300 COST 60)
endforeach()
set_tests_properties(ranks.stopping ranks.fsdp ranks.fsdp_checkpoint PROPERTIES TIMEOUT 600 COST 120)

foreach(name model predict)
  add_test(NAME ranks.${name}
    COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/ranks/${name}_test.py" "${levin_programs}/${name}_program")
  set_tests_properties(ranks.${name} PROPERTIES LABELS multi_process TIMEOUT 600 COST 60)
endforeach()

# The tool; real launchers; nodes that share nothing but a cable. Skipped, with the reason, where the machine has none.
if(NOT LEVIN_BUILD_TOOL OR NOT LEVIN_BUILD_EXAMPLES)
  return()
endif()
foreach(name tool log mpirun mpich torchrun namespaces)
  add_test(NAME ranks.${name} COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/ranks/${name}_test.py"
    $<TARGET_FILE:levin_tool> "${levin_programs}/rank_program")
  set_tests_properties(ranks.${name} PROPERTIES LABELS multi_process TIMEOUT 300 COST 60 SKIP_RETURN_CODE 77)
endforeach()
