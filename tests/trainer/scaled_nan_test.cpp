// Losses that are not finite with 16-mixed: they do not concern the loss scaler.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/optim/lbfgs.h"
#include "levin/optim/reduce_lr_on_plateau.h"
#include "levin/optim/step_schedulers.h"
#include "levin/precision/mixed_precision.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/step/window_verdict.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"
#include "trainer/overflowing.h"

namespace levin::scaled_nan_test {
namespace {

using namespace test;

struct Poisoned : Overflowing {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    const at::Tensor loss = Overflowing::training_step(batch, batch_idx);
    return batch_idx == bad ? loss * NAN : loss;
  }
  int64_t bad = 2;
};

TEST(MixedPrecision16, ALossOfNanIsNotTheScalersBusiness) {
  Poisoned module;
  TrainerOptions options = with(float16());
  {
    Trainer trainer(options);
    const std::string error = error_of([&] { trainer.fit(module, tiny_loader(24)); });
    EXPECT_TRUE(has(error, "the loss is nan in epoch 0, batch 2, global step 2")) << error;
    EXPECT_EQ(scale_of(trainer), 1024);
    EXPECT_EQ(trainer.skipped_steps(), 0);
    EXPECT_TRUE(module.layer->weight.isfinite().all().item<bool>());
  }
  const CapturedConsole console;
  options.precision = float16();
  options.nonfinite_loss = NonFiniteLoss::skip;
  Poisoned skipping;
  Trainer trainer(options);
  trainer.fit(skipping, tiny_loader(24));
  EXPECT_TRUE(console.has("Its update is skipped"));
  EXPECT_EQ(trainer.global_step(), 5);
  EXPECT_EQ(trainer.skipped_steps(), 0);
  EXPECT_EQ(scale_of(trainer), 1024);
  EXPECT_TRUE(skipping.layer->weight.isfinite().all().item<bool>());
}

TEST(MixedPrecision16, ALossOfNanInsideAWindowNamesItsBatches) {
  Poisoned module;
  module.bad = 4;
  TrainerOptions options = with(float16());
  options.accumulate_grad_batches = 3;
  const std::string error = error_of([&] { Trainer(options).fit(module, tiny_loader(24)); });
  EXPECT_TRUE(has(error, "the loss is nan in epoch 0, one of batches 3 to 5, global step 1")) << error;
  options.precision = float16();
  options.nonfinite_loss = NonFiniteLoss::skip;
  const CapturedConsole console;
  Poisoned skipping;
  skipping.bad = 1;
  Trainer trainer(options);
  trainer.fit(skipping, tiny_loader(24));
  EXPECT_EQ(trainer.global_step(), 1);
  EXPECT_EQ(trainer.skipped_steps(), 0);
}

TEST(MixedPrecision16, ALossOfNanRollsBack) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  Poisoned module;
  module.bad = 3;
  TrainerOptions options =
      with(float16(), 1, {ModelCheckpoint({.dirpath = folder.path(), .save_top_k = -1, .every_n_train_steps = 2})});
  options.enable_checkpointing = true;
  options.nonfinite_loss = NonFiniteLoss::rollback;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24));
  EXPECT_TRUE(console.has("epoch=0-step=2.ckpt") && console.has("batch 3")) << console.text();
  EXPECT_TRUE(module.layer->weight.isfinite().all().item<bool>());
  EXPECT_EQ(trainer.skipped_steps(), 0);
}

TEST(MixedPrecision16, AnIgnoredLossOfNanCountsAsAnOverflow) {
  Poisoned module;
  TrainerOptions options = with(float16());
  options.nonfinite_loss = NonFiniteLoss::ignore;
  const CapturedConsole console;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24));
  EXPECT_EQ(trainer.skipped_steps(), 1);
  EXPECT_EQ(scale_of(trainer), 512);
  EXPECT_TRUE(module.layer->weight.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace levin::scaled_nan_test
