#include "levin/strategies/device/single_device.h"

#include "levin/core/gpu.h"

namespace levin {

std::shared_ptr<DeviceCopier> SingleDeviceStrategy::make_copier() {
  return device_.is_cuda() ? open_gpu().make_copier(device_) : nullptr;
}

std::shared_ptr<StepRecorder> SingleDeviceStrategy::make_recorder() {
  return device_.is_cuda() ? open_gpu().make_recorder(device_) : nullptr;
}

RankNotes SingleDeviceStrategy::backward(const at::Tensor& loss, bool sync, const RankNotes& own) {
  gradient_.backward(loss);
  return sync ? own : RankNotes();
}

at::Tensor SingleDeviceStrategy::reduce(const at::Tensor& value, ReduceOp /*op*/) {
  return value;
}

}  // namespace levin
