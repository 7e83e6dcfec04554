levin_test(strategies FILES
  strategies/loss_gradient_test.cpp
  strategies/single_device_test.cpp)
