levin_test(strategies FILES
  strategies/cluster_environment_test.cpp
  strategies/flat_unit_test.cpp
  strategies/init_method_test.cpp
  strategies/loss_gradient_test.cpp
  strategies/operator_watch_test.cpp
  strategies/own_address_test.cpp
  strategies/rank_difference_test.cpp
  strategies/single_device_test.cpp)
