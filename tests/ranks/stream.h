// A loader of unknown length that keeps its place itself, as a stream from a network does.
#pragma once

#include <ATen/ops/full.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/data/loader.h"

namespace levin::test {

// Rank r has r batches more than it is given, and begins with a later one.
class Stream final : public Loader {
 public:
  Stream(Batch all, int64_t batches) : all_(std::move(all)), batches_(batches) {}
  void start(int64_t, int64_t first) override { position_ = first; }
  bool next(Batch& batch) override {
    if (position_ >= batches_) return false;
    ++position_;
    const int64_t at = 2 * (read_++ % 4);
    batch = {all_[0].slice(0, at, at + 2), all_[1].slice(0, at, at + 2)};
    return true;
  }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return std::nullopt; }
  bool shard(int64_t rank, int64_t, bool) override {
    batches_ += rank;
    read_ = rank;
    return true;
  }
  [[nodiscard]] State state_dict() const override {
    State state;
    state.set("read", read_);
    state.tensors["rows"] = at::full({1, 2}, 2 * read_, at::TensorOptions(at::kLong));
    return state;
  }
  void load_state_dict(const State& saved) override {
    read_ = saved.get<int64_t>("read");
    const at::Tensor& rows = saved.tensor("rows");
    if (!at::IntArrayRef({1, 2}).equals(rows.sizes()) || rows[0][1].item<int64_t>() != 2 * read_) {
      throw Error("Stream: its tensor is not as it was saved");
    }
  }

 private:
  Batch all_;
  int64_t batches_;
  int64_t position_ = 0;  // in the pass
  int64_t read_ = 0;      // over all passes
};

}  // namespace levin::test
