#include "levin/cli/commands/plan_cluster.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/commands/step_model.h"
#include "levin/cli/config/arguments.h"
#include "levin/cli/config/resolve_run.h"
#include "levin/cli/config/run_parts.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/profilers/time_split.h"
#include "levin/strategies/process/flat_unit.h"
#include "levin/strategies/process/fsdp.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

// (n - 1) messages of 1/n each.
double ring_seconds(double bytes, int64_t n, const Link& link) {
  const auto messages = static_cast<double>(n - 1);
  return n < 2 ? 0 : messages * (bytes / static_cast<double>(n) / link.bandwidth + link.latency);
}

// Parts of equal size become ready one after another while `computing` continues, and are sent one after another:
// either the last part is sent after the computation, or the link has been busy since the first one was ready.
double beside(double computing, double sending, double parts) {
  return std::max(computing + sending / parts, computing / parts + sending);
}

StepPrediction predicted(double step, double communication, const StepCost& cost) {
  return {step, communication, cost.alone() / step};
}

// Three digits and a unit.
std::string duration_text(double seconds) {
  if (seconds >= 1) return formatted("%.2f s", seconds);
  return seconds >= 1e-3 ? formatted("%.2f ms", seconds * 1e3) : formatted("%.0f us", seconds * 1e6);
}

std::string cluster_usage(int width) {
  return "levin plan cluster [--config FILE…] [options] [overrides…]\n\n" +
         wrapped(
             "Predicts the step time and the efficiency of ddp and fsdp (stages 1 to 3) on many devices. With --config "
             "the run's step is measured here, on one device; without it the times are given. Each device keeps its "
             "batch, so that the global batch grows with the devices. docs/planning.md has the formulas.",
             width) +
         "\n" + own_options_table(describe_options<PlanClusterOptions>(), width);
}

void complete(PlanClusterOptions& options, const ConfigNode& given, const MeasuredStep& seen) {
  auto take = [&](const char* name, auto& option, auto value) {
    if (given.find(name) == nullptr) option = value;
  };
  take("parameters", options.parameters, seen.parameters);
  take("bytes", options.bytes, seen.bytes);
  take("batch_size", options.batch_size, seen.batch_size);
  take("forward_ms", options.forward_ms, seen.forward_ms);
  take("backward_ms", options.backward_ms, seen.backward_ms);
  take("optimizer_ms", options.optimizer_ms, seen.optimizer_ms);
  take("units", options.units, seen.units);
}

void check_complete(const PlanClusterOptions& options, Problems& problems) {
  const bool timed = options.forward_ms + options.backward_ms > 0;
  if (options.parameters > 0 && timed) return;
  problems.add({}, "plan cluster",
               std::string(timed ? "the number of parameters is" : "the times of a step are") +
                   " not known. Give --config FILE, by which the run is measured, or --parameters, --forward_ms and "
                   "--backward_ms.");
}

// The units of fsdp for a model with unknown layers, which are assumed to be small enough.
int64_t default_units(const PlanClusterOptions& options) {
  const double bytes = static_cast<double>(options.parameters) * static_cast<double>(options.bytes);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(bytes / (FSDPOptions().unit_mb * 1024 * 1024))));
}

StepCost cost_of(const PlanClusterOptions& options, double other_ms) {
  StepCost cost;
  cost.forward = options.forward_ms * 1e-3 / options.device_speed;
  cost.backward = options.backward_ms * 1e-3 / options.device_speed;
  cost.optimizer = options.optimizer_ms * 1e-3 / options.device_speed;
  cost.other = other_ms * 1e-3 / options.device_speed;
  cost.bytes = static_cast<double>(options.parameters) * static_cast<double>(options.bytes);
  cost.bucket_bytes = options.bucket_cap_mb * 1024 * 1024;
  cost.units = options.units > 0 ? options.units : default_units(options);
  return cost;
}

