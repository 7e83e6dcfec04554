# The fuzz targets on their seeds and on fixed changes to them, in this build.
set(fuzz_targets checkpoint data exported images loggers mlflow onnx ranks runs streams sweep tokenizer weights yaml)
set(fuzz_programs fuzz_seeds)
add_executable(fuzz_seeds fuzz/fuzz_seeds.cpp)
foreach(target IN LISTS fuzz_targets ITEMS c_api lightning)  # both need the whole library: libFuzzer's build lacks them
  list(APPEND fuzz_programs replay_${target})
  add_executable(replay_${target} fuzz/replay.cpp fuzz/fuzz_${target}.cpp)
  add_test(NAME fuzz.replayed_${target} COMMAND replay_${target} "${CMAKE_CURRENT_BINARY_DIR}/fuzz_seeds/${target}"
    "${CMAKE_CURRENT_BINARY_DIR}/fuzz_corpora/${target}")
  set_tests_properties(fuzz.replayed_${target} PROPERTIES LABELS fuzz FIXTURES_REQUIRED "fuzz_seeds;fuzz_corpora"
    TIMEOUT 120)
endforeach()
foreach(target IN LISTS fuzz_targets ITEMS lightning)
  target_sources(replay_${target} PRIVATE fuzz/fuzz_main.cpp)
endforeach()
target_sources(replay_checkpoint PRIVATE fuzz/forge.cpp)
target_sources(replay_c_api PRIVATE c/guest_model.cpp)
target_sources(replay_exported PRIVATE fuzz/forge_calls.cpp fuzz/forge_program.cpp)
target_sources(replay_onnx PRIVATE fuzz/forge_calls.cpp fuzz/forge_program.cpp)
foreach(program IN LISTS fuzz_programs)
  target_link_libraries(${program} PRIVATE levin_test_options PkgConfig::xxhash ZLIB::ZLIB)
  target_precompile_headers(${program} REUSE_FROM levin_test_module_pch)
endforeach()
add_test(NAME fuzz.seeds COMMAND fuzz_seeds "${CMAKE_CURRENT_BINARY_DIR}/fuzz_seeds")
set_tests_properties(fuzz.seeds PROPERTIES LABELS fuzz FIXTURES_SETUP fuzz_seeds TIMEOUT 60)
add_test(NAME fuzz.corpora COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/run_fuzz.py" unpack
  "${CMAKE_CURRENT_BINARY_DIR}/fuzz_corpora")
set_tests_properties(fuzz.corpora PROPERTIES LABELS fuzz FIXTURES_SETUP fuzz_corpora TIMEOUT 60)

# A short run of each target under libFuzzer and the sanitizers; `./dev fuzz` runs them for longer. They are built by
# clang in a tree of their own (preset `fuzz`), because libFuzzer does not come with gcc, and that takes minutes.
if(LEVIN_SANITIZE)
  return()  # the targets bring their own sanitizers: once is enough
endif()
set(fuzz_script "${CMAKE_CURRENT_LIST_DIR}/run_fuzz.py")
set(fuzz_tests fuzz.build)
add_test(NAME fuzz.build COMMAND Python3::Interpreter -B "${fuzz_script}" build --torch "${LEVIN_TORCH_ROOT}")
set_tests_properties(fuzz.build PROPERTIES FIXTURES_SETUP fuzz_targets TIMEOUT 1200 COST 100)
foreach(target IN LISTS fuzz_targets)
  add_test(NAME fuzz.${target} COMMAND Python3::Interpreter -B "${fuzz_script}" run ${target} 12 --fresh)
  add_test(NAME fuzz.${target}_finds_what_is_planted COMMAND Python3::Interpreter -B "${fuzz_script}" planted ${target})
  set_tests_properties(fuzz.${target} fuzz.${target}_finds_what_is_planted PROPERTIES FIXTURES_REQUIRED fuzz_targets
    TIMEOUT 200)
  list(APPEND fuzz_tests fuzz.${target} fuzz.${target}_finds_what_is_planted)
endforeach()
set_tests_properties(${fuzz_tests} PROPERTIES LABELS "fuzz;nightly" SKIP_RETURN_CODE 77)
