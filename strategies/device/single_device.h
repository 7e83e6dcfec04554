// One process on one device.
#pragma once

#include <string>

#include "levin/strategies/strategy.h"

namespace levin {

class SingleDeviceStrategy final : public Strategy {
 public:
  explicit SingleDeviceStrategy(at::Device device = at::kCPU) : device_(device) {}

  [[nodiscard]] std::string name() const override { return "single_device"; }
  [[nodiscard]] at::Device device() const override { return device_; }
  void use_device(at::Device device) override { device_ = device; }
  [[nodiscard]] std::shared_ptr<DeviceCopier> make_copier() override;
  [[nodiscard]] std::shared_ptr<StepRecorder> make_recorder() override;
  [[nodiscard]] int64_t rank() const override { return 0; }
  [[nodiscard]] int64_t world_size() const override { return 1; }
  [[nodiscard]] RankNotes backward(const at::Tensor& loss, bool sync, const RankNotes& own) override;
  [[nodiscard]] at::Tensor reduce(const at::Tensor& value, ReduceOp op) override;
  [[nodiscard]] bool any(bool value) override { return value; }
  void barrier() override {}

 private:
  at::Device device_;
};

}  // namespace levin
