// Inputs that a model cannot take are errors that say why.
#pragma once

#include <cstdint>
#include <string>

#include "levin/models/huggingface/pretrained_model.h"

namespace levin::huggingface {

/// Throws Error unless input_ids is (B, T) and attention_mask, if there is one, of its shape. `who`: what messages call
/// the model.
void check_ids(const ModelInputs& inputs, const std::string& who);
/// Throws Error if a sample has more tokens than the model has positions.
void check_length(int64_t tokens, int64_t most, const std::string& who);

}  // namespace levin::huggingface
