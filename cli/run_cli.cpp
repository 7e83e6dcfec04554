#include "levin/cli/run_cli.h"

#include <torch/version.h>

#include <algorithm>
#include <filesystem>

#include "levin/cli/arguments.h"
#include "levin/cli/checkpoint_tool.h"
#include "levin/cli/exit_codes.h"
#include "levin/cli/help_text.h"
#include "levin/cli/merge.h"
#include "levin/cli/report.h"
#include "levin/cli/run_config.h"
#include "levin/core/console.h"
#include "levin/core/files.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

std::vector<ClassKind> all_kinds() {
  return {class_kind<LightningModule>("models", "model"),
          class_kind<DataModule>("data", "data"),
          class_kind<Callback>("callbacks", "trainer.callbacks"),
          class_kind<Logger>("loggers", "trainer.logger"),
          class_kind<Optimizer>("optimizers", "optimizer"),
          class_kind<LRScheduler>("lr_schedulers", "lr_scheduler"),
          class_kind<Precision>("precisions", "trainer.precision"),
          class_kind<Profiler>("profilers", "trainer.profiler")};
}

/// A run file read whole, every class found and every option filled in.
struct ResolvedRun {
  RunConfig config;
  TrainerOptions trainer;
  ConfigNode printed;  // what --print_config shows and config.yaml keeps
};

template <class Interface>
void resolve_class(std::optional<ClassSpec>& spec, const std::string& path, Problems& problems) {
  if (spec) spec = Registry<Interface>::instance().resolve(*spec, path, problems);
}

template <class Interface, class Spec>
void resolve_class_with_more(std::optional<Spec>& spec, const std::string& path, Problems& problems) {
  if (!spec) return;
  const ClassSpec resolved = Registry<Interface>::instance().resolve(spec->spec(), path, problems);
  spec->class_path = resolved.class_path;
  spec->init_args = resolved.init_args;
}

// Options that only the trainer can judge (devices, precision, what does not go together) are judged here too, before
// anything is created; each problem points at the place in the file that said it.
void check_plan(const TrainerOptions& options, const ConfigNode& as_written, Problems& problems) {
  const std::string prefix = "TrainerOptions.";
  const auto reported = problems.lines();
  auto is_known = [&](const std::string& path) {
    return std::any_of(reported.begin(), reported.end(),
                       [&](const std::string& line) { return line.find(path + ":") != std::string::npos; });
  };
  try {
    (void)resolve_plan(options);
  } catch (const ConfigError& error) {
    for (const auto& problem : error.problems()) {
      const size_t colon = problem.find(": ");
      if (!problem.starts_with(prefix) || colon == std::string::npos) {
        problems.add({}, "", problem);
        continue;
      }
      const std::string name = problem.substr(prefix.size(), colon - prefix.size());
      const ConfigNode* node = as_written.find(name);
      if (!is_known("trainer." + name)) {
        problems.add(node != nullptr ? node->mark : Mark{}, "trainer." + name, problem.substr(colon + 2));
      }
    }
  }
}

ResolvedRun resolve_run(const Arguments& arguments, Problems& problems) {
  ResolvedRun run;
  run.config = read_run_config(assemble_config(arguments.sources, problems), problems);
  read_options(run.config.trainer, run.trainer, "trainer", problems);
  check_plan(run.trainer, run.config.trainer, problems);
  resolve_class<LightningModule>(run.config.model, "model", problems);
  resolve_class<DataModule>(run.config.data, "data", problems);
  resolve_class_with_more<Optimizer>(run.config.optimizer, "optimizer", problems);
  resolve_class_with_more<LRScheduler>(run.config.lr_scheduler, "lr_scheduler", problems);
  run.config.trainer = write_options(run.trainer);
  run.printed = write_options(run.config);
  return run;
}

void require_model(const RunConfig& config, Problems& problems) {
  const auto known = join(Registry<LightningModule>::instance().names());
  if (!config.model)
    problems.add(
        {}, "model",
        "no model was given. Write model: {class_path: NAME} in a config file, or --model=NAME. Known: " + known + ".");
}

/// Keeps the run's whole configuration beside its logs: `levin fit --config …/config.yaml` runs it again.
class SaveConfig final : public Callback {
 public:
  explicit SaveConfig(ConfigNode config) : config_(std::move(config)) {}
  void setup(Trainer& trainer, LightningModule&, Stage) override {
    if (trainer.loggers().empty() || trainer.global_rank() != 0) return;
    write_file_durably((std::filesystem::path(trainer.log_dir()) / "config.yaml").string(), to_yaml(config_));
  }

 private:
  ConfigNode config_;
};

LRSchedulerOptions schedule_options(const LrSchedulerSpec& config) {
  return {.interval = config.interval,
          .frequency = config.frequency,
          .monitor = config.monitor.value_or(""),
          .strict = config.strict,
          .name = config.name.value_or("")};
}

