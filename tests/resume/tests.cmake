# Runs of the tool that are killed, stopped and continued: each must end bitwise identical to an uninterrupted run.
if(NOT LEVIN_BUILD_TOOL OR NOT LEVIN_BUILD_EXAMPLES)
  return()
endif()
foreach(name kill signals search one_run ranks changed_options standard_streams full_disk remote)
  add_test(NAME resume.${name} COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/${name}_test.py"
    $<TARGET_FILE:levin_tool>)
  set_tests_properties(resume.${name} PROPERTIES LABELS multi_process TIMEOUT 400 COST 60)
endforeach()
set_tests_properties(resume.remote PROPERTIES TIMEOUT 900 COST 200)
