#include "levin/strategies/process/shm_call.h"

#include <ATen/Dispatch.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "levin/core/options/error.h"

namespace levin {

namespace {

constexpr int64_t kBlock = 1024;  // elements, so that partial results stay in the first-level cache

template <typename T>
using Accumulated = std::conditional_t<std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>, float, T>;

// `count`: an int64_t, or a whole block, for which compilers use vector instructions.
using Whole = std::integral_constant<int64_t, kBlock>;

template <typename A, typename T, typename Count, typename Op>
void accumulate(const T* __restrict part, Count count, A* __restrict sums, Op op) {
  for (int64_t i = 0; i < count; ++i) sums[i] = op(sums[i], static_cast<A>(part[i]));
}

template <typename A, typename T, typename Count>
void convert(const A* __restrict from, Count count, T* __restrict to) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i]);
}

template <typename T, typename Count, typename Op>
void reduce_block(const std::vector<const std::byte*>& parts, int64_t start, Count count, std::byte* out, bool average,
                  Op op) {
  using A = Accumulated<T>;
  std::array<A, kBlock> sums;
  convert(reinterpret_cast<const T*>(parts[0]) + start, count, sums.data());
  for (size_t k = 1; k < parts.size(); ++k) {
    accumulate(reinterpret_cast<const T*>(parts[k]) + start, count, sums.data(), op);
  }
  if constexpr (std::is_floating_point_v<A>) {
    const auto ranks = static_cast<A>(parts.size());
    if (average) {
      for (int64_t i = 0; i < count; ++i) sums[static_cast<size_t>(i)] /= ranks;
    }
  }
  convert(sums.data(), count, reinterpret_cast<T*>(out) + start);
}

template <typename T, typename Op>
void reduce_as(const std::vector<const std::byte*>& parts, int64_t count, std::byte* out, bool average, Op op) {
  int64_t start = 0;
  for (; start + kBlock <= count; start += kBlock) reduce_block<T>(parts, start, Whole(), out, average, op);
  if (start < count) reduce_block<T>(parts, start, count - start, out, average, op);
}

template <typename T>
void reduce_type(ShmReduction reduction, const std::vector<const std::byte*>& parts, int64_t count, std::byte* out) {
  using A = Accumulated<T>;
  constexpr bool kTruth = std::is_same_v<T, bool>;
  const auto run = [&](auto op) { reduce_as<T>(parts, count, out, reduction == ShmReduction::average, op); };
  switch (reduction) {
    case ShmReduction::sum:
    case ShmReduction::average:
      return run([](A a, A b) { return kTruth ? static_cast<A>(a || b) : static_cast<A>(a + b); });
    case ShmReduction::product: return run([](A a, A b) { return static_cast<A>(a * b); });
    case ShmReduction::min: return run([](A a, A b) { return b < a ? b : a; });
    case ShmReduction::max: return run([](A a, A b) { return a < b ? b : a; });
  }
}

}  // namespace

void check_reducible(ShmReduction reduction, at::ScalarType type) {
  if (!c10::isFloatingType(type) && !c10::isIntegralType(type, /*includeBool=*/true)) {
    throw Error(std::string("process_group_backend shm: tensors of type ") + c10::toString(type) +
                " cannot be reduced. Use process_group_backend: gloo, or convert them.");
  }
  if (reduction == ShmReduction::average && !c10::isFloatingType(type)) {
    throw Error(std::string("process_group_backend shm: an average over ranks is for floating-point tensors, not ") +
                c10::toString(type) + ". Reduce a sum, or convert the tensor.");
  }
}

void reduce_in_rank_order(ShmReduction reduction, at::ScalarType type, const std::vector<const std::byte*>& parts,
                          int64_t count, std::byte* out) {
  AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, type, "reduce_in_rank_order",
                             [&] { reduce_type<scalar_t>(reduction, parts, count, out); });
}

