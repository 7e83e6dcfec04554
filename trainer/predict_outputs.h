// Everything that predict_step gives to the caller of predict: its result, and what it publishes with step_output.
//
//   const auto results = levin::predict_outputs(trainer, model, data);     // step_output("scores", s) in predict_step
//   for (const levin::PredictedBatch& batch : results[0]) use(batch.prediction, batch["scores"]);
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <concepts>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/trainer/step_output.h"
#include "levin/trainer/trainer.h"

namespace levin {

/// The results of predict_step for one batch, on the CPU.
struct PredictedBatch {
  at::Tensor prediction = {};  // its result; undefined: nothing
  StepOutput outputs = {};     // what it published, by name

  /// Returns the output of this name. Throws Error with the published names if it does not exist.
  [[nodiscard]] const at::Tensor& operator[](std::string_view name) const { return outputs[name]; }
};

/// For each loader, each of this rank's batches.
using PredictedOutputs = std::vector<std::vector<PredictedBatch>>;

namespace detail {

/// Collects the predictions of `trainer` in `taken` during its lifetime.
class OutputsTaken {
 public:
  OutputsTaken(Trainer& trainer, PredictedOutputs& taken);
  ~OutputsTaken();
  OutputsTaken(const OutputsTaken&) = delete;
  OutputsTaken& operator=(const OutputsTaken&) = delete;

 private:
  Trainer& trainer_;
  PredictedOutputs* before_;
};

}  // namespace detail

/// Calls trainer.predict(module, …) with its other arguments (a data module, loaders or neither, then ckpt_path) and
/// returns everything that predict_step gave. Throws what predict throws. Every rank calls it. A batch whose
/// predict_step returns an undefined tensor has an entry too.
// Lightning: predict returns what predict_step returned, of any type.
template <class... Rest>
requires requires(Trainer& trainer, LightningModule& module, Rest&&... rest) {
  { trainer.predict(module, std::forward<Rest>(rest)...) } -> std::same_as<Predictions>;
}
[[nodiscard]] PredictedOutputs predict_outputs(Trainer& trainer, LightningModule& module, Rest&&... rest) {
  PredictedOutputs all;
  const detail::OutputsTaken taken(trainer, all);
  (void)trainer.predict(module, std::forward<Rest>(rest)...);
  return all;
}

}  // namespace levin
