// Parts of one module on different devices, in one process: for a model that is too large for one device.
//
//   .strategy = levin::ModelParallel({.placement = levin::Placement{{"encoder", 0}, {"decoder", 1}}})
//   strategy: {class_path: ModelParallel, init_args: {placement: {encoder: [0, 1, 2, 3], decoder: [4, 5, 6, 7]}}}
//
// A part is a submodule that the step calls through levin::call(module, x), or a block of a torch::nn::Sequential (or a
// Sequential called that way). Its inputs are moved to its device and its results back to the caller's; between blocks
// of a Sequential they are moved directly. Submodules that no pattern matches are on the first device, with the
// batches.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/strategies/device/dp.h"
#include "levin/strategies/device/placed_call.h"
#include "levin/strategies/device/placement.h"

namespace levin {

/// Options of a pipeline over the parts of a module.
struct PipelineOptions {
  int64_t micro_batches = 4;
  template <class = void>
  static auto fields() {
    return levin::fields(
        field("micro_batches", &PipelineOptions::micro_batches,
              "number of parts that each training batch is split into; best several times the number of devices")
            .min(1));
  }
};

/// Options of ModelParallel.
struct ModelParallelOptions {
  /// "manual": the module places its parts itself, and the strategy does not move it.
  std::variant<std::string, Placement> placement = "manual";
  std::optional<PipelineOptions> pipeline = std::nullopt;
  template <class = void>
  static auto fields() {
    using O = ModelParallelOptions;
    return levin::fields(
        field("placement", &O::placement,
              "patterns of submodule names, each with the index of a device or a list of devices that split the batch; "
              "manual: the module places its parts itself")
            .check(
                [](const auto& placement) {
                  const auto* word = std::get_if<std::string>(&placement);
                  return word == nullptr || *word == "manual";
                },
                "manual, or a map of names to devices"),
        field("pipeline", &O::pipeline, "micro-batches that the parts compute at the same time; null: none"));
  }
};

/// A strategy that places parts of a module on different devices of one process. The constructor throws ConfigError for
/// a pipeline without a placement. A backward pass throws Error naming a part that no forward pass has called through
/// its action: it would have been computed on the caller's device.
class ModelParallel final : public Strategy {
 public:
  using Options = ModelParallelOptions;
  explicit ModelParallel(Defaults = {}) : ModelParallel(ModelParallelOptions()) {}
  explicit ModelParallel(ModelParallelOptions options);
  ModelParallel(ModelParallel&&) noexcept = default;  // before it is used, so that options can be given in place
  ~ModelParallel() override;

  [[nodiscard]] std::string name() const override { return "ModelParallel"; }
  /// Throws ConfigError with a pipeline and a parameter to be trained that belongs to no part.
  void set_up(const ModuleTensors& module, bool training) override;
  void tear_down() override;

  /// Returns the parts of the module in the running entry point, in registration order.
  [[nodiscard]] std::vector<PlacedPart> parts() const;
  /// Records events in the trace from now on; they use more memory with every step.
  void set_recording(bool on);
  /// Returns the computations and transfers since the run began.
  [[nodiscard]] PlacementTrace trace() const;

 private:
  class PartsPlacement;
  class PartsGradients;
  PartsPlacement* parts_;
};

}  // namespace levin
