// Names of version 0.2: classes that still override state() and load_state(), now state_dict() and load_state_dict(),
// and calls of functions that were renamed.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "callbacks/quiet_trainer.h"
#include "levin/levin.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace levin::old_names_test {
namespace {

using test::error_of;
using test::quiet;
using test::tiny_loader;
using test::TinyModule;

// Adds a number to Base's state.
template <class Base>
class Numbered : public Base {
 public:
  using Base::Base;
  [[nodiscard]] State state() const override {
    State state = Base::state();
    state.set("number", number);
    return state;
  }
  void load_state(const State& saved) override {
    Base::load_state(saved);
    number = saved.get<int64_t>("number");
  }

  int64_t number = 0;
};

// What a run does with its objects when it saves and when it resumes.
template <class T>
void expect_restored(T& saved, T& resumed) {
  saved.number = 7;
  const Stateful& from = saved;
  Stateful& to = resumed;
  to.load_state_dict(from.state_dict());
  EXPECT_EQ(resumed.number, 7);
  EXPECT_TRUE(saved.state().values.same_as(from.state_dict().values));
}

class NumberedCallback final : public Numbered<Callback> {
 public:
  void on_train_epoch_end(Trainer&, LightningModule&) override { ++number; }
  [[nodiscard]] std::string state_key() const override { return "NumberedCallback"; }
};

TEST(OldNames, OfACallbackAreUsedInCheckpoints) {
  const test::TemporaryFolder folder;
  TinyModule module, other;
  const auto saved = std::make_shared<NumberedCallback>(), resumed = std::make_shared<NumberedCallback>();
  Trainer trainer(quiet(2, {saved}, folder.path()));
  trainer.fit(module, tiny_loader(8));
  trainer.save_checkpoint(folder / "a.ckpt");
  Trainer(quiet(5, {resumed}, folder.path())).fit(other, tiny_loader(8), folder / "a.ckpt");
  EXPECT_EQ(resumed->number, 5);  // 2 of them from the checkpoint
}

TEST(OldNames, OfADataModuleStillWork) {
  Numbered<DataModule> saved, resumed;
  expect_restored(saved, resumed);
}

class NumberedLoader final : public Numbered<Loader> {
 public:
  void start(int64_t, int64_t) override {}
  bool next(Batch&) override { return false; }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return 0; }
};

TEST(OldNames, OfALoaderStillWork) {
  NumberedLoader saved, resumed;
  expect_restored(saved, resumed);
}

class NumberedLogger final : public Numbered<Logger> {
 public:
  void start(const std::string&, bool) override {}
  void log_metrics(const MetricList&, const LogPoint&) override {}
};

TEST(OldNames, OfALoggerStillWork) {
  NumberedLogger saved, resumed;
  expect_restored(saved, resumed);
}

class NumberedScheduler final : public Numbered<LRScheduler> {
 public:
  [[nodiscard]] std::string name() const override { return "NumberedScheduler"; }

 private:
  [[nodiscard]] std::vector<double> next_lr() override { return scaled(0.5); }
};

TEST(OldNames, OfASchedulerStillWork) {
  SGD one(std::vector<at::Tensor>{torch::ones(1)}, {.lr = 1}),
      other(std::vector<at::Tensor>{torch::ones(1)}, {.lr = 1});
  NumberedScheduler saved, resumed;
  saved.attach(one);
  resumed.attach(other);
  saved.step();
  expect_restored(saved, resumed);
  EXPECT_EQ(resumed.last_epoch, 1);  // the base's own state
  EXPECT_EQ(resumed.get_last_lr(), saved.get_last_lr());
}

// Numbers its steps, without a state.
class Stateless : public Optimizer {
 public:
  Stateless() : Optimizer(Group{.lr = 0.1}) { add_param_group({.params = {torch::ones(1)}}); }
  [[nodiscard]] std::string name() const override { return "Stateless"; }

 private:
  at::Tensor do_step(const Closure* closure) override { return closure != nullptr ? (*closure)() : at::Tensor(); }
};

class NumberedOptimizer final : public Stateless {
 public:
  [[nodiscard]] State state() const override {
    State state;
    save_groups(state);
    state.set("number", number);
    return state;
  }
  void load_state(const State& saved) override {
    groups_ = saved_groups(saved);
    number = saved.get<int64_t>("number");
  }

  int64_t number = 0;
};

TEST(OldNames, OfAnOptimizerStillWork) {
  NumberedOptimizer saved, resumed;
  saved.param_groups()[0].lr = 0.25;
  expect_restored(saved, resumed);
  EXPECT_EQ(resumed.param_groups()[0].lr, 0.25);
}

TEST(OldNames, AnOptimizerWithNeitherNameIsAnError) {
  Stateless optimizer;
  EXPECT_EQ(error_of([&] { (void)optimizer.state_dict(); }),
            "Stateless: has no state_dict(), which checkpoints need. Override state_dict() and load_state_dict().");
  EXPECT_EQ(error_of([&] { optimizer.load_state_dict({}); }),
            "Stateless: has no load_state_dict(), which checkpoints need. Override state_dict() and "
            "load_state_dict().");
}