namespace {

enum Kind : int64_t { kAllReduce, kReduce, kReduceScatter, kBroadcast, kGather, kScatter, kBarrier };

// Up to here every rank adds up everything, in one round; larger ones are divided among ranks, in two rounds a chunk.
constexpr int64_t kUndividedBytes = 256 << 10;
constexpr int64_t kAlignment = 64;  // of a rank's piece of a half

std::byte* writable(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

const std::byte* readable(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.nbytes());
}

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// Round k's stretch of `bytes`, of which a round moves `each`.
struct Stretch {
  int64_t begin;
  int64_t size;
};

Stretch stretch(int64_t bytes, int64_t each, int64_t k) {
  const int64_t begin = std::min(bytes, k * each);
  return {begin, std::min(each, bytes - begin)};
}

int64_t rounds_for(int64_t bytes, int64_t each) {
  return std::max<int64_t>(1, (bytes + each - 1) / each);
}

int64_t half_of(const ShmSegment& segment) {
  return static_cast<int64_t>(segment.half_bytes());
}

// What each rank's piece of a half holds, in bytes.
int64_t piece_of(const ShmSegment& segment) {
  return half_of(segment) / segment.size() / kAlignment * kAlignment;
}

void check(const at::Tensor& tensor, const at::Tensor& like) {
  if (!tensor.device().is_cpu() || !tensor.is_contiguous()) {
    throw Error("process_group_backend shm: tensors must be contiguous and on the CPU; one is on " +
                tensor.device().str() + ". Use process_group_backend: gloo, or call contiguous().");
  }
  if (tensor.numel() != like.numel() || tensor.scalar_type() != like.scalar_type()) {
    throw Error("process_group_backend shm: the tensors of one call differ: " + std::to_string(tensor.numel()) +
                " elements of type " + c10::toString(tensor.scalar_type()) + ", and " + std::to_string(like.numel()) +
                " of type " + c10::toString(like.scalar_type()) + ".");
  }
}

void check_parts(const ShmSegment& segment, const std::vector<at::Tensor>& parts, const at::Tensor& like) {
  if (parts.size() != static_cast<size_t>(segment.size())) {
    throw Error("process_group_backend shm: " + std::to_string(parts.size()) + " tensors for " +
                std::to_string(segment.size()) + " ranks. Pass one for each rank.");
  }
  for (const at::Tensor& part : parts) check(part, like);
}

ShmCall call_of(Kind kind, const at::Tensor& tensor, int64_t detail) {
  check(tensor, tensor);
  ShmCall call;
  call.label = {kind, static_cast<int64_t>(tensor.scalar_type()), tensor.numel(), detail};
  call.bytes = bytes_of(tensor);
  return call;
}

// The contributions to one stretch: this rank's from its tensor, the others' from their slots.
template <typename Place>
std::vector<const std::byte*> contributions(const ShmSegment& segment, const std::byte* own, Place place) {
  std::vector<const std::byte*> parts;
  for (int rank = 0; rank < segment.size(); ++rank) parts.push_back(rank == segment.rank() ? own : place(rank));
  return parts;
}

void undivided_all_reduce(const ShmSegment& segment, ShmCall& call, const at::Tensor& tensor, ShmReduction reduction) {
  std::byte* data = writable(tensor);
  const int64_t bytes = call.bytes;
  call.write = [=](int64_t, const ShmSlots& slots) { copy_bytes(slots.own(), data, bytes); };
  call.read = [=, &segment, type = tensor.scalar_type(), count = tensor.numel()](int64_t, const ShmSlots& slots) {
    const auto parts = contributions(segment, data, [&](int rank) { return slots.of(rank); });
    reduce_in_rank_order(reduction, type, parts, count, data);
  };
}

// In chunks of one piece for each rank. Even rounds: ranks give each other what the other one reduces. Odd rounds: each
// gives the others what it has reduced.
void divided_all_reduce(const ShmSegment& segment, ShmCall& call, const at::Tensor& tensor, ShmReduction reduction) {
  std::byte* data = writable(tensor);
  const int64_t bytes = call.bytes;
  const int64_t piece = piece_of(segment);
  const int64_t chunk = piece * segment.size();
  const auto width = static_cast<int64_t>(tensor.element_size());
  const auto share = [=](int64_t k, int rank) {
    const Stretch whole = stretch(bytes, chunk, k / 2);
    const Stretch part = stretch(whole.size, piece, rank);
    return Stretch{whole.begin + part.begin, part.size};
  };
  call.rounds = 2 * rounds_for(bytes, chunk);
  call.write = [=, &segment, type = tensor.scalar_type()](int64_t k, const ShmSlots& slots) {
    const int self = segment.rank();
    if (k % 2 == 0) {
      for (int rank = 0; rank < segment.size(); ++rank) {
        const Stretch part = share(k, rank);
        if (rank != self) copy_bytes(slots.own() + rank * piece, data + part.begin, part.size);
      }
      return;
    }
    const Stretch mine = share(k, self);
    std::byte* own = data + mine.begin;
    const auto parts = contributions(segment, own, [&](int rank) { return slots.of_previous(rank) + self * piece; });
    reduce_in_rank_order(reduction, type, parts, mine.size / width, own);
    copy_bytes(slots.own(), own, mine.size);
  };
  call.read = [=, &segment](int64_t k, const ShmSlots& slots) {
    for (int rank = 0; rank < segment.size() && k % 2 == 1; ++rank) {
      const Stretch part = share(k, rank);
      if (rank != segment.rank()) copy_bytes(data + part.begin, slots.of(rank), part.size);
    }
  };
}

}  // namespace

