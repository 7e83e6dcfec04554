// Step times predicted by `levin plan memory`, compared with real steps: six models, four choices of segments each.
//
//   bench_plan [--rounds N] [--quick]
#include <algorithm>
#include <cmath>
#include <utility>

#include "levin/core/process/console.h"
#include "levin/recompute/chain_plan.h"
#include "levin/trainer/loops/entry.h"
#include "plan_shapes.h"
#include "programs.h"
#include "rounds.h"

namespace bench::plan {

namespace {

using plan_shapes::Shape;

// A loader that repeats the same batches.
class Repeated final : public levin::Loader {
 public:
  explicit Repeated(const Shape& shape) : shape_(shape) {}
  void start(int64_t, int64_t) override {}
  bool next(levin::Batch& batch) override {
    batch = levin::Batch();
    for (const auto& tensor : shape_.data) batch.tensors.push_back(tensor.narrow(0, 0, shape_.batch));
    return true;
  }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return std::nullopt; }

 private:
  const Shape& shape_;
};

levin::TrainerOptions barebones(const Shape& shape, int64_t steps) {
  levin::TrainerOptions options;
  options.precision = shape.precision;
  options.barebones = true;
  options.max_steps = steps;
  options.devices = int64_t{1};
  return options;
}

levin::MeasuredChain measured(const Shape& shape) {
  const auto module = shape.make();
  levin::Trainer trainer(barebones(shape, 1));
  return levin::measure_fit(trainer, *module, std::make_shared<Repeated>(shape))->chain;
}

// Milliseconds of forward, backward and update of one step.
double step_ms(const Shape& shape, const std::vector<std::string>& modules, int64_t steps) {
  levin::TrainerOptions options = barebones(shape, steps);
  if (!modules.empty()) {
    levin::RecomputeOptions recompute;
    recompute.modules = modules;
    options.recompute = recompute;
  }
  torch::manual_seed(0);
  const auto module = shape.make();
  levin::Trainer trainer(std::move(options));
  trainer.fit(*module, std::make_shared<Repeated>(shape));
  const levin::StepTimes times = trainer.time_split().times();
  const double seconds =
      times[levin::StepPart::forward] + times[levin::StepPart::backward] + times[levin::StepPart::optimizer];
  return 1e3 * seconds / static_cast<double>(std::max<int64_t>(1, times.steps));
}

// Enough for two seconds of what a step is predicted to take: the first ones allocate the optimizer's state, which
// is part of the mean.
int64_t steps_of(const Options& options, double predicted_ms) {
  if (options.quick) return 2;
  return std::clamp<int64_t>(std::lround(2000 / predicted_ms), 4, 400);
}

double median(std::vector<double> values) {
  return measurement_of("", std::move(values)).median;
}

// Every round measures the blocks and then runs each plan, so that what slows the machine for a while slows both.
void compare_shape(const Shape& shape, const Options& options, Report& report) {
  const levin::ChainCost first = measured(shape).cost;
  const int64_t half_way = (levin::predict_memory(first, {}).peak + levin::least_peak(first)) / 2;
  const std::vector<std::pair<std::string, levin::Segments>> plans = {
      {"nothing", {}},
      {"each_block", levin::each_block(first)},
      {"square_root", levin::square_root_segments(first)},
      {"half_way", levin::best_segments(first, half_way).value_or(levin::Segments())}};
  std::vector<std::vector<double>> real(plans.size()), predicted(plans.size()), ratios(plans.size());
  for (int round = 0; round < options.rounds; ++round) {
    const levin::ChainCost cost = measured(shape).cost;
    for (size_t k = 0; k < plans.size(); ++k) {
      predicted[k].push_back(1e3 * levin::predict_memory(cost, plans[k].second).seconds);
      real[k].push_back(
          step_ms(shape, levin::module_ranges(cost, plans[k].second), steps_of(options, predicted[k].back())));
      ratios[k].push_back(predicted[k].back() / real[k].back());
    }
  }
  std::vector<Measurement> measurements;
  for (size_t k = 0; k < plans.size(); ++k) {
    measurements.push_back(measurement_of(plans[k].first, real[k]));
    measurements.push_back(measurement_of(plans[k].first + ", predicted", predicted[k]));
  }
  report.table(shape.name, "ms a step", measurements);
  for (size_t k = 0; k < plans.size(); ++k) {
    report.at_most(shape.name + "_" + plans[k].first + "_off", std::abs(median(ratios[k]) - 1), 0.15);
  }
}

int run(const Options& options) {
  pin_to_one_core();
  levin::Console::instance().capture([](const std::string&) {});
  Report report("plan");
  for (const Shape& shape : plan_shapes::shapes(options.quick ? 1 : 2)) compare_shape(shape, options, report);
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const Options options = read_options(argc, argv, 9);
  return guarded([&] { return run(options); });
}

}  // namespace bench::plan
