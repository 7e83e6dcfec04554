// Makes a model for predictions from the files of a run, without a Trainer:
//
//   const auto model = levin::load_for_inference("levin_logs/version_0");                    // its best checkpoint
//   const auto model = levin::load_for_inference("last.ckpt", {.precision = "bf16-mixed", .device = "cuda:1"});
//   const auto model = levin::load_for_inference<Classifier>("last.ckpt");                   // of a class not
//   registered
//
//   at::Tensor prediction = model.predict(x);                                                // on any thread
//
// Only the module exists afterwards: no optimizer, no gradients, no data. docs/inference.md.
#pragma once

#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "levin/checkpoint/weights.h"
#include "levin/core/options/registry.h"
#include "levin/core/options/which_checkpoint.h"
#include "levin/inference/inference_model.h"
#include "levin/precision/precision.h"

namespace levin {

/// Options of load_for_inference.
struct InferenceOptions {
  Component<Precision> precision = {};
  std::string device = "auto";
  WhichCheckpoint checkpoint = WhichCheckpoint::best;
  std::string class_path = "";
  std::map<std::string, std::string> init_args = {};
  std::optional<WeightsOptions> weights = std::nullopt;
  std::string adapter = "";
  bool merge_lora = false;

  template <class = void>
  static auto fields() {
    using O = InferenceOptions;
    return levin::fields(
        field("precision", &O::precision, "number format; empty: the run's"),
        field("device", &O::device,
              "auto (a GPU where there is one), cpu, or a kind as the Trainer's accelerator: gpu, cuda:1, xpu")
            .not_empty(),
        field("checkpoint", &O::checkpoint, "of a run's folder: the best one, or the last"),
        field("class_path", &O::class_path, "the model's registered class; \"\": the one that the checkpoint names"),
        field("init_args", &O::init_args, "options of the model that differ here, such as the path of a file"),
        field("weights", &O::weights, "weights to load instead of the checkpoint's: path, map, strict"),
        field("adapter", &O::adapter,
              "a PEFT folder, or a folder that LoRA's save_to wrote, to apply to the model; \"\": none"),
        field("merge_lora", &O::merge_lora,
              "add adapters to the weights: faster, and equal to the run's outputs up to rounding"));
  }
};

namespace detail {
using MakeModule =
    std::function<std::shared_ptr<LightningModule>(const ConfigNode& init_args, const std::string& where)>;

/// `make` empty: the registered class.
[[nodiscard]] InferenceModel load_model(const std::string& path, const InferenceOptions& options,
                                        const MakeModule& make);
}  // namespace detail

/// `path`: a checkpoint, one file or a folder of shards (its values name the class, the options and the precision;
/// where they do not, the config.yaml in the run's folder does), a run's folder, a Hugging Face folder, or a PEFT
/// folder that names its base model as a folder. Makes the module from the registered class, calls
/// its configure_model and on_load_checkpoint, and reads the weights alone: the process holds them once, and a few
/// tensors more while they are read. A checkpoint of a run that averages weights has the average; one of a run with the
/// callback LoRA has its adapters. The process's random numbers are as before.
///
/// Throws CheckpointError for a file that is missing or damaged, for one whose class or whose adapters' scaling is
/// nowhere to be found, and for weights that do not fit; ConfigError for a class that is not registered here, options
/// that it does not have, a precision that does not exist, a device that is not there, an adapter that does not fit,
/// and mistakes in a config.yaml. What a data module does to samples (normalizing, tokenizing) is the caller's.
[[nodiscard]] InferenceModel load_for_inference(const std::string& path, const InferenceOptions& options = {});

/// Same as above, for a class that need not be registered: `Module` has `using Options = …` and a constructor that
/// takes it, or a default constructor. Options are read from the checkpoint's model options, or from its
/// hyper-parameters (save_hyperparameters).
template <std::derived_from<LightningModule> Module>
[[nodiscard]] InferenceModel load_for_inference(const std::string& path, const InferenceOptions& options = {}) {
  return detail::load_model(
      path, options, [](const ConfigNode& init_args, const std::string& where) -> std::shared_ptr<LightningModule> {
        if constexpr (requires { typename Module::Options; }) {
          typename Module::Options values{};
          Problems problems;
          read_options(init_args, values, where, problems);
          problems.throw_if_any();
          return std::make_shared<Module>(values);
        } else {
          return std::make_shared<Module>();
        }
      });
}

}  // namespace levin
