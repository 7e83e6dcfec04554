#include "levin/inference/load_for_inference.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/stream_weights.h"
#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/gpu.h"
#include "levin/models/huggingface/pretrained_config.h"
#include "levin/precision/mixed_precision.h"
#include "levin/trainer/random_state.h"

namespace levin {

namespace {

// What the files say about the model.
struct Recipe {
  std::string source = "";  // for messages
  ClassSpec model = {};
  std::string precision = "32-true";
  State state = {};          // for on_load_checkpoint: all but weights and the trainer's own tensors
  std::string weights = "";  // a checkpoint; "": the module reads its own
};

// ---- what a checkpoint holds --------------------------------------------------------------------------------------

// Parts of a checkpoint that are the trainer's: docs/checkpoint_format.md.
constexpr std::array kOfTheTrainer{"model", "current_model", "optimizers", "gradients", "callbacks", "data",
                                   "rng",   "lr_schedulers", "loggers",    "metrics",   "progress",  "precision"};

bool is_of_the_trainer(const std::string& tensor) {
  const std::string part = tensor.substr(0, tensor.find('.'));
  return std::find(kOfTheTrainer.begin(), kOfTheTrainer.end(), part) != kOfTheTrainer.end();
}

// What the module's on_save_checkpoint has added is read; tensors of optimizers and their like never are.
State own_state(const CheckpointFile& file) {
  State state;
  state.values = file.values();
  for (const SafetensorsEntry& entry : file.file().entries()) {
    if (!is_of_the_trainer(entry.name)) state.tensors[entry.name] = file.read(entry);
  }
  return state;
}

Recipe read_checkpoint_recipe(const std::string& path) {
  const CheckpointFile file(path);
  Recipe recipe{.source = path, .state = own_state(file), .weights = path};
  const State& state = recipe.state;
  detail::naming_file(path, [&] {
    if (state.has("model_class")) recipe.model = state.get<ClassSpec>("model_class");
    if (state.has("model_precision")) recipe.precision = state.get<std::string>("model_precision");
  });
  const ConfigNode* hparams = state.values.find("hyper_parameters");
  if (recipe.model.init_args.is_null() && hparams != nullptr) recipe.model.init_args = *hparams;
  return recipe;
}

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

Recipe read_recipe(const std::string& path, const InferenceOptions& options) {
  const FoundModel found = find_model(path, options.checkpoint);
  Recipe recipe = found.is_huggingface ? read_huggingface_recipe(found.path) : read_checkpoint_recipe(found.path);
  if (!options.class_path.empty()) recipe.model.class_path = options.class_path;
  for (const auto& [name, text] : options.init_args) recipe.model.init_args.set(name, ConfigNode::scalar(text));
  return recipe;
}

// ---- the parts of the model ---------------------------------------------------------------------------------------

std::shared_ptr<LightningModule> make_registered(const ClassSpec& spec, const std::string& where) {
  if (spec.empty()) {
    throw CheckpointError("load_for_inference: " + where +
                          ": it does not name the class of its model, because an older Levin wrote it. Give it as "
                          "class_path in InferenceOptions, or call load_for_inference<Class>(path).");
  }
  const auto& registry = Registry<LightningModule>::instance();
  const std::string name = spec.short_name();
  if (registry.find(name) == nullptr) {
    throw ConfigError("load_for_inference: " + where + ": its model is a " + name +
                      ", and no class of that name is registered in this program." +
                      did_you_mean(name, registry.names()) + " Link the file with LEVIN_REGISTER_MODEL(" + name +
                      ", …), or call load_for_inference<" + name + ">(path). Known: " + join(registry.names()) + ".");
  }
  return registry.make(spec, where);
}

std::shared_ptr<LightningModule> make_module(const Recipe& recipe, const detail::MakeModule& make) {
  const RandomState random;  // weights that are replaced at once must not change the program's random numbers
  auto module = make ? make(recipe.model.init_args, recipe.source) : make_registered(recipe.model, recipe.source);
  module->configure_model();
  return module;
}

int64_t gpu_index(const std::string& device) {
  if (device == "cuda" || device == "auto") return 0;
  int64_t index = -1;
  const std::string digits = device.substr(std::min(device.size(), std::string("cuda:").size()));
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  const bool is_whole = code == std::errc() && end == digits.data() + digits.size();
  if (device.starts_with("cuda:") && is_whole && index >= 0) return index;
  throw ConfigError("InferenceOptions.device: \"" + cut_text(device) +
                    "\" is not known. Use auto, cpu, cuda or cuda:N.");
}

at::Device resolve_device(const std::string& device) {
  if (device == "cpu" || (device == "auto" && !why_no_gpu().empty())) return at::kCPU;
  const int64_t index = gpu_index(device);
  if (const std::string problem = why_no_gpu(); !problem.empty()) {
    throw ConfigError("InferenceOptions.device: " + device + ": " + problem);
  }
  const int64_t present = ask_gpu_driver().count;
  if (index >= present) {
    throw ConfigError("InferenceOptions.device: " + device + " was asked for; there " +
                      (present == 1 ? "is " : "are ") + count_of(present, "GPU") + ", from cuda:0 on.");
  }
  const at::Device gpu(at::kCUDA, static_cast<c10::DeviceIndex>(index));
  open_gpu().use(gpu);
  return gpu;
}

// As in the Trainer: float16 has no advantage on a CPU.
std::shared_ptr<Precision> make_precision(const Recipe& recipe, Component<Precision> wanted, at::Device device) {
  const std::string where =
      wanted.empty() ? "load_for_inference: " + recipe.source + ": model_precision" : "InferenceOptions.precision";
  if (wanted.empty()) wanted = recipe.precision;
  if (device.is_cpu() && (wanted.is_name("16-mixed") || wanted.is_name("16"))) {
    Console::instance().warn(where + ": 16-mixed is for GPUs; on a CPU bf16-mixed is used.");
    return std::make_shared<Bfloat16Mixed>();
  }
  return wanted.object(where);
}

void read_weights(LightningModule& module, const Recipe& recipe, const InferenceOptions& options) {
  if (options.weights) {
    (void)stream_weights(module, *options.weights);
  } else if (!recipe.weights.empty()) {
    try {
      (void)stream_weights(module, {.path = recipe.weights, .strict = module.strict_loading()});
    } catch (const CheckpointError& error) {
      throw CheckpointError("load_for_inference: the model is a " + recipe.model.short_name() + ". " + error.what());
    }
  }
}

}  // namespace

InferenceModel detail::load_model(const std::string& path, const InferenceOptions& unchecked,
                                  const detail::MakeModule& make) {
  add_builtins();
  const InferenceOptions options = checked(unchecked, "InferenceOptions");
  const Recipe recipe = read_recipe(path, options);
  const at::Device device = resolve_device(options.device);
  const auto precision = make_precision(recipe, options.precision, device);
  const auto module = make_module(recipe, make);
  // First, so that the weights reach the module in the precision that they were saved in.
  if (const auto dtype = precision->dtype()) module->to(*dtype);
  if (!device.is_cpu()) module->to(device);
  module->on_load_checkpoint(recipe.state);
  read_weights(*module, recipe, options);
  return InferenceModel(module, precision);
}

InferenceModel load_for_inference(const std::string& path, const InferenceOptions& options) {
  return detail::load_model(path, options, {});
}

}  // namespace levin
