#include "levin/inference/load_for_inference.h"

#include <algorithm>

#include "levin/adapters/inner_model.h"
#include "levin/adapters/lora.h"
#include "levin/checkpoint/stream_weights.h"
#include "levin/checkpoint/weights_source.h"
#include "levin/core/console.h"
#include "levin/core/known_names.h"
#include "levin/inference/inference_device.h"
#include "levin/inference/recipe.h"
#include "levin/precision/mixed_precision.h"
#include "levin/strategies/move_module.h"
#include "levin/trainer/random_state.h"

namespace levin {

namespace {

// ---- the parts of the model ---------------------------------------------------------------------------------------

std::shared_ptr<LightningModule> make_registered(const Recipe& recipe) {
  const ClassSpec& spec = recipe.model;
  const std::string& where = recipe.source;
  if (spec.empty()) {
    throw CheckpointError("load_for_inference: " + where +
                          ": it does not name the class of its model, because an older Levin wrote it; and " +
                          recipe.no_model +
                          ". Give it as class_path in InferenceOptions, or call load_for_inference<Class>(path).");
  }
  const auto& registry = Registry<LightningModule>::instance();
  const std::string name = spec.short_name();
  if (registry.find(name) == nullptr) {
    throw ConfigError("load_for_inference: " + where + ": its model is a " + name +
                      ", and no class of that name is registered in this program." +
                      did_you_mean(name, registry.names()) + " Link the file with LEVIN_REGISTER_MODEL(" + name +
                      ", …), or call load_for_inference<" + name + ">(path). Known: " + sorted_names(registry.names()) +
                      ".");
  }
  return registry.make(spec, where);
}

std::shared_ptr<LightningModule> make_module(const Recipe& recipe, const detail::MakeModule& make) {
  const RandomState random;  // weights that are replaced at once must not change the program's random numbers
  auto module = make ? make(recipe.model.init_args, recipe.source) : make_registered(recipe);
  module->configure_model();
  return module;
}

// Whether another file's weights are those of the adapted module, too: with its adapters, or merged in Python.
bool has_adapters(const WeightsOptions& weights) {
  const WeightsSource source(weights.path);
  return std::any_of(source.tensors().begin(), source.tensors().end(), [&](const auto& item) {
    return is_adapter_parameter(renamed(item.first, weights.map).value_or(""));
  });
}

// The layers that had adapters in the run get them again, in the module's precision, for the saved ones to be read
// into.
void add_saved_adapters(LightningModule& module, const Recipe& recipe, const InferenceOptions& options) {
  if (!recipe.lora || (options.weights && !has_adapters(*options.weights))) return;
  const RandomState random;
  detail::naming_file("load_for_inference: " + recipe.source,
                      [&] { apply_saved_lora(module, *recipe.lora, recipe.lora_scalings); });
}

// A folder of PEFT's, of an adapter that was trained apart.
void add_adapter(LightningModule& module, const Recipe& recipe, const InferenceOptions& options) {
  const std::string& folder = options.adapter.empty() ? recipe.adapter : options.adapter;
  if (folder.empty()) return;
  if (!lora_layers(module).empty()) {
    throw ConfigError("InferenceOptions.adapter: " + folder + " cannot be applied: " + recipe.source +
                      " has adapters of its own. Give the model that the adapter was trained on.");
  }
  const RandomState random;
  const InnerModel inner = inner_model(module);
  apply_lora(*inner.module, {.path = folder}, inner.outer);
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
  Recipe recipe = read_recipe(path, find_model(path, options.checkpoint), options.class_path);
  if (!options.class_path.empty()) recipe.model.class_path = options.class_path;
  for (const auto& [name, text] : options.init_args) recipe.model.init_args.set(name, ConfigNode::scalar(text));
  const at::Device device = inference_device(options.device);
  const auto precision = make_precision(recipe, options.precision, device);
  const auto module = make_module(recipe, make);
  // First, so that the weights reach the module in the precision that they were saved in.
  if (const auto dtype = precision->dtype()) module->to(*dtype);
  if (!device.is_cpu()) move_module(*module, device);
  add_saved_adapters(*module, recipe, options);
  module->on_load_checkpoint(recipe.state);
  read_weights(*module, recipe, options);
  add_adapter(*module, recipe, options);
  if (options.merge_lora) merge_lora(*module);
  return InferenceModel(module, precision);
}

InferenceModel load_for_inference(const std::string& path, const InferenceOptions& options) {
  return detail::load_model(path, options, {});
}

}  // namespace levin
