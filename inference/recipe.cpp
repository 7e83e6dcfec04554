#include "levin/inference/recipe.h"

#include <algorithm>

#include "levin/checkpoint/any_checkpoint.h"
#include "levin/checkpoint/run_parts.h"
#include "levin/core/count_of.h"
#include "levin/inference/run_config_file.h"
#include "levin/models/huggingface/pretrained_config.h"

namespace levin {

namespace {

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
    const bool is_other = !class_path_.empty() && ClassSpec{class_path_, {}, {}}.short_name() != model->short_name();
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
      throw CheckpointError("load_for_inference: " + path_ + ": it holds LoRA's adapters of " +
                            count_of(static_cast<int64_t>(recipe_.lora->layers.size()), "layer") + " (" +
                            recipe_.lora->layers.front() +
                            ", …), and does not say how they are scaled, because it holds weights alone; and " +
                            config().why_nothing("callback LoRA") +
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

}  // namespace

Recipe read_recipe(const std::string& given, const FoundModel& found, const std::string& class_path) {
  Recipe recipe = found.is_huggingface ? read_huggingface_recipe(found.path)
                                       : CheckpointRecipe(given, found.path, class_path).read();
  recipe.adapter = found.adapter;
  return recipe;
}

}  // namespace levin
