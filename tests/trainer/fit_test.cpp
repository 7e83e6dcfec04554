// When a fit continues and when it ends, and what runs around the training batches.
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/core/options/error.h"
#include "levin/trainer/random_state.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::fit_test {
namespace {

using namespace test;

/// Six training batches and two of validation, and a count of what ran.
struct Fit {
  explicit Fit(TrainerOptions options) : trainer(with_counts(std::move(options))) {}

  TrainerOptions with_counts(TrainerOptions options) {
    options.callbacks.push_back(LambdaCallback({
        .on_train_start = [this](Trainer&, LightningModule&) { ++starts; },
        .on_train_epoch_end = [this](Trainer&, LightningModule&) { ++epochs; },
        .on_train_batch_end =
            [this](Trainer& t, LightningModule&, const at::Tensor&, const Batch&, int64_t batch_idx) {
              if (after_batch) after_batch(t, batch_idx);
            },
        .on_validation_end = [this](Trainer& t, LightningModule&) { ++(t.sanity_checking() ? checks : validations); },
    }));
    options.num_sanity_val_steps = options.num_sanity_val_steps.value_or(0);
    return options;
  }
  void run() { trainer.fit(module, tiny_loader(24), tiny_loader(8)); }

  int starts = 0, epochs = 0, validations = 0, checks = 0;
  std::function<void(Trainer&, int64_t)> after_batch = nullptr;
  TinyModule module;
  Trainer trainer;
};

// ---- limits ---------------------------------------------------------------------------------------------------------

TEST(Fit, TwiceContinuesWhereTheFirstEnded) {
  Fit fit(quiet(3, {}));
  fit.after_batch = [](Trainer& t, int64_t batch_idx) {
    if (t.current_epoch() == 0 && batch_idx == 5) t.request_stop("enough for today");
  };
  fit.run();
  EXPECT_EQ(fit.trainer.current_epoch(), 1);
  EXPECT_EQ(fit.trainer.stop_reason(), "enough for today");
  fit.run();
  EXPECT_EQ(fit.trainer.current_epoch(), 3);
  EXPECT_EQ(fit.trainer.global_step(), 18);
  EXPECT_EQ(fit.epochs, 3);
  EXPECT_FALSE(fit.trainer.should_stop());
}

TEST(Fit, TwiceDoesNothingOnceTheEpochsAreDone) {
  Fit fit(quiet(2, {}));
  fit.run();
  const at::Tensor weights = fit.module.layer->weight.detach().clone();
  fit.run();
  EXPECT_EQ(fit.starts, 1);
  EXPECT_EQ(fit.trainer.global_step(), 12);
  EXPECT_TRUE(fit.module.layer->weight.equal(weights));
}

TEST(Fit, MaxStepsZeroTrainsNothing) {
  TrainerOptions options = quiet(3, {});
  options.max_steps = 0;
  options.num_sanity_val_steps = 2;
  Fit fit(options);
  fit.run();
  EXPECT_EQ(fit.starts + fit.epochs + fit.validations + fit.checks, 0);
  EXPECT_EQ(fit.trainer.global_step(), 0);
}

TEST(Fit, EndsAtMaxStepsOrMaxEpochsWhicheverComesFirst) {
  TrainerOptions options = quiet(3, {});
  options.max_steps = 8;
  Fit steps(options);
  steps.run();
  EXPECT_EQ(steps.trainer.global_step(), 8);
  EXPECT_EQ(steps.epochs, 2);
  options.max_epochs = 1;
  Fit epochs(options);
  epochs.run();
  EXPECT_EQ(epochs.trainer.global_step(), 6);
}

TEST(Fit, MaxStepsCountsOptimizerStepsNotBatches) {
  TrainerOptions options = quiet(10, {});
  options.max_steps = 4;
  options.accumulate_grad_batches = 3;  // 2 steps per epoch
  Fit fit(options);
  fit.run();
  EXPECT_EQ(fit.trainer.global_step(), 4);
  EXPECT_EQ(fit.trainer.current_epoch(), 2);
}

TEST(Fit, ZeroTrainingBatchesTrainNothing) {
  TrainerOptions options = quiet(3, {});
  options.limit_train_batches = int64_t{0};
  Fit fit(options);
  fit.run();
  EXPECT_EQ(fit.starts + fit.epochs + fit.validations, 0);
  EXPECT_EQ(fit.trainer.current_epoch(), 0);
}

// ---- stopping -------------------------------------------------------------------------------------------------------

TEST(Fit, AStopInsideAnEpochValidatesOnceMore) {
  Fit fit(quiet(3, {}));
  fit.after_batch = [](Trainer& t, int64_t batch_idx) {
    if (batch_idx == 2) t.request_stop("found it");
  };
  fit.run();
  EXPECT_EQ(fit.trainer.global_step(), 3);
  EXPECT_EQ(fit.validations, 1);
  EXPECT_EQ(fit.epochs, 1);
  EXPECT_EQ(fit.trainer.stop_reason(), "found it");
}

TEST(Fit, TheFirstReasonToStopIsKept) {
  Fit fit(quiet(3, {}));
  fit.after_batch = [](Trainer& t, int64_t) {
    t.request_stop("first");
    t.request_stop("second");
  };
  fit.run();
  EXPECT_EQ(fit.trainer.stop_reason(), "first");
}

TEST(Fit, AStopNeedsNoReason) {
  Fit fit(quiet(3, {}));
  fit.after_batch = [](Trainer& t, int64_t) { t.request_stop(); };
  fit.run();
  EXPECT_EQ(fit.trainer.global_step(), 1);
  EXPECT_EQ(fit.trainer.stop_reason(), "request_stop() was called");
}

TEST(Fit, AnotherThreadMayRequestAStop) {
  Fit fit(quiet(3, {}));
  fit.after_batch = [](Trainer& t, int64_t batch_idx) {
    if (batch_idx != 2) return;
    std::thread([&t] {
      t.request_stop("asked from another thread");
      t.request_stop("second");
    }).join();
    EXPECT_FALSE(t.should_stop());  // the training thread handles it between two batches
  };
  fit.run();
  EXPECT_EQ(fit.trainer.global_step(), 3);
  EXPECT_EQ(fit.trainer.stop_reason(), "asked from another thread");
}

volatile std::sig_atomic_t handled_by_host = 0;

TEST(Fit, CtrlCStopsItInAProgramThatHandlesCtrlC) {
  handled_by_host = 0;
  const auto before = std::signal(SIGINT, [](int) { handled_by_host = handled_by_host + 1; });
  Fit fit(quiet(3, {}));
  fit.after_batch = [](Trainer&, int64_t batch_idx) {
    if (batch_idx == 2) std::raise(SIGINT);
  };
  EXPECT_THROW(fit.run(), Interrupted);
  EXPECT_EQ(fit.trainer.global_step(), 3);
  EXPECT_EQ(handled_by_host, 1);
  std::raise(SIGINT);
  EXPECT_EQ(handled_by_host, 2) << "the program's handler is restored";
  std::signal(SIGINT, before);
}

TEST(Fit, MinEpochsHoldsAStopBack) {
  TrainerOptions options = quiet(5, {});
  options.min_epochs = 2;
  Fit fit(options);
  fit.after_batch = [](Trainer& t, int64_t) { t.request_stop("at once"); };
  fit.run();
  EXPECT_EQ(fit.epochs, 2);
  EXPECT_EQ(fit.trainer.global_step(), 12);
  EXPECT_EQ(fit.validations, 2);
}

TEST(Fit, MinStepsHoldsAStopBack) {
  TrainerOptions options = quiet(5, {});
  options.min_steps = 9;
  Fit fit(options);
  fit.after_batch = [](Trainer& t, int64_t) { t.request_stop("at once"); };
  fit.run();
  EXPECT_EQ(fit.trainer.global_step(), 9);
  EXPECT_EQ(fit.epochs, 2);
}

TEST(Fit, SkippingTheRestOfAnEpochStillValidates) {
  Fit fit(quiet(2, {}));
  fit.after_batch = [](Trainer& t, int64_t batch_idx) {
    if (batch_idx == 1) t.skip_rest_of_epoch();
  };
  fit.run();
  EXPECT_EQ(fit.trainer.global_step(), 4);
  EXPECT_EQ(fit.epochs, 2);
  EXPECT_EQ(fit.validations, 2);
}

// ---- validation inside fit ------------------------------------------------------------------------------------------

TEST(Fit, ALayerKeptInEvalModeStaysThere) {
  struct Frozen : TinyModule {
    void on_train_start() override { norm->eval(); }
    void validation_step(const Batch&, int64_t) override {
      EXPECT_FALSE(is_training() || layer->is_training() || norm->is_training());
      ++validated;
    }
    void on_train_epoch_end() override {
      EXPECT_TRUE(is_training());
      EXPECT_TRUE(layer->is_training());
      EXPECT_FALSE(norm->is_training());
    }
    torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(4))};
    int validated = 0;
  } module;
  Trainer(quiet(2, {})).fit(module, tiny_loader(8), tiny_loader(8));
  EXPECT_EQ(module.validated, 6);  // two in the sanity check
}

