#include "levin/cli/commands/plan_cluster.h"

#include <cmath>
#include <cstdio>

#include "levin/cli/commands/command_words.h"
#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/exit_codes.h"
#include "levin/strategies/process/fsdp.h"

namespace levin {

namespace {

// "1,2,4" is accepted as a list.
ConfigNode value_of(const std::string& name, const std::string& text) {
  if (name != "nodes") return ConfigNode::scalar(text);
  ConfigNode list = ConfigNode::list();
  for (size_t start = 0; start <= text.size();) {
    const size_t comma = std::min(text.find(',', start), text.size());
    list.items.push_back(ConfigNode::scalar(text.substr(start, comma - start)));
    start = comma + 1;
  }
  return list;
}

std::string number(const char* format, double value) {
  std::array<char, 64> text = {};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

// Three digits and a unit.
std::string time_text(double seconds) {
  if (seconds >= 1) return number("%.2f s", seconds);
  return seconds >= 1e-3 ? number("%.2f ms", seconds * 1e3) : number("%.0f us", seconds * 1e6);
}

std::string cluster_usage(int width) {
  return "levin plan cluster [--config FILE…] [options] [overrides…]\n\n" +
         wrapped(
             "Predicts the step time and the efficiency of ddp and fsdp (stages 1 to 3) on many devices. With --config "
             "the run's step is measured here, on one device; without it the times are given. Each device keeps its "
             "batch, so that the global batch grows with the devices. docs/planning.md has the formulas.",
             width) +
         "\n" + options_table(describe_options<PlanClusterOptions>(), width);
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
  console.print(std::to_string(options.parameters) + " parameters, " + number("%.1f", cost.bytes / 1e6) +
                " MB to send, by fsdp in " + count_of(cost.units, "unit") +
                ". One device: " + count_of(options.batch_size, "sample") + " in " + time_text(cost.alone()) +
                " (forward " + time_text(cost.forward) + ", backward " + time_text(cost.backward) + ", optimizer " +
                time_text(cost.optimizer) + ", other " + time_text(cost.other) + ").");
  console.print(
      "nodes  devices  global batch |   ddp: step, efficient | fsdp 1, 2: step, eff. |    fsdp 3: step, eff.");
  for (const auto& line : plan_cluster(options, other_ms)) {
    std::array<char, 160> text = {};
    std::snprintf(text.data(), text.size(), "%5ld  %7ld  %12ld | %11s %6.1f %% | %11s %6.1f %% | %11s %6.1f %%",
                  static_cast<long>(line.nodes), static_cast<long>(line.devices),
                  static_cast<long>(line.devices * options.batch_size), time_text(line.ddp.step).c_str(),
                  100 * line.ddp.efficiency, time_text(line.fsdp_2.step).c_str(), 100 * line.fsdp_2.efficiency,
                  time_text(line.fsdp_3.step).c_str(), 100 * line.fsdp_3.efficiency);
    console.print(text.data());
  }
}

}  // namespace

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

int run_plan_cluster(const std::vector<std::string>& words, int width, const MeasureRun& measure) {
  Problems problems;
  CommandWords read = read_command_words(words, field_names<PlanClusterOptions>(), {}, problems);
  for (auto& entry : read.options.entries) entry.value = value_of(entry.key, entry.value.text);
  if (read.help) {
    Console::instance().print(cluster_usage(width));
    return kExitOk;
  }
  PlanClusterOptions options;
  read_options(read.options, options, "", problems);
  if (!problems.empty()) return report_problems(problems, "nothing was planned. See levin plan cluster --help.");
  double other_ms = 0;
  if (!read.run.empty()) {
    const MeasuredStep seen = measure(read.run);
    complete(options, read.options, seen);
    other_ms = seen.other_ms;
  }
  check_complete(options, problems);
  if (!problems.empty()) return report_problems(problems, "nothing was planned. See levin plan cluster --help.");
  print_plan(options, other_ms);
  return kExitOk;
}

}  // namespace levin
