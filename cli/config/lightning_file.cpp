#include "levin/cli/config/lightning_file.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "levin/cli/config/commented_yaml.h"
#include "levin/cli/config/lightning_class.h"
#include "levin/cli/config/old_options.h"
#include "levin/cli/config/run_config.h"
#include "levin/core/options/error.h"
#include "levin/data/data_module.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/plan/devices.h"
#include "levin/trainer/trainer_options.h"

namespace levin {

namespace {

constexpr std::array kSubcommands{"fit", "validate", "test", "predict"};

// Remedies for keys that Levin does not have.
constexpr std::array kInstead{
    std::pair{"plugins",
              "The trainer has no plugins: precision is trainer.precision, and Slurm, torchrun and MPI are found "
              "by their variables."},
    std::pair{"model_registry", "Levin knows no registry of models: checkpoints are files."},
    std::pair{"weights_only", "Loading a checkpoint of Levin's never runs code."},
    std::pair{"return_predictions", "levin predict --output FILE writes predictions as they come."},
    std::pair{"verbose", "levin validate and levin test print their metrics."},
    std::pair{"tpu_cores", "Levin trains on CPUs and NVIDIA's GPUs."},
    std::pair{"replace_sampler_ddp", "It is called use_distributed_sampler."},
    std::pair{"resume_from_checkpoint", "It is ckpt_path, at the top of the file."},
    std::pair{"weights_save_path", "Give ModelCheckpoint a dirpath."},
    std::pair{"move_metrics_to_cpu", "Metrics are single numbers, which stay on their device."},
    std::pair{"progress_bar_refresh_rate", "Give ProgressBar a refresh_interval."},
};

std::string without_key(const std::string& key, const std::string& of, const std::vector<std::string>& known) {
  for (const auto& [name, instead] : kInstead) {
    if (key == name) return instead;
  }
  return "Levin has no such " + of + "." + known_names(key, known);
}

class FileTranslation {
 public:
  FileTranslation(const GivenClasses& given, TranslatedFile& result)
      : given_(given), notes_{result.left_out, result.notes}, out_(result.config) {}

  void translate(const ConfigNode& file, const std::string& path) {
    const auto names = field_names<RunConfig>();
    for (const auto& entry : file.entries) {
      const std::string here = join_path(path, entry.key);
      if (entry.key == "trainer") {
        translate_trainer(entry, here);
      } else if (entry.key == "model") {
        translate_part<LightningModule>(entry, here, given_.model, "LEVIN_REGISTER_MODEL");
      } else if (entry.key == "data") {
        translate_part<DataModule>(entry, here, given_.data, "LEVIN_REGISTER_DATA");
      } else if (entry.key == "optimizer") {
        translate_part<Optimizer>(entry, here, given_.optimizer, "LEVIN_REGISTER_OPTIMIZER");
      } else if (entry.key == "lr_scheduler") {
        translate_part<LRScheduler>(entry, here, given_.lr_scheduler, "LEVIN_REGISTER_LR_SCHEDULER");
      } else if (std::find(names.begin(), names.end(), entry.key) != names.end()) {
        translate_value(entry, here);
      } else if (is_subcommand(entry.key) && entry.value.is_map()) {
        notes_.leave_out(out_, entry, here,
                         "a run file of Levin's is for all commands. Convert this part as a file of its own.");
      } else if (!asks_for_nothing(entry.key, entry.value)) {
        notes_.leave_out(out_, entry, here, without_key(entry.key, "key", names));
      }
    }
  }

  static bool is_subcommand(const std::string& key) {
    return std::find(kSubcommands.begin(), kSubcommands.end(), key) != kSubcommands.end();
  }

