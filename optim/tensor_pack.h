// Small tensors on a CPU laid one after another in flat ones. An operator called on those costs the same for hundreds
// of tensors as for one; ATen's foreach kernels call it for each tensor on a CPU.
//
//   TensorPack pack;
//   for (const auto& param : params) pack.add(param);
//   pack.make();
//   …each step: put_gradient() for all, read_params(), an update of params() by grads(), write_params()
//
// The tensors' own memory stays the truth: its numbers are copied in before an update and back after it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace levin::detail {

class TensorPack {
 public:
  /// Numbers in a tensor from which its own operators cost less than copying it to and fro; found by measuring.
  static constexpr int64_t kLargest = 8192;
  /// Numbers in a pack: what an update goes through stays in a core's cache, and ATen splits no operator among threads.
  static constexpr int64_t kCapacity = 16384;

  /// Whether a tensor may be packed: its numbers are few and lie on a CPU, one after another, as they are.
  [[nodiscard]] static bool takes(const at::Tensor& tensor);

  [[nodiscard]] bool has_room_for(const at::Tensor& param) const;
  /// Requires: takes(param), and it has the type of the others. The pack does not keep it alive.
  void add(const at::Tensor& param);
  /// Makes the flat tensors, once all were added.
  void make();

  [[nodiscard]] const at::Tensor& params() const { return params_; }
  [[nodiscard]] const at::Tensor& grads() const { return grads_; }
  /// A flat tensor like params(), filled with `value`.
  [[nodiscard]] at::Tensor make_flat(double value) const;
  /// Where tensor number `i` is in a flat tensor, in its own shape: a view.
  [[nodiscard]] at::Tensor part(const at::Tensor& flat, size_t i) const;

  /// Whether tensor number `i` is still what it was when it was added; its numbers may be others.
  [[nodiscard]] bool holds(size_t i) const;
  /// Copies a gradient in; false if it is not as takes() wants it, or not like its parameter.
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
