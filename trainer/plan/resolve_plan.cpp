#include "levin/trainer/plan/resolve_plan.h"

#include <algorithm>
#include <cmath>

#include "levin/core/options/error.h"
#include "levin/core/storage/staging.h"
#include "levin/precision/precision.h"
#include "levin/trainer/plan/devices.h"
#include "levin/trainer/plan/rank_plan.h"
#include "levin/trainer/plan/resolve_period.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

constexpr int64_t kMaxThreads = 1024;  // OpenMP ends the process where it cannot start them

bool is_on(const std::variant<bool, int64_t>& fast_dev_run) {
  const auto* flag = std::get_if<bool>(&fast_dev_run);
  return flag != nullptr ? *flag : std::get<int64_t>(fast_dev_run) > 0;
}

void resolve_limits(const TrainerOptions& o, RunPlan& plan) {
  const bool open_end = o.max_steps >= 0 || o.max_time.has_value();
  const int64_t epochs = o.max_epochs.value_or(open_end ? -1 : 1000);
  plan.max_epochs = epochs < 0 ? kUnlimited : epochs;
  plan.max_steps = o.max_steps < 0 ? kUnlimited : o.max_steps;
  plan.min_epochs = o.min_epochs.value_or(0);
  plan.min_steps = o.min_steps.value_or(0);
  plan.limit_train_batches = o.limit_train_batches.value_or(1.0);
  plan.limit_val_batches = o.limit_val_batches.value_or(1.0);
  plan.limit_test_batches = o.limit_test_batches.value_or(1.0);
  plan.limit_predict_batches = o.limit_predict_batches.value_or(1.0);
  const int64_t sanity = o.num_sanity_val_steps.value_or(2);
  plan.num_sanity_val_steps = sanity < 0 ? kUnlimited : sanity;
  plan.overfit = o.overfit_batches != BatchLimit(0.0) && o.overfit_batches != BatchLimit(int64_t{0});
  if (plan.overfit) plan.limit_train_batches = plan.limit_val_batches = o.overfit_batches;
}

void check_limits(const RunPlan& plan, Problems& problems) {
  auto check = [&](const char* unit, int64_t least, int64_t most) {
    if (least <= most) return;
    const std::string name = std::string("min_") + unit, other = std::string("max_") + unit;
    problems.add({}, "TrainerOptions." + name,
                 std::to_string(least) + " is more than " + other + ", " + std::to_string(most) + ". Set a smaller " +
                     name + " or a larger " + other + ".");
  };
  check("epochs", plan.min_epochs, plan.max_epochs);
  check("steps", plan.min_steps, plan.max_steps);
}

void resolve_fast_dev_run(const TrainerOptions& o, RunPlan& plan) {
  plan.fast_dev_run = is_on(o.fast_dev_run);
  if (!plan.fast_dev_run) return;
  const auto* count = std::get_if<int64_t>(&o.fast_dev_run);
  const int64_t batches = count != nullptr ? *count : 1;
  plan.limit_train_batches = plan.limit_val_batches = plan.limit_test_batches = plan.limit_predict_batches = batches;
  plan.max_steps = batches;
  plan.max_epochs = 1;
  plan.num_sanity_val_steps = 0;
  plan.val_check_interval = 1.0;
  plan.check_val_every_n_epoch = 1;
}

void resolve_barebones(const TrainerOptions& o, RunPlan& plan, Problems& problems) {
  if (!o.barebones) return;
  auto clash = [&](bool asked, const char* option, const char* seen) {
    if (asked) {
      problems.add(
          {}, std::string("TrainerOptions.") + option,
          std::string(seen) + " was asked for together with barebones, which turns it off. Drop one of the two.");
    }
  };
  clash(o.enable_checkpointing.value_or(false), "enable_checkpointing", "true");
  clash(o.enable_progress_bar.value_or(false), "enable_progress_bar", "true");
  clash(o.enable_model_summary.value_or(false), "enable_model_summary", "true");
  clash(!o.logger.loggers.empty(), "logger", "a logger");
  clash(o.log_every_n_steps.value_or(0) != 0, "log_every_n_steps", "a number");
  clash(o.num_sanity_val_steps.value_or(0) != 0, "num_sanity_val_steps", "a number");
  clash(plan.fast_dev_run, "fast_dev_run", "it");
  clash(o.detect_anomaly, "detect_anomaly", "true");
  clash(!o.profiler.empty(), "profiler", "a profiler");
  plan.checkpointing = plan.progress_bar = plan.model_summary = plan.logging = false;
  plan.num_sanity_val_steps = 0;
  plan.log_every_n_steps = 0;
}

