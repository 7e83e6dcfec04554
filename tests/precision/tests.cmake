levin_test(precision TORCH FILES
  precision/precision_test.cpp)
