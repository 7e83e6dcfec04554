#include "levin/strategies/single_device.h"

namespace levin {

void SingleDeviceStrategy::backward(const at::Tensor& loss, bool /*sync*/) {
  gradient_.backward(loss);
}

at::Tensor SingleDeviceStrategy::reduce(const at::Tensor& value, ReduceOp /*op*/) {
  return value;
}

}  // namespace levin
