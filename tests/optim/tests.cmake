levin_test(optim TORCH FILES
  optim/adafactor_test.cpp
  optim/clip_grad_test.cpp
  optim/lr_scheduler_test.cpp
  optim/optimizer_reference_test.cpp
  optim/optimizer_state_test.cpp
  optim/optimizer_test.cpp
  optim/options_test.cpp
  optim/recipe_reference_test.cpp
  optim/recipes_test.cpp
  optim/recordable_test.cpp
  optim/scheduler_reference_test.cpp
  optim/swa_lr_test.cpp
  optim/tensor_pack_test.cpp
  optim/torch_optimizer_test.cpp)
