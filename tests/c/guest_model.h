// A run of the C interface for tests in C++: the model's class is registered in the test's own program.
#pragma once

#include <string>
#include <vector>

#include "levin/c/levin.h"

namespace levin::test {

/// Returns the text of a run file that trains a small model without writing anything. `trainer`: further lines of the
/// trainer's options, such as "  precision: bf16-mixed\n".
[[nodiscard]] std::string guest_run_file(const std::string& trainer = "");

/// The tensors of a batch of four samples, and their memory. Freed at the end of the scope.
class GuestBatch {
 public:
  GuestBatch();
  ~GuestBatch();
  GuestBatch(const GuestBatch&) = delete;
  GuestBatch& operator=(const GuestBatch&) = delete;

  [[nodiscard]] levin_tensor* const* tensors() const { return handles_.data(); }
  [[nodiscard]] int32_t count() const { return static_cast<int32_t>(handles_.size()); }

  std::vector<float> x = {};  // (4, 4)
  std::vector<float> y = {};  // (4, 1)

 private:
  std::vector<levin_tensor*> handles_ = {nullptr, nullptr};
};

}  // namespace levin::test
