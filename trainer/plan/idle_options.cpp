#include "levin/trainer/plan/idle_options.h"

namespace levin {

std::vector<std::string> idle_options(const TrainerOptions& options, const RunPlan& plan, int64_t world_size,
                                      bool own_launcher) {
  std::vector<std::string> idle;
  const auto add = [&](bool holds, const std::string& option, const std::string& why) {
    if (holds) idle.push_back("TrainerOptions." + option + " changes nothing: " + why);
  };
  add(options.max_restarts > 0 && !own_launcher, "max_restarts",
      world_size == 1 ? "a single process has no launcher that could restart it. Use several devices, or a scheduler."
                      : "another launcher has started the ranks. Ask that one to start them again.");
  add(options.sync_batchnorm && world_size == 1, "sync_batchnorm",
      "there is one rank, whose batches are all there are. Set it where several ranks train.");
  add(options.gradient_clip_algorithm != ClipAlgorithm::norm && plan.gradient_clip_val == 0, "gradient_clip_algorithm",
      "nothing is clipped. Set gradient_clip_val as well.");
  add(options.benchmark.has_value() && plan.device == "cpu", "benchmark",
      "it is about cuDNN, and this run is on the CPU.");
  return idle;
}

}  // namespace levin
