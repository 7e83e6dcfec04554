#include "levin/cli/run_cli.h"

#include <torch/version.h>

#include <nlohmann/json.hpp>

#include "levin/callbacks/prediction_writer.h"
#include "levin/cli/commands/checkpoint_tool.h"
#include "levin/cli/commands/convert.h"
#include "levin/cli/commands/export_model.h"
#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/list_runs.h"
#include "levin/cli/commands/make_report.h"
#include "levin/cli/commands/measure_memory.h"
#include "levin/cli/commands/measure_step.h"
#include "levin/cli/commands/plan_cluster.h"
#include "levin/cli/commands/plan_memory.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/commands/result_file.h"
#include "levin/cli/commands/submit.h"
#include "levin/cli/commands/sweep.h"
#include "levin/cli/commands/top.h"
#include "levin/cli/commands/trainer_help.h"
#include "levin/cli/commands/tune.h"
#include "levin/cli/config/arguments.h"
#include "levin/cli/config/old_options.h"
#include "levin/cli/config/open_plugins.h"
#include "levin/cli/config/resolve_run.h"
#include "levin/cli/config/run_parts.h"
#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/duration.h"
#include "levin/core/log.h"
#include "levin/core/main_guard.h"
#include "levin/core/stop_signal.h"
#include "levin/core/version.h"
#include "levin/core/write_errors.h"
#include "levin/strategies/launch/cluster_environment.h"
#include "levin/strategies/launch/init_method.h"
#include "levin/strategies/launch/rank_process.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

std::vector<ClassKind> all_kinds() {
  return {
      class_kind<LightningModule>("models", "model"),         class_kind<DataModule>("data", "data"),
      class_kind<Callback>("callbacks", "trainer.callbacks"), class_kind<Logger>("loggers", "trainer.logger"),
      class_kind<Optimizer>("optimizers", "optimizer"),       class_kind<LRScheduler>("lr_schedulers", "lr_scheduler"),
      class_kind<Strategy>("strategies", "trainer.strategy"), class_kind<Precision>("precisions", "trainer.precision"),
      class_kind<Profiler>("profilers", "trainer.profiler")};
}

std::string help_text(const std::string& topic, int width, Problems& problems) {
  if (topic.empty() || topic == "help") return usage_text(width);
  if (is_about_trainer(topic)) return trainer_help(topic, describe_options<TrainerOptions>(), width, problems);
  return class_help(topic, all_kinds(), width, problems);
}

// The configuration saved by an earlier run, with current option names.
ConfigNode read_kept_config(const std::string& path) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) throw Error(path + " is not a regular file.");
  Problems problems;
  const ResolvedRun earlier = resolve_run({ConfigFile{path}}, RunPlace::before, problems);
  problems.throw_if_any();
  return earlier.printed;
}

// Predictions are not kept in memory if a callback writes them.
void predict(Trainer& trainer, LightningModule& model, DataModule* data, const std::string& ckpt_path) {
  const auto writer = trainer.callback<PredictionWriter>();
  const bool keeps = writer == nullptr;
  const Predictions predictions =
      data != nullptr ? trainer.predict(model, *data, ckpt_path, keeps) : trainer.predict(model, ckpt_path, keeps);
  if (keeps) return report_predictions(trainer, predictions, data);
  Console::instance().print("predictions: " + count_of(writer->samples(), "sample") + ", written to " + writer->path() +
                            ", took " + readable_duration(trainer.elapsed()));
}

void run_stage(Command command, ResolvedRun run) {
  const WriteErrorsScope writes;  // "levin fit | head" trains to its end
  const RunParts parts = make_parts(run.config);
  Trainer trainer(run.trainer);
  trainer.keep_config({run.printed, read_kept_config});
  if (run.config.weights) trainer.start_from(*run.config.weights);
  const std::string ckpt_path = run.config.ckpt_path.value_or("");
  if (command != Command::fit) warn_of_initial_weights(command_word(command), run.config);
  LightningModule& model = *parts.model;
  DataModule* data = parts.data.get();  // null: the model's own loaders
  // A signal that arrives between the fit and its test is for the test.
  const StopSignalScope signals({.grace = run.trainer.stop_grace, .launcher_decides = launched_by_levin()});
  switch (command) {
    case Command::fit: try { fit(trainer, parts, ckpt_path);
      } catch (const Interrupted&) {
        write_result_file(trainer, /*stopped=*/true);
        throw;
      }
      write_result_file(trainer, /*stopped=*/false);
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
    default: predict(trainer, model, data, ckpt_path);
  }
  ignore_stop_signals();
}

// "--output FILE" as a callback of the run, in one line, as an override is written. One file is named, so tensors are
// joined at the end.
Override written_to(const std::string& file) {
  const std::string quoted = nlohmann::json(file).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::string interval = file.ends_with(".safetensors") ? ", write_interval: epoch" : "";
  return {.path = "trainer.callbacks",
          .value = "{class_path: PredictionWriter, init_args: {output: " + quoted + interval +
                   "}}",  // an override is in flow style
          .append = true};
}

// Whether this is the first process of a job: messages that concern all processes are printed once.
bool is_first_process() {
  const auto world = find_world(process_variables());
  return !world || (world->rank == 0 && !process_variables()("LEVIN_LAUNCHED"));
}

