// Weights in float32, forward passes under autocast: matrix products in bfloat16, sums and losses in float32.
#pragma once

#include <string>
#include <vector>

#include "levin/precision/precision.h"

namespace levin {

/// bf16-mixed. bfloat16 has float32's range, so no loss scaling is needed.
class MixedPrecision final : public Precision {
 public:
  explicit MixedPrecision(at::ScalarType dtype = at::kBFloat16) : dtype_(dtype) {}

  [[nodiscard]] std::string name() const override { return "bf16-mixed"; }
  void enter_forward(at::DeviceType device) override;
  void leave_forward(at::DeviceType device) override;

 private:
  struct Outer {
    bool enabled;
    at::ScalarType dtype;
  };

  at::ScalarType dtype_;
  std::vector<Outer> outer_ = {};  // autocast's settings before each nested scope
};

}  // namespace levin