ShmCall shm_all_reduce(const ShmSegment& segment, const at::Tensor& tensor, ShmReduction reduction) {
  ShmCall call = call_of(kAllReduce, tensor, static_cast<int64_t>(reduction));
  check_reducible(reduction, tensor.scalar_type());
  const bool divided = call.bytes > std::min(half_of(segment), kUndividedBytes);
  (divided ? divided_all_reduce : undivided_all_reduce)(segment, call, tensor, reduction);
  call.outputs = {tensor};
  return call;
}

ShmCall shm_reduce(const ShmSegment& segment, const at::Tensor& tensor, ShmReduction reduction, int root) {
  ShmCall call = call_of(kReduce, tensor, segment.size() * static_cast<int64_t>(reduction) + root);
  check_reducible(reduction, tensor.scalar_type());
  const int64_t bytes = call.bytes;
  const int64_t each = half_of(segment);
  const bool receives = segment.rank() == root;
  call.rounds = rounds_for(bytes, each);
  call.write = [=](int64_t k, const ShmSlots& slots) {
    const Stretch part = stretch(bytes, each, k);
    if (!receives) copy_bytes(slots.own(), readable(tensor) + part.begin, part.size);
  };
  call.read = [=, &segment](int64_t k, const ShmSlots& slots) {
    if (!receives) return;
    const Stretch part = stretch(bytes, each, k);
    std::byte* place = writable(tensor) + part.begin;
    const auto parts = contributions(segment, place, [&](int rank) { return slots.of(rank); });
    reduce_in_rank_order(reduction, tensor.scalar_type(), parts,
                         part.size / static_cast<int64_t>(tensor.element_size()), place);
  };
  call.outputs = {tensor};
  return call;
}

ShmCall shm_reduce_scatter(const ShmSegment& segment, const at::Tensor& out, const std::vector<at::Tensor>& parts,
                           ShmReduction reduction) {
  ShmCall call = call_of(kReduceScatter, out, static_cast<int64_t>(reduction));
  check_reducible(reduction, out.scalar_type());
  check_parts(segment, parts, out);
  const int64_t piece = piece_of(segment);
  const int64_t bytes = call.bytes;
  call.rounds = rounds_for(bytes, piece);
  call.write = [=, &segment](int64_t k, const ShmSlots& slots) {
    const Stretch part = stretch(bytes, piece, k);
    for (int rank = 0; rank < segment.size(); ++rank) {
      if (rank == segment.rank()) continue;
      copy_bytes(slots.own() + rank * piece, readable(parts[static_cast<size_t>(rank)]) + part.begin, part.size);
    }
  };
  call.read = [=, &segment](int64_t k, const ShmSlots& slots) {
    const int self = segment.rank();
    const Stretch part = stretch(bytes, piece, k);
    const auto all = contributions(segment, readable(parts[static_cast<size_t>(self)]) + part.begin,
                                   [&](int rank) { return slots.of(rank) + self * piece; });
    reduce_in_rank_order(reduction, out.scalar_type(), all, part.size / static_cast<int64_t>(out.element_size()),
                         writable(out) + part.begin);
  };
  call.inputs = parts;
  call.outputs = {out};
  return call;
}

