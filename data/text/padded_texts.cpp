#include "levin/data/text/padded_texts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <string>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/data/batch_memory.h"

namespace levin {

namespace {

Batch padded_batch(const at::Tensor& x, const at::Tensor& y) {
  static const BatchNames names{"input_ids", "labels"}, unlabelled{"input_ids"};
  return y.defined() ? Batch({x, y}, names) : Batch({x}, unlabelled);
}

}  // namespace

void PaddedTexts::add(const std::vector<int32_t>& tokens, int64_t label, std::string id) {
  const auto kept = std::min(tokens.size(), static_cast<size_t>(max_length_));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.begin() + static_cast<int64_t>(kept));
  if (kept < tokens.size()) tokens_.back() = tokens.back();
  starts_.push_back(tokens_.size());
  labels_.push_back(label);
  ids_.push_back(std::move(id));
  has_labels_ = has_labels_ && label >= 0;
}

int64_t PaddedTexts::length(int64_t index) const {
  if (index < 0 || index >= size()) {
    throw DataError("PaddedTexts: index " + std::to_string(index) + " is outside of its " + count_of(size(), "text") +
                    ".");
  }
  const auto i = static_cast<size_t>(index);
  return static_cast<int64_t>(starts_[i + 1] - starts_[i]);
}

at::Tensor PaddedTexts::labels() const {
  return at::tensor(labels_, at::TensorOptions().dtype(at::kLong));
}

void PaddedTexts::write(int64_t index, int64_t width, int64_t* to) const {
  const auto first = tokens_.begin() + static_cast<int64_t>(starts_[static_cast<size_t>(index)]);
  int64_t* const row_end = to + width;
  std::fill(std::copy(first, first + length(index), to), row_end, pad_);
}

Batch PaddedTexts::get(int64_t index) const {
  const int64_t width = padding_ == Padding::longest ? length(index) : max_length_;
  at::Tensor x = at::empty({width}, at::TensorOptions().dtype(at::kLong));
  write(index, width, x.mutable_data_ptr<int64_t>());
  if (!has_labels_) return padded_batch(x, {});
  return padded_batch(x, at::scalar_tensor(labels_[static_cast<size_t>(index)], at::TensorOptions().dtype(at::kLong)));
}

Batch PaddedTexts::get_batch(const at::Tensor& indices) const {
  const int64_t count = indices.numel();
  const at::Tensor wanted = indices.contiguous();
  const int64_t* index = wanted.const_data_ptr<int64_t>();
  int64_t width = padding_ == Padding::longest ? 0 : max_length_;
  for (int64_t b = 0; b < count; ++b) width = std::max(width, length(index[b]));
  at::Tensor x = empty_batch({count, width}, at::TensorOptions().dtype(at::kLong));
  auto* rows = x.mutable_data_ptr<int64_t>();
  for (int64_t b = 0; b < count; ++b) write(index[b], width, rows + b * width);
  if (!has_labels_) return padded_batch(x, {});
  at::Tensor y = empty_batch({count}, at::TensorOptions().dtype(at::kLong));
  auto* labels = y.mutable_data_ptr<int64_t>();
  for (int64_t b = 0; b < count; ++b) labels[b] = labels_[static_cast<size_t>(index[b])];
  return padded_batch(x, y);
}

}  // namespace levin
