#include "levin/inference/recipe.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "levin/adapters/lora_options.h"
#include "levin/checkpoint/any_checkpoint.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/checkpoint_values.h"
#include "levin/checkpoint/run_parts.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/checkpoint/sharded_record.h"
#include "levin/checkpoint/strict_json.h"
#include "levin/core/files/files.h"
#include "levin/core/files/json_depth.h"
#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/core/process/console.h"
#include "levin/models/huggingface/pretrained_config.h"
#include "levin/yaml/yaml_file.h"

namespace levin {

namespace {

struct FoundModel {
  std::string path = "";
  bool is_huggingface = false;  // a folder with config.json; else a checkpoint, of either kind
  std::string adapter = "";     // the path, if that is a PEFT folder; `path` is then its base model
};

// The config.yaml of a run's folder, for properties of a model that its checkpoint lacks.
class RunConfigFile {
 public:
  /// Looks in the folder `given`, if it is a folder, then next to the checkpoint, and if the checkpoint is in a folder
  /// called checkpoints, above that. Throws ConfigError with each mistake of the file that is found first and its line.
  RunConfigFile(const std::string& given, const std::string& checkpoint);

  /// For messages: "no config.yaml has a model (looked for A, B)", or "A has no model".
  [[nodiscard]] std::string why_nothing(const std::string& what) const;

  /// The file, or where it would be.
  [[nodiscard]] const std::string& where_to_write() const { return path_.empty() ? looked_for_.back() : path_; }

  /// Return the file's value, or nothing. Throw ConfigError with file and position for a value of the wrong kind.
  [[nodiscard]] std::optional<ClassSpec> model() const;
  [[nodiscard]] std::optional<ClassSpec> precision() const;
  /// Returns the options of the first callback LoRA.
  [[nodiscard]] std::optional<LoRAOptions> lora() const;

