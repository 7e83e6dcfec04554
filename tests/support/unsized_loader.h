// A loader whose number of batches is not known before, as a stream has none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "levin/data/batch.h"
#include "levin/data/loader.h"

namespace levin::test {

class UnsizedLoader final : public Loader {
 public:
  /// `read_ahead`: false: its batches may depend on the weights, as the batches that a loop gives to a Fabric.
  explicit UnsizedLoader(std::shared_ptr<Loader> inner, bool read_ahead = true)
      : inner_(std::move(inner)), read_ahead_(read_ahead) {}
  void start(int64_t epoch, int64_t first_batch) override { inner_->start(epoch, first_batch); }
  bool next(Batch& batch) override { return inner_->next(batch); }
  [[nodiscard]] bool may_be_read_ahead() const override { return read_ahead_; }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return std::nullopt; }

 private:
  std::shared_ptr<Loader> inner_;
  bool read_ahead_;
};

}  // namespace levin::test
