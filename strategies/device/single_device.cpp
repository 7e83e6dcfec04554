#include "levin/strategies/device/single_device.h"

#include "levin/strategies/accelerator.h"
#include "levin/strategies/tape/tape_recorder.h"

namespace levin {

std::shared_ptr<DeviceCopier> SingleDeviceStrategy::make_copier() {
  return device_.is_cpu() ? nullptr : accelerator(device_.type()).make_copier(device_);
}

std::shared_ptr<StepRecorder> SingleDeviceStrategy::make_recorder() {
  gradient_.reuse_nothing();
  if (!device_.is_cpu()) return accelerator(device_.type()).make_recorder(device_);
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
