// Collectives as rounds of a shared segment: what a rank writes and reads in each.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "levin/strategies/process/shm_segment.h"

namespace levin {

/// Reductions over the ranks' contributions, in the order of ranks, so that results are bitwise identical on every rank
/// and in every run. As c10d's of the same names; average is for floating-point types.
enum class ShmReduction { sum, average, product, min, max };

/// Throws Error unless the type is a floating-point number, or an integer or bool and no average is asked for.
void check_reducible(ShmReduction reduction, at::ScalarType type);

/// out[i] = the reduction of parts[rank][i] over ranks, for `count` elements of a reducible type; `out` may be one of
/// the parts. Types of 16 bits are reduced as float and rounded once; bool is reduced as a truth value.
void reduce_in_rank_order(ShmReduction reduction, at::ScalarType type, const std::vector<const std::byte*>& parts,
                          int64_t count, std::byte* out);

/// The slots of one round.
class ShmSlots {
 public:
  ShmSlots(const ShmSegment& segment, uint32_t round) : segment_(segment), round_(round) {}
  [[nodiscard]] std::byte* own() const { return segment_.half(segment_.rank(), round_); }
  [[nodiscard]] const std::byte* of(int rank) const { return segment_.half(rank, round_); }
  [[nodiscard]] const std::byte* of_previous(int rank) const { return segment_.half(rank, round_ - 1); }

 private:
  const ShmSegment& segment_;
  uint32_t round_;
};

/// One collective. `write` and `read` get the number of the round within the call.
struct ShmCall {
  ShmSegment::Label label = {};
  int64_t bytes = 0;
  int64_t rounds = 1;
  std::function<void(int64_t, const ShmSlots&)> write = [](int64_t, const ShmSlots&) {};
  std::function<void(int64_t, const ShmSlots&)> read = [](int64_t, const ShmSlots&) {};
  std::vector<at::Tensor> inputs = {};   // kept alive
  std::vector<at::Tensor> outputs = {};  // the work's result
};

/// Tensors are on the CPU and contiguous. `parts`, where given: one tensor per rank, all of the same size; empty on
/// ranks other than the root. Throw Error for others.
[[nodiscard]] ShmCall shm_all_reduce(const ShmSegment& segment, const at::Tensor& tensor, ShmReduction reduction);
/// Only `root` gets the result; the tensors of the other ranks are unchanged.
[[nodiscard]] ShmCall shm_reduce(const ShmSegment& segment, const at::Tensor& tensor, ShmReduction reduction, int root);
[[nodiscard]] ShmCall shm_reduce_scatter(const ShmSegment& segment, const at::Tensor& out,
                                         const std::vector<at::Tensor>& parts, ShmReduction reduction);
[[nodiscard]] ShmCall shm_broadcast(const ShmSegment& segment, const at::Tensor& tensor, int root);
/// `root` below 0: all ranks receive.
[[nodiscard]] ShmCall shm_gather(const ShmSegment& segment, const std::vector<at::Tensor>& parts, const at::Tensor& own,
                                 int root = -1);
[[nodiscard]] ShmCall shm_scatter(const ShmSegment& segment, const at::Tensor& out,
                                  const std::vector<at::Tensor>& parts, int root);
[[nodiscard]] ShmCall shm_barrier();

}  // namespace levin
