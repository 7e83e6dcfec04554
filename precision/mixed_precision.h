// Weights in float32, forward passes under autocast: matrix products in 16 bits, sums and losses in float32.
#pragma once

#include <optional>
#include <string>

#include "levin/core/options/fields.h"
#include "levin/precision/grad_scaler.h"
#include "levin/precision/precision.h"

namespace levin {

/// The 16-bit type of a mixed precision.
enum class MixedDtype { bfloat16, float16 };
template <>
struct EnumNames<MixedDtype> {
  static constexpr EnumName<MixedDtype> names[] = {{"bfloat16", MixedDtype::bfloat16},
                                                   {"float16", MixedDtype::float16}};
};

/// Options of MixedPrecision.
struct MixedPrecisionOptions {
  EnumOption<MixedDtype> dtype = MixedDtype::bfloat16;
  std::optional<GradScalerOptions> scaler = GradScalerOptions{};

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("dtype", &MixedPrecisionOptions::dtype, "bfloat16 (float32's range) or float16 (finer, but overflows)"),
        field("scaler", &MixedPrecisionOptions::scaler, "how the loss is scaled with float16; null: not at all"));
  }
};

/// bf16-mixed or 16-mixed. bfloat16 has float32's range, so its loss is never scaled. The constructor throws
/// ConfigError for invalid options.
class MixedPrecision : public Precision {
 public:
  using Options = MixedPrecisionOptions;

  explicit MixedPrecision(Defaults = {}) : MixedPrecision(MixedPrecisionOptions()) {}
  explicit MixedPrecision(MixedPrecisionOptions options);

  [[nodiscard]] std::string name() const final;
  [[nodiscard]] std::shared_ptr<void> enter_forward(at::DeviceType device) final;
  [[nodiscard]] GradScaler* scaler() final { return scaler_ ? &*scaler_ : nullptr; }
  [[nodiscard]] State state_dict() const final;
  /// State saved without a scaler leaves the initial scale.
  void load_state_dict(const State& saved) final;

 private:
  at::ScalarType dtype_;
  std::optional<GradScaler> scaler_;
};

/// bf16-mixed.
class Bfloat16Mixed final : public MixedPrecision {
 public:
  using Options = NoOptions;
  Bfloat16Mixed() : MixedPrecision({.dtype = MixedDtype::bfloat16}) {}
};

/// 16-mixed, on a GPU.
class Float16Mixed final : public MixedPrecision {
 public:
  using Options = NoOptions;
  Float16Mixed() : MixedPrecision({.dtype = MixedDtype::float16}) {}
};

}  // namespace levin
