// A batch: tensors whose first dimension is the batch, in order and, if they have names, by name. A sample is also a
// Batch, without that dimension.
//
//   auto [x, y] = batch.unpack<2>();   // x: (batch, 784) float32, y: (batch) int64
//
//   Batch batch{{"input_ids", ids}, {"labels", labels}, {"caption", texts}};
//   batch["input_ids"];                                             // a tensor
//   auto [ids, labels] = batch.unpack("input_ids", "labels");
//   batch.texts("caption")[0];
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/data/batch_fields.h"
#include "levin/data/batch_samples.h"
#include "levin/data/batch_value.h"

namespace levin {

/// Tensors in order, and fields by name: a batch, or a sample. Copies share the tensors' memory. Functions that look up
/// a tensor or a field throw Error if it does not exist.
struct Batch {
  /// All tensors of the batch except the ones inside values of other types, field after field.
  std::vector<at::Tensor> tensors = {};

  Batch() = default;
  Batch(std::initializer_list<at::Tensor> list) : tensors(list) {}
  explicit Batch(std::vector<at::Tensor> list) : tensors(std::move(list)) {}
  /// Throws Error for a name that is empty or given twice.
  Batch(std::initializer_list<BatchField> fields);
  /// Gives the first tensors names. Throws Error if there are fewer tensors than names.
  Batch(std::vector<at::Tensor> list, const BatchNames& names);

  /// Returns a tensor by its index. Throws Error naming index and count if the index is out of range.
  [[nodiscard]] at::Tensor& operator[](size_t index);
  [[nodiscard]] const at::Tensor& operator[](size_t index) const;

  /// Returns a tensor by its name. Throws Error listing the existing fields.
  [[nodiscard]] at::Tensor& operator[](std::string_view name);
  [[nodiscard]] const at::Tensor& operator[](std::string_view name) const;
  /// Returns the tensors of a list, or of a ragged field (one per sample). This function and the next ones throw Error
  /// if the field does not exist or is of a different kind.
  [[nodiscard]] at::TensorList list(std::string_view name) const;
  [[nodiscard]] const std::vector<std::string>& texts(std::string_view name) const;
  template <class T>
  [[nodiscard]] const T& value(std::string_view name) const {
    const BatchValue& any = value_of(name);
    if (const T* found = any.get_if<T>()) return *found;
    fail_type(name, any, typeid(T));
  }
  /// Returns the batch inside the batch: the fields "name.x", renamed to "x".
  [[nodiscard]] Batch group(std::string_view name) const;

  [[nodiscard]] bool has(std::string_view name) const { return structure_ != nullptr && structure_->find(name); }
  /// Returns the names of all fields in order; a list of tensors has none.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] FieldKind kind(std::string_view name) const;

  /// Adds a field at the end. Throws Error for a name that is empty or taken.
  void add(const BatchField& field);

  /// Returns all N tensors. Throws Error naming both numbers if the batch does not have exactly N.
  template <size_t N>
  [[nodiscard]] std::array<at::Tensor, N> unpack() const {
    check_count(N);
    std::array<at::Tensor, N> all;
    for (size_t i = 0; i < N; ++i) all[i] = tensors[i];
    return all;
  }
  /// Returns the tensors with these names.
  template <std::convertible_to<std::string_view>... Names>
  requires(sizeof...(Names) > 0)
      [[nodiscard]] std::array<at::Tensor, sizeof...(Names)> unpack(const Names&... names) const {
    return {(*this)[std::string_view(names)]...};
  }

  /// Returns the number of samples: the first tensor's first dimension; 0 without tensors, 1 if the tensor has no
  /// dimension. With names, the first field that has samples decides: a tensor's first dimension, the number of
  /// strings, or the number of tensors if the field is ragged.
  [[nodiscard]] int64_t size() const { return structure_ == nullptr ? size_of_list() : size_of_fields(); }
  [[nodiscard]] bool empty() const { return tensors.empty() && structure_ == nullptr; }
  /// Returns the number of tensors.
  [[nodiscard]] size_t count() const { return tensors.size(); }

  /// Returns what identifies each sample outside the run, such as its row in a file or its file name, or null if
  /// unknown. Prediction batches have ids (Dataset::sample_id), for hooks and files; a recorded step does not see them.
  [[nodiscard]] const std::vector<std::string>* ids() const {
    return samples_ == nullptr || samples_->ids.empty() ? nullptr : &samples_->ids;
  }
  /// Returns what the loader knows about the samples of a prediction batch, or null.
  [[nodiscard]] const BatchSamples* samples() const { return samples_.get(); }
  void set_samples(BatchSamples samples) { samples_ = std::make_shared<const BatchSamples>(std::move(samples)); }

  /// Returns null for a list of tensors without names.
  [[nodiscard]] const std::shared_ptr<const BatchStructure>& structure() const { return structure_; }
  void set_structure(std::shared_ptr<const BatchStructure> structure) { structure_ = std::move(structure); }

 private:
  void check_count(size_t wanted) const;
  [[nodiscard]] int64_t size_of_list() const;
  [[nodiscard]] int64_t size_of_fields() const;
  [[nodiscard]] const BatchStructure::Field& field(std::string_view name) const;
  [[nodiscard]] size_t index_of(std::string_view name) const;
  [[nodiscard]] const BatchValue& value_of(std::string_view name) const;
  [[noreturn]] static void fail_type(std::string_view name, const BatchValue& value, const std::type_info& wanted);

  std::shared_ptr<const BatchStructure> structure_ = nullptr;
  std::shared_ptr<const BatchSamples> samples_ = nullptr;
};

}  // namespace levin
