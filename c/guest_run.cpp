#include "levin/c/guest_run.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <mutex>
#include <string_view>

#include "levin/c/handles.h"
#include "levin/checkpoint/weights.h"
#include "levin/cli/config/resolve_run.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/this_process.h"
#include "levin/core/tensors.h"
#include "levin/loggers/csv_logger.h"
#include "levin/strategies/launch/cluster_environment.h"
#include "levin/trainer/module_access.h"
#include "levin/trainer/plan/resolve_plan.h"

namespace levin::c {

namespace {

// Options of the Trainer's own loop, which the calls of the program replace.
constexpr std::string_view kOfTheLoop[] = {"max_epochs",
                                           "min_epochs",
                                           "max_steps",
                                           "min_steps",
                                           "max_time",
                                           "use_distributed_sampler",
                                           "max_restarts",
                                           "stop_grace",
                                           "limit_train_batches",
                                           "limit_val_batches",
                                           "limit_test_batches",
                                           "limit_predict_batches",
                                           "val_check_interval",
                                           "check_val_every_n_epoch",
                                           "num_sanity_val_steps",
                                           "log_every_n_steps",
                                           "log",
                                           "enable_checkpointing",
                                           "enable_progress_bar",
                                           "enable_model_summary",
                                           "auto_resume",
                                           "auto_requeue",
                                           "inference_mode",
                                           "reload_dataloaders_every_n_epochs",
                                           "logger"};

bool has_meaning(std::string_view option) {
  const std::vector<std::string> fabric = field_names<FabricOptions>();
  return std::find(std::begin(kOfTheLoop), std::end(kOfTheLoop), option) != std::end(kOfTheLoop) ||
         std::find(fabric.begin(), fabric.end(), option) != fabric.end();
}

void check_options(const TrainerOptions& options) {
  const ConfigNode defaults = write_options(TrainerOptions());
  std::vector<std::string> problems;
  for (const ConfigEntry& entry : write_options(options).entries) {
    const ConfigNode* other = defaults.find(entry.key);
    if (has_meaning(entry.key) || (other != nullptr && other->same_as(entry.value))) continue;
    problems.push_back("trainer." + entry.key + ": " + entry.value.shown() +
                       " needs the Trainer's loop, which a program that pushes batches replaces. Remove the option.");
  }
  if (std::holds_alternative<EffectiveBatchSize>(options.accumulate_grad_batches)) {
    problems.emplace_back(
        "trainer.accumulate_grad_batches: effective_batch_size needs a loader, and this run has none. Write the number "
        "of batches.");
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

// The launcher of ranks would start this program again, and end it with them.
bool joins_ranks(const TrainerOptions& options) {
  const RunPlan plan = resolve_plan(options);
  if (plan.devices * plan.num_nodes == 1) return false;
  if (find_world(process_variables())) return true;
  throw ConfigError("trainer.devices: " + count_of(plan.devices * plan.num_nodes, "rank") +
                    " are wanted, and no launcher has started this program as one of them. Start the program with "
                    "torchrun, mpirun or srun, or set trainer.devices to 1.");
}

ResolvedRun resolve(const ConfigSource& base, const std::vector<std::string>& arguments) {
  Problems problems;
  std::vector<ConfigSource> sources{base};
  for (ConfigSource& source : read_fit_arguments(arguments, problems)) sources.push_back(std::move(source));
  problems.throw_if_any();
  ResolvedRun run = resolve_run(sources, RunPlace::here, problems);
  require_model(run, problems);
  if (run.config.ckpt_path) {
    problems.add({}, "ckpt_path",
                 "a run that is driven from outside does not load it. Remove it, and load the file "
                 "with levin_run_load.");
  }
  problems.throw_if_any();
  for (const std::string& notice : run.notices) Console::instance().warn(notice);
  return run;
}

std::vector<std::string> names_of(const torch::nn::Module& module) {
  std::vector<std::string> names = module.named_parameters().keys();
  for (const std::string& name : module.named_buffers().keys()) names.push_back(name);
  return names;
}

std::vector<std::string> hooks_without_arguments() {
  std::vector<std::string> names{"setup", "teardown"};
  for (const std::string part : {"fit", "sanity_check", "train", "train_epoch", "validation", "validation_epoch",
                                 "test", "test_epoch", "predict", "predict_epoch"}) {
    names.push_back("on_" + part + "_start");
    names.push_back("on_" + part + "_end");
  }
  return names;
}

// Plugins register classes and the seed is the process's, so runs are made one after another.
std::mutex& creation() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

}  // namespace

FabricOptions fabric_options(const TrainerOptions& given) {
  check_options(given);
  FabricOptions options;
  options.accelerator = given.accelerator;
  options.strategy = given.strategy;
  options.devices = given.devices;
  options.num_nodes = given.num_nodes;
  options.precision = given.precision;
  options.callbacks = given.callbacks;
  if (given.logger.enabled) options.loggers = given.logger.loggers;
  if (given.logger.enabled && options.loggers.empty()) options.loggers.push_back(CSVLogger());
  options.accumulate_grad_batches = std::get<int64_t>(given.accumulate_grad_batches);
  options.gradient_clip_val = given.gradient_clip_val;
  options.gradient_clip_algorithm = given.gradient_clip_algorithm;
  options.nonfinite_loss = given.nonfinite_loss;
  options.record_steps = given.record_steps;
  options.deterministic = given.deterministic;
  if (const auto* threads = std::get_if<int64_t>(&given.num_threads)) options.num_threads = *threads;
  options.default_root_dir = given.default_root_dir;
  return options;
}

GuestRun::GuestRun(const ConfigSource& base, const std::vector<std::string>& arguments) {
  worker_.run([&] {
    try {
      create(base, arguments);
    } catch (...) {
      fabric_.reset();  // on its thread
      throw;
    }
  });
}

GuestRun::~GuestRun() {
  try {
    worker_.run([&] {
      fabric_.reset();
      parts_ = RunParts();
    });
  } catch (const std::exception& error) {
    Console::instance().warn("levin_run_free: " + std::string(error.what()));
  }
}

void GuestRun::create(const ConfigSource& base, const std::vector<std::string>& arguments) {
  const std::lock_guard one_at_a_time(creation());
  add_builtins();
  ResolvedRun run = resolve(base, arguments);
  run.config.data = std::nullopt;  // batches are pushed
  FabricOptions options = fabric_options(run.trainer);
  const bool joins = joins_ranks(run.trainer);
  is_sharded_ = run.trainer.strategy.spec().class_path.starts_with("fsdp");
  parts_ = make_parts(run.config);
  parts_.model->configure_model();
  if (run.config.weights) (void)load_weights(*parts_.model, *run.config.weights);
  names_ = names_of(*parts_.model);
  fabric_ = std::make_unique<Fabric>(std::move(options));
  if (joins) fabric_->launch();
  const OptimizerConfig optimizers = ModuleAccess::wanted_optimizers(*parts_.model);
  has_optimizer_ = !optimizers.optimizers().empty();
  (void)fabric_->setup(std::static_pointer_cast<torch::nn::Module>(parts_.model), optimizers);
}

void GuestRun::check_has_not_ended() const {
  if (has_ended_) throw InvalidArgument("the run has ended (levin_run_finish). Create another run.");
}

double GuestRun::step(const Batch& batch, bool reads_loss) {
  return with_fabric([&](Fabric& fabric) {
    check_has_not_ended();
    if (!has_optimizer_) {
      throw Error(
          "there is no optimizer to train with. Name one in the run file, such as `optimizer: AdamW`, or make it "
          "in the model's configure_optimizers.");
    }
    const at::Tensor loss = fabric.step(fabric.to_device(batch));
    if (!reads_loss) return 0.0;
    return loss.defined() ? loss.item().toDouble() : std::numeric_limits<double>::quiet_NaN();
  });
}

void GuestRun::evaluate(const Batch& batch) {
  worker_.run([&] {
    check_has_not_ended();
    (void)fabric_->evaluate(fabric_->to_device(batch));
  });
}

at::Tensor GuestRun::predict(const Batch& batch) {
  return with_fabric([&](Fabric& fabric) {
    check_has_not_ended();
    const at::Tensor prediction = fabric.predict(fabric.to_device(batch));
    if (!prediction.defined()) throw Error("predict_step returned no tensor. Return one.");
    at::Tensor result = prediction.detach().cpu().contiguous();
    const bool is_shared = std::any_of(batch.tensors.begin(), batch.tensors.end(),
                                       [&](const at::Tensor& tensor) { return result.is_alias_of(tensor); });
    return is_shared ? result.clone() : result;
  });
}

void GuestRun::end_epoch() {
  worker_.run([&] {
    check_has_not_ended();
    fabric_->end_epoch();
  });
}

void GuestRun::call(const std::string& hook) {
  const std::vector<std::string> known = hooks_without_arguments();
  if (std::find(known.begin(), known.end(), hook) == known.end()) {
    throw InvalidArgument("no hook without arguments is called \"" + cut_text(hook) + "\"." + known_names(hook, known));
  }
  worker_.run([&] {
    check_has_not_ended();
    fabric_->call(hook);
  });
}

bool GuestRun::should_stop() {
  return with_fabric([&](Fabric& fabric) {
    check_has_not_ended();
    return fabric.should_stop();
  });
}

void GuestRun::log(const std::string& name, double value) {
  worker_.run([&] {
    check_has_not_ended();
    fabric_->log(name, value);
  });
}

double GuestRun::metric(const std::string& name) {
  const Metrics metrics = with_fabric([](Fabric& fabric) { return fabric.callback_metrics(); });
  if (const auto found = metrics.find(name); found != metrics.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [each, value] : metrics) known.push_back(each);
  throw InvalidArgument("no value is called \"" + cut_text(name) + "\"." + known_names(name, known));
}

at::Tensor GuestRun::find_weight(const std::string& name) const {
  if (is_sharded_) {
    throw Error("with fsdp each rank holds a part of a weight. Use levin_run_save, whose file has the whole weights.");
  }
  for (const auto& all : {parts_.model->named_parameters(), parts_.model->named_buffers()}) {
    if (const at::Tensor* found = all.find(name)) return *found;
  }
  throw InvalidArgument("no weight is called \"" + cut_text(name) + "\"." + known_names(name, names_));
}

at::Tensor GuestRun::weight(const std::string& name) {
  return with_fabric([&](Fabric&) {
    const at::Tensor weight = find_weight(name).detach().contiguous();
    return weight.to(at::kCPU, weight.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  });
}

void GuestRun::set_weight(const std::string& name, const at::Tensor& value) {
  worker_.run([&] {
    const at::AutoGradMode no_gradients(false);
    at::Tensor weight = find_weight(name);
    if (weight.sizes() != value.sizes()) {
      throw InvalidArgument("the weight \"" + cut_text(name) + "\" has the shape " + shape_text(weight.sizes()) +
                            ", and the tensor " + shape_text(value.sizes()) + ". Pass a tensor of the weight's shape.");
    }
    weight.copy_(value);
  });
}

void GuestRun::save(const std::string& path) {
  worker_.run([&] {
    check_has_not_ended();
    fabric_->save(path);
  });
}

void GuestRun::load(const std::string& path) {
  worker_.run([&] {
    check_has_not_ended();
    (void)fabric_->load(path);
  });
}

void GuestRun::finish() {
  worker_.run([&] {
    check_has_not_ended();
    has_ended_ = true;
    fabric_->finish();
  });
}

}  // namespace levin::c
