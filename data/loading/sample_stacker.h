// Makes a batch of samples: what a loader does without a collate function.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "levin/data/batch.h"

namespace levin {

/// Stacks the samples' tensors along a new first dimension, field by field where they have names; makes lists of what
/// is ragged, collects strings, and concatenates values of other types. Throws DataError naming the field, the odd
/// sample (its index in `indices`, or its position in the list without indices) and both shapes if the samples differ.
[[nodiscard]] Batch stack_samples(const std::vector<Batch>& samples, const int64_t* indices = nullptr);

/// A batch that grows sample by sample, as stack_samples() makes it. Tensors that are contiguous on the CPU are copied
/// directly to the batch, while they are still in the cache; at::stack, which needs all of them first, takes twice as
/// long for small samples. It stacks all other tensors.
class SampleStacker {
 public:
  /// Begins a batch of at most `count` samples; `indices` as for stack_samples().
  SampleStacker(size_t count, const int64_t* indices) : count_(count), indices_(indices) {}

  /// Throws DataError if the sample is not like the first one.
  void add(Batch sample);
  [[nodiscard]] Batch finish() &&;

 private:
  /// What becomes of one of a sample's tensors.
  struct Column {
    at::Tensor stacked = {};               // (samples, …); undefined if the samples are kept
    std::vector<at::Tensor> samples = {};  // kept for at::stack, or because they are ragged
    bool is_ragged = false;

    void start(const at::Tensor& first, size_t count);
    void add(const at::Tensor& sample, size_t place, size_t count);
    void give_up(size_t place, size_t count);
    void finish(size_t added, std::vector<at::Tensor>& tensors);
  };

  void start(const Batch& sample);
  void check_alike(const Batch& sample) const;
  void check_fields(const Batch& sample) const;
  [[nodiscard]] Batch in_order(Batch sample) const;
  [[nodiscard]] std::string name_of(size_t place) const;
  [[nodiscard]] std::string tensor_text(size_t place) const;
  void finish_fields(Batch& batch, const std::vector<size_t>& places);

  size_t count_;
  const int64_t* indices_;
  size_t added_ = 0;
  Batch first_;
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> texts_;  // of each field of strings, and of each field of values
  std::vector<std::vector<BatchValue>> values_;
};

}  // namespace levin
