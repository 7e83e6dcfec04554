#include "levin/trainer/hook.h"

namespace levin {

const char* hook_name(Hook hook) {
#define LEVIN_HOOK(name) \
  case Hook::name: return #name
  switch (hook) {
    case Hook::none:
      return "code outside a run";
      LEVIN_HOOK(configure_callbacks);
      LEVIN_HOOK(prepare_data);
      LEVIN_HOOK(setup);
      LEVIN_HOOK(configure_model);
      LEVIN_HOOK(adapt_model);
      LEVIN_HOOK(configure_optimizers);
      LEVIN_HOOK(teardown);
      LEVIN_HOOK(on_fit_start);
      LEVIN_HOOK(on_fit_end);
      LEVIN_HOOK(on_sanity_check_start);
      LEVIN_HOOK(on_sanity_check_end);
      LEVIN_HOOK(on_train_start);
      LEVIN_HOOK(on_train_end);
      LEVIN_HOOK(on_train_epoch_start);
      LEVIN_HOOK(on_train_epoch_end);
      LEVIN_HOOK(on_train_batch_start);
      LEVIN_HOOK(on_train_batch_end);
      LEVIN_HOOK(training_step);
      LEVIN_HOOK(on_before_zero_grad);
      LEVIN_HOOK(on_before_backward);
      LEVIN_HOOK(backward);
      LEVIN_HOOK(on_after_backward);
      LEVIN_HOOK(on_before_optimizer_step);
      LEVIN_HOOK(configure_gradient_clipping);
      LEVIN_HOOK(optimizer_step);
      LEVIN_HOOK(lr_scheduler_step);
      LEVIN_HOOK(on_validation_start);
      LEVIN_HOOK(on_validation_end);
      LEVIN_HOOK(on_validation_epoch_start);
      LEVIN_HOOK(on_validation_epoch_end);
      LEVIN_HOOK(on_validation_batch_start);
      LEVIN_HOOK(on_validation_batch_end);
      LEVIN_HOOK(validation_step);
      LEVIN_HOOK(on_test_start);
      LEVIN_HOOK(on_test_end);
      LEVIN_HOOK(on_test_epoch_start);
      LEVIN_HOOK(on_test_epoch_end);
      LEVIN_HOOK(on_test_batch_start);
      LEVIN_HOOK(on_test_batch_end);
      LEVIN_HOOK(test_step);
      LEVIN_HOOK(on_predict_start);
      LEVIN_HOOK(on_predict_end);
      LEVIN_HOOK(on_predict_epoch_start);
      LEVIN_HOOK(on_predict_epoch_end);
      LEVIN_HOOK(on_predict_batch_start);
      LEVIN_HOOK(on_predict_batch_end);
      LEVIN_HOOK(predict_step);
      LEVIN_HOOK(dataloader);
      LEVIN_HOOK(transfer);
      LEVIN_HOOK(on_save_checkpoint);
      LEVIN_HOOK(on_load_checkpoint);
      LEVIN_HOOK(on_exception);
  }
#undef LEVIN_HOOK
  return "";
}

LogRule log_rule(Hook hook) {
  switch (hook) {
    case Hook::training_step:
    case Hook::on_train_batch_start:
    case Hook::on_train_batch_end:
    case Hook::on_before_zero_grad:
    case Hook::on_before_backward:
    case Hook::backward:
    case Hook::on_after_backward:
    case Hook::on_before_optimizer_step:
    case Hook::configure_gradient_clipping:
    case Hook::optimizer_step:
    case Hook::lr_scheduler_step: return {true, true, true, false};
    case Hook::validation_step:
    case Hook::on_validation_batch_start:
    case Hook::on_validation_batch_end:
    case Hook::test_step:
    case Hook::on_test_batch_start:
    case Hook::on_test_batch_end: return {true, true, false, true};
    case Hook::on_train_start:
    case Hook::on_train_epoch_start:
    case Hook::on_train_epoch_end:
    case Hook::on_validation_start:
    case Hook::on_validation_epoch_start:
    case Hook::on_validation_epoch_end:
    case Hook::on_test_start:
    case Hook::on_test_epoch_start:
    case Hook::on_test_epoch_end: return {true, false, false, true};
    default: return {};
  }
}

}  // namespace levin
