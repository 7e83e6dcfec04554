// A loss that is not finite, which the host of a device learns of one window later: nothing is updated with it, and
// nothing is kept that counts it.
#include <gtest/gtest.h>

#include <cmath>

#include "device/on_test_device.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/trainer/nonfinite_loss_error.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"

namespace levin::device_late_check_test {
namespace {

using namespace test;

constexpr int64_t kBatches = 12;

// device_data's numbers; batch `bad` has a sample of nan, or of 0, where the root in the loss has a gradient of 0 / 0.
std::shared_ptr<TensorLoader> data_with(int64_t bad, bool of_gradient = false) {
  Batch all;
  const auto whole = device_data(kBatches * 8, kBatches * 8);
  whole->start(0, 0);
  whole->next(all);
  at::Tensor inputs = all[0].clone();
  if (bad >= 0) inputs[bad * 8].fill_(of_gradient ? 0 : NAN);
  return std::make_shared<TensorLoader>(std::vector<at::Tensor>{inputs, all[1]}, 8);
}

struct Validates : DeviceNet {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    const at::Tensor loss = DeviceNet::training_step(batch, batch_idx);
    if (!has_root) return loss;
    return loss + (batch[0].square().flatten(1).sum(1) * (1 + last->bias.square().sum())).sqrt().mean();
  }
  void validation_step(const Batch&, int64_t) override { ++validated; }
  bool has_root = false;
  int64_t validated = 0;
};

struct Outcome {
  std::string error = {};
  std::vector<at::Tensor> weights = {};
  int64_t validated = 0;
};

struct Wanted {
  int64_t bad = -1;
  bool recorded = false;
  int64_t accumulate = 1;
  std::function<void(TrainerOptions&)> options = nullptr;
  bool has_root = false;  // a batch that is bad has a gradient of nan, and a finite loss
};

Outcome fit(const Wanted& wanted) {
  Validates module;
  module.has_root = wanted.has_root;
  TrainerOptions options = on_test_device(1);
  options.record_steps = wanted.recorded;
  options.accumulate_grad_batches = wanted.accumulate;
  options.num_sanity_val_steps = 0;
  if (wanted.options) wanted.options(options);
  Outcome result;
  seed_everything(3);
  Trainer trainer(options);
  result.error = error_of<NonFiniteLossError>(
      [&] { trainer.fit(module, data_with(wanted.bad, wanted.has_root), device_data(16)); });
  for (const auto& parameter : module.parameters()) result.weights.push_back(parameter.detach().cpu());
  result.validated = module.validated;
  return result;
}

void expect_equal(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  for (size_t i = 0; i < some.size(); ++i) EXPECT_TRUE(torch::equal(some[i], others[i])) << "tensor " << i;
}

TEST(DeviceLateCheck, names_the_batch_and_leaves_the_weights_before_it) {
  for (const bool recorded : {false, true}) {
    SCOPED_TRACE(recorded);
    reset_device_counts();
    const Outcome outcome = fit({.bad = 7, .recorded = recorded});
    EXPECT_EQ(device_counts().replayed, recorded ? 6 : 0) << "batches 3 to 8: the last before the loss of 7 was read";
    EXPECT_TRUE(
        holds(outcome.error, {"the loss is nan in epoch 0, batch 7, global step 7", "Nothing was updated with it"}));
    const Outcome before = fit({.recorded = recorded, .options = [](TrainerOptions& o) { o.max_steps = 7; }});
    EXPECT_EQ(before.error, "");
    expect_equal(outcome.weights, before.weights);
  }
}

TEST(DeviceLateCheck, names_the_batches_of_a_window) {
  for (const bool recorded : {false, true}) {
    SCOPED_TRACE(recorded);
    const Outcome outcome = fit({.bad = 8, .recorded = recorded, .accumulate = 2});
    EXPECT_TRUE(holds(outcome.error, {"nan in epoch 0, one of batches 8 to 9, global step 4"}));
    const Outcome before =
        fit({.recorded = recorded, .accumulate = 2, .options = [](TrainerOptions& o) { o.max_steps = 4; }});
    expect_equal(outcome.weights, before.weights);
  }
}

TEST(DeviceLateCheck, is_finished_at_the_end_of_the_epoch) {
  const Outcome outcome = fit({.bad = kBatches - 1});
  EXPECT_TRUE(holds(outcome.error, {"nan in epoch 0, batch 11, global step 11"}));
  EXPECT_EQ(outcome.validated, 0);
}

TEST(DeviceLateCheck, is_finished_before_a_validation) {
  const Outcome outcome = fit({.bad = 5, .options = [](TrainerOptions& o) { o.val_check_interval = 0.5; }});
  EXPECT_TRUE(holds(outcome.error, {"nan in epoch 0, batch 5"}));
  EXPECT_EQ(outcome.validated, 0);
}

TEST(DeviceLateCheck, is_finished_before_a_checkpoint) {
  const TemporaryFolder folder;
  const Outcome outcome = fit(
      {.bad = 7, .options = [&](TrainerOptions& o) {
         o.enable_checkpointing = true;
         o.callbacks.push_back(ModelCheckpoint({.dirpath = folder.path(), .save_top_k = -1, .every_n_train_steps = 4}));
       }});
  EXPECT_TRUE(holds(outcome.error, {"nan in epoch 0, batch 7"}));
  EXPECT_EQ(folder.names(), std::vector<std::string>{"epoch=0-step=4.ckpt"}) << "and none of step 8";
}

TEST(DeviceLateCheck, names_the_batch_of_a_gradient_that_is_not_finite) {
  for (const char* precision : {"32-true", "bf16-mixed", "bf16-true"}) {
    for (const bool recorded : {false, true}) {
      for (const int64_t accumulate : {1, 2}) {
        SCOPED_TRACE(std::string(precision) + (recorded ? ", recorded" : "") +
                     (accumulate == 2 ? ", accumulated" : ""));
        Wanted wanted{.bad = 8, .recorded = recorded, .accumulate = accumulate, .has_root = true};
        wanted.options = [&](TrainerOptions& o) {
          o.precision = precision;
          o.gradient_clip_val = 0.5;
        };
        const Outcome outcome = fit(wanted);
        EXPECT_TRUE(holds(outcome.error, {"backward: a gradient is nan or inf in epoch 0",
                                          accumulate == 1 ? "batch 8, global step 8" : "batches 8 to 9, global step 4",
                                          "although the loss is finite", "Nothing was updated with it"}));
        wanted.bad = -1;
        wanted.options = [&](TrainerOptions& o) {
          o.precision = precision;
          o.gradient_clip_val = 0.5;
          o.max_steps = 8 / accumulate;
        };
        expect_equal(outcome.weights, fit(wanted).weights);
      }
    }
  }
  EXPECT_TRUE(has(fit({.bad = kBatches - 1, .has_root = true}).error, "batch 11, global step 11"));
}

// The host of `skip` knows of it before the next window.
TEST(DeviceLateCheck, skips_a_gradient_that_is_not_finite) {
  for (const bool recorded : {false, true}) {
    Wanted wanted{.bad = 7, .recorded = recorded, .has_root = true};
    wanted.options = [](TrainerOptions& o) { o.nonfinite_loss = NonFiniteLoss::skip; };
    const CapturedConsole console;
    const Outcome outcome = fit(wanted);
    EXPECT_EQ(outcome.error, "");
    EXPECT_TRUE(console.has("is nan in epoch 0, batch 7, global step 7, although the loss is finite. Its update is"))
        << console.text();
    for (const at::Tensor& weight : outcome.weights) EXPECT_TRUE(weight.isfinite().all().item<bool>());
  }
}

// Returns the device's operators in one of many steps; copies are not counted.
int64_t operators_a_step(NonFiniteLoss policy) {
  const auto operators = [&](int64_t steps) {
    reset_device_counts();
    EXPECT_EQ(fit({.options =
                       [&](TrainerOptions& o) {
                         o.nonfinite_loss = policy;
                         o.max_steps = steps;
                       }})
                  .error,
              "");
    return device_counts().operators;
  };
  return (operators(12) - operators(4)) / 8;
}

// One of them judges all gradients.
TEST(DeviceLateCheck, costs_four_operators_a_step) {
  EXPECT_EQ(operators_a_step(NonFiniteLoss::stop), operators_a_step(NonFiniteLoss::ignore) + 4);
}

// The check reads the module's own loss, and accumulates the losses of a window in a separate tensor.
TEST(DeviceLateCheck, leaves_the_loss_of_the_module_as_it_is) {
  struct Keeps : Validates {
    void on_train_batch_end(const at::Tensor& outputs, const Batch&, int64_t) override { losses.push_back(outputs); }
    std::vector<at::Tensor> losses;
  };
  std::vector<std::vector<at::Tensor>> losses;
  for (const int64_t accumulate : {1, 3}) {
    for (const NonFiniteLoss policy : {NonFiniteLoss::ignore, NonFiniteLoss::stop}) {
      Keeps module;
      TrainerOptions options = on_test_device(1);
      options.accumulate_grad_batches = accumulate;
      options.nonfinite_loss = policy;
      Trainer(options).fit(module, data_with(-1));
      ASSERT_EQ(std::ssize(module.losses), kBatches);
      losses.push_back(std::move(module.losses));
    }
    const size_t last = losses.size() - 1;
    for (size_t b = 0; b < losses[last].size(); ++b) {
      EXPECT_TRUE(torch::equal(losses[last - 1][b].cpu(), losses[last][b].cpu())) << accumulate << ", batch " << b;
    }
  }
}

TEST(DeviceLateCheck, works_without_streams) {
  set_device_streams(false);
  const Outcome outcome = fit({.bad = 7});
  set_device_streams(true);
  EXPECT_TRUE(holds(outcome.error, {"nan in epoch 0, batch 7, global step 7"}));
}

}  // namespace
}  // namespace levin::device_late_check_test
