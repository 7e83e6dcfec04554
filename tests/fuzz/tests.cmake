# A short run of each fuzz target, from its seeds; `./dev fuzz` runs them for longer. They are built by clang in a tree
# of their own (preset `fuzz`), because libFuzzer does not come with gcc.
if(LEVIN_SANITIZE)
  return()  # the targets bring their own sanitizers: once is enough
endif()
set(fuzz_script "${CMAKE_CURRENT_LIST_DIR}/run_fuzz.py")
add_test(NAME fuzz.build COMMAND Python3::Interpreter -B "${fuzz_script}" build --torch "${LEVIN_TORCH_ROOT}")
set_tests_properties(fuzz.build PROPERTIES FIXTURES_SETUP fuzz_targets TIMEOUT 1200 COST 100)
foreach(target checkpoint exported tokenizer yaml)
  add_test(NAME fuzz.${target} COMMAND Python3::Interpreter -B "${fuzz_script}" run ${target} 12 --fresh)
  add_test(NAME fuzz.${target}_finds_what_is_planted COMMAND Python3::Interpreter -B "${fuzz_script}" planted ${target})
  set_tests_properties(fuzz.${target} fuzz.${target}_finds_what_is_planted PROPERTIES FIXTURES_REQUIRED fuzz_targets
    TIMEOUT 200)
endforeach()
set_tests_properties(fuzz.build fuzz.checkpoint fuzz.exported fuzz.tokenizer fuzz.yaml
  fuzz.checkpoint_finds_what_is_planted fuzz.exported_finds_what_is_planted fuzz.tokenizer_finds_what_is_planted
  fuzz.yaml_finds_what_is_planted PROPERTIES LABELS fuzz SKIP_RETURN_CODE 77)
