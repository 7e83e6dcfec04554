#include "levin/models/huggingface/inputs.h"

#include "levin/core/error.h"
#include "levin/core/tensor_text.h"

namespace levin::huggingface {

void check_ids(const ModelInputs& inputs, const std::string& who) {
  const at::Tensor& ids = inputs.input_ids;
  if (!ids.defined()) throw Error(who + ": it reads texts: set input_ids, (batch, tokens) int64.");
  if (ids.dim() != 2 || ids.size(1) == 0) {
    throw Error(who + ": input_ids must be (batch, tokens), got " + shape_text(ids.sizes()) + ".");
  }
  const at::Tensor& mask = inputs.attention_mask;
  if (!mask.defined() || mask.sizes() == ids.sizes()) return;
  throw Error(who + ": attention_mask must have the shape of input_ids, " + shape_text(ids.sizes()) + ", got " +
              shape_text(mask.sizes()) + ".");
}

void check_length(int64_t tokens, int64_t most, const std::string& who) {
  if (tokens <= most) return;
  throw Error(who + ": got samples of " + std::to_string(tokens) + " tokens, and its positions are enough for " +
              std::to_string(most) + ". Cut the texts (the data's max_length or block_size).");
}

}  // namespace levin::huggingface