ShmCall shm_broadcast(const ShmSegment& segment, const at::Tensor& tensor, int root) {
  ShmCall call = call_of(kBroadcast, tensor, root);
  const int64_t bytes = call.bytes;
  const int64_t each = half_of(segment);
  const bool sends = segment.rank() == root;
  call.rounds = rounds_for(bytes, each);
  call.write = [=](int64_t k, const ShmSlots& slots) {
    const Stretch part = stretch(bytes, each, k);
    if (sends) copy_bytes(slots.own(), readable(tensor) + part.begin, part.size);
  };
  call.read = [=](int64_t k, const ShmSlots& slots) {
    const Stretch part = stretch(bytes, each, k);
    if (!sends) copy_bytes(writable(tensor) + part.begin, slots.of(root), part.size);
  };
  call.outputs = {tensor};
  return call;
}

ShmCall shm_gather(const ShmSegment& segment, const std::vector<at::Tensor>& parts, const at::Tensor& own, int root) {
  ShmCall call = call_of(kGather, own, root);
  const bool receives = root < 0 || root == segment.rank();
  if (receives) check_parts(segment, parts, own);
  const int64_t bytes = call.bytes;
  const int64_t each = half_of(segment);
  call.rounds = rounds_for(bytes, each);
  call.write = [=, &segment](int64_t k, const ShmSlots& slots) {
    const Stretch part = stretch(bytes, each, k);
    if (root != segment.rank()) copy_bytes(slots.own(), readable(own) + part.begin, part.size);
    if (!receives) return;
    std::byte* place = writable(parts[static_cast<size_t>(segment.rank())]);
    if (place != readable(own)) copy_bytes(place + part.begin, readable(own) + part.begin, part.size);
  };
  call.read = [=, &segment](int64_t k, const ShmSlots& slots) {
    const Stretch part = stretch(bytes, each, k);
    for (int rank = 0; rank < segment.size() && receives; ++rank) {
      if (rank == segment.rank()) continue;
      copy_bytes(writable(parts[static_cast<size_t>(rank)]) + part.begin, slots.of(rank), part.size);
    }
  };
  if (receives) call.outputs = parts;
  return call;
}

ShmCall shm_scatter(const ShmSegment& segment, const at::Tensor& out, const std::vector<at::Tensor>& parts, int root) {
  ShmCall call = call_of(kScatter, out, root);
  const bool sends = segment.rank() == root;
  if (sends) check_parts(segment, parts, out);
  const int64_t bytes = call.bytes;
  const int64_t piece = piece_of(segment);
  call.rounds = rounds_for(bytes, piece);
  call.write = [=, &segment](int64_t k, const ShmSlots& slots) {
    const Stretch part = stretch(bytes, piece, k);
    for (int rank = 0; rank < segment.size() && sends; ++rank) {
      copy_bytes(slots.own() + rank * piece, readable(parts[static_cast<size_t>(rank)]) + part.begin, part.size);
    }
  };
  call.read = [=, &segment](int64_t k, const ShmSlots& slots) {
    const Stretch part = stretch(bytes, piece, k);
    copy_bytes(writable(out) + part.begin, slots.of(root) + segment.rank() * piece, part.size);
  };
  call.inputs = parts;
  call.outputs = {out};
  return call;
}

ShmCall shm_barrier() {
  ShmCall call;
  call.label = {kBarrier, 0, 0, 0};
  return call;
}

}  // namespace levin
