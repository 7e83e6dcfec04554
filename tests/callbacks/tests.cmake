levin_test(callbacks TORCH FILES
  callbacks/early_stopping_test.cpp
  callbacks/finetuning_test.cpp
  callbacks/model_checkpoint_test.cpp
  callbacks/on_exception_checkpoint_test.cpp
  callbacks/other_callbacks_test.cpp
  callbacks/progress_bar_test.cpp
  callbacks/spike_detection_test.cpp
  callbacks/stochastic_weight_averaging_test.cpp
  callbacks/weight_averaging_test.cpp)
target_link_libraries(callbacks_test PRIVATE util)
