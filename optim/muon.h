// Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/): the momentum of a matrix, made orthogonal by
// five Newton-Schulz iterations. Results match torch.optim.Muon. Vectors, tensors of other dimensions, and
// matrices that adamw_params names (embeddings, the last layer) are updated by AdamW in the same optimizer.
//
//   Muon optimizer(model.named_parameters().pairs(), {.lr = 0.02, .adamw_params = {"embedding.*"}, .adamw_lr = 3e-4});
//
// In a run file: optimizer: {class_path: Muon, init_args: {lr: 0.02, adamw_params: ["embedding.*"], adamw_lr: 3e-4}}
#pragma once

#include <array>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "levin/optim/batched_optimizer.h"
#include "levin/optim/named_tensors.h"

namespace levin {

/// How lr follows a matrix's shape (rows, columns).
enum class AdjustLr { original, match_rms_adamw };
template <>
struct EnumNames<AdjustLr> {
  static constexpr EnumName<AdjustLr> names[] = {{"original", AdjustLr::original},
                                                 {"match_rms_adamw", AdjustLr::match_rms_adamw}};
};

/// Options of Muon; up to adjust_lr_fn, names and defaults are torch.optim.Muon's.
struct MuonOptions {
  static constexpr const char* kName = "Muon";

  double lr = 1e-3;
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  std::array<double, 3> ns_coefficients = {3.4445, -4.7750, 2.0315};
  double eps = 1e-7;
  int64_t ns_steps = 5;
  EnumOption<AdjustLr> adjust_lr_fn = AdjustLr::original;
  std::vector<std::string> adamw_params = {};
  std::optional<double> adamw_lr = {};
  std::array<double, 2> adamw_betas = {0.9, 0.95};
  double adamw_eps = 1e-8;

  template <class = void>
  static auto fields() {
    using O = MuonOptions;
    return levin::fields(
        field("lr", &O::lr, "step size of matrices").min(0.0),
        field("weight_decay", &O::weight_decay, "fraction of every parameter that is subtracted, times its step size")
            .min(0.0),
        field("momentum", &O::momentum, "decay of the mean of a matrix's gradients").min(0.0),
        field("nesterov", &O::nesterov, "look ahead along the momentum"),
        field("ns_coefficients", &O::ns_coefficients, "of the Newton-Schulz iteration's polynomial"),
        field("eps", &O::eps, "smallest norm that a matrix is divided by").min(0.0),
        field("ns_steps", &O::ns_steps, "Newton-Schulz iterations").min(0).max(99),
        field("adjust_lr_fn", &O::adjust_lr_fn,
              "how lr follows a matrix's shape: original (the root of rows / columns, at least 1) or match_rms_adamw "
              "(0.2 times the root of the larger: then lr and weight_decay are AdamW's)"),
        field("adamw_params", &O::adamw_params,
              "matrices that AdamW updates: patterns of parameter names, as in a shell (\"embedding.*\")"),
        field("adamw_lr", &O::adamw_lr, "AdamW's step size; schedules and groups change both in proportion; null: lr")
            .check([](const auto& v) { return !v || *v >= 0; }, ">= 0"),
        field("adamw_betas", &O::adamw_betas, "AdamW's decay of the mean of gradients and of squared gradients")
            .check([](const auto& betas) { return detail::are_betas(betas); }, "two numbers in [0, 1)"),
        field("adamw_eps", &O::adamw_eps, "added to AdamW's denominator").min(0.0));
  }
};
extern template class OptimizerOf<MuonOptions>;

/// Muon for matrices, and AdamW for all other tensors. State: "momentum_buffer" of matrices; "exp_avg" and "exp_avg_sq"
/// of the others; "step". A group's momentum is Muon's. take_names() throws ConfigError for a pattern in adamw_params
/// that matches no parameter.
class Muon final : public OptimizerOf<MuonOptions>, public NamesParameters {
 public:
  using OptimizerOf::OptimizerOf;
  Muon() = default;
  /// Takes the names of `parameters`, and adds the parameters that require gradients as one group.
  Muon(const NamedTensors& parameters, MuonOptions options);

  [[nodiscard]] bool updates_whole_tensors() const override { return true; }
  void take_names(const NamedTensors& parameters) override;

 private:
  std::vector<std::string> state_names() const override { return {"momentum_buffer", "exp_avg", "exp_avg_sq"}; }
  /// 0: a matrix; 1: AdamW's. Throws Error if adamw_params is set and no names were given.
  size_t kind_of(const at::Tensor& param) const override;
  bool uses_state(size_t index, const Group& group, size_t kind) const override;
  bool has_step_tensor() const override { return true; }
  void update(Batch& batch, const Group& group) override;
  void update_matrices(Batch& batch, const Group& group) const;
  void update_by_adamw(Batch& batch, const Group& group) const;

  bool has_names_ = false;
  std::unordered_set<const c10::TensorImpl*> adamw_ = {};  // of the parameters that adamw_params names
};

namespace detail {
/// Returns the nearest matrix with orthogonal rows or columns, roughly: singular values end between 0.5 and 1.5.
/// Computed in bfloat16. `matrix`: (rows, columns); so is the result.
[[nodiscard]] at::Tensor orthogonalize(const at::Tensor& matrix, const std::array<double, 3>& coefficients,
                                       int64_t steps, double eps);
}  // namespace detail

}  // namespace levin
