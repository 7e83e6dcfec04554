#include "levin/data/text/padded_texts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <string>

#include "levin/core/count_of.h"
#include "levin/core/error.h"

namespace levin {

void PaddedTexts::add(const std::vector<int32_t>& tokens, int64_t label) {
  const auto kept = std::min(tokens.size(), static_cast<size_t>(max_length_));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.begin() + static_cast<int64_t>(kept));
  if (kept < tokens.size()) tokens_.back() = tokens.back();
  starts_.push_back(tokens_.size());
  labels_.push_back(label);
}

void PaddedTexts::write(int64_t index, int64_t* to) const {
  if (index < 0 || index >= size()) {
    throw DataError("PaddedTexts: index " + std::to_string(index) + " is outside of its " + count_of(size(), "text") +
                    ".");
  }
  const auto i = static_cast<size_t>(index);
  int64_t* const row_end = to + max_length_;
  to = std::copy(tokens_.begin() + static_cast<int64_t>(starts_[i]),
                 tokens_.begin() + static_cast<int64_t>(starts_[i + 1]), to);
  std::fill(to, row_end, pad_);
}

Batch PaddedTexts::get(int64_t index) const {
  at::Tensor x = at::empty({max_length_}, at::TensorOptions().dtype(at::kLong));
  write(index, x.mutable_data_ptr<int64_t>());
  return {x, at::scalar_tensor(labels_[static_cast<size_t>(index)], at::TensorOptions().dtype(at::kLong))};
}

Batch PaddedTexts::get_batch(const at::Tensor& indices) const {
  const int64_t count = indices.numel();
  const at::Tensor wanted = indices.contiguous();
  const int64_t* index = wanted.const_data_ptr<int64_t>();
  at::Tensor x = at::empty({count, max_length_}, at::TensorOptions().dtype(at::kLong));
  at::Tensor y = at::empty({count}, at::TensorOptions().dtype(at::kLong));
  auto* rows = x.mutable_data_ptr<int64_t>();
  auto* labels = y.mutable_data_ptr<int64_t>();
  for (int64_t b = 0; b < count; ++b) {
    write(index[b], rows + b * max_length_);
    labels[b] = labels_[static_cast<size_t>(index[b])];
  }
  return {x, y};
}

}  // namespace levin
