#include "levin/cli/config/resolve_run.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "levin/cli/config/arguments.h"
#include "levin/cli/config/old_options.h"
#include "levin/cli/config/run_config.h"
#include "levin/core/options/error.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/shared_library.h"
#include "levin/data/data_module.h"
#include "levin/libtorch/version.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/plan/resolve_plan.h"
#include "levin/trainer/plan/run_plan.h"

namespace levin {

namespace {

constexpr const char* kFix =
    "Build it against this Levin (find_package(levin), levin::levin) and this LibTorch, as a shared library.";

// "2.11" of "2.11.0": headers of different minor versions do not fit each other.
std::string minor_version(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

// Opens the library for good. Returns why its classes cannot be used; "" if they can.
std::string open_library(const std::string& file) {
  (void)detail::take_torch_versions();  // of what is open already
  SharedLibrary(file, "plugins", kFix).keep();
  for (const std::string& version : detail::take_torch_versions()) {
    if (minor_version(version) == minor_version(torch_version())) continue;
    return file + ": it was compiled with LibTorch " + version + ", and this Levin uses " + torch_version() + ". " +
           kFix;
  }
  return "";
}

void open_plugin(const std::string& path, Problems& problems) {
  static std::map<std::string, std::string> opened;  // resolve_run may see a run file several times
  std::error_code code;
  const auto file = std::filesystem::canonical(path, code);
  if (code) {
    problems.add({}, "plugins", "no file " + path + " (from " + std::filesystem::current_path().string() + ").");
    return;
  }
  try {
    if (!opened.contains(file)) opened[file] = open_library(file);
    if (!opened[file].empty()) problems.add({}, "plugins", opened[file]);
  } catch (const std::exception& error) {  // of the loader, or of a constructor in the library
    std::string text = exception_text(error);
    if (text.starts_with("plugins: ")) text.erase(0, 9);
    problems.add({}, "plugins", text);
  }
}

template <class Interface>
void resolve_class(std::optional<ClassSpec>& spec, const std::string& path, Problems& problems) {
  if (spec && !spec->empty()) spec = Registry<Interface>::instance().resolve(*spec, path, problems);
}

template <class Interface, class Spec>
void resolve_class_with_more(std::optional<Spec>& spec, const std::string& path, Problems& problems) {
  if (!spec || spec->class_path.empty()) return;
  const ClassSpec resolved = Registry<Interface>::instance().resolve(spec->spec(), path, problems);
  spec->class_path = resolved.class_path;
  spec->init_args = resolved.init_args;
}

// Options that only the trainer can check (devices, precision, combinations) are checked here too, before anything is
// created; each problem has its position in the file.
void check_plan(const TrainerOptions& options, const ConfigNode& as_written, Problems& problems) {
  const std::string prefix = "TrainerOptions.";
  const auto reported = problems.paths();
  auto is_known = [&](const std::string& path) {
    return std::find(reported.begin(), reported.end(), path) != reported.end();
  };
  try {
    (void)resolve_plan(options);
  } catch (const ConfigError& error) {
    for (std::string problem : error.problems()) {
      // For a class named in the run file, that was checked when the file was read.
      if (const size_t at = problem.find(": " + prefix); at != std::string::npos) problem.erase(0, at + 2);
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

}  // namespace

void open_plugins(const std::vector<std::string>& paths, Problems& problems) {
  for (const std::string& path : paths) open_plugin(path, problems);
}

// Links are not resolved, because a new version of a library may replace the file that a link names.
std::vector<std::string> absolute_plugins(const std::vector<std::string>& paths) {
  std::vector<std::string> all;
  for (const std::string& path : paths) all.push_back(std::filesystem::absolute(path).lexically_normal().string());
  return all;
}

void open_plugins_of(const std::vector<ConfigSource>& sources, Problems& problems) {
  ConfigNode plugins = ConfigNode::map();
  const ConfigNode config = assemble_config(sources, problems);
  if (const ConfigNode* named = config.find("plugins")) plugins.set("plugins", *named);
  const RunConfig read = read_run_config(plugins, problems);
  if (problems.empty()) open_plugins(read.plugins, problems);
}

ResolvedRun resolve_run(const std::vector<ConfigSource>& sources, RunPlace place, Problems& problems) {
  ResolvedRun run;
  ConfigNode written = assemble_config(sources, problems);
  run.is_whole = problems.empty();
  if (ConfigNode* trainer = written.find("trainer")) run.notices = translate_old_options(*trainer, problems);
  run.config = read_run_config(written, problems);
  const size_t before = problems.size();
  if (place != RunPlace::before) open_plugins(run.config.plugins, problems);
  if (problems.size() > before) return run;  // what these would have registered is not known
  run.config.plugins = absolute_plugins(run.config.plugins);
  const bool has_options = run.config.trainer.is_map() || run.config.trainer.is_null();  // else that was reported
  if (has_options) read_options(run.config.trainer, run.trainer, "trainer", problems);
  if (place == RunPlace::here) check_plan(run.trainer, run.config.trainer, problems);
  resolve_class<LightningModule>(run.config.model, "model", problems);
  resolve_class<DataModule>(run.config.data, "data", problems);
  resolve_class_with_more<Optimizer>(run.config.optimizer, "optimizer", problems);
  resolve_class_with_more<LRScheduler>(run.config.lr_scheduler, "lr_scheduler", problems);
  run.config.trainer = write_options(run.trainer);
  run.printed = write_options(run.config);
  if (run.config.plugins.empty()) run.printed.erase("plugins");
  return run;
}

void require_model(const ResolvedRun& run, Problems& problems) {
  const auto known = sorted_names(Registry<LightningModule>::instance().names());
  if (!run.config.model && run.is_whole)
    problems.add(
        {}, "model",
        "no model was given. Write model: {class_path: NAME} in a config file, or --model=NAME. Known: " + known + ".");
}

std::vector<ConfigSource> read_fit_arguments(const std::vector<std::string>& arguments, Problems& problems) {
  std::vector<std::string> fit = {"fit"};
  fit.insert(fit.end(), arguments.begin(), arguments.end());
  return parse_arguments(fit, field_names<TrainerOptions>(), problems).sources;
}

FitArguments resolve_fit_arguments(const std::vector<std::string>& arguments, RunPlace place, Problems& problems) {
  FitArguments result;
  result.sources = read_fit_arguments(arguments, problems);
  if (!problems.empty()) return result;
  result.run = resolve_run(result.sources, place, problems);
  require_model(result.run, problems);
  return result;
}

}  // namespace levin
