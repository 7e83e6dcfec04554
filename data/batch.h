// One batch: tensors whose first dimension is the batch. A sample is a Batch too, without that dimension.
//
//   auto [x, y] = batch.unpack<2>();   // x: (batch, 784) float32, y: (batch) int64
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace levin {

struct Batch {
  std::vector<at::Tensor> tensors = {};

  Batch() = default;
  Batch(std::initializer_list<at::Tensor> list) : tensors(list) {}
  explicit Batch(std::vector<at::Tensor> list) : tensors(std::move(list)) {}

  /// Throws Error naming index and count if there is no such tensor.
  [[nodiscard]] at::Tensor& operator[](size_t index);
  [[nodiscard]] const at::Tensor& operator[](size_t index) const;

  /// All N tensors; throws Error naming both numbers if the batch has another number of them.
  template <size_t N>
  [[nodiscard]] std::array<at::Tensor, N> unpack() const {
    check_count(N);
    std::array<at::Tensor, N> all;
    for (size_t i = 0; i < N; ++i) all[i] = tensors[i];
    return all;
  }

  /// Samples: the first tensor's first dimension; 0 if there is no tensor, 1 if it has no dimension.
  [[nodiscard]] int64_t size() const;
  [[nodiscard]] bool empty() const { return tensors.empty(); }
  /// Tensors.
  [[nodiscard]] size_t count() const { return tensors.size(); }

 private:
  void check_count(size_t wanted) const;
};

}  // namespace levin