// null in a run file, and an empty pointer in C++.
template <class Interface>
void check_list(const ComponentList<Interface>& list, const std::string& option, Problems& problems) {
  int64_t index = 0;
  for (const auto& item : list) {
    const int64_t k = index++;
    if (!item.empty()) continue;
    const std::string place = "TrainerOptions." + option + "[" + std::to_string(k) + "]";
    const std::string wanted = Interface::registry_name();
    problems.add({}, place, "null where a " + wanted + " belongs. Give a " + wanted + ", or leave the entry out.");
  }
}

void resolve_precision(const TrainerOptions& o, RunPlan& plan, Problems& problems) {
  if (o.precision.empty()) return;
  if (falls_back_to_bfloat16(o, plan)) {
    plan.precision = "bf16-mixed";
    return;
  }
  try {
    Component<Precision> choice = o.precision;
    plan.precision = choice.object("TrainerOptions.precision")->name();
  } catch (const ConfigError& error) {
    for (const auto& problem : error.problems()) problems.add({}, "", problem);
  }
}

void check_log(const log::LogOptions& options, Problems& problems) {
  check_options(options, "TrainerOptions.log", problems);
  try {
    (void)log::parse_levels(options.level, "TrainerOptions.log.level");
  } catch (const ConfigError& mistake) {
    problems.add({}, "", mistake.what());
  }
}

void resolve_batch_sizes(const TrainerOptions& o, RunPlan& plan, Problems& problems) {
  if (const auto* count = std::get_if<int64_t>(&o.accumulate_grad_batches)) plan.accumulate_grad_batches = *count;
  if (const auto* size = std::get_if<EffectiveBatchSize>(&o.accumulate_grad_batches)) {
    plan.effective_batch_size = size->effective_batch_size;
    check_options(*size, "TrainerOptions.accumulate_grad_batches", problems);
  }
  plan.lr_scale = o.lr_scale;
  if (!o.micro_batch_size) return;
  const auto* size = std::get_if<int64_t>(&*o.micro_batch_size);
  plan.micro_batch_size = size != nullptr ? *size : kAutoMicroBatch;
}

RecordSteps resolve_recording(const TrainerOptions& o) {
  const auto* flag = std::get_if<bool>(&o.record_steps);
  if (flag == nullptr) return RecordSteps::automatic;
  return *flag || o.cuda_graph ? RecordSteps::yes : RecordSteps::no;
}

}  // namespace

bool falls_back_to_bfloat16(const TrainerOptions& options, const RunPlan& plan) {
  return plan.device == "cpu" && (options.precision.is_name("16-mixed") || options.precision.is_name("16"));
}

// The folder in which the run works; of one in an object store, the folder of this machine that is copied there.
std::string resolve_root_dir(const TrainerOptions& o, Problems& problems) {
  try {
    return o.default_root_dir.empty() ? "." : staged(o.default_root_dir);
  } catch (const ConfigError& error) {
    problems.add({}, "TrainerOptions.default_root_dir", error.what());
    return ".";
  }
}

