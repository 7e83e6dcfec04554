#include "levin/optim/adamw.h"

namespace levin {

namespace {

AdamOptions as_adam(const AdamWOptions& options) {
  return {.lr = options.lr,
          .betas = options.betas,
          .eps = options.eps,
          .weight_decay = options.weight_decay,
          .amsgrad = options.amsgrad,
          .maximize = options.maximize,
          .decoupled_weight_decay = true};
}

}  // namespace

AdamW::AdamW(AdamWOptions options) : AdamBase(as_adam(checked(options, "AdamWOptions"))) {}

}  // namespace levin
