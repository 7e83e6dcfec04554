#include "levin/cli/run_cli.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "levin/callbacks/prediction_writer.h"
#include "levin/cli/commands/check.h"
#include "levin/cli/commands/checkpoint_tool.h"
#include "levin/cli/commands/completion.h"
#include "levin/cli/commands/convert.h"
#include "levin/cli/commands/export_model.h"
#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/list_runs.h"
#include "levin/cli/commands/make_report.h"
#include "levin/cli/commands/new_project.h"
#include "levin/cli/commands/pack.h"
#include "levin/cli/commands/plan_cluster.h"
#include "levin/cli/commands/plan_memory.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/commands/run_report.h"
#include "levin/cli/commands/schema.h"
#include "levin/cli/commands/submit.h"
#include "levin/cli/commands/submit_job.h"
#include "levin/cli/commands/sweep.h"
#include "levin/cli/commands/top.h"
#include "levin/cli/commands/tune.h"
#include "levin/cli/commands/weights_used.h"
#include "levin/cli/config/arguments.h"
#include "levin/cli/config/old_options.h"
#include "levin/cli/config/resolve_run.h"
#include "levin/cli/config/run_parts.h"
#include "levin/core/options/error.h"
#include "levin/core/options/units.h"
#include "levin/core/process/console.h"
#include "levin/core/process/log.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/stop_signal.h"
#include "levin/core/version.h"
#include "levin/data/streams/pack_images.h"
#include "levin/libtorch/version.h"
#include "levin/strategies/launch/cluster_environment.h"
#include "levin/strategies/launch/init_method.h"
#include "levin/strategies/launch/rank_process.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/run/run_access.h"
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
  if (is_about_trainer(topic)) {
    const std::string text = trainer_help(topic, describe_options<TrainerOptions>(), width, problems);
    const std::string option = topic.substr(std::min(topic.find('.'), topic.size()));
    const bool names_strategies = option.empty() || option == ".strategy";
    return names_strategies
               ? text + wrapped("Strategies: " + sorted_names(Registry<Strategy>::instance().names()) + ".", width)
               : text;
  }
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
void predict(Trainer& trainer, LightningModule& model, DataModule* data, const RunConfig& config) {
  const std::string ckpt_path = checkpoint_to_use(config, trainer.options());
  const auto writer = trainer.callback<PredictionWriter>();
  const bool keeps = writer == nullptr;
  const Predictions predictions =
      data != nullptr ? trainer.predict(model, *data, ckpt_path, keeps) : trainer.predict(model, ckpt_path, keeps);
  report_weights("predict", trainer, config);
  if (keeps) return report_predictions(trainer, predictions, data);
  Console::instance().print("predictions: " + count_of(writer->samples(), "sample") + ", written to " + writer->path() +
                            ", took " + readable_duration(trainer.elapsed()));
  if (writer->skipped() == 0) return;
  Console::instance().print("left out:    " + count_of(writer->skipped(), "sample") +
                            " that could not be read, listed in " + writer->skipped_path());
}

