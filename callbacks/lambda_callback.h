// A callback made of functions, for C++ only.
//
//   .callbacks = {levin::LambdaCallback({.on_train_epoch_end = [](levin::Trainer& trainer, levin::LightningModule&) { …
//   }})}
#pragma once

#include <functional>
#include <utility>

#include "levin/trainer/callback.h"

// The hooks of Callback in its order: X(name, parameters, arguments). Both classes below are made from this list.
// clang-format off
#define LEVIN_LAMBDA_HOOKS(X)                                                                                         \
  X(setup, (Trainer& a, LightningModule& b, Stage c), (a, b, c))                                                      \
  X(teardown, (Trainer& a, LightningModule& b, Stage c), (a, b, c))                                                   \
  X(on_fit_start, (Trainer& a, LightningModule& b), (a, b))                                                           \
  X(on_fit_end, (Trainer& a, LightningModule& b), (a, b))                                                             \
  X(on_sanity_check_start, (Trainer& a, LightningModule& b), (a, b))                                                  \
  X(on_sanity_check_end, (Trainer& a, LightningModule& b), (a, b))                                                    \
  X(on_train_start, (Trainer& a, LightningModule& b), (a, b))                                                         \
  X(on_train_end, (Trainer& a, LightningModule& b), (a, b))                                                           \
  X(on_train_epoch_start, (Trainer& a, LightningModule& b), (a, b))                                                   \
  X(on_train_epoch_end, (Trainer& a, LightningModule& b), (a, b))                                                     \
  X(on_train_batch_start, (Trainer& a, LightningModule& b, const Batch& c, int64_t d), (a, b, c, d))                  \
  X(on_train_batch_end, (Trainer& a, LightningModule& b, const at::Tensor& c, const Batch& d, int64_t e),             \
    (a, b, c, d, e))                                                                                                  \
  X(on_before_zero_grad, (Trainer& a, LightningModule& b, Optimizer& c), (a, b, c))                                   \
  X(on_before_backward, (Trainer& a, LightningModule& b, const at::Tensor& c), (a, b, c))                             \
  X(on_after_backward, (Trainer& a, LightningModule& b), (a, b))                                                      \
  X(on_before_optimizer_step, (Trainer& a, LightningModule& b, Optimizer& c), (a, b, c))                              \
  X(on_validation_start, (Trainer& a, LightningModule& b), (a, b))                                                    \
  X(on_validation_end, (Trainer& a, LightningModule& b), (a, b))                                                      \
  X(on_validation_epoch_start, (Trainer& a, LightningModule& b), (a, b))                                              \
  X(on_validation_epoch_end, (Trainer& a, LightningModule& b), (a, b))                                                \
  X(on_validation_batch_start, (Trainer& a, LightningModule& b, const Batch& c, int64_t d, int64_t e),                \
    (a, b, c, d, e))                                                                                                  \
  X(on_validation_batch_end, (Trainer& a, LightningModule& b, const Batch& c, int64_t d, int64_t e), (a, b, c, d, e)) \
  X(on_test_start, (Trainer& a, LightningModule& b), (a, b))                                                          \
  X(on_test_end, (Trainer& a, LightningModule& b), (a, b))                                                            \
  X(on_test_epoch_start, (Trainer& a, LightningModule& b), (a, b))                                                    \
  X(on_test_epoch_end, (Trainer& a, LightningModule& b), (a, b))                                                      \
  X(on_test_batch_start, (Trainer& a, LightningModule& b, const Batch& c, int64_t d, int64_t e), (a, b, c, d, e))     \
  X(on_test_batch_end, (Trainer& a, LightningModule& b, const Batch& c, int64_t d, int64_t e), (a, b, c, d, e))       \
  X(on_predict_start, (Trainer& a, LightningModule& b), (a, b))                                                       \
  X(on_predict_end, (Trainer& a, LightningModule& b), (a, b))                                                         \
  X(on_predict_epoch_start, (Trainer& a, LightningModule& b), (a, b))                                                 \
  X(on_predict_epoch_end, (Trainer& a, LightningModule& b), (a, b))                                                   \
  X(on_predict_batch_start, (Trainer& a, LightningModule& b, const Batch& c, int64_t d, int64_t e), (a, b, c, d, e))  \
  X(on_predict_batch_end,                                                                                             \
    (Trainer& a, LightningModule& b, const at::Tensor& c, const Batch& d, int64_t e, int64_t f), (a, b, c, d, e, f))  \
  X(on_exception, (Trainer& a, LightningModule& b, const std::exception& c), (a, b, c))                               \
  X(on_save_checkpoint, (Trainer& a, LightningModule& b, State& c), (a, b, c))                                        \
  X(on_load_checkpoint, (Trainer& a, LightningModule& b, const State& c), (a, b, c))
// clang-format on

namespace levin {

/// One std::function per hook of Callback, with the hook's name and parameters; unset functions do nothing.
struct LambdaHooks {
#define LEVIN_HOOK(name, parameters, arguments) std::function<void parameters> name = nullptr;
  LEVIN_LAMBDA_HOOKS(LEVIN_HOOK)
#undef LEVIN_HOOK
};

/// A callback that calls the given functions: on every rank, from the training thread, as Callback documents. What a
/// function throws ends the run.
class LambdaCallback final : public Callback {
 public:
  static constexpr bool kOptionsMayCopy = true;  // it has no state of its own

  explicit LambdaCallback(LambdaHooks hooks) : hooks_(std::move(hooks)) {}

#define LEVIN_HOOK(name, parameters, arguments) \
  void name parameters override {               \
    if (hooks_.name) hooks_.name arguments;     \
  }
  LEVIN_LAMBDA_HOOKS(LEVIN_HOOK)
#undef LEVIN_HOOK

 private:
  LambdaHooks hooks_;
};

}  // namespace levin

#undef LEVIN_LAMBDA_HOOKS
