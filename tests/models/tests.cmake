levin_test(huggingface TORCH FILES
  models/huggingface_config_test.cpp
  models/huggingface_models_test.cpp
  models/huggingface_runs_test.cpp
  models/huggingface_save_test.cpp)

# Beside Hugging Face's transformers. Skipped, with the reason, where its packages are missing.
add_executable(huggingface_program models/huggingface_program.cpp)
target_link_libraries(huggingface_program PRIVATE levin_test_options)
target_precompile_headers(huggingface_program REUSE_FROM levin_test_torch_pch)
add_test(NAME models.huggingface_peers COMMAND Python3::Interpreter -B
  "${CMAKE_CURRENT_LIST_DIR}/huggingface_peers_test.py" $<TARGET_FILE:huggingface_program>)
set_tests_properties(models.huggingface_peers PROPERTIES LABELS peers TIMEOUT 300 COST 40 SKIP_RETURN_CODE 77)