int complain(const Problems& problems) {
  const size_t count = problems.size();
  return report_problems(problems, count_of(count, "problem") + "; nothing was run. See levin help.");
}

// What "levin plan" can plan.
int run_plan(const std::vector<std::string>& words, int width) {
  if (!words.empty() && words[0] == "cluster") {
    return run_plan_cluster({words.begin() + 1, words.end()}, width, &measure_step);
  }
  if (!words.empty() && words[0] == "memory") {
    return run_plan_memory({words.begin() + 1, words.end()}, width, &measure_memory);
  }
  if (!words.empty() && words[0] == "--help") {
    Console::instance().print(
        "levin plan cluster …   predict step times on many devices from one measured here\n"
        "levin plan memory …    predict the memory of a step, and what to recompute\n\n"
        "levin plan cluster --help and levin plan memory --help list their options.\n");
    return kExitOk;
  }
  const std::string what =
      words.empty() ? "what to plan is missing." : "\"" + cut_text(words[0]) + "\" cannot be planned.";
  Console::instance().error("levin plan: " + what +
                            " Use levin plan cluster or levin plan memory; --help after it lists its options.");
  return kExitBadConfig;
}

// If results cannot be printed, the command has failed. The results of a fit without a test are in files.
int check_output(int status, bool prints_results) {
  const std::string problem = Console::instance().output_problem();
  if (problem.empty()) return status;
  const std::string text = "cannot write to standard output: " + problem + ".";
  if (!prints_results) {
    Console::instance().warn(text + " The run's output is incomplete; its files are not affected.");
    return status;
  }
  Console::instance().error(text);
  return status == kExitOk ? kExitRunFailed : status;
}

int run_checked(const Arguments& arguments, Problems& problems, bool& prints_results) {
  Console& console = Console::instance();
  const int width = console.width();
  if (arguments.command == Command::list || arguments.command == Command::help) {
    open_plugins_of(arguments.sources, problems);
    if (!problems.empty()) return complain(problems);
  }
  switch (arguments.command) {
    case Command::version:
      console.print(std::string("levin ") + version() + ", LibTorch " + TORCH_VERSION);
      return kExitOk;
    case Command::checkpoint:
      return run_checkpoint_tool(arguments.help ? std::vector<std::string>{"--help"} : arguments.words, width);
    case Command::submit:
      return run_submit(arguments.help ? std::vector<std::string>{"--help"} : arguments.words, width);
    case Command::plan: return run_plan(arguments.help ? std::vector<std::string>{"--help"} : arguments.words, width);
    case Command::tune: return run_tune(arguments.help ? std::vector<std::string>{"--help"} : arguments.words, width);
    case Command::sweep:
      return run_sweep_tool(arguments.help ? std::vector<std::string>{"--help"} : arguments.words, width);
    case Command::top: return run_top(arguments.help ? std::vector<std::string>{"--help"} : arguments.words, width);
    case Command::convert:
      return run_convert(arguments.help ? std::vector<std::string>{"--help"} : arguments.words, width);
    case Command::export_model:
      return run_export(arguments.help ? std::vector<std::string>{"--help"} : arguments.words, width);
    case Command::runs:
      return run_list_runs(arguments.help ? std::vector<std::string>{"--help"} : arguments.words, width);
    case Command::report:
      return run_make_report(arguments.help ? std::vector<std::string>{"--help"} : arguments.words, width);
    case Command::list: {
      const std::string text = list_text(arguments.topic, all_kinds(), width, problems);
      if (!problems.empty()) return complain(problems);
      console.print(text);
      return kExitOk;
    }
    case Command::help: {
      const std::string text = help_text(arguments.topic, width, problems);
      if (!problems.empty()) return complain(problems);
      console.print(text);
      return kExitOk;
    }
    default: break;
  }
  if (arguments.help) {
    const std::string trainer = trainer_help("trainer", describe_options<TrainerOptions>(), width, problems);
    console.print(command_help(arguments.command, trainer, width));
    return kExitOk;
  }
  log::read_environment();
  log::set_levels(arguments.log_level, log::Source::command_line);
  log::set_format(arguments.log_format, log::Source::command_line);
  std::vector<ConfigSource> sources = arguments.sources;
  if (!arguments.output.empty()) sources.emplace_back(written_to(arguments.output));
  ResolvedRun run = resolve_run(sources, RunPlace::here, problems);
  if (!arguments.print_config) require_model(run, problems);
  if (!problems.empty()) return complain(problems);
  if (arguments.print_config) {
    console.print(to_yaml(run.printed));
    return kExitOk;
  }
  if (is_first_process()) {
    for (const auto& notice : run.notices) console.warn(notice);
  }
  prints_results = arguments.command != Command::fit || run.config.test_after_fit;
  run_stage(arguments.command, std::move(run));
  return kExitOk;
}

}  // namespace

int run_cli(int argc, char** argv) {
  return main_guard([&] {
    add_builtins();
    Problems problems;
    std::vector<std::string> trainer_options = field_names<TrainerOptions>();
    for (const auto& name : old_option_names()) trainer_options.push_back(name);
    const auto words = take_init_method({argv + 1, argv + argc});
    const Arguments arguments = parse_arguments(words, trainer_options, problems);
    if (!problems.empty()) return complain(problems);
    bool prints_results = true;
    const int status = run_checked(arguments, problems, prints_results);
    return check_output(status, prints_results);
  });
}

}  // namespace levin