TEST(OldNames, OfGroupsAndLearningRatesMayBeCalled) {
  SGD optimizer(std::vector<at::Tensor>{torch::ones(1)}, {.lr = 0.5});
  const StepLR scheduler(optimizer, {.step_size = 1});
  optimizer.groups()[0].lr = 0.25;
  EXPECT_EQ(std::as_const(optimizer).groups()[0].lr, 0.25);
  EXPECT_EQ(&optimizer.groups(), &optimizer.param_groups());
  EXPECT_EQ(scheduler.last_lr(), std::vector<double>{0.5});
}

TEST(OldNames, OfAMetricMayBeCalled) {
  metrics::MeanMetric saved, resumed;
  saved.update(torch::tensor({1.0, 4.0}));
  resumed.load_state(saved.state());
  EXPECT_EQ(resumed.compute().item<double>(), 2.5);
}

TEST(OldNames, OfAClassWithTheNewNamesMayBeCalled) {
  ReduceLROnPlateau scheduler(ReduceLROnPlateauOptions{.patience = 3});
  EXPECT_TRUE(scheduler.state().has("best"));
  EXPECT_TRUE(scheduler.state().values.same_as(scheduler.state_dict().values));
}

TEST(OldNames, MayBeOverriddenInACallbackOfLevin) {
  Numbered<EMAWeightAveraging> saved, resumed;
  expect_restored(saved, resumed);
  EXPECT_TRUE(saved.state_dict().has("latest_update_step"));
}

// Overrides both names; the old ones call the new ones.
class CallbackOfBothNames final : public Callback {
 public:
  [[nodiscard]] State state_dict() const override {
    State state = Callback::state_dict();
    state.set("number", number);
    return state;
  }
  void load_state_dict(const State& saved) override {
    Callback::load_state_dict(saved);
    number = saved.get<int64_t>("number");
  }
  [[nodiscard]] State state() const override { return state_dict(); }
  void load_state(const State& saved) override { load_state_dict(saved); }

  int64_t number = 0;
};

TEST(OldNames, MayBeOverriddenToCallTheNewOnes) {
  CallbackOfBothNames saved, resumed, loaded_by_the_old_name;
  expect_restored(saved, resumed);
  loaded_by_the_old_name.load_state(saved.state());
  EXPECT_EQ(loaded_by_the_old_name.number, 7);
}

TEST(OldNames, MayBeOverriddenInAnOptimizerOfLevin) {
  const auto ones = [] { return std::vector<at::Tensor>{torch::ones(2, torch::requires_grad())}; };
  Numbered<AdamOf<AdamWOptions>> saved(ones(), {.lr = 0.5}), resumed(ones());
  saved.param_groups()[0].params[0].sum().backward();
  saved.step();
  expect_restored(saved, resumed);
  EXPECT_EQ(resumed.param_groups()[0].lr, 0.5);
  EXPECT_TRUE(resumed.state_dict().tensor("0.exp_avg").equal(saved.state_dict().tensor("0.exp_avg")));
}

// Has one part, and saves whether its base's state has it.
class NumberedParts final : public Numbered<ComposedScheduler> {
 public:
  explicit NumberedParts(Optimizer& optimizer) {
    schedulers_ = {std::make_shared<ConstantLR>()};
    attach(optimizer);
  }
  [[nodiscard]] std::string name() const override { return "NumberedParts"; }
  [[nodiscard]] State state() const override {
    State state = Numbered::state();
    state.set("has_part", state.has("schedulers.0"));
    return state;
  }

 private:
  void prepare() override { attach_parts(); }
};

TEST(OldNames, MayBeOverriddenInAComposedScheduler) {
  SGD one(std::vector<at::Tensor>{torch::ones(1)}, {.lr = 1}),
      other(std::vector<at::Tensor>{torch::ones(1)}, {.lr = 1});
  NumberedParts saved(one), resumed(other);
  saved.schedulers()[0]->step();
  expect_restored(saved, resumed);
  EXPECT_EQ(resumed.schedulers()[0]->last_epoch, 1);
  EXPECT_TRUE(saved.state_dict().get<bool>("has_part"));
}

// Counts its loads, also those that fail.
class CountedLoads final : public Callback {
 public:
  void load_state(const State& saved) override {
    ++loads;
    Callback::load_state(saved);
    number = saved.get<int64_t>("number");
  }

  int64_t loads = 0;
  int64_t number = 0;
};

TEST(OldNames, OfAClassThatOverridesThemRunOnceByEitherName) {
  CountedLoads callback;
  State saved;
  EXPECT_THROW(callback.load_state_dict(saved), CheckpointError);
  saved.set("number", 7);
  callback.load_state(saved);
  EXPECT_EQ(callback.loads, 2);
  static_cast<Stateful&>(callback).load_state_dict(saved);
  EXPECT_EQ(callback.loads, 3);
  EXPECT_EQ(callback.number, 7);
}

}  // namespace
}  // namespace levin::old_names_test

#pragma GCC diagnostic pop