void run_stage(Command command, ResolvedRun run) {
  const WriteErrorsScope writes;  // "levin fit | head" trains to its end
  const RunParts parts = make_parts(run.config);
  Trainer trainer(run.trainer);
  RunAccess::keep_config(trainer, {run.printed, read_kept_config});
  if (run.config.weights) trainer.start_from(*run.config.weights);
  const std::string ckpt_path = run.config.ckpt_path.value_or("");
  if (command == Command::validate || command == Command::test) {
    warn_of_initial_weights(command_word(command), run.config);
  }
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
    default: predict(trainer, model, data, run.config);
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

int report_mistakes(const Problems& problems) {
  const size_t count = problems.size();
  return report_problems(problems, count_of(count, "problem") + "; nothing was run. See levin help.");
}

// "levin plan cluster" and "levin plan memory".
int run_plan(const std::vector<std::string>& arguments, int width) {
  const std::string what = arguments.empty() ? "" : arguments[0];
  const std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (what == "cluster") return run_plan_cluster(rest, width, &measure_step);
  if (what == "memory") return run_plan_memory(rest, width, &measure_memory);
  if (what == "--help" || what == "-h") {
    Console::instance().print(
        "levin plan cluster …   predict step times on many devices from one measured here\n"
        "levin plan memory …    predict the memory of a step, and what to recompute\n\n"
        "levin plan cluster --help and levin plan memory --help list their options.\n");
    return kExitOk;
  }
  Console::instance().error(
      "levin plan: " + (what.empty() ? "what to plan is missing." : "\"" + cut_text(what) + "\" cannot be planned.") +
      " Use levin plan cluster or levin plan memory; --help after it lists its options.");
  return kExitBadConfig;
}

int run_schema_tool(const std::vector<std::string>& arguments, int width) {
  return run_schema(arguments, width, {&open_plugins, &all_kinds, &describe_options<TrainerOptions>});
}

// The commands that read their arguments themselves.
constexpr std::array kTools{std::pair{Command::checkpoint, &run_checkpoint_tool},
                            std::pair{Command::submit, &run_submit},
                            std::pair{Command::plan, &run_plan},
                            std::pair{Command::tune, &run_tune},
                            std::pair{Command::sweep, &run_sweep_tool},
                            std::pair{Command::top, &run_top},
                            std::pair{Command::convert, &run_convert},
                            std::pair{Command::export_model, &run_export},
                            std::pair{Command::pack, &run_pack},
                            std::pair{Command::runs, &run_list_runs},
                            std::pair{Command::report, &run_make_report},
                            std::pair{Command::new_project, &run_new_project},
                            std::pair{Command::check, &run_check},
                            std::pair{Command::schema, &run_schema_tool}};

template <class Options>
OwnArguments arguments_of() {
  return {own_options(Options::fields())};
}

OwnArguments own_plan_arguments() {
  OwnArguments both = arguments_of<PlanClusterOptions>();
  for (auto& option : own_options(PlanMemoryOptions::fields())) both.options.push_back(std::move(option));
  both.actions = {"cluster", "memory"};
  return both;
}

// For completion: what these commands read.
OwnArguments own_arguments_of_tool(Command command) {
  switch (command) {
    case Command::checkpoint: return own_checkpoint_arguments();
    case Command::submit: return {own_submit_options()};
    case Command::plan: return own_plan_arguments();
    case Command::tune: return arguments_of<TuneOptions>();
    case Command::sweep: return own_sweep_arguments();
    case Command::top: return arguments_of<TopOptions>();
    case Command::convert: return arguments_of<ConvertOptions>();
    case Command::export_model: return arguments_of<ExportOptions>();
    case Command::pack: return arguments_of<PackOptions>();
    case Command::runs: return {own_list_runs_options()};
    case Command::report: return {own_make_report_options()};
    case Command::schema: return arguments_of<SchemaOptions>();
    default: return {};
  }
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

int run_checked(const Arguments& arguments, const std::string& program, Problems& problems, bool& prints_results) {
  Console& console = Console::instance();
  const int width = console.width();
  if (arguments.command == Command::list || arguments.command == Command::help) {
    open_plugins_of(arguments.sources, problems);
    if (!problems.empty()) return report_mistakes(problems);
  }
  for (const auto& [command, run] : kTools) {
    if (command == arguments.command) {
      return run(arguments.help ? std::vector<std::string>{"--help"} : arguments.own, width);
    }
  }
  if (arguments.command == Command::completion) {
    return run_completion(arguments.help ? std::vector<std::string>{"--help"} : arguments.own, width, program,
                          {all_kinds(), describe_options<TrainerOptions>(), &own_arguments_of_tool});
  }
  if (arguments.command == Command::version) {
    console.print(std::string("levin ") + version() + ", LibTorch " + torch_version());
    return kExitOk;
  }
  if (arguments.command == Command::list || arguments.command == Command::help) {
    const std::string text = arguments.command == Command::list
                                 ? list_text(arguments.topic, all_kinds(), width, problems)
                                 : help_text(arguments.topic, width, problems);
    if (!problems.empty()) return report_mistakes(problems);
    console.print(text);
    return kExitOk;
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
  if (!problems.empty()) return report_mistakes(problems);
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
    const Arguments arguments = parse_arguments(take_init_method({argv + 1, argv + argc}), trainer_options, problems);
    if (!problems.empty()) return report_mistakes(problems);
    bool prints_results = true;
    const std::string program = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "levin";
    const int status = run_checked(arguments, program, problems, prints_results);
    return check_output(status, prints_results);
  });
}

}  // namespace levin
