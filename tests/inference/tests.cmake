levin_test(inference TORCH FILES
  inference/default_dtype_turn_test.cpp
  inference/inference_errors_test.cpp
  inference/inference_model_test.cpp
  inference/json_tensor_test.cpp
  inference/load_for_inference_test.cpp
  inference/lora_inference_test.cpp
  inference/sharded_inference_test.cpp)
