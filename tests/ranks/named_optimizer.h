// The optimizers that rank_program knows by name, and one as a user writes it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/levin.h"

namespace levin::test {

/// Momentum SGD whose steps shrink by a number per parameter, its state "k".
class ShrinkingSGD final : public Optimizer {
 public:
  ShrinkingSGD(std::vector<at::Tensor> params, bool declares_layout)
      : Optimizer({.lr = 0.1, .has_weight_decay = false}), declares_layout_(declares_layout) {
    add_param_group({.params = std::move(params)});
  }

  [[nodiscard]] std::string name() const override { return "ShrinkingSGD"; }
  [[nodiscard]] StateLayout layout(const std::string& name) const override {
    return declares_layout_ && name == "k" ? StateLayout::scalar : Optimizer::layout(name);
  }
  [[nodiscard]] State state_dict() const override {
    State state;
    save_groups(state);
    for (size_t i = 0; i < momenta_.size(); ++i) {
      if (!momenta_[i].defined()) continue;
      state.tensors[std::to_string(i) + ".momentum"] = momenta_[i];
      state.tensors[std::to_string(i) + ".k"] = k_[i];
    }
    return state;
  }
  void load_state_dict(const State& saved) override {
    auto groups = saved_groups(saved);
    check_state_keys(saved, {"momentum", "k"});
    std::vector<at::Tensor> momenta(momenta_.size()), k(k_.size());
    const auto params = parameters();
    for (size_t i = 0; i < params.size(); ++i) {
      const std::string prefix = std::to_string(i) + ".";
      if (!saved.tensors.contains(prefix + "k")) continue;
      momenta[i] =
          torch::empty_like(params[i].detach()).copy_(saved_tensor(saved, prefix + "momentum", params[i].sizes()));
      k[i] = saved_tensor(saved, prefix + "k", {}).clone();
    }
    momenta_ = std::move(momenta);
    k_ = std::move(k);
    groups_ = std::move(groups);
  }

 private:
  at::Tensor do_step(const Closure* closure) override {
    const at::Tensor loss = closure != nullptr ? (*closure)() : at::Tensor();
    const torch::NoGradGuard no_grad;
    const auto params = parameters();
    for (size_t i = 0; i < params.size(); ++i) {
      if (!params[i].grad().defined()) continue;
      if (!momenta_[i].defined()) {
        momenta_[i] = torch::zeros_like(params[i]);
        k_[i] = torch::ones({}, torch::kDouble);
      }
      momenta_[i].mul_(0.9).add_(params[i].grad());
      params[i].sub_(momenta_[i] * (groups_[0].lr * k_[i].item<double>()));
      k_[i].mul_(0.97);
    }
    return loss;
  }
  void group_added() override {
    momenta_.resize(parameters().size());
    k_.resize(parameters().size());
  }

  bool declares_layout_;
  std::vector<at::Tensor> momenta_, k_;  // one per parameter; undefined before its first update
};

inline std::optional<OptimizerConfig> named_optimizer(const LightningModule& module, const std::string& word) {
  const auto parameters = module.parameters();
  if (word == "adafactor") return Adafactor(parameters, {.lr = 0.05, .weight_decay = 0.01});
  if (word == "adamw") return AdamW(parameters, {.lr = 0.01});
  if (word == "lamb") return LAMB(parameters, {.lr = 0.01});
  if (word == "lars") return LARS(parameters, {.lr = 0.1});
  if (word == "lbfgs") return LBFGS(parameters, {.lr = 0.1, .max_iter = 4});
  if (word == "lookahead") return Lookahead(AdamW(parameters, {.lr = 0.01}), {.k = 3});
  if (word == "lookahead_adafactor") return Lookahead(Adafactor(parameters, {.lr = 0.05}), {.k = 3});
  if (word == "muon") return Muon(parameters, {.lr = 0.02});
  if (word == "nadam") return NAdam(parameters, {.lr = 0.01});
  if (word == "rmsprop") return RMSprop(parameters, {.lr = 0.01});
  if (word == "sam") return SAM(SGD(parameters, {.lr = 0.1, .momentum = 0.9}), {.rho = 0.1});
  if (word == "schedule_free") return ScheduleFreeAdamW(parameters, {.lr = 0.01});
  if (word == "shrinking") return ShrinkingSGD(parameters, /*declares_layout=*/true);
  if (word == "undeclared") return ShrinkingSGD(parameters, /*declares_layout=*/false);
  if (word == "torch_adam") return torch::optim::Adam(parameters, torch::optim::AdamOptions(0.01));
  return std::nullopt;
}

}  // namespace levin::test
