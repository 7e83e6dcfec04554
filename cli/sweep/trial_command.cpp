#include "levin/cli/sweep/trial_command.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "levin/cli/sweep/trial_result.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/variables.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

std::vector<int> cores_of_this_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

// "2,3" for slot 1 of two GPUs each: of the GPUs that this process sees.
std::string gpus_of_slot(int64_t slot, int64_t count, int64_t slots) {
  std::vector<std::string> all;
  if (const auto listed = process_variables()("CUDA_VISIBLE_DEVICES")) {
    std::istringstream names(*listed);
    for (std::string name; std::getline(names, name, ',');) all.push_back(name);
    if (std::ssize(all) < count * slots) {
      throw Error("sweep: slots: " + std::to_string(slots) + " with gpus_per_slot: " + std::to_string(count) +
                  " need " + count_of(count * slots, "GPU") + ", and CUDA_VISIBLE_DEVICES names " +
                  std::to_string(all.size()) + ". Lower one of them.");
    }
  } else {
    for (int64_t gpu = 0; gpu < count * slots; ++gpu) all.push_back(std::to_string(gpu));
  }
  std::string text;
  for (int64_t k = 0; k < count; ++k) text += (k == 0 ? "" : ",") + all[static_cast<size_t>(slot * count + k)];
  return text;
}

}  // namespace

TrialCommand trial_command(const SweepStore& store, const std::string& program, const Trial& trial, bool alone) {
  const SweepOptions& options = store.options();
  const std::string folder = store.trial_folder(trial.id);
  TrialCommand command;
  command.words = {program, "fit", "--config", (fs::path(store.folder()) / "run.yaml").string()};
  for (const auto& [path, value] : trial.parameters) command.words.push_back("--" + path + "=" + value);
  for (const auto& word : {"--trainer.default_root_dir=" + folder, std::string("--trainer.auto_resume=true"),
                           std::string("--trainer.enable_progress_bar=false"), std::string("--test_after_fit=false")}) {
    command.words.push_back(word);
  }
  command.folder = store.plan().working_folder;
  command.output = (fs::path(folder) / "output.log").string();
  const std::vector<int> cores = cores_of_this_process();
  const int64_t usable = std::max<int64_t>(1, std::ssize(cores));
  const int64_t slots = alone ? 1 : options.slots;
  const int64_t slot = alone ? 0 : trial.slot;
  const int64_t each = options.cores_per_slot > 0 ? options.cores_per_slot : std::max<int64_t>(1, usable / slots);
  if (each * slots <= usable && slots > 1) {
    for (int64_t k = 0; k < each; ++k) command.cores.push_back(cores[static_cast<size_t>(slot * each + k)]);
  }
  command.variables = {{"OMP_NUM_THREADS", std::to_string(each)}, {"LEVIN_RESULT_FILE", result_file(store, trial)}};
  if (trial.target > 0) {
    const std::string unit = options.search.resource == Resource::epochs ? "epoch=" : "step=";
    command.variables.emplace_back("LEVIN_STOP_AFTER", unit + std::to_string(trial.target));
  }
  if (options.gpus_per_slot > 0) {
    command.variables.emplace_back("CUDA_VISIBLE_DEVICES", gpus_of_slot(slot, options.gpus_per_slot, slots));
  }
  return command;
}

}  // namespace levin
