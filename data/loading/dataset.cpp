#include "levin/data/loading/dataset.h"

#include <ATen/ops/arange.h>

#include "levin/core/options/error.h"
#include "levin/data/loading/gather_rows.h"

namespace levin {

namespace {

[[noreturn]] void gathers_nothing(const char* function) {
  throw Error(std::string("Dataset::") + function + ": the data set says has_get_batch() but does not override " +
              "get_batch(). Override it, or leave has_get_batch() false.");
}

}  // namespace

Batch Dataset::get_batch(const at::Tensor& /*indices*/) const {
  gathers_nothing("get_batch");
}

Batch Dataset::get_range(int64_t first, int64_t count) const {
  return get_batch(at::arange(first, first + count, at::TensorOptions().dtype(at::kLong)));
}

int64_t Dataset::length(int64_t /*index*/) const {
  throw DataError(
      "Dataset::length: the data set does not know the lengths of its samples, which max_tokens and bucket_by_length "
      "need. "
      "Override length(), or leave both options unset.");
}

TensorDataset::TensorDataset(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  if (tensors_.empty()) throw DataError("TensorDataset: no tensor was given. Give at least one.");
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const std::string which = "TensorDataset: tensor " + std::to_string(i);
    if (!tensors_[i].defined() || tensors_[i].dim() == 0) {
      throw DataError(which +
                      " has no dimension 0, which counts the samples. Give a tensor of at least one dimension.");
    }
    if (tensors_[i].size(0) == tensors_[0].size(0)) continue;
    throw DataError(which + " holds " + count_of(tensors_[i].size(0), "sample") + " but tensor 0 holds " +
                    std::to_string(tensors_[0].size(0)) + ". Give tensors of equal length along dimension 0.");
  }
}

TensorDataset::TensorDataset(std::initializer_list<at::Tensor> tensors)
    : TensorDataset(std::vector<at::Tensor>(tensors)) {}

TensorDataset::TensorDataset(std::vector<at::Tensor> tensors, const std::vector<std::string>& names)
    : TensorDataset(std::move(tensors)) {
  if (names.size() != tensors_.size()) {
    throw DataError("TensorDataset: " + count_of(static_cast<int64_t>(names.size()), "name") + " for " +
                    count_of(static_cast<int64_t>(tensors_.size()), "tensor") + ". Give a name for each tensor.");
  }
  names_ = BatchNames(names).structure();
}

int64_t TensorDataset::size() const {
  return tensors_.empty() ? 0 : tensors_[0].size(0);
}

Batch TensorDataset::with_names(std::vector<at::Tensor> tensors) const {
  Batch batch(std::move(tensors));
  if (names_ != nullptr) batch.set_structure(names_);
  return batch;
}

Batch TensorDataset::get(int64_t index) const {
  std::vector<at::Tensor> sample;
  sample.reserve(tensors_.size());
  for (const auto& tensor : tensors_) sample.push_back(tensor.select(0, index));
  return with_names(std::move(sample));
}

Batch TensorDataset::get_batch(const at::Tensor& indices) const {
  std::vector<at::Tensor> batch;
  batch.reserve(tensors_.size());
  for (const auto& tensor : tensors_) batch.push_back(gather_rows(tensor, indices));
  return with_names(std::move(batch));
}

Batch TensorDataset::get_range(int64_t first, int64_t count) const {
  std::vector<at::Tensor> batch;
  batch.reserve(tensors_.size());
  for (const auto& tensor : tensors_) batch.push_back(tensor.narrow(0, first, count));
  return with_names(std::move(batch));
}

}  // namespace levin
