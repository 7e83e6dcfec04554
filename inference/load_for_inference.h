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
#include "levin/core/component.h"
#include "levin/inference/find_model.h"
#include "levin/inference/inference_model.h"
#include "levin/precision/precision.h"

namespace levin {

struct InferenceOptions {
  Component<Precision> precision = {};
  std::string device = "auto";
  WhichCheckpoint checkpoint = WhichCheckpoint::best;
  std::string class_path = "";
  std::map<std::string, std::string> init_args = {};
  std::optional<WeightsOptions> weights = std::nullopt;

  static auto fields() {
    using O = InferenceOptions;
    return levin::fields(
        field("precision", &O::precision, "number format; empty: that of the run"),
        field("device", &O::device, "auto (a GPU where there is one), cpu, cuda or cuda:N").not_empty(),
        field("checkpoint", &O::checkpoint, "of a run's folder: the best one, or the last"),
        field("class_path", &O::class_path, "the model's registered class; \"\": the one that the checkpoint names"),
        field("init_args", &O::init_args, "options of the model that differ here, such as the path of a file"),
        field("weights", &O::weights, "weights to load instead of the checkpoint's: path, map, strict"));
  }
};

namespace detail {
using MakeModule =
    std::function<std::shared_ptr<LightningModule>(const ConfigNode& init_args, const std::string& where)>;

/// `make` empty: the registered class.
[[nodiscard]] InferenceModel load_model(const std::string& path, const InferenceOptions& options,
                                        const MakeModule& make);
}  // namespace detail

/// `path`: a checkpoint (its values name the class, the options and the precision), a run's folder, or a folder of
/// Hugging Face's. Makes the module from the registered class, calls its configure_model and on_load_checkpoint, and
/// reads the weights alone: the process holds them once, and a few tensors more while they are read. A checkpoint of a
/// run that averages weights has the average. The process's random numbers are as before.
///
/// Throws CheckpointError for a file that is missing, damaged or sharded, that does not name its class, or whose
/// weights do not fit; ConfigError for a class that is not registered here, options that it does not have, a precision
/// that does not exist, and a device that is not there. What a data module does to samples (normalizing, tokenizing) is
/// the caller's.
[[nodiscard]] InferenceModel load_for_inference(const std::string& path, const InferenceOptions& options = {});

/// The same for a class that need not be registered: `Module` has `using Options = …` and a constructor that takes it,
/// or a default constructor. Options are read from what the checkpoint says of them, or from its hyper-parameters
/// (save_hyperparameters).
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
