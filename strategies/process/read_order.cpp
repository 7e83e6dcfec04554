#include "levin/strategies/process/read_order.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "levin/strategies/process/operator_watch.h"

namespace levin {

ReadOrder::ReadOrder(const Units& units, c10::intrusive_ptr<c10d::ProcessGroup> group)
    : units_(units), group_(std::move(group)) {}

void ReadOrder::agree(size_t unit) {
  const OperatorWatch::Unseen unseen;
  std::vector<at::Tensor> own = {at::empty({1}, at::kLong).fill_(static_cast<int64_t>(unit))};
  std::vector<std::vector<at::Tensor>> all(1);
  for (int k = 0; k < group_->getSize(); ++k) all[0].push_back(at::empty_like(own[0]));
  wait_for(*group_->allgather(all, own), *group_, "agreeing to gather " + unit_text(units_, unit),
           "Another rank ended, hangs, or reads other weights; see its output.");
  const auto unit_of = [&](size_t rank) { return static_cast<size_t>(all[0][rank].item<int64_t>()); };
  for (size_t rank = 1; rank < all[0].size(); ++rank) {
    if (unit_of(rank) == unit_of(0)) continue;
    throw Error(
        "fsdp stage 3: ranks read weights in different orders: rank 0 is about to read " +
        unit_text(units_, unit_of(0)) + ", rank " + std::to_string(rank) + " " + unit_text(units_, unit_of(rank)) +
        ". Run the same layers in the same order on every rank, or use stage 2, which keeps weights unsharded.");
  }
}

}  // namespace levin
