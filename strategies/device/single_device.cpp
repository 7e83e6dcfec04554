#include "levin/strategies/device/single_device.h"

#include "levin/core/gpu.h"
#include "levin/strategies/tape/tape_recorder.h"

namespace levin {

std::shared_ptr<DeviceCopier> SingleDeviceStrategy::make_copier() {
  return device_.is_cuda() ? open_gpu().make_copier(device_) : nullptr;
}

std::shared_ptr<StepRecorder> SingleDeviceStrategy::make_recorder() {
  if (device_.is_cuda()) return open_gpu().make_recorder(device_);
  if (!device_.is_cpu()) return nullptr;
  gradient_.reuse_nothing();
  return std::make_shared<TapeRecorder>();
}

RankNotes SingleDeviceStrategy::backward(const at::Tensor& loss, bool sync, const RankNotes& own) {
  gradient_.backward(loss);
  return sync ? own : RankNotes();
}

at::Tensor SingleDeviceStrategy::reduce(const at::Tensor& value, ReduceOp /*op*/) {
  return value;
}

}  // namespace levin