/// Draws random numbers in every step.
struct RandomModule : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    drawn.push_back(torch::rand({1}).item().toDouble());
    return TinyModule::training_step(batch, batch_idx);
  }
  void validation_step(const Batch& batch, int64_t batch_idx) override {
    torch::rand({7});
    TinyModule::validation_step(batch, batch_idx);
  }
  void on_train_start() override {
    EXPECT_TRUE(trainer().callback_metrics().empty());
    EXPECT_TRUE(trainer().logged_metrics().empty());
    EXPECT_TRUE(trainer().progress_bar_metrics().empty());
  }
  std::vector<double> drawn = {};
};

struct NoLogger final : Logger {
  void start(const std::string&, bool) override {}
  void log_metrics(const MetricList&, const LogPoint&) override {}
};

TEST(Fit, WarnsWhereAnEpochIsShorterThanTheLoggingInterval) {
  const auto output_with = [](std::optional<int64_t> every, int64_t accumulate, bool logs, bool dev_run = false) {
    const CapturedConsole console;
    TrainerOptions options = quiet(1, {});
    if (logs) options.logger = std::make_shared<NoLogger>();
    options.log_every_n_steps = every;
    options.accumulate_grad_batches = accumulate;
    options.fast_dev_run = dev_run;
    TinyModule module;
    Trainer(options).fit(module, tiny_loader(24));  // 6 batches
    return console.text();
  };
  const std::string text = output_with({}, 1, true);
  for (const char* part : {"TrainerOptions.log_every_n_steps: 50", "the 6 steps of an epoch", "Set it to 6 or less."}) {
    EXPECT_TRUE(has(text, part)) << text;
  }
  EXPECT_TRUE(has(output_with(5, 4, true), "5 is more than the 2 steps"));
  const std::string name = "log_every_n_steps";
  EXPECT_FALSE(has(output_with(6, 1, true), name));
  EXPECT_FALSE(has(output_with(0, 1, true), name)) << "nothing is wanted";
  EXPECT_FALSE(has(output_with({}, 1, false), name)) << "the trainer has no logger";
  EXPECT_FALSE(has(output_with({}, 1, true, true), name));
}

