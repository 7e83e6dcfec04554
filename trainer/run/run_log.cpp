#include "levin/trainer/run/run_log.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <filesystem>

#include "levin/core/options/error.h"
#include "levin/core/process/log.h"
#include "levin/core/process/this_process.h"
#include "levin/core/version.h"
#include "levin/libtorch/version.h"

namespace levin {

namespace {

std::string limit_text(int64_t limit) {
  return limit == kUnlimited ? "unlimited" : std::to_string(limit);
}

}  // namespace

void start_run_log(Run& run, const std::string& folder) {
  if (folder.empty()) return;
  const World world = run.strategy->ranks().world();
  std::error_code code;
  // A machine that shares no disk with rank 0's makes the folder; on the same one it is gone if rank 0 has removed it.
  if (world.rank != 0 && world.node_rank == 0 && !std::filesystem::is_directory(folder, code)) return;
  run.entry.log_file = log::open(folder, world.rank, run.options.log);
  const RunPlan& plan = run.plan;
  log::trainer.info("levin {}, LibTorch {}: {} in {}, process {} on {}", version(), torch_version(),
                    enum_name(*run.entry.stage), folder, ::getpid(), host_name());
  log::trainer.info("command: {}", cut_text(own_command_text(), 2000));
  log::trainer.info(
      "plan: strategy {}, {} on {}, device {}, precision {}, {} of operators, max_epochs {}, max_steps {}, "
      "accumulate_grad_batches {}",
      run.strategy->name(), count_of(run.strategy->ranks().world_size(), "rank"), count_of(world.num_nodes, "node"),
      run.strategy->placement().device().str(), run.precision->name(), count_of(at::get_num_threads(), "thread"),
      limit_text(plan.max_epochs), limit_text(plan.max_steps), plan.accumulate_grad_batches);
  if (run.started_again) log::trainer.info("the launcher or the cluster has started this run again");
}

std::string loader_text(const char* what, const Loader& loader, int64_t batches) {
  std::string text = std::string(what) + ": " +
                     (batches == kUnlimited ? "an unknown number of batches" : count_of(batches, "batch", "batches"));
  if (const auto size = loader.batch_size()) text += " of " + std::to_string(*size);
  const int64_t workers = loader.num_workers();
  return text + (workers > 0 ? ", fetched by " + count_of(workers, "worker") : ", fetched by the training thread");
}

}  // namespace levin
