// The gradients that recorded steps write: always the same tensors. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace levin {

class StepMemory;

class RecordedGradients {
 public:
  explicit RecordedGradients(std::vector<at::Tensor> parameters) : parameters_(std::move(parameters)) {}

  /// The gradients that the parameters have, some of them undefined.
  [[nodiscard]] std::vector<at::Tensor> now() const;
  [[nodiscard]] const std::vector<at::Tensor>& recorded() const { return recorded_; }
  [[nodiscard]] bool empty() const { return recorded_.empty(); }

  /// After the first batch of a window: the gradients of now are what recordings write.
  void take();
  /// Puts them back in place, where an eager step has put others and a validation none.
  void hold();
  /// Whether the parameters have them: nobody has replaced one since.
  [[nodiscard]] bool are_in_place() const;
  void clear();

  /// Remembers which of them the step that `memory` saw has made: others are views of buckets, say.
  void note_made(const StepMemory& memory);
  /// How many references there are on the memory of each.
  [[nodiscard]] std::vector<size_t> uses() const;
  /// Remembers how many references recordings hold on each; `count` returns the number for one.
  void note_references(const std::function<size_t(const at::Tensor&)>& count);
  /// The same for a recording that was just captured and does not know its references: what was added to `before`, the
  /// uses() before it.
  void note_references(const std::vector<size_t>& before);
  /// A clause about one that something keeps, though the next replay would overwrite it; "" if nothing does.
  [[nodiscard]] std::string problem() const;

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> recorded_;  // by parameter
  std::vector<bool> made_;
  std::vector<size_t> references_;
};

}  // namespace levin