TEST(SanityCheck, LeavesRandomNumbersAndMetricsUntouched) {
  std::vector<std::vector<double>> drawn;
  for (const int64_t steps : {0, 2, -1}) {
    RandomModule module;
    TrainerOptions options = quiet(1, {});
    options.num_sanity_val_steps = steps;
    torch::manual_seed(7);
    Trainer(options).fit(module, tiny_loader(24), tiny_loader(16));
    drawn.push_back(module.drawn);
  }
  EXPECT_EQ(drawn[0].size(), 6U);
  EXPECT_EQ(drawn[0], drawn[1]);
  EXPECT_EQ(drawn[0], drawn[2]);
}

TEST(SanityCheck, RunsAsManyBatchesAsAsked) {
  for (const auto& [steps, expected] : std::map<int64_t, int>{{0, 0}, {1, 1}, {2, 2}, {-1, 4}}) {
    int seen = 0;
    LambdaCallback count({.on_validation_batch_end = [&](Trainer& t, LightningModule&, const Batch&, int64_t, int64_t) {
      seen += t.sanity_checking() ? 1 : 0;
    }});
    TinyModule module;
    TrainerOptions options = quiet(1, count);
    options.num_sanity_val_steps = steps;
    Trainer(options).fit(module, tiny_loader(8), tiny_loader(16));
    EXPECT_EQ(seen, expected) << steps;
  }
}

