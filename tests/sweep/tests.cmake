# Sweeps as users run them; their parts are tested in tools_test.
if(LEVIN_BUILD_TOOL AND LEVIN_BUILD_EXAMPLES)
  foreach(case sweep.whole sweep.stopped sweep.stopped_long sweep.asked sweep.pages trials.ranked trials.ended trials.disturbed trials.shared)
    string(REPLACE "." ";" parts "${case}")
    list(GET parts 0 file)
    list(GET parts 1 name)
    add_test(NAME sweep.${name} COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/${file}_test.py"
      $<TARGET_FILE:levin_tool> ${name})
    set_tests_properties(sweep.${name} PROPERTIES LABELS examples TIMEOUT 600 COST 60 SKIP_RETURN_CODE 77)
  endforeach()
  set_tests_properties(sweep.stopped_long PROPERTIES LABELS "examples;nightly")  # repeats sweep.stopped with more trials
endif()