 private:
  [[nodiscard]] const ConfigNode* of_trainer(const char* key) const;
  std::vector<std::string> looked_for_ = {};
  std::string path_ = "";
  ConfigNode tree_ = ConfigNode::map();
};

namespace fs = std::filesystem;

constexpr const char* kHuggingFaceConfig = "config.json";
constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr uint64_t kMaxRecordBytes = 64 << 20;

bool is_there(const fs::path& path) {
  std::error_code code;
  return fs::exists(path, code);
}

bool is_folder(const fs::path& path) {
  std::error_code code;
  return fs::is_directory(path, code);
}

std::string text_of(const nlohmann::json& node, const char* key) {
  const auto found = node.is_object() ? node.find(key) : node.end();
  return found != node.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// run.json, or null: what cannot be read counts as absent, because the checkpoints are there all the same.
nlohmann::json read_record(const fs::path& folder) {
  try {
    return parse_json(read_file((folder / "run.json").string(), kMaxRecordBytes));
  } catch (const std::exception&) {
    return {};
  }
}

nlohmann::json part_of(const nlohmann::json& record, const char* key) {
  return record.is_object() && record.contains(key) ? record[key] : nlohmann::json();
}

// The checkpoints directly in a folder, sorted. A link that leads nowhere is none.
std::vector<fs::path> checkpoints_in(const fs::path& folder) {
  std::set<fs::path> found;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code); !code && entry != fs::directory_iterator(); entry.increment(code)) {
    if (entry->path().extension() == ".ckpt" && is_there(entry->path())) found.insert(entry->path());
  }
  return {found.begin(), found.end()};
}

// The steps it was trained for, and whether it is last.ckpt: of the checkpoints of one step that was written last.
using Age = std::pair<int64_t, bool>;

std::string newest_of(const std::vector<fs::path>& checkpoints) {
  std::string newest;
  Age age{-1, false};
  for (const fs::path& path : checkpoints) {
    try {
      State values;
      values.values = load_checkpoint_values(path.string());
      const Age its{values.get<int64_t>("global_step"), path.filename().string().starts_with("last")};
      if (its > age) {
        age = its;
        newest = path.string();
      }
    } catch (const CheckpointError& error) {
      Console::instance().warn("load_for_inference: " + std::string(error.what()) + " It is left alone.");
    }
  }
  return newest;
}

std::string best_of(const fs::path& folder, const nlohmann::json& record) {
  const std::string name = text_of(part_of(record, "monitor"), "best_path");
  if (name.empty()) return "";
  const fs::path path = folder / name;  // an absolute name stays unchanged
  if (is_there(path)) return path.string();
  throw CheckpointError("load_for_inference: " + folder.string() + ": according to run.json, " + name +
                        " is its best checkpoint, and it does not exist. Give the path of another, or checkpoint: last "
                        "for the newest.");
}

// A run's checkpoints are in the folder "checkpoints", and wherever the record says.
std::vector<fs::path> all_checkpoints(const fs::path& folder, const nlohmann::json& record) {
  std::set<fs::path> folders{folder, folder / "checkpoints"};
  const nlohmann::json listed = part_of(record, "checkpoints");
  if (listed.is_array()) {
    for (const nlohmann::json& one : listed) folders.insert((folder / text_of(one, "path")).parent_path());
  }
  std::vector<fs::path> all;
  for (const fs::path& each : folders) {
    for (const fs::path& path : checkpoints_in(each)) all.push_back(path);
  }
  return all;
}

// Returns the model that an adapter's folder names: a folder here, or a model in the Hugging Face hub.
FoundModel base_of(const std::string& adapter) {
  const std::string file = (fs::path(adapter) / kAdapterConfig).string();
  const nlohmann::json config = detail::naming_file(
      file, [&] { return detail::parse_strictly<nlohmann::json>(read_file(file, kMaxRecordBytes)); });
  const std::string base = text_of(config, "base_model_name_or_path");
  if (!base.empty() && is_there(fs::path(base) / kHuggingFaceConfig)) return {base, true, adapter};
  throw CheckpointError("load_for_inference: " + adapter + " is an adapter, and " +
                        (base.empty()
                             ? "its adapter_config.json does not name its base model"
                             : "its base model \"" + cut_text(base) + "\" is not a folder with a config.json here") +
                        ". Give the path of the base model, and this folder as adapter in InferenceOptions.");
}

// A save of several ranks that has no record.
bool holds_shards(const fs::path& folder) {
  std::error_code code;
  for (fs::directory_iterator entry(folder, code); !code && entry != fs::directory_iterator(); entry.increment(code)) {
    if (is_shard_name(entry->path().filename().string())) return true;
  }
  return false;
}

std::vector<std::string> places(const std::string& given, const std::string& checkpoint) {
  std::vector<fs::path> folders;
  std::error_code code;
  if (given != checkpoint && fs::is_directory(given, code)) folders.emplace_back(given);
  const fs::path beside = fs::absolute(fs::path(checkpoint), code).lexically_normal().parent_path();
  folders.push_back(fs::path(checkpoint).has_parent_path() ? fs::path(checkpoint).parent_path() : fs::path("."));
  if (beside.filename() == "checkpoints") folders.push_back(folders.back() / "..");
  std::vector<std::string> files;
  for (const fs::path& folder : folders) {
    std::string file = (folder / "config.yaml").lexically_normal().string();
    if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(std::move(file));
  }
  return files;
}

// A class by name, or with options.
ClassSpec read_class(const ConfigNode& node, const std::string& path) {
  ClassSpec spec;
  Problems problems;
  (void)ValueType<ClassSpec>::read(node, spec, path, problems);
  problems.throw_if_any();
  return spec;
}

constexpr std::string_view kModel = "model.";

// What the module's on_save_checkpoint has added is read; tensors of optimizers and their like never are.
State own_state(const AnyCheckpoint& checkpoint) {
  State state;
  state.values = checkpoint.values();
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!name.starts_with(kModel) && !is_in_run_part(name)) state.tensors[name] = checkpoint.read(name);
  }
  return state;
}

