#pragma once

#include <optional>
#include <utility>

#include "levin/data/loader.h"

namespace bench {

/// Gives the same batch for ever.
class OneBatch final : public levin::Loader {
 public:
  explicit OneBatch(levin::Batch batch) : batch_(std::move(batch)) {}
  void start(int64_t, int64_t) override {}
  bool next(levin::Batch& batch) override {
    batch = batch_;
    return true;
  }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return std::nullopt; }

 private:
  levin::Batch batch_;
};

}  // namespace bench
