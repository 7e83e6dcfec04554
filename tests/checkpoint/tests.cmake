levin_test(checkpoint_file TORCH FILES
  checkpoint/checkpoint_file_test.cpp
  checkpoint/header_cost_test.cpp
  checkpoint/safetensors_test.cpp
  checkpoint/values_json_test.cpp)
target_link_libraries(checkpoint_file_test PRIVATE PkgConfig::xxhash)

levin_test(sharded_checkpoint TORCH FILES
  checkpoint/forged_shards_test.cpp
  checkpoint/sharded_checkpoint_test.cpp)

levin_test(checkpoint_damage TORCH FILES
  checkpoint/checkpoint_damage_test.cpp)

levin_test(checkpoint_faults LIBS levin_io_faults FILES
  checkpoint/checkpoint_faults_test.cpp)

# Files from and for other programs: Python's safetensors package (./dev setup installs it; skipped without) and PyTorch.
levin_test(weights TORCH FILES
  checkpoint/convert_checkpoint_test.cpp
  checkpoint/python_safetensors_test.cpp
  checkpoint/weights_test.cpp)
target_compile_definitions(weights_test PRIVATE LEVIN_PYTHON="${Python3_EXECUTABLE}"
  LEVIN_PYTHON_PACKAGES="${_levin_home}/python")

levin_test(checkpoint_writer TORCH LIBS levin_io_faults FILES
  checkpoint/checkpoint_writer_test.cpp)
