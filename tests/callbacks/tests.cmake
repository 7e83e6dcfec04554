levin_test(callbacks TORCH FILES
  callbacks/checkpoint_owner_test.cpp
  callbacks/checkpoint_of_end_test.cpp
  callbacks/device_stats_monitor_test.cpp
  callbacks/early_stopping_test.cpp
  callbacks/finetuning_test.cpp
  callbacks/forged_checkpoint_test.cpp
  callbacks/model_checkpoint_test.cpp
  callbacks/monitored_checkpoints_test.cpp
  callbacks/on_exception_checkpoint_test.cpp
  callbacks/other_callbacks_test.cpp
  callbacks/prediction_writer_test.cpp
  callbacks/progress_bar_test.cpp
  callbacks/save_point_test.cpp
  callbacks/spike_detection_test.cpp
  callbacks/stochastic_weight_averaging_test.cpp
  callbacks/throughput_monitor_test.cpp
  callbacks/weight_averaging_test.cpp)
target_link_libraries(callbacks_test PRIVATE util)
add_dependencies(callbacks_test levin_stand_in_nvidia)
