// The gradients that recorded steps write: always the same tensors. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace levin {

class StepMemory;

/// The gradient tensors of the parameters that a recording trains.
class RecordedGradients {
 public:
  explicit RecordedGradients(std::vector<at::Tensor> parameters) : parameters_(std::move(parameters)) {}

  /// Returns the gradients that the parameters have now; some may be undefined.
  [[nodiscard]] std::vector<at::Tensor> now() const;
  [[nodiscard]] const std::vector<at::Tensor>& recorded() const { return recorded_; }
  [[nodiscard]] bool empty() const { return recorded_.empty(); }

  /// Makes the present gradients the ones that recordings write; called after the first batch of a window.
  void take();
  /// Gives them to the parameters again, after an eager step has replaced or a validation has removed them.
  void hold();
  /// Returns whether the parameters have them: none was replaced since.
  [[nodiscard]] bool are_in_place() const;
  void clear();

  /// Remembers which of them were allocated by the step that `memory` observed; others are, for example, views of
  /// buckets.
  void note_made(const StepMemory& memory);
  /// Returns the number of references to the memory of each.
  [[nodiscard]] std::vector<size_t> uses() const;
  /// Remembers how many references recordings hold to each; `count` returns the number for a gradient.
  void note_references(const std::function<size_t(const at::Tensor&)>& count);
  /// Does the same for a recording that was just captured and does not know its references: they are what was added
  /// since `before`, the earlier uses().
  void note_references(const std::vector<size_t>& before);
  /// Returns a clause about a gradient that something keeps although the next replay would overwrite it; "" if there is
  /// none.
  [[nodiscard]] std::string problem() const;

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> recorded_;  // by parameter
  std::vector<bool> made_;
  std::vector<size_t> references_;
};

}  // namespace levin
