// Metrics that accumulate by themselves, logged as one value: compared with counts.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "levin/callbacks/lambda_callback.h"
#include "support/error_text.h"
#include "trainer/metric_module.h"

namespace levin::metric_objects_test {
namespace {

using namespace metric_module;

TEST(MetricObjects, AreComputedOverTheSamplesOfAnEpochAndResetForTheNext) {
  const TemporaryFolder folder;
  Module module;
  std::vector<double> values;
  module.in_validation = [&](const Batch& batch) {
    module.val(batch[0], batch[1]);
    module.log("share", module.val);
  };
  TrainerOptions with = options(folder, 2);
  with.callbacks = {LambdaCallback({.on_validation_end = [&](Trainer& t, LightningModule&) {
    values.push_back(t.callback_metrics().at("share"));
  }})};
  Trainer trainer(std::move(with));
  trainer.fit(module, {tiny_loader(8)}, {tiny_loader(11, 4)});  // the last batch holds three
  ASSERT_EQ(values.size(), 3U);                                 // the sanity check sees the first two batches
  EXPECT_DOUBLE_EQ(values[0], share_of(0, 8));
  EXPECT_DOUBLE_EQ(values[1], share_of(0, 11));
  EXPECT_DOUBLE_EQ(values[2], share_of(0, 11));
  EXPECT_EQ(module.val.update_count(), 0);
}

TEST(MetricObjects, GiveTheBatchsOwnValueForAStep) {
  const TemporaryFolder folder;
  Module module;
  module.train_options = LogOptions{.on_step = true, .on_epoch = true};
  std::vector<double> steps;
  TrainerOptions with = options(folder);
  with.callbacks = {LambdaCallback(
      {.on_train_batch_end = [&](Trainer& t, LightningModule&, const at::Tensor&, const Batch&, int64_t) {
        steps.push_back(t.callback_metrics().at("train_share_step"));
      }})};
  Trainer trainer(std::move(with));
  trainer.fit(module, {tiny_loader(11, 4)});
  EXPECT_EQ(steps, (std::vector<double>{share_of(0, 4), share_of(4, 8), share_of(8, 11)}));
  EXPECT_DOUBLE_EQ(trainer.callback_metrics().at("train_share_epoch"), share_of(0, 11));
}

// The value of an epoch of three batches that a run continued from the checkpoint after batch `saved_after`.
double continued_share(int64_t saved_after, const LogOptions& how) {
  const TemporaryFolder folder;
  const std::string path = folder / "mid.ckpt";
  {
    Module module;
    module.train_options = how;
    TrainerOptions with = options(folder);
    with.callbacks = {LambdaCallback(
        {.on_train_batch_end = [&](Trainer& t, LightningModule&, const at::Tensor&, const Batch&, int64_t index) {
          if (index == saved_after) t.save_checkpoint(path);
        }})};
    Trainer trainer(std::move(with));
    trainer.fit(module, {tiny_loader(11, 4)});
  }
  Module module;
  module.train_options = how;
  Trainer trainer(options(folder));
  trainer.fit(module, Loaders{tiny_loader(11, 4)}, Loaders{}, path);
  if (how.on_step == true) {
    EXPECT_DOUBLE_EQ(trainer.callback_metrics().at("train_share_step"), share_of(8, 11));
    EXPECT_DOUBLE_EQ(trainer.callback_metrics().at("train_share_epoch"), trainer.callback_metrics().at("train_share"));
  }
  return trainer.callback_metrics().at("train_share");
}

constexpr LogOptions kEpochOnly{.on_step = false, .on_epoch = true};
constexpr LogOptions kBoth{.on_step = true, .on_epoch = true};

TEST(MetricObjects, ContinueFromACheckpointInsideAnEpoch) {
  EXPECT_DOUBLE_EQ(continued_share(1, kEpochOnly), share_of(0, 11));
  EXPECT_DOUBLE_EQ(continued_share(1, kBoth), share_of(0, 11));
}

TEST(MetricObjects, KeepTheirValueWhereTheEpochHadNoBatchLeft) {
  EXPECT_DOUBLE_EQ(continued_share(2, kEpochOnly), share_of(0, 11));
  EXPECT_DOUBLE_EQ(continued_share(2, kBoth), share_of(0, 11));
}

TEST(MetricObjects, OfReplicasAreTakenTogether) {
  class Cloned : public Module {
   public:
    std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
      auto made = std::make_shared<Cloned>();
      made->train_options = train_options;
      return made;
    }
  };
  const TemporaryFolder folder;
  Cloned module;
  module.train_options = LogOptions{.on_step = true, .on_epoch = true};
  TrainerOptions with = options(folder);
  with.strategy = "dp";
  with.devices = 2;
  Trainer trainer(std::move(with));
  trainer.fit(module, {tiny_loader(11, 4)});
  EXPECT_DOUBLE_EQ(trainer.callback_metrics().at("train_share_epoch"), share_of(0, 11));
  EXPECT_DOUBLE_EQ(trainer.callback_metrics().at("train_share_step"), share_of(8, 11));
}

std::string error_of(const std::function<void(Module&, const Batch&)>& step) {
  const TemporaryFolder folder;
  Module module;
  module.in_validation = [&](const Batch& batch) { step(module, batch); };
  Trainer trainer(options(folder));
  try {
    trainer.fit(module, {tiny_loader(8)}, {tiny_loader(8)});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MetricObjects, ThatCannotBeLoggedSayWhy) {
  const auto expect = [](const std::function<void(Module&, const Batch&)>& step,
                         const std::vector<std::string>& parts) { test::expect_parts(error_of(step), parts); };
  expect(
      [](Module& m, const Batch& batch) {
        Share local;
        local(batch[0], batch[1]);
        m.log("share", local);
      },
      {"log(\"share\") in validation_step: the metric was destroyed before the epoch ended", "a member of the module"});
  expect(
      [](Module& m, const Batch& batch) {
        m.val.update(batch[0], batch[1]);
        m.log("share", m.val, {.on_step = true});
      },
      {"log(\"share\") in validation_step: with on_step", "Share.update() does not keep it", "metric(preds, target)"});
  expect(
      [](Module& m, const Batch& batch) {
        m.val(batch[0], batch[1]);
        m.log("share", m.val, {.reduce_fx = ReduceFx::max});
      },
      {"reduce_fx does not apply to Share", "Leave it out"});
  expect(
      [](Module& m, const Batch& batch) {
        m.val(batch[0], batch[1]);
        m.log("share", 0.5);
        m.log("share", m.val);
      },
      {"it was logged as a number before, and now as Share", "another name"});
  const auto several = std::make_shared<Share>(true);
  expect(
      [several](Module& m, const Batch& batch) {
        (*several)(batch[0], batch[1]);
        m.log("share", *several);
      },
      {"log(\"share\") in validation_step: Share gives 2 values", "Choose an average"});
}

}  // namespace
}  // namespace levin::metric_objects_test