// ---- loaders --------------------------------------------------------------------------------------------------------

struct CountingData : LightningDataModule {
  std::shared_ptr<Loader> train_dataloader() override {
    ++train;
    return tiny_loader(8);
  }
  Loaders val_dataloader() override {
    ++val;
    return tiny_loader(8);
  }
  int train = 0, val = 0;
};

TEST(Fit, MakesItsLoadersAnewEveryNEpochs) {
  for (const auto& [every, expected] : std::map<int64_t, int>{{0, 1}, {1, 4}, {2, 2}, {3, 2}}) {
    for (const int64_t sanity : {0, 2}) {
      CountingData data;
      TinyModule module;
      TrainerOptions options = quiet(4, {});
      options.reload_dataloaders_every_n_epochs = every;
      options.num_sanity_val_steps = sanity;
      options.val_check_interval = 0.5;  // two validations per epoch share a loader
      Trainer(options).fit(module, data);
      EXPECT_EQ(data.train, expected) << "every " << every << ", sanity " << sanity;
      EXPECT_EQ(data.val, expected) << "every " << every << ", sanity " << sanity;
    }
  }
}

/// Notes a random number whenever it makes a loader, and in each training batch.
struct DrawingData : LightningDataModule {
  std::shared_ptr<Loader> train_dataloader() override {
    train.push_back(at::rand({1}).item<double>());
    return tiny_loader(8);
  }
  Loaders val_dataloader() override {
    val.push_back(at::rand({1}).item<double>());
    return tiny_loader(8);
  }
  Batch on_after_batch_transfer(Batch batch, int64_t) override {
    batches.push_back(at::rand({1}).item<double>());
    return batch;
  }
  std::vector<double> train = {}, val = {}, batches = {};
};

/// The four epochs of a run, and those that remain after a checkpoint.
struct WholeAndResumed {
  WholeAndResumed(int64_t every, int64_t sanity, const std::string& checkpoint) {
    const TemporaryFolder folder;
    const auto fit = [&](DrawingData& data, const std::string& ckpt_path) {
      TinyModule module;
      TrainerOptions options =
          quiet(4, ModelCheckpoint({.dirpath = folder.path(), .filename = "{epoch}", .save_top_k = -1}));
      options.reload_dataloaders_every_n_epochs = every;
      options.num_sanity_val_steps = sanity;
      Trainer(options).fit(module, data, ckpt_path);
    };
    seed_everything(3);
    fit(whole, "");
    seed_everything(4);
    fit(resumed, folder / checkpoint);
  }
  DrawingData whole, resumed;
};

std::vector<double> last(size_t count, const std::vector<double>& all) {
  return {all.end() - static_cast<std::ptrdiff_t>(std::min(count, all.size())), all.end()};
}

TEST(Fit, MakesTheLoaderOfTheEpochThatItResumesWithOnceAndWithTheSameRandomNumbers) {
  const WholeAndResumed run(1, 0, "epoch=1.ckpt");
  EXPECT_EQ(run.resumed.train, last(2, run.whole.train));
  EXPECT_EQ(run.resumed.batches, last(run.resumed.batches.size(), run.whole.batches));
}

TEST(Fit, ThatResumesMakesValidationLoadersAnewInTheSameEpochs) {
  for (const int64_t sanity : {0, 2}) {
    for (const char* checkpoint : {"epoch=0.ckpt", "epoch=1.ckpt"}) {
      const WholeAndResumed run(2, sanity, checkpoint);
      ASSERT_EQ(run.whole.val.size(), 2U);  // for epochs 0 and 2
      EXPECT_EQ(run.resumed.val.size(), 2U) << checkpoint << ", sanity " << sanity;
      EXPECT_EQ(run.resumed.val.back(), run.whole.val.back()) << checkpoint << ", sanity " << sanity;
    }
  }
}

