#include "levin/data/streams/stream_dataset.h"

#include <algorithm>

#include "levin/core/options/error.h"

namespace levin {

StreamDataset::StreamDataset(std::shared_ptr<StreamSource> source) : source_(std::move(source)) {
  if (source_ == nullptr) throw DataError("StreamDataset: no source was given.");
  for (size_t shard = 0; shard < source_->shards(); ++shard) ends_.push_back(size() + source_->samples(shard));
}

StreamPlace StreamDataset::place_of(int64_t index) const {
  if (index < 0 || index >= size()) {
    throw DataError("StreamDataset: there is no sample " + std::to_string(index) + ": " + source_->url() + " has " +
                    count_of(size(), "sample") + ".");
  }
  const auto shard = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  return {shard, shard == 0 ? index : index - ends_[shard - 1]};
}

Batch StreamDataset::get(int64_t index) const {
  const StreamPlace place = place_of(index);
  return source_->open(place.shard)->get(place.index);
}

std::string StreamDataset::sample_id(int64_t index) const {
  const StreamPlace place = place_of(index);
  return source_->open(place.shard)->sample_id(place.index);
}

}  // namespace levin