RunPlan resolve_plan(const TrainerOptions& o) {
  Problems problems;
  check_options(o, "TrainerOptions", problems);
  check_log(o.log, problems);
  check_list(o.callbacks, "callbacks", problems);
  check_list(o.logger.loggers, "logger", problems);
  RunPlan plan;
  plan.log_every_n_steps = o.log_every_n_steps.value_or(50);
  plan.checkpointing = o.enable_checkpointing.value_or(true);
  plan.progress_bar = o.enable_progress_bar.value_or(true);
  plan.model_summary = o.enable_model_summary.value_or(true);
  resolve_batch_sizes(o, plan, problems);
  plan.gradient_clip_val = o.gradient_clip_val.value_or(0);
  plan.gradient_clip_algorithm = o.gradient_clip_algorithm;
  plan.inference_mode = o.inference_mode;
  plan.detect_anomaly = o.detect_anomaly;
  plan.reload_dataloaders_every_n_epochs = o.reload_dataloaders_every_n_epochs;
  plan.nonfinite_loss = o.nonfinite_loss;
  plan.benchmark = o.benchmark;
  plan.float32_matmul_precision = o.float32_matmul_precision;
  plan.channels_last = o.channels_last;
  plan.record_steps = resolve_recording(o);
  plan.root_dir = resolve_root_dir(o, problems);
  resolve_limits(o, plan);
  if (!is_on(o.fast_dev_run)) check_limits(plan, problems);
  if (o.max_time && o.max_time->count() < 0) {
    problems.add({}, "TrainerOptions.max_time", "must be >= 0 s, got " + number_text(o.max_time->count()) + " s.");
  }
  if (!is_on(o.fast_dev_run)) resolve_validation(o, plan, problems);
  resolve_fast_dev_run(o, plan);
  const bool* continues = std::get_if<bool>(&o.auto_resume);  // null: the word warn
  plan.auto_resume = (continues == nullptr || *continues) && !plan.fast_dev_run;
  resolve_barebones(o, plan, problems);
  resolve_accelerator(o, plan, problems);
  resolve_ranks(o, plan, problems);
  if (const auto* threads = std::get_if<int64_t>(&o.num_threads)) plan.num_threads = *threads;
  if (plan.num_threads > kMaxThreads) {
    problems.add({}, "TrainerOptions.num_threads",
                 "must be <= " + std::to_string(kMaxThreads) + ", got " + std::to_string(plan.num_threads) +
                     ". More threads than cores make operators slower: use their number, or auto.");
  }
  plan.use_distributed_sampler = o.use_distributed_sampler;
  resolve_precision(o, plan, problems);
  problems.throw_if_any();
  return plan;
}

int64_t limited_batches(const BatchLimit& limit, std::optional<int64_t> length, const std::string& option) {
  if (length && *length < 0) {
    throw ConfigError("num_batches() of a loader is " + std::to_string(*length) +
                      ". Return the number of batches of a pass, or std::nullopt if it is not known.");
  }
  if (const auto* count = std::get_if<int64_t>(&limit)) return std::min(*count, length.value_or(kUnlimited));
  const double share = std::get<double>(limit);
  if (!length) {
    if (share == 1.0) return kUnlimited;
    if (share == 0.0) return 0;
    throw ConfigError("TrainerOptions." + option + ": a share (" + number_text(share) +
                      ") of a loader of unknown length is not known either. Use a number of batches, or 1.0.");
  }
  const auto batches = static_cast<int64_t>(std::floor(static_cast<double>(*length) * share));
  if (batches == 0 && share > 0 && *length > 0) {
    throw ConfigError("TrainerOptions." + option + ": " + number_text(share) + " of " +
                      count_of(*length, "batch", "batches") + " leaves none. Use at least " +
                      number_text(1.0 / static_cast<double>(*length)) + ", or a number of batches.");
  }
  return batches;
}

std::string end_reason(const Trainer& trainer) {
  const RunPlan& plan = trainer.plan();
  if (!trainer.stop_reason().empty()) return trainer.stop_reason();
  if (trainer.global_step() >= plan.max_steps) return "max_steps (" + std::to_string(plan.max_steps) + ") is reached";
  if (trainer.current_epoch() >= plan.max_epochs) {
    return "max_epochs (" + std::to_string(plan.max_epochs) + ") is reached";
  }
  return "there are no batches";
}

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