void print_plan(const PlanClusterOptions& options, double other_ms) {
  Console& console = Console::instance();
  const StepCost cost = cost_of(options, other_ms);
  console.print(std::to_string(options.parameters) + " parameters, " + formatted("%.1f", cost.bytes / 1e6) +
                " MB to send, by fsdp in " + count_of(cost.units, "unit") +
                ". One device: " + count_of(options.batch_size, "sample") + " in " + duration_text(cost.alone()) +
                " (forward " + duration_text(cost.forward) + ", backward " + duration_text(cost.backward) +
                ", optimizer " + duration_text(cost.optimizer) + ", other " + duration_text(cost.other) + ").");
  console.print(
      "nodes  devices  global batch |   ddp: step, efficient | fsdp 1, 2: step, eff. |    fsdp 3: step, eff.");
  for (const auto& line : plan_cluster(options, other_ms)) {
    console.print(formatted("%5ld  %7ld  %12ld | %11s %6.1f %% | %11s %6.1f %% | %11s %6.1f %%", line.nodes,
                            line.devices, line.devices * options.batch_size, duration_text(line.ddp.step).c_str(),
                            100 * line.ddp.efficiency, duration_text(line.fsdp_2.step).c_str(),
                            100 * line.fsdp_2.efficiency, duration_text(line.fsdp_3.step).c_str(),
                            100 * line.fsdp_3.efficiency));
  }
}

constexpr int64_t kWarmUp = 5;
constexpr int64_t kMeasured = 50;

class BatchSize final : public Callback {
 public:
  void on_train_batch_end(Trainer&, LightningModule&, const at::Tensor&, const Batch& batch, int64_t) override {
    largest = std::max(largest, batch.size());
  }
  int64_t largest = 1;
};

// Options for one device of the requested kind, and nothing but the steps.
TrainerOptions bare(const TrainerOptions& given, int64_t steps) {
  TrainerOptions options;
  options.accelerator = given.accelerator;
  options.precision = given.precision;
  options.gradient_clip_val = given.gradient_clip_val;
  options.gradient_clip_algorithm = given.gradient_clip_algorithm;
  options.devices = 1;
  options.max_epochs = -1;
  options.max_steps = steps;
  options.limit_val_batches = int64_t{0};
  options.barebones = true;
  return options;
}

StepTimes time_steps(const TrainerOptions& given, const RunParts& parts, int64_t steps,
                     std::shared_ptr<Callback> watch) {
  TrainerOptions options = bare(given, steps);
  options.callbacks = {std::move(watch)};
  Trainer trainer(std::move(options));
  fit(trainer, parts);
  return trainer.time_split().times();
}

}  // namespace

double all_gather_seconds(double bytes, const Cluster& cluster) {
  return ring_seconds(bytes, cluster.devices_per_node, cluster.inside) +
         ring_seconds(bytes, cluster.nodes, cluster.between);
}

double all_reduce_seconds(double bytes, const Cluster& cluster) {
  return 2 * all_gather_seconds(bytes, cluster);
}

StepPrediction predict_ddp(const StepCost& cost, const Cluster& cluster) {
  const double buckets = std::max(1.0, std::ceil(cost.bytes / cost.bucket_bytes));
  const double sending = buckets * all_reduce_seconds(cost.bytes / buckets, cluster);
  const double backward = cluster.devices() == 1 ? cost.backward : beside(cost.backward, sending, buckets);
  return predicted(cost.forward + backward + cost.optimizer + cost.other, sending, cost);
}

