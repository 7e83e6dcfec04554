// What a step has computed besides its loss, for the hooks after its batch.
//
//   step_output("logits", logits);                                       // in training_step
//   const at::Tensor& logits = trainer.step_output()["logits"];          // in a callback's on_train_batch_end
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace levin {

/// The tensors that a step has published by name, detached and in order, and its loss. The trainer fills it and frees
/// it after the batch's hooks; a copy keeps the tensors. With dp and micro-batches it has the values of the whole
/// batch; every rank has its own.
class StepOutput {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;

  /// Returns the loss, (), detached and divided by the accumulation window's size, as hooks get it; undefined if there
  /// is none, and outside of training.
  [[nodiscard]] const at::Tensor& loss() const { return loss_; }
  /// Returns the tensor of this name. Throws Error with the published names if it does not exist.
  [[nodiscard]] const at::Tensor& operator[](std::string_view name) const;
  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool empty() const { return named_.empty(); }
  [[nodiscard]] Named::const_iterator begin() const { return named_.begin(); }
  [[nodiscard]] Named::const_iterator end() const { return named_.end(); }

  // The trainer's loops call these.
  void set_loss(const at::Tensor& loss) { loss_ = loss; }
  void add(std::string name, at::Tensor value) { named_.emplace_back(std::move(name), std::move(value)); }
  void clear() {
    loss_.reset();
    named_.clear();
  }

 private:
  [[nodiscard]] const at::Tensor* find(std::string_view name) const;

  at::Tensor loss_ = {};
  Named named_ = {};
};

}  // namespace levin