SavedShapes model_shapes(const AnyCheckpoint& checkpoint) {
  SavedShapes shapes;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (name.starts_with(kModel)) shapes[name.substr(kModel.size())] = {tensor.dtype, tensor.shape};
  }
  return shapes;
}

// ---- what a checkpoint says, and where it does not, the run's config.yaml -----------------------------------------

class CheckpointRecipe {
 public:
  CheckpointRecipe(std::string given, const std::string& path, const std::string& class_path)
      : given_(std::move(given)), path_(path), class_path_(class_path), checkpoint_(path) {}

  Recipe read() {
    recipe_ = {.source = path_, .state = own_state(checkpoint_), .weights = path_};
    detail::naming_file(path_, [&] {
      const State& state = recipe_.state;
      if (state.has("model_class")) recipe_.model = state.get<ClassSpec>("model_class");
      if (state.has("model_precision")) recipe_.precision = state.get<std::string>("model_precision");
    });
    if (!recipe_.state.has("model_class")) find_model_class();
    if (!recipe_.state.has("model_precision")) find_precision();
    const ConfigNode* hparams = recipe_.state.values.find("hyper_parameters");
    if (recipe_.model.init_args.is_null() && hparams != nullptr) recipe_.model.init_args = *hparams;
    recipe_.lora = find_saved_lora(model_shapes(checkpoint_));
    if (recipe_.lora) find_scaling();
    return std::move(recipe_);
  }

 private:
  // Read once, and only if something is missing: most checkpoints say all of it.
  const RunConfigFile& config() {
    if (!config_) config_.emplace(given_, path_);
    return *config_;
  }

  void find_model_class() {
    const auto model = config().model();
    if (!model) {
      recipe_.no_model = config().why_nothing("model");
      return;
    }
    const bool is_other = !class_path_.empty() && ClassSpec(class_path_, {}).short_name() != model->short_name();
    if (!is_other) recipe_.model = *model;
  }

  void find_precision() {
    if (const auto precision = config().precision()) recipe_.precision = *precision;
  }

  void find_scaling() {
    const State& state = recipe_.state;
    const State of_callback = state.part("callbacks.LoRA");
    if (state.has(kLoRAScaling)) {
      recipe_.lora_scalings = detail::naming_file(path_, [&] { return state.get<LoRAScalings>(kLoRAScaling); });
    } else if (of_callback.has("scaling")) {
      recipe_.lora_scalings = detail::naming_file(path_, [&] { return of_callback.get<LoRAScalings>("scaling"); });
    } else if (const auto options = config().lora()) {
      recipe_.lora_scalings = run_scaling(*options);
    } else {
      throw CheckpointError(
          "load_for_inference: " + path_ + ": it holds LoRA's adapters of " +
          count_of(static_cast<int64_t>(recipe_.lora->layers.size()), "layer") + " (" + recipe_.lora->layers.front() +
          ", …) without their scaling, because it holds weights alone; and " + config().why_nothing("callback LoRA") +
          ". Give a checkpoint of the whole run, or name the callback with its r and lora_alpha "
          "under trainer.callbacks in " +
          config().where_to_write() + ".");
    }
  }

  std::string given_, path_, class_path_;
  AnyCheckpoint checkpoint_;
  std::optional<RunConfigFile> config_ = std::nullopt;
  Recipe recipe_ = {};
};

Recipe read_huggingface_recipe(const std::string& folder) {
  Recipe recipe{.source = folder};
  const std::vector<std::string> architectures = PretrainedConfig::read(folder).architectures();
  const std::string name = architectures.empty() ? "" : architectures[0];
  const auto is_for = [&name](std::initializer_list<const char*> endings) {
    return std::any_of(endings.begin(), endings.end(), [&](const char* ending) { return name.ends_with(ending); });
  };
  if (is_for({"ForSequenceClassification", "ForImageClassification"})) {
    recipe.model.class_path = "HuggingFaceClassifier";
  } else if (is_for({"ForCausalLM", "LMHeadModel", "ForMaskedLM"})) {
    recipe.model.class_path = "HuggingFaceLM";
  } else {
    throw ConfigError("load_for_inference: " + folder + ": config.json says architectures: " + join(architectures) +
                      ", and predictions need the head of a sequence or image classifier or of a language model. Load "
                      "it with levin::AutoModel and its siblings.");
  }
  recipe.model.init_args = ConfigNode::map();
  recipe.model.init_args.set("path", ConfigNode::scalar(folder, true));
  return recipe;
}

