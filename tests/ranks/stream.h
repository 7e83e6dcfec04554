// A loader of unknown length, as a stream from a network is.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "levin/data/loader.h"

namespace levin::test {

// Rank r has r batches more than it is given.
class Stream final : public Loader {
 public:
  Stream(Batch all, int64_t batches) : all_(std::move(all)), batches_(batches) {}
  void start(int64_t, int64_t first) override { position_ = first; }
  bool next(Batch& batch) override {
    if (position_ >= batches_) return false;
    const int64_t at = 2 * (position_++ % 4);
    batch = {all_[0].slice(0, at, at + 2), all_[1].slice(0, at, at + 2)};
    return true;
  }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return std::nullopt; }
  bool shard(int64_t rank, int64_t, bool) override {
    batches_ += rank;
    return true;
  }

 private:
  Batch all_;
  int64_t batches_;
  int64_t position_ = 0;
};

}  // namespace levin::test