 private:
  // The model, the data, the optimizer or its schedule. `macro` registers one of the user's own.
  template <class Interface>
  void translate_part(const ConfigEntry& entry, const std::string& path, const std::string& given,
                      const std::string& macro) {
    if (entry.value.is_null() && given.empty()) return;
    ConfigEntry part = entry;
    const bool names_class = entry.value.is_scalar() || entry.value.find("class_path") != nullptr;
    const std::string kind = Interface::registry_name();
    const std::string instead = "Write it in C++ and register it (" + macro + "); see docs/from_lightning.md.";
    if (!names_class && given.empty()) {
      return notes_.leave_out(out_, entry, path,
                              "these are options of a " + kind + " whose class LightningCLI was given in Python. " +
                                  instead + " Then convert with --" + entry.key + " NAME.");
    }
    if (!given.empty()) {
      ConfigNode args = names_class ? ConfigNode{} : entry.value;
      if (const ConfigNode* own = entry.value.find("init_args"); names_class && own != nullptr) args = *own;
      part.value = ConfigNode::map();
      part.value.mark = entry.value.mark;
      part.value.set("class_path", ConfigNode::scalar(given)).mark = entry.value.mark;
      part.value.set("init_args", std::move(args));
    }
    const auto monitor = std::is_same_v<Interface, LRScheduler> ? take_monitor(part.value) : std::nullopt;
    std::string problem;
    auto translated = translate_class(part.value, path, known_classes<Interface>(instead), notes_, problem);
    if (!translated) return notes_.leave_out(out_, entry, path, problem);
    if (monitor) {
      if (translated->is_scalar()) translated->set("class_path", ConfigNode::scalar(translated->text));
      translated->set("monitor", *monitor);
    }
    out_.set(entry.key, std::move(*translated));
  }

  // lightning.pytorch.cli.ReduceLROnPlateau has its monitor as an option; here it is next to the class.
  static std::optional<ConfigNode> take_monitor(ConfigNode& scheduler) {
    ConfigNode* args = scheduler.find("init_args");
    ConfigNode* monitor = args != nullptr ? args->find("monitor") : nullptr;
    if (monitor == nullptr) return std::nullopt;
    ConfigNode taken = *monitor;
    args->erase("monitor");
    return taken;
  }

  void translate_value(const ConfigEntry& entry, const std::string& path) {
    const std::string& text = entry.value.text;
    if (entry.key == "ckpt_path" && entry.value.is_scalar() && text != "best" && text != "last") {
      return notes_.leave_out(
          out_, entry, path,
          text == "hpc"
              ? "a job that Slurm starts again continues by itself (trainer.auto_requeue)."
              : "Lightning's checkpoints are pickled files, which Levin does not read. Save the state dict as "
                "safetensors and give it as weights: {path: FILE}; see docs/checkpoint_format.md.");
    }
    translate_field<RunConfig>(out_, entry, path, "key");
  }

  // One field of `Options`; defaults are omitted.
  template <class Options>
  void translate_field(ConfigNode& container, const ConfigEntry& entry, const std::string& path,
                       const std::string& of) {
    static const ConfigNode defaults = write_options(Options{});
    const ConfigNode* usual = defaults.find(entry.key);
    if (usual == nullptr) {
      if (asks_for_nothing(entry.key, entry.value)) return;
      return notes_.leave_out(container, entry, path, without_key(entry.key, of, field_names<Options>()));
    }
    if (entry.value.is_null()) return;  // Lightning's default
    if (has_interpolation(entry.value))
      return notes_.leave_out(container, entry, path, "Levin does not expand ${…}: write the value itself.");
    ConfigEntry taken = entry;
    if (entry.key == "max_time") taken.value = from_timedelta(entry.value).value_or(entry.value);
    ConfigNode alone = ConfigNode::map();
    alone.entries.push_back(taken);
    Options options{};
    Problems problems;
    if (!read_options(alone, options, "", problems)) {
      std::string why = problems.lines().front();
      const std::string start = entry.value.mark.str() + ": " + entry.key + ": ";
      return notes_.leave_out(container, entry, path, why.starts_with(start) ? why.substr(start.size()) : why);
    }
    if (!write_options(options).find(entry.key)->same_as(*usual)) container.entries.push_back(std::move(taken));
  }

  void translate_trainer(const ConfigEntry& entry, const std::string& path) {
    if (entry.value.is_null()) return;
    if (!entry.value.is_map())
      return notes_.leave_out(out_, entry, path, "expected a map, got " + entry.value.shown() + ".");
    ConfigNode options = entry.value;
    Problems problems;
    for (auto& notice : translate_old_options(options, problems)) notes_.notes.push_back(std::move(notice));
    notes_.left_out.add(problems);
    ConfigNode trainer = ConfigNode::map();
    for (const auto& option : options.entries) translate_option(trainer, option, join_path(path, option.key));
    if (!trainer.entries.empty()) out_.set("trainer", std::move(trainer));
  }

