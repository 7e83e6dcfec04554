// The hooks of a run, where user code is called, and what `log` may do in each. docs/hooks.md shows them in order.
#pragma once

#include <cstddef>

namespace levin {

/// What `log` may do in a hook, and its defaults in that hook.
struct LogRule {
  bool allowed = false;
  bool step_allowed = false;  // on_step: a value per batch
  bool default_on_step = false;
  bool default_on_epoch = false;
};

/// The rules, by the name that the list of hooks uses.
namespace log_rules {
inline constexpr LogRule none;
inline constexpr LogRule train_batch{true, true, true, false};
inline constexpr LogRule eval_batch{true, true, false, true};
inline constexpr LogRule epoch{true, false, false, true};
}  // namespace log_rules

// The list of hooks with their rules, from which the enumeration, the names and the check of docs/hooks.md are made.
// clang-format off
#define LEVIN_HOOKS(X) \
  X(configure_callbacks, none) \
  X(prepare_data, none) \
  X(setup, none) \
  X(configure_model, none) \
  X(adapt_model, none) \
  X(configure_optimizers, none) \
  X(teardown, none) \
  X(on_fit_start, none) \
  X(on_fit_end, none) \
  X(on_sanity_check_start, none) \
  X(on_sanity_check_end, none) \
  X(on_train_start, epoch) \
  X(on_train_end, none) \
  X(on_train_epoch_start, epoch) \
  X(on_train_epoch_end, epoch) \
  X(on_train_batch_start, train_batch) \
  X(on_train_batch_end, train_batch) \
  X(training_step, train_batch) \
  X(on_before_zero_grad, train_batch) \
  X(on_before_backward, train_batch) \
  X(backward, train_batch) \
  X(on_after_backward, train_batch) \
  X(on_before_optimizer_step, train_batch) \
  X(configure_gradient_clipping, train_batch) \
  X(optimizer_step, train_batch) \
  X(lr_scheduler_step, train_batch) \
  X(on_validation_start, epoch) \
  X(on_validation_end, none) \
  X(on_validation_epoch_start, epoch) \
  X(on_validation_epoch_end, epoch) \
  X(on_validation_batch_start, eval_batch) \
  X(on_validation_batch_end, eval_batch) \
  X(validation_step, eval_batch) \
  X(on_test_start, epoch) \
  X(on_test_end, none) \
  X(on_test_epoch_start, epoch) \
  X(on_test_epoch_end, epoch) \
  X(on_test_batch_start, eval_batch) \
  X(on_test_batch_end, eval_batch) \
  X(test_step, eval_batch) \
  X(on_predict_start, none) \
  X(on_predict_end, none) \
  X(on_predict_epoch_start, none) \
  X(on_predict_epoch_end, none) \
  X(on_predict_batch_start, none) \
  X(on_predict_batch_end, none) \
  X(predict_step, none) \
  X(train_dataloader, none) \
  X(transfer_batch_to_device, none) \
  X(on_save_checkpoint, none) \
  X(on_load_checkpoint, none) \
  X(on_exception, none) \
  X(val_dataloader, none) \
  X(test_dataloader, none) \
  X(predict_dataloader, none) \
  X(on_before_batch_transfer, none) \
  X(on_after_batch_transfer, none) \
  X(change_batch, none) \
  X(optimizer_zero_grad, train_batch) \
  X(on_validation_model_zero_grad, none) \
  X(on_validation_model_eval, none) \
  X(on_validation_model_train, none) \
  X(on_test_model_eval, none) \
  X(on_test_model_train, none) \
  X(on_predict_model_eval, none) \
  X(on_predict_model_train, none) \
  X(weights_to_save, none) \
  X(state_dict, none) \
  X(load_state_dict, none)
// clang-format on

/// A hook, in which user code runs.
enum class Hook {
  none,  // outside a run
#define LEVIN_HOOK(name, rule) name,
  LEVIN_HOOKS(LEVIN_HOOK)
#undef LEVIN_HOOK
};

/// The number of enumerators of Hook.
inline constexpr int kHooks = 1
#define LEVIN_HOOK(name, rule) +1
    LEVIN_HOOKS(LEVIN_HOOK)
#undef LEVIN_HOOK
    ;

/// Returns the hook's name for messages.
[[nodiscard]] constexpr const char* hook_name(Hook hook) {
  constexpr const char* kNames[] = {"code outside a run",
#define LEVIN_HOOK(name, rule) #name,
                                    LEVIN_HOOKS(LEVIN_HOOK)
#undef LEVIN_HOOK
  };
  return kNames[static_cast<size_t>(hook)];
}

/// Returns what `log` may do in the hook.
[[nodiscard]] constexpr LogRule log_rule(Hook hook) {
  constexpr LogRule kRules[] = {log_rules::none,
#define LEVIN_HOOK(name, rule) log_rules::rule,
                                LEVIN_HOOKS(LEVIN_HOOK)
#undef LEVIN_HOOK
  };
  return kRules[static_cast<size_t>(hook)];
}

}  // namespace levin
