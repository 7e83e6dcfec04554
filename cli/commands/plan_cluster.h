// levin plan cluster: predicts a run's step times on many devices from those on one here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "levin/cli/commands/step_model.h"
#include "levin/core/options/fields.h"

namespace levin {

/// Options of "levin plan cluster": the measurements of one device, and the cluster to predict.
struct PlanClusterOptions {
  int64_t parameters = 0;
  int64_t bytes = 4;
  int64_t batch_size = 1;
  double forward_ms = 0;
  double backward_ms = 0;
  double optimizer_ms = 0;
  double device_speed = 1;
  std::vector<int64_t> nodes = {1, 2, 4, 8, 16, 32, 64, 128};
  int64_t devices_per_node = 8;
  double bandwidth = 12.5;
  double latency_us = 20;
  double inside_bandwidth = 100;
  double inside_latency_us = 5;
  double bucket_cap_mb = 25;
  int64_t units = 0;  // 0: the units that fsdp makes of the model

  template <class = void>
  static auto fields() {
    using O = PlanClusterOptions;
    auto positive = [](double value) { return value > 0; };
    return levin::fields(
        field("parameters", &O::parameters, "number of trainable parameters; measured with --config").min(0),
        field("bytes", &O::bytes, "size of a parameter, and of its gradient").min(1),
        field("batch_size", &O::batch_size, "batch size of a device; measured with --config").min(1),
        field("forward_ms", &O::forward_ms, "milliseconds on one device; measured with --config").min(0.0),
        field("backward_ms", &O::backward_ms, "the same").min(0.0),
        field("optimizer_ms", &O::optimizer_ms, "the same").min(0.0),
        field("device_speed", &O::device_speed, "speed of the cluster's devices relative to this one")
            .check(positive, "> 0"),
        field("nodes", &O::nodes, "numbers of machines, 1,2,4,…")
            .check(
                [](const std::vector<int64_t>& all) {
                  return !all.empty() && *std::min_element(all.begin(), all.end()) >= 1;
                },
                "numbers >= 1"),
        field("devices_per_node", &O::devices_per_node, "devices of each machine").min(1),
        field("bandwidth", &O::bandwidth, "of a machine's link to the others, GB/s; 12.5 is 100 Gbit/s")
            .check(positive, "> 0"),
        field("latency_us", &O::latency_us, "of a message between machines, microseconds").min(0.0),
        field("inside_bandwidth", &O::inside_bandwidth, "between two devices of a machine, GB/s")
            .check(positive, "> 0"),
        field("inside_latency_us", &O::inside_latency_us, "of a message between them, microseconds").min(0.0),
        field("bucket_cap_mb", &O::bucket_cap_mb, "MiB of gradients that ddp reduces together").check(positive, "> 0"),
        field("units", &O::units,
              "parts that fsdp gathers the parameters in; 0: as fsdp makes them, whole layers of 25 MiB together")
            .min(0));
  }
};

/// Measurements of one device, in milliseconds except for counts.
struct MeasuredStep {
  int64_t parameters = 0;
  int64_t bytes = 4;
  int64_t batch_size = 1;
  int64_t units = 1;  // that fsdp makes of the model
  double forward_ms = 0, backward_ms = 0, optimizer_ms = 0, other_ms = 0;
};

/// Measures the run that these arguments describe (--config FILE, overrides); throws ConfigError.
using MeasureRun = std::function<MeasuredStep(const std::vector<std::string>& run_arguments)>;

/// Runs "levin plan cluster": prints a table of step times and efficiencies of ddp and of fsdp's stages. Words that are
/// not its options are the run's. Returns the exit code.
[[nodiscard]] int run_plan_cluster(const std::vector<std::string>& arguments, int width, const MeasureRun& measure);

/// One line of the table.
struct ClusterLine {
  int64_t nodes = 1, devices = 1;
  StepPrediction ddp = {}, fsdp_2 = {}, fsdp_3 = {};  // stage 1 sends the same as stage 2
};
[[nodiscard]] std::vector<ClusterLine> plan_cluster(const PlanClusterOptions& options, double other_ms);

// --- Measures the time of a run's steps on one device of this machine.

/// Measures the run that these arguments describe, as after "levin fit": 5 warm-up steps, then up to 50 measured ones,
/// without logs and checkpoints. Throws ConfigError for mistakes in the arguments, and the run's exceptions.
[[nodiscard]] MeasuredStep measure_step(const std::vector<std::string>& run_arguments);

}  // namespace levin