// An optimizer or a scheduler in the run file takes the place of the module's.
void override_optimizers(LightningModule& module, const RunConfig& config) {
  if (!config.optimizer && !config.lr_scheduler) return;
  module.set_optimizer_override([config](LightningModule& m) {
    OptimizerConfig result;
    if (config.optimizer) {
      auto optimizer = Registry<Optimizer>::instance().make(config.optimizer->spec(), "optimizer");
      for (auto& group :
           param_groups(m, config.optimizer->param_groups, config.optimizer->no_decay, "optimizer.param_groups")) {
        optimizer->add_param_group(std::move(group));
      }
      result.add_shared(optimizer);
    } else {
      const OptimizerConfig own = m.configure_optimizers();
      for (const auto& optimizer : own.optimizers()) result.add_shared(optimizer);
    }
    if (config.lr_scheduler) {
      result.schedule_shared(Registry<LRScheduler>::instance().make(config.lr_scheduler->spec(), "lr_scheduler"),
                             schedule_options(*config.lr_scheduler));
    }
    return result;
  });
}

struct Parts {
  std::shared_ptr<LightningModule> model;
  std::shared_ptr<DataModule> data;
};

Parts make_parts(const RunConfig& config) {
  Parts parts;
  parts.model = Registry<LightningModule>::instance().make(*config.model, "model");
  if (config.data) parts.data = Registry<DataModule>::instance().make(*config.data, "data");
  override_optimizers(*parts.model, config);
  return parts;
}

void run_command(Command command, ResolvedRun run) {
  if (const auto seed = run.config.seed()) seed_everything(static_cast<uint64_t>(*seed));
  const Parts parts = make_parts(run.config);
  run.trainer.callbacks.push_back(std::make_shared<SaveConfig>(run.printed));
  Trainer trainer(run.trainer);
  if (run.config.weights) trainer.start_from(*run.config.weights);
  const std::string ckpt_path = run.config.ckpt_path.value_or("");
  LightningModule& model = *parts.model;
  DataModule* data = parts.data.get();  // null: the model's own loaders
  switch (command) {
    case Command::fit:
      data != nullptr ? trainer.fit(model, *data, ckpt_path) : trainer.fit(model, ckpt_path);
      report_fit(trainer);
      if (!run.config.test_after_fit || trainer.plan().fast_dev_run) break;
      report_metrics("test", data != nullptr ? trainer.test(model, *data, best_or_current(trainer))
                                             : trainer.test(model, best_or_current(trainer)));
      break;
    case Command::validate:
      report_metrics("validate",
                     data != nullptr ? trainer.validate(model, *data, ckpt_path) : trainer.validate(model, ckpt_path));
      break;
    case Command::test:
      report_metrics("test", data != nullptr ? trainer.test(model, *data, ckpt_path) : trainer.test(model, ckpt_path));
      break;
    default:
      report_predictions(trainer,
                         data != nullptr ? trainer.predict(model, *data, ckpt_path) : trainer.predict(model, ckpt_path),
                         data);
  }
}

int complain(const Problems& problems) {
  for (const auto& line : problems.lines()) Console::instance().error(line);
  const size_t count = problems.size();
  Console::instance().error(std::to_string(count) + (count == 1 ? " problem" : " problems") +
                            "; nothing was run. See levin help.");
  return kExitBadConfig;
}

int run_checked(const Arguments& arguments, Problems& problems) {
  Console& console = Console::instance();
  const int width = console.width();
  switch (arguments.command) {
    case Command::version: console.print(std::string("levin 0.1.0, LibTorch ") + TORCH_VERSION); return kExitOk;
    case Command::checkpoint:
      return run_checkpoint_tool(arguments.help ? std::vector<std::string>{"--help"} : arguments.words, width);
    case Command::list: {
      const std::string text = list_text(arguments.topic, all_kinds(), width, problems);
      if (!problems.empty()) return complain(problems);
      console.print(text);
      return kExitOk;
    }
    case Command::help: {
      const std::string text =
          arguments.topic.empty() ? usage_text(width) : class_help(arguments.topic, all_kinds(), width, problems);
      if (!problems.empty()) return complain(problems);
      console.print(text);
      return kExitOk;
    }
    default: break;
  }
  if (arguments.help) {
    console.print(command_help(arguments.command, describe_options<TrainerOptions>(), all_kinds(), width));
    return kExitOk;
  }
  ResolvedRun run = resolve_run(arguments, problems);
  if (!arguments.print_config) require_model(run.config, problems);
  if (!problems.empty()) return complain(problems);
  if (arguments.print_config) {
    console.print(to_yaml(run.printed));
    return kExitOk;
  }
  run_command(arguments.command, std::move(run));
  return kExitOk;
}

}  // namespace

int run_cli(int argc, char** argv) {
  try {
    add_builtins();
    Problems problems;
    const Arguments arguments = parse_arguments({argv + 1, argv + argc}, field_names<TrainerOptions>(), problems);
    if (!problems.empty()) return complain(problems);
    return run_checked(arguments, problems);
  } catch (const ConfigError& error) {
    for (const auto& problem : error.problems()) Console::instance().error(problem);
    return kExitBadConfig;
  } catch (const Interrupted& error) {
    Console::instance().error(error.what());
    return error.signal_number() == 0 ? kExitStopped : 128 + error.signal_number();
  } catch (const std::exception& error) {
    Console::instance().error(error.what());
    return kExitRunFailed;
  }
}

}  // namespace levin
