// All that predict_step gives, for the caller of predict: what it returns, and what it publishes with step_output.
//
//   const auto results = levin::predict_outputs(trainer, model, data);     // step_output("scores", s) in predict_step
//   for (const levin::PredictedBatch& batch : results[0]) use(batch.prediction, batch["scores"]);
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/trainer/step_output.h"
#include "levin/trainer/trainer.h"

namespace levin {

/// What predict_step gave for one batch, on the CPU.
struct PredictedBatch {
  at::Tensor prediction = {};  // what it returned; undefined: nothing
  StepOutput outputs = {};     // what it published, by name

  /// The output of this name. Throws Error with the names there are.
  [[nodiscard]] const at::Tensor& operator[](std::string_view name) const { return outputs[name]; }
};

/// For each loader, each of its batches; of several ranks, this rank's.
using PredictedOutputs = std::vector<std::vector<PredictedBatch>>;

namespace detail {

/// During its lifetime, predictions of `trainer` go to `taken`.
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

/// As trainer.predict(module, …), with its other arguments: a data module, loaders or neither, then ckpt_path. Every
/// rank calls it. A batch whose predict_step returns an undefined tensor has its entry too.
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
