// The optimizers that rank_program knows by a word.
#pragma once

#include <optional>
#include <string>

#include "levin/levin.h"

namespace levin::test {

inline std::optional<OptimizerConfig> named_optimizer(const LightningModule& module, const std::string& word) {
  const auto parameters = module.parameters();
  if (word == "adamw") return AdamW(parameters, {.lr = 0.01});
  if (word == "lamb") return LAMB(parameters, {.lr = 0.01});
  if (word == "lars") return LARS(parameters, {.lr = 0.1});
  if (word == "lbfgs") return LBFGS(parameters, {.lr = 0.1, .max_iter = 4});
  if (word == "lookahead") return Lookahead(AdamW(parameters, {.lr = 0.01}), {.k = 3});
  if (word == "muon") return Muon(parameters, {.lr = 0.02});
  if (word == "nadam") return NAdam(parameters, {.lr = 0.01});
  if (word == "rmsprop") return RMSprop(parameters, {.lr = 0.01});
  if (word == "sam") return SAM(SGD(parameters, {.lr = 0.1, .momentum = 0.9}), {.rho = 0.1});
  if (word == "schedule_free") return ScheduleFreeAdamW(parameters, {.lr = 0.01});
  if (word == "torch_adam") return torch::optim::Adam(parameters, torch::optim::AdamOptions(0.01));
  return std::nullopt;
}

}  // namespace levin::test
