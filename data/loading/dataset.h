// Samples by index. A subclass returns one sample at a time; one that can gather an entire batch reports that, and is
// then not asked for single samples (unless the loader has a collate function).
//
//   class Squares : public levin::Dataset {
//     int64_t size() const override { return 100; }
//     levin::Batch get(int64_t i) const override { return {torch::tensor(float(i)), torch::tensor(float(i * i))}; }
//   };
//
// get() and get_batch() are called by several worker threads at once, with autograd off; get() cannot turn it on.
// Random augmentation draws from sample_generator() (data/loading/sample_generator.h), which makes it independent of
// the number of workers.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "levin/data/batch.h"

namespace levin {

/// The interface of data sets. A subclass implements size() and get(), and may throw any exception from get(): the
/// loader rethrows it as a DataError that names the sample.
class Dataset {
 public:
  static const char* registry_name() { return "data set"; }
  virtual ~Dataset() = default;

  [[nodiscard]] virtual int64_t size() const = 0;

  /// Returns one sample, without the batch dimension; 0 <= index < size().
  [[nodiscard]] virtual Batch get(int64_t index) const = 0;

  /// Returns true if get_batch() and get_range() gather an entire batch.
  [[nodiscard]] virtual bool has_get_batch() const { return false; }
  /// Returns the samples at `indices` ((batch) int64), stacked.
  [[nodiscard]] virtual Batch get_batch(const at::Tensor& indices) const;
  /// Returns the samples first, first + 1, … first + count - 1, stacked; may return views of the data.
  [[nodiscard]] virtual Batch get_range(int64_t first, int64_t count) const;

  /// Returns what identifies a sample outside of the run: its row in a file, the name of its file. "": unknown. Files
  /// of predictions name it in each row.
  [[nodiscard]] virtual std::string sample_id(int64_t /*index*/) const { return ""; }

  /// Tokens or steps of a sample without padding, for batches by length. Throws Error unless overridden.
  [[nodiscard]] virtual int64_t length(int64_t index) const;
};

/// Tensors in memory, one sample per row of dimension 0. Batches in sequential order are views of these tensors: a
/// change in place changes the data set.
class TensorDataset final : public Dataset {
 public:
  /// Without samples, for a member that setup() assigns.
  TensorDataset() = default;
  /// Throws DataError without tensors, or if a tensor has no dimension or the lengths differ.
  explicit TensorDataset(std::vector<at::Tensor> tensors);
  /// TensorDataset{x, y}
  TensorDataset(std::initializer_list<at::Tensor> tensors);
  /// Same as above, with a name for each tensor. Also throws DataError if the number of names differs.
  TensorDataset(std::vector<at::Tensor> tensors, const std::vector<std::string>& names);

  [[nodiscard]] int64_t size() const override;
  [[nodiscard]] Batch get(int64_t index) const override;
  [[nodiscard]] bool has_get_batch() const override { return true; }
  [[nodiscard]] Batch get_batch(const at::Tensor& indices) const override;
  [[nodiscard]] Batch get_range(int64_t first, int64_t count) const override;

  [[nodiscard]] const std::vector<at::Tensor>& tensors() const { return tensors_; }

 private:
  [[nodiscard]] Batch with_names(std::vector<at::Tensor> tensors) const;

  std::vector<at::Tensor> tensors_ = {};
  std::shared_ptr<const BatchStructure> names_ = nullptr;
};

}  // namespace levin
