# Compared with Hugging Face's transformers. Skipped, with the reason, where its packages are missing.
add_test(NAME models.huggingface_peers COMMAND Python3::Interpreter -B
  "${CMAKE_CURRENT_LIST_DIR}/huggingface_peers_test.py" "${levin_programs}/huggingface_program")
set_tests_properties(models.huggingface_peers PROPERTIES LABELS peers TIMEOUT 300 COST 40 SKIP_RETURN_CODE 77)

levin_test(models TORCH FILES
  models/compiled_file_test.cpp
  models/damaged_program_test.cpp
  models/exported_model_test.cpp
  models/exported_placement_test.cpp
  models/exported_program_test.cpp
  models/exported_recompute_test.cpp
  models/huggingface_config_test.cpp
  models/huggingface_models_test.cpp
  models/huggingface_runs_test.cpp
  models/huggingface_save_test.cpp
  models/number_operators_test.cpp
  models/onnx_export_test.cpp
  models/onnx_file_test.cpp
  models/tabular_model_test.cpp)
target_link_libraries(models_test PRIVATE ZLIB::ZLIB)

# Programs of torch.export, against Python's numbers where PyTorch for Python is installed.
if(LEVIN_BUILD_TOOL)
  add_test(NAME models.exported_peers COMMAND Python3::Interpreter -B
    "${CMAKE_CURRENT_SOURCE_DIR}/models/exported_peers_test.py" "${levin_programs}/exported_peers" $<TARGET_FILE:levin_tool>)
  set_tests_properties(models.exported_peers PROPERTIES LABELS multi_process TIMEOUT 900 COST 60 SKIP_RETURN_CODE 77)
endif()

# Modules compiled by PyTorch for Python, compared with its eager losses. Skipped, with the reason, where there is none.
if(TARGET levin_tool)
  add_test(NAME models.compiled_step COMMAND Python3::Interpreter -B
    "${CMAKE_CURRENT_LIST_DIR}/compiled_step_test.py" "${PROJECT_BINARY_DIR}/bin/levin")
  set_tests_properties(models.compiled_step PROPERTIES LABELS peers TIMEOUT 600 COST 60 SKIP_RETURN_CODE 77)
endif()

# Graphs of ONNX, compared with onnxruntime. Skipped, with the reason, where its packages are missing.
if(TARGET levin_tool)
  add_test(NAME models.onnx_peers COMMAND Python3::Interpreter -B
    "${CMAKE_CURRENT_LIST_DIR}/onnx_peers_test.py" "${levin_programs}/onnx_program" "${PROJECT_BINARY_DIR}/bin/levin")
  # It takes 17 s of a processor, and 170 s where eight compilers share two of them.
  set_tests_properties(models.onnx_peers PROPERTIES LABELS peers TIMEOUT 600 COST 60 SKIP_RETURN_CODE 77)
endif()

# Tables from run files alone.
if(TARGET levin_tool)
  add_test(NAME models.table_runs COMMAND Python3::Interpreter -B
    "${CMAKE_CURRENT_LIST_DIR}/table_runs_test.py" "${PROJECT_BINARY_DIR}/bin/levin")
  set_tests_properties(models.table_runs PROPERTIES LABELS multi_process TIMEOUT 600 COST 20)
endif()
