// The memory that a tape works on. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "levin/strategies/tape/recorded_calls.h"

namespace levin {

// Note [Memory of a tape]
// Memory from before the step (weights, the optimizer's state) and what the step leaves (gradients, the loss, logged
// values) stay at their addresses, and each replay writes them again. All other results are in one block, planned from
// their lifetimes, which the operators' out forms write. An operator without an out form allocates its result, whose
// memory is handed to the storage that the other calls refer to, and freed after its last use.

/// The block, shared by tapes that are never replayed at the same time, because none keeps anything in it.
struct TapeBlock {
  at::Tensor bytes = {};
};

class TapeMemory {
 public:
  /// Made when the step is over: what is still alive then is what the step leaves.
  TapeMemory(const RecordedCalls& recorded, TapeBlock& block);

  /// The same object for the same place.
  [[nodiscard]] at::Tensor tensor(const TensorPlace& place);
  [[nodiscard]] c10::StorageImpl* storage(size_t index) const { return pieces_[index].storage.unsafeGetStorageImpl(); }
  /// Whether it holds a constant that no other call changes, so that it is never written.
  [[nodiscard]] bool is_constant(size_t index) const { return pieces_[index].is_constant; }
  /// Storages that were handed their memory and are not needed after the call.
  [[nodiscard]] std::vector<c10::StorageImpl*> released_after(size_t call) const;
  /// The memory from before the step that it changes, as tensors of bytes.
  [[nodiscard]] std::vector<at::Tensor> changed() const;
  /// How many references to the storage the pieces hold.
  [[nodiscard]] size_t references_to(const c10::StorageImpl* storage) const;
  [[nodiscard]] size_t block_bytes() const { return block_bytes_; }

 private:
  struct Piece {
    c10::Storage storage = {};
    bool is_handed = false;  // allocated by its operator
    bool is_constant = false;
    bool is_changed = false;  // was there before the step, and is written by it
    size_t last_call = 0;
    std::vector<std::pair<TensorPlace, at::Tensor>> tensors = {};
  };

  void find_makers(const RecordedCalls& recorded);
  void place_in_block(const RecordedCalls& recorded, TapeBlock& block);

  std::vector<Piece> pieces_;
  at::Tensor block_;
  size_t block_bytes_ = 0;
};

/// Memory that is in use from one moment to another, to be placed in a block with others.
struct MemoryPiece {
  size_t bytes = 0;
  size_t first = 0;  // the first moment it is in use, and the last
  size_t last = 0;
};

struct BlockPlan {
  std::vector<size_t> offsets = {};  // of each piece, multiples of 64
  size_t bytes = 0;                  // of the block
};

/// Places pieces in one block so that pieces whose lifetimes overlap share no memory. Greedy by size: the largest
/// first, each at the lowest offset that is free during its life (Pisarchyk and Lee, "Efficient Memory Management for
/// Deep Neural Net Inference", 2020).
[[nodiscard]] BlockPlan plan_block(const std::vector<MemoryPiece>& pieces);

}  // namespace levin
