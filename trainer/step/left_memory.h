// Observes the memory that a recorded step reads and allocates. Replays would overwrite memory that user code keeps,
// and could not read memory that was freed. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "levin/libtorch/below_autograd.h"
#include "levin/trainer/step/check_replay.h"

namespace levin {

/// An observer of the memory of all operators that the calling thread runs during its lifetime. Storages are known by
/// weak references, as in Note [Identity of tensors].
class StepMemory final : public OperatorObserver {
 public:
  using Storage = c10::intrusive_ptr<c10::StorageImpl>;

  /// `holds`: holds the memory that existed before the step, because the recording does not.
  explicit StepMemory(bool holds) : holds_(holds) {}
  void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack) override;

  [[nodiscard]] bool has_made(const at::Tensor& tensor) const;
  /// Returns the memory that existed before the step and is used by its operators; empty unless it is held.
  [[nodiscard]] std::vector<Storage> take_found() { return std::move(found_); }

  /// Returns why the step, which has ended, cannot be replayed, as a clause: `who` (a hook) keeps a tensor of its
  /// batch, which each replay would overwrite. "" if it keeps none. `results`: the tensors of which users get copies;
  /// `known`: all tensors that the run itself holds from the step. What another thread releases within 0.1 s is not
  /// kept.
  [[nodiscard]] std::string problem(const StepResults& results, const std::vector<at::Tensor>& known,
                                    std::string_view who) const;

 private:
  [[nodiscard]] std::string problem_now(const StepResults& results, const std::vector<at::Tensor>& known,
                                        std::string_view who) const;
  struct Seen {
    c10::weak_intrusive_ptr<c10::StorageImpl> known;
    bool is_made = false;
  };
  void note(const at::Tensor& tensor, bool is_made);

  bool holds_;
  std::vector<Seen> seen_;
  std::unordered_map<const c10::StorageImpl*, size_t> indices_;
  std::vector<Storage> found_;
};

/// Returns the number of tensors among `known`, each counted once, that have this storage.
[[nodiscard]] size_t count_sharing(const c10::StorageImpl* storage, const std::vector<at::Tensor>& known);

}  // namespace levin
