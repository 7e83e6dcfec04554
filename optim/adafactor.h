// Adafactor (Shazeer, Stern 2018, https://arxiv.org/abs/1804.04235): for a matrix, the mean of squared gradients is
// kept as one factor per row and one per column, so that the state is far smaller than the weights. Results match
// torch.optim.Adafactor.
//
//   Adafactor optimizer(model.parameters(), {.lr = 0.01});
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/optim/optimizer.h"

namespace levin {

/// Options of Adafactor; names and defaults are torch.optim.Adafactor's.
struct AdafactorOptions {
  double lr = 1e-2;
  double beta2_decay = -0.8;
  std::array<std::optional<double>, 2> eps = {std::nullopt, 1e-3};
  double d = 1;
  double weight_decay = 0;
  bool maximize = false;

  template <class = void>
  static auto fields() {
    using O = AdafactorOptions;
    return levin::fields(
        field("lr", &O::lr, "largest step relative to the root mean square of the parameter").min(0.0),
        field("beta2_decay", &O::beta2_decay, "weight of a step's squared gradients in their mean: step ^ beta2_decay")
            .max(0.0),
        field("eps", &O::eps,
              "smallest denominator (null: the machine epsilon of the parameter's type), and the smallest root mean "
              "square "
              "of a parameter that its step is scaled by")
            .check([](const auto& eps) { return (!eps[0] || *eps[0] >= 0) && eps[1] && *eps[1] >= 0; },
                   "two numbers >= 0, the first one or null"),
        field("d", &O::d, "largest root mean square of an update before its step size; larger ones are scaled")
            .min(1.0),
        field("weight_decay", &O::weight_decay, "fraction of the parameter that is subtracted, times lr").min(0.0),
        field("maximize", &O::maximize, "climb instead of descend"));
  }
};

/// Adafactor, as in torch.optim.Adafactor. State: "step"; "row_var" (…, rows, 1) and "col_var" (…, 1, columns) of
/// tensors with two dimensions or more, where the last two are factored; "variance" of the others. Works with sharded
/// parameters: each step then sums the squares of rows, columns and tensors over the ranks, twice for all parameters
/// together, so every rank calls step(); every rank that has a part of a parameter keeps all of its factors. step()
/// throws Error for a sparse gradient.
class Adafactor final : public Optimizer {
 public:
  using Options = AdafactorOptions;

  /// Groups are added later. Throws ConfigError for invalid options.
  explicit Adafactor(AdafactorOptions options = {});
  explicit Adafactor(std::vector<at::Tensor> params, AdafactorOptions options = {}) : Adafactor(options) {
    add_param_group({.params = std::move(params)});
  }
  explicit Adafactor(std::vector<ParamGroup> groups, AdafactorOptions options = {}) : Adafactor(options) {
    for (auto& group : groups) add_param_group(std::move(group));
  }

  [[nodiscard]] std::string name() const override { return "Adafactor"; }
  [[nodiscard]] ConfigNode written_options() const override;
  void use_shards(std::shared_ptr<const ParameterShards> shards) override { shards_ = std::move(shards); }
  [[nodiscard]] StateLayout layout(const std::string& name) const override;
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;

 private:
  // A parameter's state; the tensors are undefined before its first update.
  struct Slot {
    int64_t step = 0;
    at::Tensor row_var = {};
    at::Tensor col_var = {};
    at::Tensor variance = {};
  };
  struct Work;

  at::Tensor do_step(const Closure* closure) override;
  void group_added() override { slots_.resize(parameters().size()); }
  [[nodiscard]] Work work_on(const at::Tensor& param) const;
  [[nodiscard]] at::Tensor squares(const Work& work) const;
  [[nodiscard]] at::Tensor update_of(const Work& work, Slot& slot, const at::Tensor& sums) const;
  [[nodiscard]] std::vector<at::Tensor> summed(const std::vector<Work>& works, std::vector<at::Tensor> sums) const;

  AdafactorOptions options_;
  std::vector<Slot> slots_ = {};  // one per parameter, numbered through all groups
  std::shared_ptr<const ParameterShards> shards_ = nullptr;
};

}  // namespace levin
