// One dtype for weights, inputs and arithmetic: 32-true, 64-true, bf16-true, 16-true.
#pragma once

#include <string>

#include "levin/precision/precision.h"

namespace levin {

/// 32-true: leaves weights and inputs in the module's types.
class SinglePrecision final : public Precision {
 public:
  [[nodiscard]] std::string name() const override { return "32-true"; }
};

/// One dtype for the module, its inputs and the tensors that a step creates (the default dtype). That default is the
/// process's, so forward passes run on one thread at a time.
class TruePrecision : public Precision {
 public:
  TruePrecision(std::string name, at::ScalarType dtype) : name_(std::move(name)), dtype_(dtype) {}

  [[nodiscard]] std::string name() const final { return name_; }
  [[nodiscard]] std::optional<at::ScalarType> dtype() const final { return dtype_; }
  [[nodiscard]] std::shared_ptr<void> enter_forward(at::DeviceType device) final;

 private:
  std::string name_;
  at::ScalarType dtype_;
};

/// 64-true: everything in float64.
class DoublePrecision final : public TruePrecision {
 public:
  DoublePrecision() : TruePrecision("64-true", at::kDouble) {}
};

/// bf16-true: everything in bfloat16, which has float32's range and 8 bits of precision.
class Bfloat16Precision final : public TruePrecision {
 public:
  Bfloat16Precision() : TruePrecision("bf16-true", at::kBFloat16) {}
};

/// 16-true: everything in float16. Numbers below 6e-8 vanish, and numbers above 65504 are inf.
class HalfPrecision final : public TruePrecision {
 public:
  HalfPrecision() : TruePrecision("16-true", at::kHalf) {}
};

}  // namespace levin
