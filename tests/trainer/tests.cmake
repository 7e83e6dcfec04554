levin_test(checkpoint_file TORCH FILES
  trainer/checkpoint_file_test.cpp
  trainer/safetensors_test.cpp)
target_link_libraries(checkpoint_file_test PRIVATE PkgConfig::xxhash)

levin_test(checkpoint_damage TORCH FILES
  trainer/checkpoint_damage_test.cpp)

levin_test(checkpoint_faults LIBS levin_io_faults FILES
  trainer/checkpoint_faults_test.cpp)

levin_test(run_plan FILES
  trainer/metrics_test.cpp
  trainer/run_plan_test.cpp
  trainer/values_json_test.cpp)

# Files from and for other programs: Python's safetensors package (./dev setup installs it; skipped without) and PyTorch.
levin_test(weights TORCH FILES
  trainer/convert_checkpoint_test.cpp
  trainer/python_safetensors_test.cpp
  trainer/weights_test.cpp)
target_compile_definitions(weights_test PRIVATE LEVIN_PYTHON="${Python3_EXECUTABLE}"
  LEVIN_PYTHON_PACKAGES="${_levin_home}/python")

levin_test(trainer TORCH FILES
  trainer/fit_test.cpp
  trainer/mixed_precision_test.cpp
  trainer/nonfinite_loss_test.cpp
  trainer/optimization_test.cpp
  trainer/param_groups_test.cpp
  trainer/trainer_test.cpp)

levin_test(resume TORCH FILES
  trainer/resume_test.cpp)

levin_test(checkpoint_writer TORCH LIBS levin_io_faults FILES
  trainer/checkpoint_writer_test.cpp)
