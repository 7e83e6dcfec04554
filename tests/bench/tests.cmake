if(LEVIN_BUILD_BENCH)
  set(bench_script "${CMAKE_CURRENT_LIST_DIR}/bench_test.py")
  add_test(NAME bench.programs COMMAND Python3::Interpreter -B "${bench_script}" "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" Bench)
  add_test(NAME bench.each_alone
    COMMAND Python3::Interpreter -B "${bench_script}" "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" EachAlone)
  set_tests_properties(bench.programs PROPERTIES LABELS bench TIMEOUT 600 COST 60)
  set_tests_properties(bench.each_alone PROPERTIES LABELS "bench;nightly" TIMEOUT 900 COST 200)
endif()
