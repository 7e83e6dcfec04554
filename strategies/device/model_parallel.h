// Parts of one module on different devices, in one process: for a model that is too large for one.
//
//   .strategy = levin::ModelParallel({.placement = levin::Placement{{"encoder", 0}, {"decoder", 1}}})
//   strategy: {class_path: ModelParallel, init_args: {placement: {encoder: [0, 1, 2, 3], decoder: [4, 5, 6, 7]}}}
//
// A part is a submodule that the step calls through levin::call(module, x), or a block of a torch::nn::Sequential (or a
// Sequential, called so). Its inputs are moved to its device and its results back to the caller's; from one block of a
// Sequential to the next they go directly. What no pattern names is on the first device, with the batches.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "levin/core/fields.h"
#include "levin/strategies/device/dp.h"
#include "levin/strategies/device/placed_call.h"
#include "levin/strategies/device/placement.h"

namespace levin {

struct PipelineOptions {
  int64_t micro_batches = 4;
  static auto fields() {
    return levin::fields(field("micro_batches", &PipelineOptions::micro_batches,
                               "into how many parts each training batch is cut; several times the number of devices")
                             .min(1));
  }
};

struct ModelParallelOptions {
  /// "manual": the module places its parts itself and is not moved.
  std::variant<std::string, Placement> placement = "manual";
  std::optional<PipelineOptions> pipeline = std::nullopt;
  static auto fields() {
    using O = ModelParallelOptions;
    return levin::fields(
        field("placement", &O::placement,
              "patterns of submodules' names with the index of a device each, or a list of them that share the batch; "
              "manual: the module sees to it itself")
            .check(
                [](const auto& placement) {
                  const auto* word = std::get_if<std::string>(&placement);
                  return word == nullptr || *word == "manual";
                },
                "manual, or a map of names to devices"),
        field("pipeline", &O::pipeline, "micro-batches that several parts work on at the same time; null: none"));
  }
};

class ModelParallel final : public SeveralDevices {
 public:
  using Options = ModelParallelOptions;
  /// Throws ConfigError for a pipeline without a placement.
  explicit ModelParallel(ModelParallelOptions options = {});
  ModelParallel(ModelParallel&&) noexcept;  // before it is used, so that options can be given in place
  ~ModelParallel() override;

  [[nodiscard]] std::string name() const override { return "ModelParallel"; }
  /// Throws ConfigError as placed_parts does.
  void place(torch::nn::Module& module) override;
  /// Throws ConfigError with a pipeline and a parameter to be trained that belongs to no part.
  void set_up(const ModuleTensors& module, bool training) override;
  void tear_down() override;
  /// Throws Error naming a part that no forward pass has called: it would have been computed on the caller's device.
  [[nodiscard]] RankNotes backward(const at::Tensor& loss, bool sync, const RankNotes& own) override;
  [[nodiscard]] int64_t micro_batches() const override;
  void run_micro_batches(size_t count, const std::function<at::Tensor(size_t)>& loss) override;

  /// The parts of the running entry point, in the order they were registered.
  [[nodiscard]] std::vector<PlacedPart> parts() const;
  /// From now on the trace has events too; they cost memory in every step.
  void set_recording(bool on);
  /// What was computed and moved since the run began.
  [[nodiscard]] PlacementTrace trace() const;

 private:
  struct Action {
    const torch::nn::Module* module;
    std::shared_ptr<PlacedCall> call;
  };
  void add_action(const PlacedPart& part, Pipeline* pipeline, size_t index);
  void fill_sequentials(torch::nn::Module& module, const std::vector<PlacedPart>& parts);
  void check_called();

  ModelParallelOptions options_;
  std::unique_ptr<PlacementRecorder> recorder_;
  std::vector<PlacedPart> parts_;
  std::vector<Action> actions_;  // the parts', then those of blocks in between
  std::unique_ptr<Pipeline> pipeline_;
  bool calls_checked_ = false;
};

}  // namespace levin
