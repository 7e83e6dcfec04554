levin_test(precision TORCH FILES
  precision/autocast_test.cpp
  precision/grad_scaler_test.cpp
  precision/nonfinite_test.cpp
  precision/precision_test.cpp)
