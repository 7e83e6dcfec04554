// The samples of a data set in shards by their index, for samplers, splits and looking things up. To go through all of
// them, StreamLoader needs fewer shards at a time.
//
//   auto data = std::make_shared<levin::StreamDataset>(std::make_shared<levin::StreamSource>("/data/train"));
//   levin::Batch sample = data->get(123'456);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/data/loading/dataset.h"
#include "levin/data/streams/stream_order.h"
#include "levin/data/streams/stream_source.h"

namespace levin {

/// The samples, in the order of the shards. Shards are fetched when one of their samples is read.
class StreamDataset final : public Dataset {
 public:
  /// Counts the samples: shards whose index does not have their number are fetched.
  explicit StreamDataset(std::shared_ptr<StreamSource> source);

  [[nodiscard]] int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  [[nodiscard]] Batch get(int64_t index) const override;
  [[nodiscard]] std::string sample_id(int64_t index) const override;

 private:
  [[nodiscard]] StreamPlace place_of(int64_t index) const;

  std::shared_ptr<StreamSource> source_;
  std::vector<int64_t> ends_ = {};  // index after the last sample of each shard
};

}  // namespace levin
