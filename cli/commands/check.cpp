#include "levin/cli/commands/check.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/config/resolve_run.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/data/data_module.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/random_state.h"

namespace levin {

namespace {

std::string check_usage(int width) {
  return "levin check FILE… [overrides…]\n\n" +
         wrapped(
             "Reads run files and overrides as levin fit does, makes the model and the data module, reads the first "
             "batch of each loader, and prints everything that is wrong, each with its position. Like levin fit it "
             "opens plugins, and downloads data that are missing if the data module does. The exit status is 0, or 2 "
             "if something is wrong. Nothing is trained or written to the run's folder.",
             width);
}

// Files may be given without --config, before all options.
std::vector<std::string> with_config(const std::vector<std::string>& arguments) {
  std::vector<std::string> all;
  bool is_file = true;
  for (const auto& argument : arguments) {
    is_file = is_file && !argument.starts_with('-');
    if (is_file) all.emplace_back("--config");
    all.push_back(argument);
  }
  return all;
}

// Whether one of the problems found so far is about the value at `path` or a part of it.
bool has_problem(const Problems& problems, const std::string& path) {
  return std::any_of(problems.paths().begin(), problems.paths().end(), [&](const std::string& known) {
    return known == path || known.starts_with(path + ".") || known.starts_with(path + "[");
  });
}

// What is thrown by the code of a model or a data module is a problem of the class in the run file.
template <class Function>
void collect_problems(const Mark& mark, const std::string& path, Problems& problems, const Function& function) {
  try {
    function();
  } catch (const Interrupted&) {
    throw;
  } catch (const ConfigError& error) {
    for (const auto& problem : error.problems()) problems.add(mark, path, problem);
  } catch (...) {
    problems.add(mark, path, exception_text(std::current_exception()));
  }
}

// What was checked, for the last line.
struct Checked {
  std::vector<std::string> parts = {};
  std::string not_checked = "the model's steps and its optimizer";
};

void check_model(const RunConfig& config, Problems& problems, Checked& checked) {
  if (!config.model || has_problem(problems, "model")) return;
  collect_problems(config.model->mark, "model", problems, [&] {
    if (const auto seed = config.seed()) seed_everything(static_cast<uint64_t>(*seed));
    const auto model = Registry<LightningModule>::instance().make(*config.model, "model");
    int64_t weights = 0;
    for (const auto& parameter : model->parameters()) weights += parameter.numel();
    // A model may make its layers in configure_model, when it knows the data.
    checked.parts.push_back("model " + config.model->class_path +
                            (weights > 0 ? " (" + count_of(weights, "weight") + ")" : ""));
  });
}

void check_loaders(const std::string& use, const Loaders& loaders, std::string& found) {
  int64_t batches = 0;
  bool is_known = true;
  for (const auto& loader : loaders) {
    Batch batch;
    loader->start(0);
    const bool has_batch = loader->next(batch);
    loader->stop();
    if (!has_batch) throw DataError("a loader " + use + " has no batch.");
    const auto count = loader->num_batches();
    is_known = is_known && count.has_value();
    batches += count.value_or(0);
  }
  if (loaders.size() == 0) return;
  found += (found.empty() ? "" : ", ") + (is_known ? count_of(batches, "batch", "batches") + " " : "") + use;
}

void check_data(const RunConfig& config, Problems& problems, Checked& checked) {
  if (!config.data) checked.not_checked = "the model's steps, its optimizer and its loaders";
  if (!config.data || has_problem(problems, "data")) return;
  collect_problems(config.data->mark, "data", problems, [&] {
    const auto data = Registry<DataModule>::instance().make(*config.data, "data");
    data->prepare_data();
    data->setup(Stage::fit);
    std::string found;
    if (const auto train = data->train_dataloader()) check_loaders("to train on", Loaders(train), found);
    check_loaders("to validate on", data->val_dataloader(), found);
    data->teardown(Stage::fit);
    checked.parts.push_back("data " + config.data->class_path + (found.empty() ? "" : " (" + found + ")"));
  });
}

// "best", "last" and the folder of a run are searched for when the run begins.
void check_files(const RunConfig& config, const ConfigNode& written, Problems& problems) {
  const auto check = [&](const std::string& file, const std::string& path, const ConfigNode* node) {
    std::error_code ignored;
    if (file.empty() || std::filesystem::exists(file, ignored)) return;
    problems.add(
        node != nullptr ? node->mark : Mark{}, path,
        "no file or folder " + cut_text(file, 200) + " (from " + std::filesystem::current_path().string() + ").");
  };
  const std::string checkpoint = config.ckpt_path.value_or("");
  if (checkpoint != "best" && checkpoint != "last") check(checkpoint, "ckpt_path", written.find("ckpt_path"));
  const ConfigNode* weights = written.find("weights");
  if (config.weights && !has_problem(problems, "weights"))
    check(config.weights->path, "weights.path", weights != nullptr ? weights->find("path") : nullptr);
}

int report_found(const Problems& problems) {
  return report_problems(problems, count_of(problems.size(), "problem") + "; nothing was run.");
}

}  // namespace

int run_check(const std::vector<std::string>& arguments, int width) {
  const auto is_help = [](const std::string& argument) { return argument == "-h" || argument == "--help"; };
  if (std::any_of(arguments.begin(), arguments.end(), is_help)) return print_usage(check_usage(width));
  Problems problems;
  if (arguments.empty()) problems.add({}, "levin check", "no file was given. Write levin check FILE.");
  if (!problems.empty()) return report_problems(problems, "nothing was checked. See levin check --help.");

  const std::vector<std::string> fit = with_config(arguments);
  Problems known;  // which resolve_fit_arguments reports
  const ConfigNode written = assemble_config(read_fit_arguments(fit, known), known);
  if (const ConfigNode* space = written.find("space"); space != nullptr && written.find("run") != nullptr) {
    problems.add(space->mark, "", "this is a sweep file. levin sweep FILE --prepare checks it.");
    return report_found(problems);
  }
  const ResolvedRun run = resolve_fit_arguments(fit, RunPlace::here, problems).run;
  Checked checked;
  if (run.is_whole && !has_problem(problems, "plugins")) {  // else the classes are not known
    check_files(run.config, written, problems);
    check_model(run.config, problems, checked);
    check_data(run.config, problems, checked);
  }
  for (const auto& notice : run.notices) Console::instance().warn(notice);
  if (!problems.empty()) return report_found(problems);
  Console::instance().print(
      "No problem found: " + join(checked.parts) + ".\nNot checked: " + checked.not_checked +
      ". levin fit with the same files and --trainer.fast_dev_run=true runs one batch of each loop.");
  return kExitOk;
}

}  // namespace levin