FoundModel find_model(const std::string& path, WhichCheckpoint which) {
  if (!is_there(path)) {
    throw CheckpointError("load_for_inference: no such file or folder: " + path +
                          ". Give a checkpoint, a run's folder, or a Hugging Face folder.");
  }
  if (!is_folder(path)) return {path};
  if (is_sharded_checkpoint(path)) return {path};
  if (holds_shards(path)) (void)sharded_record(path);  // throws
  const nlohmann::json record = read_record(path);
  std::string found = which == WhichCheckpoint::best ? best_of(path, record) : "";
  if (found.empty()) found = newest_of(all_checkpoints(path, record));
  if (!found.empty()) return {found};
  if (is_there(fs::path(path) / kHuggingFaceConfig)) return {path, true};
  if (is_there(fs::path(path) / kAdapterConfig)) return base_of(path);
  throw CheckpointError("load_for_inference: " + path +
                        " holds no checkpoint that can be read (*.ckpt, also in its folder checkpoints), and no "
                        "config.json of a Hugging Face model.");
}

RunConfigFile::RunConfigFile(const std::string& given, const std::string& checkpoint)
    : looked_for_(places(given, checkpoint)) {
  std::error_code code;
  const auto found = std::find_if(looked_for_.begin(), looked_for_.end(),
                                  [&](const std::string& file) { return fs::is_regular_file(file, code); });
  if (found == looked_for_.end()) return;
  path_ = *found;
  Problems problems;
  tree_ = read_yaml_file(path_, problems);
  problems.throw_if_any();
}

std::string RunConfigFile::why_nothing(const std::string& what) const {
  if (!path_.empty()) return path_ + " has no " + what;
  return "no config.yaml has a " + what + " (looked for " + join(looked_for_) + ")";
}

const ConfigNode* RunConfigFile::of_trainer(const char* key) const {
  const ConfigNode* trainer = tree_.find("trainer");
  const ConfigNode* value = trainer == nullptr ? nullptr : trainer->find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<ClassSpec> RunConfigFile::model() const {
  const ConfigNode* node = tree_.find("model");
  if (node == nullptr || node->is_null()) return std::nullopt;
  return read_class(*node, "model");
}

std::optional<ClassSpec> RunConfigFile::precision() const {
  const ConfigNode* node = of_trainer("precision");
  if (node == nullptr) return std::nullopt;
  return read_class(*node, "trainer.precision");
}

std::optional<LoRAOptions> RunConfigFile::lora() const {
  const ConfigNode* node = of_trainer("callbacks");
  if (node == nullptr) return std::nullopt;
  const std::vector<ConfigNode> callbacks = node->is_list() ? node->items : std::vector<ConfigNode>{*node};
  for (const ConfigNode& one : callbacks) {
    const ClassSpec spec = read_class(one, "trainer.callbacks");
    if (spec.short_name() != "LoRA") continue;
    LoRAOptions options;
    Problems problems;
    (void)read_options(spec.init_args, options, "trainer.callbacks: LoRA.init_args", problems);
    problems.throw_if_any();
    return options;
  }
  return std::nullopt;
}

}  // namespace

Recipe read_recipe(const std::string& path, WhichCheckpoint which, const std::string& class_path) {
  const FoundModel found = find_model(path, which);
  Recipe recipe = found.is_huggingface ? read_huggingface_recipe(found.path)
                                       : CheckpointRecipe(path, found.path, class_path).read();
  recipe.adapter = found.adapter;
  return recipe;
}

}  // namespace levin
