# Compared with Python's safetensors package too (./dev setup installs it; skipped without).
levin_test(checkpoint TORCH FILES
  checkpoint/checkpoint_damage_test.cpp
  checkpoint/checkpoint_file_test.cpp
  checkpoint/convert_checkpoint_test.cpp
  checkpoint/forged_shards_test.cpp
  checkpoint/header_cost_test.cpp
  checkpoint/python_safetensors_test.cpp
  checkpoint/safetensors_test.cpp
  checkpoint/sharded_checkpoint_test.cpp
  checkpoint/values_json_test.cpp
  checkpoint/weights_test.cpp)
target_link_libraries(checkpoint_test PRIVATE PkgConfig::xxhash)
target_compile_definitions(checkpoint_test PRIVATE LEVIN_PYTHON="${Python3_EXECUTABLE}"
  LEVIN_PYTHON_PACKAGES="${_levin_home}/python")
