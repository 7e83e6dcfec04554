#include "levin/strategies/tape/tape_memory.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include "levin/libtorch/operator_values.h"
#include "levin/libtorch/tensor_memory.h"

namespace levin {

namespace {

c10::Storage storage_over(void* memory, size_t bytes) {
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(memory, at::kCPU), /*allocator=*/nullptr,
                      /*resizable=*/false);
}

at::Tensor tensor_of(const c10::Storage& storage, const TensorPlace& place) {
  at::Tensor made = tensor_over(storage, c10::DispatchKeySet(c10::DispatchKey::CPU), place.type, place.sizes,
                                place.strides, place.offset);
  if (place.wrapped_number) wrap_number(made);
  return made;
}

// Whether the constant can be used unchanged for a result that was at `place`.
bool can_stand_for(const at::Tensor& constant, const TensorPlace& place) {
  return place.offset == 0 && constant.storage_offset() == 0 && constant.strides() == place.strides;
}

}  // namespace

TapeMemory::TapeMemory(const RecordedCalls& recorded, TapeBlock& block) : pieces_(recorded.memory.storages().size()) {
  for (size_t k = 0; k < pieces_.size(); ++k) {
    const RecordedStorage& known = recorded.memory.storages()[k];
    Piece& piece = pieces_[k];
    piece.last_call = known.last_call;
    piece.is_changed = known.held != nullptr && known.writes > 0;
    if (known.held != nullptr) {
      piece.storage = c10::Storage(known.held);
    } else if (auto alive = known.known.lock()) {
      piece.storage = c10::Storage(std::move(alive));  // it is in use after the step
    }
  }
  find_makers(recorded);
  place_in_block(recorded, block);
}

// What the step does not keep: constants, and results of operators that allocate them.
void TapeMemory::find_makers(const RecordedCalls& recorded) {
  std::vector<bool> seen(pieces_.size());
  auto note = [&](const TensorPlace& place) {
    if (place.storage != TensorPlace::kNoStorage) seen[place.storage] = true;
  };
  for (const RecordedCall& call : recorded.calls) {
    for (const RecordedArgument& argument : call.arguments) {
      if (const auto* place = std::get_if<TensorPlace>(&argument)) note(*place);
      if (const auto* list = std::get_if<std::vector<TensorPlace>>(&argument)) {
        for (const TensorPlace& place : *list) note(place);
      }
    }
    for (const TensorPlace& place : call.results) {
      if (place.storage == TensorPlace::kNoStorage || seen[place.storage]) continue;
      Piece& piece = pieces_[place.storage];
      seen[place.storage] = true;
      if (piece.storage) continue;
      if (call.form == CallForm::unchanged) {
        piece.is_handed = true;
        piece.storage = storage_over(nullptr, recorded.memory.storages()[place.storage].bytes);
      } else if (call.form == CallForm::constant && recorded.memory.storages()[place.storage].writes == 1 &&
                 can_stand_for(call.constant, place)) {
        piece.is_constant = true;
        piece.storage = call.constant.storage();
      }
    }
  }
}

void TapeMemory::place_in_block(const RecordedCalls& recorded, TapeBlock& block) {
  std::vector<size_t> indices;
  std::vector<MemoryPiece> wanted;
  for (size_t k = 0; k < pieces_.size(); ++k) {
    if (pieces_[k].storage) continue;
    const RecordedStorage& known = recorded.memory.storages()[k];
    indices.push_back(k);
    wanted.push_back({known.bytes, known.first_call, known.last_call});
  }
  const BlockPlan plan = plan_block(wanted);
  block_bytes_ = plan.bytes;
  if (!block.bytes.defined() || block.bytes.nbytes() < plan.bytes) {
    block.bytes = at::empty({static_cast<int64_t>(plan.bytes)}, at::kByte);
  }
  block_ = block.bytes;
  for (size_t k = 0; k < indices.size(); ++k) {
    auto* start = static_cast<std::byte*>(block_.mutable_data_ptr());
    pieces_[indices[k]].storage = storage_over(start + plan.offsets[k], wanted[k].bytes);
  }
}

at::Tensor TapeMemory::tensor(const TensorPlace& place) {
  if (place.storage == TensorPlace::kNoStorage) return {};
  Piece& piece = pieces_[place.storage];
  for (const auto& [known, tensor] : piece.tensors) {
    if (known == place) return tensor;
  }
  return piece.tensors.emplace_back(place, tensor_of(piece.storage, place)).second;
}

std::vector<c10::StorageImpl*> TapeMemory::released_after(size_t call) const {
  std::vector<c10::StorageImpl*> released;
  for (const Piece& piece : pieces_) {
    if (piece.is_handed && piece.last_call == call) released.push_back(piece.storage.unsafeGetStorageImpl());
  }
  return released;
}

std::vector<at::Tensor> TapeMemory::changed() const {
  std::vector<at::Tensor> found;
  for (const Piece& piece : pieces_) {
    if (!piece.is_changed || piece.storage.nbytes() == 0) continue;
    const auto bytes = static_cast<int64_t>(piece.storage.nbytes());
    found.push_back(tensor_of(piece.storage, {.sizes = {bytes}, .strides = {1}, .type = at::kByte}));
  }
  return found;
}

size_t TapeMemory::references_to(const c10::StorageImpl* storage) const {
  size_t count = 0;
  for (const Piece& piece : pieces_) {
    if (piece.storage.unsafeGetStorageImpl() == storage) count += 1 + piece.tensors.size();
  }
  return count;
}

namespace {

constexpr size_t kTensorAlignment = 64;  // of LibTorch's own allocations

size_t aligned(size_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

bool overlap(const MemoryPiece& one, const MemoryPiece& other) {
  return one.first <= other.last && other.first <= one.last;
}

}  // namespace

BlockPlan plan_block(const std::vector<MemoryPiece>& pieces) {
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return pieces[a].bytes > pieces[b].bytes; });
  BlockPlan plan{.offsets = std::vector<size_t>(pieces.size())};
  std::vector<size_t> placed;  // by offset
  for (const size_t index : order) {
    const MemoryPiece& piece = pieces[index];
    size_t offset = 0;
    for (const size_t other : placed) {
      if (!overlap(piece, pieces[other])) continue;
      if (offset + aligned(piece.bytes) <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + aligned(pieces[other].bytes));
    }
    plan.offsets[index] = offset;
    plan.bytes = std::max(plan.bytes, offset + aligned(piece.bytes));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), index,
                                   [&](size_t a, size_t b) { return plan.offsets[a] < plan.offsets[b]; }),
                  index);
  }
  return plan;
}

}  // namespace levin
