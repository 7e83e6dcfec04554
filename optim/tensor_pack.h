// Packs small tensors on a CPU into flat ones. An operator on those costs the same for hundreds of tensors as for one;
// ATen's foreach kernels call it for each tensor on a CPU.
//
//   TensorPack pack;
//   for (const auto& param : params) pack.add(param);
//   pack.make();
//   …each step: put_gradient() for all, read_params(), an update of params() by grads(), write_params()
//
// The tensors keep their own memory: its values are copied in before an update and back after it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace levin::detail {

/// Small tensors of one type on a CPU, copied into one flat tensor.
class TensorPack {
 public:
  /// The size from which separate operators cost less than copying a tensor back and forth; measured.
  static constexpr int64_t kLargest = 8192;
  /// Numbers in a pack: small enough for a core's cache, and for ATen not to split operators among threads.
  static constexpr int64_t kCapacity = 16384;

  /// Returns whether a tensor may be packed: small, on a CPU and contiguous.
  [[nodiscard]] static bool takes(const at::Tensor& tensor);

  [[nodiscard]] bool has_room_for(const at::Tensor& param) const;
  /// Requires: takes(param), and it has the type of the others. The pack does not keep it alive.
  void add(const at::Tensor& param);
  /// Makes the flat tensors, once all were added.
  void make();

  [[nodiscard]] const at::Tensor& params() const { return params_; }
  [[nodiscard]] const at::Tensor& grads() const { return grads_; }
  /// Returns a flat tensor like params(), filled with `value`.
  [[nodiscard]] at::Tensor make_flat(double value) const;
  /// Returns a view of tensor `i` in a flat tensor, in its own shape.
  [[nodiscard]] at::Tensor part(const at::Tensor& flat, size_t i) const;

  /// Returns whether tensor `i` is still the one that was added; its values may differ.
  [[nodiscard]] bool holds(size_t i) const;
  /// Copies a gradient in; false if it does not satisfy takes(), or does not match its parameter.
  [[nodiscard]] bool put_gradient(size_t i, const at::Tensor& grad) const;
  void read_params() const;
  void write_params() const;

 private:
  struct Place {
    c10::TensorImpl* param;
    size_t first;  // bytes
    size_t bytes;
  };

  std::vector<Place> places_;
  int64_t size_ = 0;  // numbers, the gaps between tensors included
  at::ScalarType type_ = at::kFloat;
  at::Tensor params_;  // (size_)
  at::Tensor grads_;   // (size_)
};

}  // namespace levin::detail
