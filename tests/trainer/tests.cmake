levin_test(checkpoint_file TORCH FILES
  trainer/checkpoint_file_test.cpp)
target_link_libraries(checkpoint_file_test PRIVATE PkgConfig::xxhash)

levin_test(checkpoint_damage TORCH FILES
  trainer/checkpoint_damage_test.cpp)

levin_test(checkpoint_faults LIBS levin_io_faults FILES
  trainer/checkpoint_faults_test.cpp)

levin_test(run_plan FILES
  trainer/metrics_test.cpp
  trainer/run_plan_test.cpp
  trainer/values_json_test.cpp)

levin_test(trainer TORCH FILES
  trainer/fit_test.cpp
  trainer/optimization_test.cpp
  trainer/trainer_test.cpp)
