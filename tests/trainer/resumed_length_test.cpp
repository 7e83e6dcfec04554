// How many steps a run has that continues with other batches per step, and the schedules that end with it.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/gradient_accumulation_scheduler.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/optim/cosine_schedulers.h"
#include "levin/optim/cyclic_schedulers.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::resumed_length_test {
namespace {

using namespace test;
using MakeSchedule = std::function<std::shared_ptr<LRScheduler>()>;

template <class Scheduler>
MakeSchedule a(typename Scheduler::Options options) {
  return [=] { return std::make_shared<Scheduler>(options); };
}

struct Part {
  int64_t accumulate = 1;
  int64_t batch_size = 4;  // of 64 samples
  int64_t max_steps = -1;
  std::map<int64_t, int64_t> scheduling = {};
  bool cuts_first_epoch = false;  // after 8 batches

  [[nodiscard]] TrainerOptions options(Callbacks callbacks) const {
    if (!scheduling.empty()) callbacks.push_back(GradientAccumulationScheduler({.scheduling = scheduling}));
    if (cuts_first_epoch) {
      callbacks.push_back(LambdaCallback({.on_train_batch_end = [](Trainer& trainer, LightningModule&,
                                                                   const at::Tensor&, const Batch&, int64_t index) {
        if (trainer.current_epoch() == 0 && index == 7) trainer.skip_rest_of_epoch();
      }}));
    }
    TrainerOptions options = quiet(3, std::move(callbacks));
    options.accumulate_grad_batches = accumulate;
    if (max_steps > 0) options.max_steps = max_steps;
    return options;
  }
};

struct Course {
  std::map<int64_t, double> rates = {};  // of each step after the resume
  int64_t estimated = 0;                 // steps of the fit, in configure_optimizers
  int64_t steps = 0;                     // at its end
  std::string output = "";
};

/// Trains 3 epochs, saves after `batches` batches, and continues from there.
Course continued(const Part& before, int64_t batches, const Part& now, const MakeSchedule& schedule,
                 const LRSchedulerOptions& when = {.interval = Interval::step}) {
  const TemporaryFolder folder;
  const std::string path = folder / "saved.ckpt";
  const auto make = [&](TinyModule& m) {
    return OptimizerConfig().add(SGD(m.parameters(), {.lr = 0.1, .momentum = 0.9})).schedule_shared(schedule(), when);
  };
  {
    TinyModule module;
    module.make_optimizers = make;
    Trainer trainer(before.options({LambdaCallback(
        {.on_train_batch_end = [&](Trainer& t, LightningModule&, const at::Tensor&, const Batch&, int64_t) {
          if (t.seen_batches() == batches) t.save_checkpoint(path);
        }})}));
    trainer.fit(module, tiny_loader(64, before.batch_size));
  }
  const CapturedConsole console;
  Course course;
  TinyModule module;
  Trainer trainer(now.options({}));
  module.make_optimizers = [&](TinyModule& m) {
    course.estimated = trainer.estimated_stepping_batches();
    return make(m);
  };
  module.on_training_step = [&](int64_t) {
    course.rates[trainer.global_step()] = trainer.optimizers()[0].optimizer().param_groups()[0].lr;
  };
  trainer.fit(module, Loaders{tiny_loader(64, now.batch_size)}, Loaders{}, path);
  course.steps = trainer.global_step();
  course.output = console.text();
  return course;
}

/// What a schedule gives after each of `steps` steps, without a trainer.
std::vector<double> rates_of(const std::shared_ptr<LRScheduler>& schedule, int64_t steps) {
  SGD optimizer({torch::zeros({1}).set_requires_grad(true)}, {.lr = 0.1, .momentum = 0.9});
  schedule->attach(optimizer);
  std::vector<double> rates{optimizer.param_groups()[0].lr};
  for (int64_t step = 1; step < steps; ++step) {
    schedule->step();
    rates.push_back(optimizer.param_groups()[0].lr);
  }
  return rates;
}

TEST(LengthOfAResumedRun, IsWhatIsDoneAndWhatIsLeft) {
  struct Case {
    const char* name;
    Part before;
    int64_t batches;  // done before the resume: an epoch of the first run has 16 of 4 samples
    Part now;
    int64_t steps;
  };
  const std::vector<Case> cases = {
      {"after an epoch", {}, 16, {.accumulate = 4}, 16 + 2 * 4},
      {"the other way", {.accumulate = 4}, 16, {}, 4 + 2 * 16},
      {"within an epoch", {}, 16 + 6, {.accumulate = 4}, 16 + 6 + 3 + 4},
      {"within a window, of which 2 batches are left", {.accumulate = 4}, 16 + 6, {}, 4 + 1 + 1 + 8 + 16},
      {"limited steps", {}, 16, {.accumulate = 4, .max_steps = 20}, 20},
      {"larger batches", {}, 16, {.batch_size = 8}, 16 + 2 * 8},
      {"a callback's accumulation", {}, 16, {.scheduling = {{2, 4}}}, 16 + 16 + 4},
      {"one that ends", {.scheduling = {{0, 4}}}, 16 + 8, {}, 4 + 2 + 8 + 16},
      {"the same options", {.accumulate = 4}, 16 + 6, {.accumulate = 4}, 12},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    const auto check = [&](const MakeSchedule& open, const MakeSchedule& of_length) {
      const Course course = continued(one.before, one.batches, one.now, open);
      EXPECT_EQ(course.estimated, one.steps);
      EXPECT_EQ(course.steps, one.steps);
      const std::vector<double> expected = rates_of(of_length(), one.steps);
      EXPECT_EQ(course.rates.rbegin()->first, one.steps - 1);
      for (const auto& [step, rate] : course.rates) EXPECT_NEAR(rate, expected.at(static_cast<size_t>(step)), 1e-12);
    };
    check(a<OneCycleLR>({.max_lr = 0.5}), a<OneCycleLR>({.max_lr = 0.5, .total_steps = one.steps}));
    check(a<CosineWithWarmup>({}), a<CosineWithWarmup>({.total_steps = one.steps}));
  }
}

TEST(LengthOfAResumedRun, CountsMovesOfOtherFrequencies) {
  const LRSchedulerOptions every_third{.interval = Interval::step, .frequency = 3};
  const MakeSchedule cycle = a<OneCycleLR>({.max_lr = 0.5});
  const auto output_with = [&](const LRSchedulerOptions& when) {
    return continued({}, 16, {.accumulate = 4}, cycle, when).output;
  };
  // 5 moves in an epoch of 16 steps, and 1 in one of 4.
  EXPECT_TRUE(has(output_with(every_third), "OneCycleLR.total_steps was 15 and is 7 now")) << output_with(every_third);
  EXPECT_FALSE(has(output_with({.interval = Interval::epoch}), "OneCycleLR.total_steps"));
}

// Bitwise: a schedule is not moved where nothing has changed, even if the run has fewer steps than were planned.
TEST(LengthOfAResumedRun, StaysWhatWasPlanned) {
  const MakeSchedule cycle = a<OneCycleLR>({.max_lr = 0.5});
  const std::map<int64_t, int64_t> scheduling{{0, 1}, {1, 3}};
  for (const Part& part : {Part{}, Part{.accumulate = 3}, Part{.scheduling = scheduling},
                           Part{.cuts_first_epoch = true}, Part{.scheduling = scheduling, .cuts_first_epoch = true}}) {
    for (const int64_t batches : {3, 8, 16, 21, 32}) {
      for (const int64_t frequency : {1, 3}) {
        const LRSchedulerOptions when{.interval = Interval::step, .frequency = frequency};
        const Course course = continued(part, batches, part, cycle, when);
        EXPECT_FALSE(has(course.output, "total_steps")) << batches << ", " << frequency << ": " << course.output;
      }
    }
  }
}

// A run that no longer has the callback that decided about its windows decides itself.
TEST(LengthOfAResumedRun, WithoutItsAccumulationScheduleHasItsOwnWindows) {
  const Course course = continued({.scheduling = {{0, 4}}}, 16, {}, a<CosineWithWarmup>({}));
  EXPECT_EQ(course.steps, 4 + 2 * 16);
  EXPECT_TRUE(has(course.output, "TrainerOptions.accumulate_grad_batches was 4 by a callback and is 1 now"))
      << course.output;
}

}  // namespace
}  // namespace levin::resumed_length_test
