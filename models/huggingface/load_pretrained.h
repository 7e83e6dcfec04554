// Weights of a Hugging Face folder into a model, as from_pretrained of transformers does it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "levin/models/huggingface/pretrained_model.h"

namespace levin {
class WeightsSource;
}

namespace levin::huggingface {

/// Draws starting weights for the parameters of these names; for all if there are none.
void init_weights(PretrainedModel& model, const std::vector<std::string>& only = {});

struct LoadReport {
  size_t loaded = 0;
  std::vector<std::string> newly_initialized = {};  // parameters that the files do not have
  std::vector<std::string> unexpected = {};         // tensors of the files that the model does not have
  std::vector<std::string> mis_shaped = {};         // with both shapes; newly initialized too

  /// One line; "" if all matched.
  [[nodiscard]] std::string str() const;
};

/// Copies the tensors of `folder`, which are `source`, into the model, converting their types: the base model's names
/// may have its prefix or not, whether the model has a head or not. Parameters that the files lack are started and
/// reported. Throws CheckpointError naming the folder for files that are missing or damaged, for tensors of another
/// shape unless `ignore_mismatched_sizes`, for a tied tensor that the files hold twice with different values, and if
/// none fits.
LoadReport load_pretrained(PretrainedModel& model, const WeightsSource& source, const std::string& folder,
                           bool ignore_mismatched_sizes);

}  // namespace levin::huggingface