StepPrediction predict_fsdp(const StepCost& cost, const Cluster& cluster, int stage) {
  if (cluster.devices() == 1) return predicted(cost.alone(), 0, cost);
  const double optimizer = cost.optimizer / static_cast<double>(cluster.devices());
  if (stage < 3) {
    const double buckets = std::max(1.0, std::ceil(cost.bytes / cost.bucket_bytes));
    const double scattering = buckets * all_gather_seconds(cost.bytes / buckets, cluster);
    const double gathering = all_gather_seconds(cost.bytes, cluster);
    const double backward = beside(cost.backward, scattering, buckets);
    return predicted(cost.forward + backward + optimizer + gathering + cost.other, scattering + gathering, cost);
  }
  const auto units = static_cast<double>(cost.units);
  const double gathering = units * all_gather_seconds(cost.bytes / units, cluster);
  // Forward waits for its first unit, as a part that is sent waits for the first one to be ready.
  const double forward = beside(cost.forward, gathering, units);
  // In backward the next unit's parameters and the last one's gradients share the link.
  const double backward = beside(cost.backward, 2 * gathering, units);
  return predicted(forward + backward + optimizer + cost.other, 3 * gathering, cost);
}

std::vector<ClusterLine> plan_cluster(const PlanClusterOptions& options, double other_ms) {
  const StepCost cost = cost_of(options, other_ms);
  const Link inside{options.inside_bandwidth * 1e9, options.inside_latency_us * 1e-6};
  const Link between{options.bandwidth * 1e9, options.latency_us * 1e-6};
  std::vector<ClusterLine> lines;
  for (const int64_t nodes : options.nodes) {
    const Cluster cluster{nodes, options.devices_per_node, inside, between};
    lines.push_back({nodes, cluster.devices(), predict_ddp(cost, cluster), predict_fsdp(cost, cluster, 2),
                     predict_fsdp(cost, cluster, 3)});
  }
  return lines;
}

int run_plan_cluster(const std::vector<std::string>& arguments, int width, const MeasureRun& measure) {
  Problems problems;
  PlanClusterOptions options;
  const SplitArguments read = read_own_options(arguments, options, problems);
  if (read.help) return print_usage(cluster_usage(width));
  if (!problems.empty()) return report_problems(problems, "nothing was planned. See levin plan cluster --help.");
  double other_ms = 0;
  if (!read.rest.empty()) {
    const MeasuredStep seen = measure(read.rest);
    complete(options, read.options, seen);
    other_ms = seen.other_ms;
  }
  check_complete(options, problems);
  if (!problems.empty()) return report_problems(problems, "nothing was planned. See levin plan cluster --help.");
  print_plan(options, other_ms);
  return kExitOk;
}

MeasuredStep measure_step(const std::vector<std::string>& run_arguments) {
  Problems problems;
  const FitArguments read = resolve_fit_arguments(run_arguments, RunPlace::elsewhere, problems);
  problems.throw_if_any();
  const RunParts parts = make_parts(read.run.config);
  const auto watch = std::make_shared<BatchSize>();
  (void)time_steps(read.run.trainer, parts, kWarmUp, watch);
  const StepTimes times = time_steps(read.run.trainer, parts, kMeasured, watch);
  const double each = 1e3 / static_cast<double>(std::max<int64_t>(1, times.steps));
  MeasuredStep seen;
  for (const auto& parameter : parts.model->parameters()) {
    if (!parameter.requires_grad()) continue;
    seen.parameters += parameter.numel();
    seen.bytes = parameter.element_size();
  }
  const auto unit_bytes = static_cast<int64_t>(FSDPOptions().unit_mb * 1024 * 1024);
  const auto units = unit_parameters(module_tensors(*parts.model).parameters, unit_bytes);
  seen.units = std::max<int64_t>(1, static_cast<int64_t>(units.size()));
  seen.batch_size = watch->largest;
  seen.forward_ms = times[StepPart::forward] * each;
  seen.backward_ms = times[StepPart::backward] * each;
  seen.optimizer_ms = times[StepPart::optimizer] * each;
  seen.other_ms = times.training() * 1e3 / static_cast<double>(std::max<int64_t>(1, times.steps)) - seen.forward_ms -
                  seen.backward_ms - seen.optimizer_ms;
  return seen;
}

}  // namespace levin
