if(LEVIN_BUILD_BENCH)
  add_test(NAME bench.programs
    COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/bench_test.py" "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  set_tests_properties(bench.programs PROPERTIES LABELS bench TIMEOUT 900 COST 200)
endif()
