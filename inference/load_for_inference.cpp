#include "levin/inference/load_for_inference.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "levin/adapters/inner_model.h"
#include "levin/adapters/lora.h"
#include "levin/checkpoint/stream_weights.h"
#include "levin/checkpoint/weights_source.h"
#include "levin/core/gpu.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/tensors.h"
#include "levin/inference/recipe.h"
#include "levin/precision/mixed_precision.h"
#include "levin/strategies/accelerator.h"
#include "levin/strategies/device_placement.h"
#include "levin/trainer/random_state.h"

namespace levin {

namespace {

constexpr const char* kOption = "InferenceOptions.device: ";

[[noreturn]] void refuse_unknown(const std::string& device, const std::string& name) {
  std::vector<std::string> known{"auto", "cpu", "gpu", "cuda"};
  for (const std::string& present : present_accelerators()) known.push_back(present);
  throw ConfigError(kOption + ("\"" + cut_text(device) + "\" is not known.") + did_you_mean(name, known) +
                    " Known: " + join(known) + "; all but auto and cpu with an index too, as cuda:1.");
}

// A kind of device and which one of it.
struct NamedDevice {
  at::DeviceType type = at::kCPU;
  int64_t index = 0;
};

NamedDevice read_name(const std::string& device) {
  const size_t colon = device.find(':');
  const std::string name = device.substr(0, colon);
  const auto type = name == "gpu" ? std::optional(at::kCUDA) : accelerator_type(name);
  if (!type) refuse_unknown(device, name);
  if (colon == std::string::npos) return {*type, 0};
  int64_t index = -1;
  const std::string digits = device.substr(colon + 1);
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (code != std::errc() || end != digits.data() + digits.size() || index < 0) {
    throw ConfigError(kOption + ("\"" + cut_text(device) + "\" has no index after its colon. Write ") + name + ", or " +
                      name + ":0.");
  }
  return {*type, index};
}

// What is missing, with this option's name in its advice.
std::string why_not(at::DeviceType type) {
  std::string problem = why_no_accelerator(type);
  const std::string other = "accelerator: cpu";
  if (const size_t place = problem.find(other); place != std::string::npos) {
    problem.replace(place, other.size(), "device: cpu");
  }
  return problem;
}

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

// Returns whether a file's weights include adapters, or were merged in Python.
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

// Applies a PEFT folder, an adapter that was trained separately.
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

// The device that InferenceOptions.device names: auto (a GPU if there is one, else the CPU), cpu, gpu, cuda, or
// LibTorch's name of a different backend, as TrainerOptions::accelerator takes it; all but auto and cpu with an index
// or without (0). The device becomes the calling thread's current device. Throws ConfigError that lists the known
// devices.
at::Device inference_device(const std::string& device) {
  if (device == "cpu" || (device == "auto" && !why_no_gpu().empty())) return at::kCPU;
  const NamedDevice named = device == "auto" ? NamedDevice{at::kCUDA, 0} : read_name(device);
  if (const std::string problem = why_not(named.type); !problem.empty()) {
    throw ConfigError(kOption + device + ": " + problem);
  }
  const int64_t present = accelerator(named.type).device_count();
  const std::string name = accelerator_name(named.type);
  if (named.index >= present) {
    throw ConfigError(kOption + device + " was asked for; there " + (present == 1 ? "is " : "are ") +
                      count_of(present, named.type == at::kCUDA ? "GPU" : name + " device") + ", from " + name +
                      ":0 on.");
  }
  const at::Device found(named.type, static_cast<c10::DeviceIndex>(named.index));
  use_accelerator(found);
  return found;
}

}  // namespace

InferenceModel detail::load_model(const std::string& path, const InferenceOptions& unchecked,
                                  const detail::MakeModule& make) {
  add_builtins();
  const InferenceOptions options = checked(unchecked, "InferenceOptions");
  Recipe recipe = read_recipe(path, options.checkpoint, options.class_path);
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
