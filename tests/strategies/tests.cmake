levin_test(strategies FILES
  strategies/cluster_environment_test.cpp
  strategies/loss_gradient_test.cpp
  strategies/single_device_test.cpp)
