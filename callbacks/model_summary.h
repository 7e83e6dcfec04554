// Prints the layers of a model before training: name, class, parameters, mode, shapes of the weights.
//
// C++ modules have no forward hooks, so the inputs and outputs of a layer are not known; the shapes of weights are.
#pragma once

#include <string>

#include "levin/core/options/fields.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/replaces_default.h"

namespace levin {

/// Options of ModelSummary.
struct ModelSummaryOptions {
  int64_t max_depth = 1;  // levels of submodules; -1: all; 0: only the totals

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("max_depth", &ModelSummaryOptions::max_depth, "levels of layers to show; -1: all, 0: only the totals")
            .min(-1));
  }
};

/// A callback that prints the module's summary on rank 0 at the start of a fit.
class ModelSummary final : public Callback, public ReplacesDefault {
 public:
  using Options = ModelSummaryOptions;
  explicit ModelSummary(Defaults = {}) : ModelSummary(ModelSummaryOptions()) {}
  explicit ModelSummary(ModelSummaryOptions options);

  [[nodiscard]] std::string default_for() const override { return "summary"; }
  void on_fit_start(Trainer& trainer, LightningModule& module) override;

 private:
  ModelSummaryOptions options_;
};

/// Returns the table as text. A layer or tensor that is used several times counts once.
[[nodiscard]] std::string model_summary_text(const LightningModule& module, int64_t max_depth);

}  // namespace levin
