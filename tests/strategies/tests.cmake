levin_test(strategies FILES
  strategies/single_device_test.cpp)
