// One dtype for weights, inputs and arithmetic: 32-true, 64-true, bf16-true.
#pragma once

#include <string>

#include "levin/precision/precision.h"

namespace levin {

/// 32-true: leaves everything as the module made it.
class SinglePrecision final : public Precision {
 public:
  [[nodiscard]] std::string name() const override { return "32-true"; }
};

/// 64-true and bf16-true: converts module and inputs; tensors made inside a step get the same default dtype.
class TruePrecision final : public Precision {
 public:
  TruePrecision(std::string name, at::ScalarType dtype) : name_(std::move(name)), dtype_(dtype) {}

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::optional<at::ScalarType> dtype() const override { return dtype_; }
  void enter_forward(at::DeviceType device) override;
  void leave_forward(at::DeviceType device) override;

 private:
  std::string name_;
  at::ScalarType dtype_;
  int depth_ = 0;
  at::ScalarType outer_dtype_ = at::kFloat;
};

}  // namespace levin
