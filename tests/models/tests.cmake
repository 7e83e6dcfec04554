levin_test(models TORCH FILES
  models/damaged_program_test.cpp
  models/exported_model_test.cpp
  models/exported_program_test.cpp
  models/number_operators_test.cpp)
target_link_libraries(models_test PRIVATE ZLIB::ZLIB)

# Programs of torch.export, against Python's numbers where PyTorch for Python is installed.
add_executable(exported_peers models/exported_peers.cpp)
target_link_libraries(exported_peers PRIVATE levin_test_options)
target_precompile_headers(exported_peers REUSE_FROM levin_test_torch_pch)
if(LEVIN_BUILD_TOOL)
  add_test(NAME models.exported_peers COMMAND Python3::Interpreter -B
    "${CMAKE_CURRENT_SOURCE_DIR}/models/exported_peers_test.py" $<TARGET_FILE:exported_peers> $<TARGET_FILE:levin_tool>)
  set_tests_properties(models.exported_peers PROPERTIES LABELS multi_process TIMEOUT 300 COST 60 SKIP_RETURN_CODE 77)
endif()
