levin_test(models FILES
  models/compiled_file_test.cpp)

# Modules compiled by PyTorch for Python, beside its eager losses. Skipped, with the reason, where there is none.
if(TARGET levin_tool)
  add_test(NAME models.compiled_step COMMAND Python3::Interpreter -B
    "${CMAKE_CURRENT_LIST_DIR}/compiled_step_test.py" "${PROJECT_BINARY_DIR}/bin/levin")
  set_tests_properties(models.compiled_step PROPERTIES LABELS peers TIMEOUT 300 COST 60 SKIP_RETURN_CODE 77)
endif()