/// Notes the order of the transfer hooks; each adds its number to the inputs.
struct TransferData : DataModule {
  explicit TransferData(std::vector<std::string>& into) : seen(into) {}
  std::shared_ptr<Loader> train_dataloader() override { return tiny_loader(4); }
  Batch on_before_batch_transfer(Batch batch, int64_t) override { return note("data before", batch, 1); }
  Batch on_after_batch_transfer(Batch batch, int64_t) override { return note("data after", batch, 10); }
  Batch note(const char* name, Batch batch, double add) {
    seen.emplace_back(name);
    batch[0] = batch[0] + add;
    return batch;
  }
  std::vector<std::string>& seen;
};
struct TransferModule : TinyModule {
  Batch on_before_batch_transfer(Batch batch, int64_t) override { return note("module before", batch, 100); }
  Batch transfer_batch_to_device(Batch batch, at::Device device, int64_t) override {
    EXPECT_EQ(device, at::Device(at::kCPU));
    return note("transfer", batch, 1000);
  }
  Batch on_after_batch_transfer(Batch batch, int64_t) override { return note("module after", batch, 10000); }
  void on_train_batch_start(const Batch& batch, int64_t) override { input = batch[0].clone(); }
  Batch note(const char* name, Batch batch, double add) {
    seen.emplace_back(name);
    batch[0] = batch[0] + add;
    return batch;
  }
  std::vector<std::string> seen = {};
  at::Tensor input = {};
};

TEST(Fit, TransfersBatchesThroughTheHooksInOrder) {
  TransferModule module;
  TransferData data(module.seen);
  Trainer(quiet(1, {})).fit(module, data);
  EXPECT_EQ(module.seen,
            (std::vector<std::string>{"data before", "module before", "transfer", "data after", "module after"}));
  const auto loader = tiny_loader(4);
  Batch batch;
  loader->start(0, 0);
  ASSERT_TRUE(loader->next(batch));
  EXPECT_TRUE(module.input.allclose(batch[0] + 11111, 0, 1e-2));
}

/// Records whether it was asked to keep its order.
struct OrderedLoader : Loader {
  void start(int64_t epoch, int64_t first_batch) override { inner->start(epoch, first_batch); }
  bool next(Batch& batch) override { return inner->next(batch); }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return inner->num_batches(); }
  void use_sequential_order() override { ordered = true; }
  std::shared_ptr<Loader> inner = tiny_loader(24);
  bool ordered = false;
};

TEST(Fit, OverfitTrainsAndValidatesOnAFewBatchesInOrder) {
  auto train = std::make_shared<OrderedLoader>(), val = std::make_shared<OrderedLoader>();
  int validated = 0;
  LambdaCallback count(
      {.on_validation_batch_end = [&](Trainer&, LightningModule&, const Batch&, int64_t, int64_t) { ++validated; }});
  TinyModule module;
  TrainerOptions options = quiet(3, count);
  options.num_sanity_val_steps = 0;
  options.overfit_batches = int64_t{2};
  Trainer trainer(options);
  trainer.fit(module, train, val);
  EXPECT_EQ(trainer.global_step(), 6);
  EXPECT_EQ(validated, 6);
  EXPECT_TRUE(train->ordered && val->ordered);
}

/// Ends its pass of six batches early.
struct ShortLoader : Loader {
  explicit ShortLoader(int64_t count) : batches(count) {}
  void start(int64_t epoch, int64_t first_batch) override {
    left = batches;
    inner->start(epoch, first_batch);
  }
  bool next(Batch& batch) override { return left-- > 0 && inner->next(batch); }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return inner->num_batches(); }
  std::shared_ptr<Loader> inner = tiny_loader(24);
  int64_t batches, left = 0;
};

TEST(Fit, WarnsOfAPassThatEndsBeforeItsLastBatch) {
  for (const auto& [batches, warning] : std::vector<std::pair<int64_t, std::string>>{
           {0, "the training loader has ended before its first batch"},
           {1, "the training loader has ended after 1 batch of the 6 that its num_batches() returned"},
           {5, "the training loader has ended after 5 batches of the 6 that its num_batches() returned"}}) {
    const CapturedConsole console;
    TinyModule module;
    Trainer trainer(quiet(1, {}));
    trainer.fit(module, std::make_shared<ShortLoader>(batches));
    EXPECT_EQ(trainer.global_step(), batches);
    EXPECT_TRUE(console.has(warning)) << console.text();
  }
}

}  // namespace
}  // namespace levin::fit_test
