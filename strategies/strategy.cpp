#include "levin/strategies/strategy.h"

#include <functional>
#include <numeric>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/strategies/accelerator.h"
#include "levin/strategies/tape/step_tape.h"

namespace levin {

Strategy::Strategy() : parts_(std::make_shared<StrategyParts>()) {
  use(std::make_unique<DevicePlacement>());
  use(std::make_unique<RankCollectives>());
  use(std::make_unique<GradientSync>());
  use(std::make_unique<Sharding>());
}

template <class Part>
void Strategy::replace(std::shared_ptr<Part>& old, std::unique_ptr<Part> part) {
  if (part == nullptr) throw ConfigError("Strategy::use: the part is null. Pass an object.");
  part->parts_ = parts_.get();
  old = std::move(part);
}

void Strategy::use(std::unique_ptr<DevicePlacement> part) {
  replace(parts_->placement_, std::move(part));
}

void Strategy::use(std::unique_ptr<RankCollectives> part) {
  replace(parts_->ranks_, std::move(part));
}

void Strategy::use(std::unique_ptr<GradientSync> part) {
  replace(parts_->gradients_, std::move(part));
  use(std::make_unique<StrategyRecorder>());
}

void Strategy::use(std::unique_ptr<Sharding> part) {
  replace(parts_->sharding_, std::move(part));
}

void Strategy::use(std::unique_ptr<StrategyRecorder> part) {
  replace(parts_->recorder_, std::move(part));
}

void Strategy::tear_down() {
  recorder().tear_down();
  gradients().tear_down();
}

at::Tensor StrategyRecorder::backward_recorded(const at::Tensor& loss, bool sync, const at::Tensor& own) {
  parts().gradients().local().backward(loss);
  return sync ? own : at::Tensor();
}

std::shared_ptr<StepRecorder> DeviceStepRecorder::make_recorder() {
  parts().gradients().local().reuse_nothing();
  const at::Device device = parts().placement().device();
  if (!device.is_cpu()) return accelerator(device.type()).make_recorder(device);
  return std::make_shared<TapeRecorder>();
}

ShardRange ShardRange::flat(int64_t offset, int64_t size, std::vector<int64_t> shape) {
  const int64_t elements = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return {{offset}, {size}, {elements}, std::move(shape)};
}

int64_t ShardRange::numel() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

int64_t ShardRange::flat_offset() const {
  int64_t index = 0;
  for (size_t d = 0; d < view.size(); ++d) index = index * view[d] + offsets[d];
  return index;
}

at::Tensor ShardRange::of(const at::Tensor& full) const {
  at::Tensor range = full.reshape(view);
  for (size_t d = 0; d < view.size(); ++d) range = range.narrow(static_cast<int64_t>(d), offsets[d], sizes[d]);
  return range;
}

at::Tensor full_parameter(Sharding& sharding, const at::Tensor& parameter) {
  if (!sharding.shard_range(parameter)) return parameter.detach();
  return sharding.full_tensor_on_rank_zero(parameter, sharding.local_shard(parameter));
}

}  // namespace levin