  void translate_option(ConfigNode& trainer, const ConfigEntry& option, const std::string& path) {
    const std::string& name = option.key;
    if (name == "callbacks") {
      const auto known = known_classes<Callback>(
          "Write it in C++ as a levin::Callback and register it (LEVIN_REGISTER_CALLBACK), or do without it.");
      return translate_list(trainer, option, path, known);
    }
    bool on = false;
    if (name == "logger" && !option.value.is_null() && !detail::parse_bool(option.value, on)) {
      const auto known = known_classes<Logger>(
          "Without it the run writes metrics.csv; for another form write a levin::Logger and register it "
          "(LEVIN_REGISTER_LOGGER).");
      return translate_list(trainer, option, path, known);
    }
    if (name == "strategy") return translate_one<Strategy>(trainer, option, path);
    if (name == "precision") return translate_one<Precision>(trainer, option, path);
    if (name == "profiler") return translate_one<Profiler>(trainer, option, path);
    if (name == "accelerator" && option.value.is_scalar()) {
      const auto known = known_accelerators();
      if (std::find(known.begin(), known.end(), option.value.text) == known.end())
        return notes_.leave_out(trainer, option, path,
                                option.value.shown() + " is not supported. Known: " + join(known) + ".");
    }
    translate_field<TrainerOptions>(trainer, option, path, "option");
  }

  template <class Interface>
  void translate_one(ConfigNode& trainer, const ConfigEntry& option, const std::string& path) {
    if (option.value.is_null() || option.value.text == "auto") return;
    std::string problem;
    auto translated = translate_class(
        option.value, path, known_classes<Interface>("Without it the run has Levin's default."), notes_, problem);
    if (!translated) return notes_.leave_out(trainer, option, path, problem);
    ConfigEntry named{option.key, option.key_mark, *translated};
    if (translated->is_scalar()) return translate_field<TrainerOptions>(trainer, named, path, "option");
    trainer.entries.push_back(std::move(named));
  }

  // Translates a class, or a list of them, as far as possible.
  void translate_list(ConfigNode& trainer, const ConfigEntry& option, const std::string& path,
                      const KnownClasses& known) {
    if (option.value.is_null()) return;
    const bool is_list = option.value.is_list();
    const std::vector<ConfigNode> items = is_list ? option.value.items : std::vector<ConfigNode>{option.value};
    ConfigNode list = ConfigNode::list();
    for (size_t i = 0; i < items.size(); ++i) {
      const std::string here = is_list ? detail::index_path(path, i) : path;
      std::string problem;
      if (auto translated = translate_class(items[i], here, known, notes_, problem)) {
        list.items.push_back(std::move(*translated));
      } else {
        notes_.leave_out(list, {"", items[i].mark, items[i]}, here, problem);
      }
    }
    if (!list.items.empty()) trainer.entries.push_back({option.key, option.key_mark, std::move(list)});
  }

  const GivenClasses& given_;
  TranslationNotes notes_;
  ConfigNode& out_;
};

}  // namespace

TranslatedFile translate_lightning_file(const ConfigNode& file, const GivenClasses& given, Problems& problems) {
  TranslatedFile result;
  std::vector<std::string> keys;
  const ConfigNode* whole = &file;
  std::string path;
  for (const auto& entry : file.entries) {
    keys.push_back(entry.key);
    const bool has_parts = file.find("trainer") != nullptr || file.find("model") != nullptr;
    if (path.empty() && !has_parts && FileTranslation::is_subcommand(entry.key) && entry.value.is_map()) {
      path = entry.key;  // a file for "main.py --config FILE fit"
    }
  }
  const bool is_lightnings = !path.empty() || std::any_of(keys.begin(), keys.end(), [](const std::string& key) {
    return key == "trainer" || key == "model" || key == "data" || key == "optimizer" || key == "lr_scheduler";
  });
  if (!is_lightnings) {
    problems.add({file.mark.source, 0, 0}, "",
                 "no run file of LightningCLI: it has none of the keys trainer, model, data, optimizer and "
                 "lr_scheduler. Its keys: " +
                     join(keys) + ". Write one with \"python main.py fit --print_config > lightning.yaml\".");
    return result;
  }
  FileTranslation translation(given, result);
  if (!path.empty()) {
    ConfigNode others = file;
    others.erase(path);
    translation.translate(others, "");
    whole = file.find(path);
  }
  translation.translate(*whole, path);
  return result;
}

}  // namespace levin
