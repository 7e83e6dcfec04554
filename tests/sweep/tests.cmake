# Sweeps: the parts, and the tool as users run it.
levin_test(sweep FILES
  sweep/searcher_test.cpp
  sweep/sweep_options_test.cpp)
if(LEVIN_BUILD_TOOL AND LEVIN_BUILD_EXAMPLES)
  foreach(case whole stopped asked pages)
    add_test(NAME sweep.${case} COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/sweep_test.py"
      $<TARGET_FILE:levin_tool> ${case})
    set_tests_properties(sweep.${case} PROPERTIES LABELS examples TIMEOUT 600 COST 60 SKIP_RETURN_CODE 77)
  endforeach()
endif()
