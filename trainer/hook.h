// The places of a run where user code is called, and what `log` may do in each. docs/hooks.md shows them in order.
#pragma once

#include <string>

namespace levin {

enum class Hook {
  none,  // outside a run
  configure_callbacks,
  prepare_data,
  setup,
  configure_model,
  adapt_model,
  configure_optimizers,
  teardown,
  on_fit_start,
  on_fit_end,
  on_sanity_check_start,
  on_sanity_check_end,
  on_train_start,
  on_train_end,
  on_train_epoch_start,
  on_train_epoch_end,
  on_train_batch_start,
  on_train_batch_end,
  training_step,
  on_before_zero_grad,
  on_before_backward,
  backward,
  on_after_backward,
  on_before_optimizer_step,
  configure_gradient_clipping,
  optimizer_step,
  lr_scheduler_step,
  on_validation_start,
  on_validation_end,
  on_validation_epoch_start,
  on_validation_epoch_end,
  on_validation_batch_start,
  on_validation_batch_end,
  validation_step,
  on_test_start,
  on_test_end,
  on_test_epoch_start,
  on_test_epoch_end,
  on_test_batch_start,
  on_test_batch_end,
  test_step,
  on_predict_start,
  on_predict_end,
  on_predict_epoch_start,
  on_predict_epoch_end,
  on_predict_batch_start,
  on_predict_batch_end,
  predict_step,
  dataloader,
  transfer,
  on_save_checkpoint,
  on_load_checkpoint,
  on_exception,
};

[[nodiscard]] const char* hook_name(Hook hook);

/// What `log` may do in a hook, and its defaults there.
struct LogRule {
  bool allowed = false;
  bool step_allowed = false;  // on_step: a value per batch
  bool default_on_step = false;
  bool default_on_epoch = false;
};

[[nodiscard]] LogRule log_rule(Hook hook);

}  // namespace levin
