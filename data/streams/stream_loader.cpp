#include "levin/data/streams/stream_loader.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/random.h"
#include "levin/data/batch_memory.h"
#include "levin/data/loading/sample_generator.h"
#include "levin/data/loading/sample_stacker.h"
#include "levin/data/loading/sampler.h"
#include "levin/data/loading/skipped_sample.h"
#include "levin/data/streams/shard_prefetcher.h"
#include "levin/data/streams/stream_order.h"

namespace levin {

namespace {

constexpr int64_t kUnknownEnd = std::numeric_limits<int64_t>::max();

}  // namespace

// One pass: makes batch b, on any thread and in any order.
class StreamLoader::Pass {
 public:
  Pass(const StreamLoader& loader, int64_t epoch)
      : source_(loader.source_),
        options_(loader.options_),
        transform_(loader.transform_),
        collate_(loader.collate_),
        rank_(loader.rank_),
        world_size_(loader.world_size_),
        padded_(loader.padded_),
        pins_memory_(loader.pins_memory_),
        identifies_samples_(loader.identifies_samples_),
        epoch_(epoch),
        seed_(loader.options_.seed < 0 ? default_seed() : static_cast<uint64_t>(loader.options_.seed)),
        order_(order_of(epoch)) {
    if (options_.prefetch_shards > 0) fetch_ahead();
  }

  // Makes what other threads fetch for it end early.
  void abandon() const {
    abandoned_ = true;
    if (prefetcher_ != nullptr) prefetcher_->abandon();
  }

  // Whether fetch() has found that there is no such batch.
  [[nodiscard]] bool ends_before(int64_t batch_idx) const { return end_ <= batch_idx; }

  // Returns an empty batch beyond the end, and if the pass is abandoned.
  [[nodiscard]] Batch fetch(int64_t batch_idx) const {
    const at::NoGradGuard no_grad;
    const PinnedBatches in_pinned_memory(pins_memory_);
    const std::vector<StreamPlace> places = places_of(batch_idx);
    if (places.empty()) {
      for (int64_t end = end_; batch_idx < end && !end_.compare_exchange_weak(end, batch_idx);) continue;
      return {};
    }
    OpenShards shards;
    SampleStacker stacker(places.size(), nullptr);
    std::vector<Batch> samples;
    BatchSamples known{.batch = rank_ + batch_idx * world_size_};
    for (size_t k = 0; k < places.size(); ++k) {
      if (abandoned_) return {};
      try {
        const Shard& shard = open(places[k].shard, shards);
        (void)detail::take_skip_reason();
        Batch sample = sample_at(shard, places[k]);
        const int64_t index = options_.shuffle ? -1 : place_of(batch_idx, k);  // in the data set
        if (std::string reason = sample.empty() ? detail::take_skip_reason() : ""; !reason.empty()) {
          known.skipped.push_back({index, shard.sample_id(places[k].index), std::move(reason)});
          continue;
        }
        if (identifies_samples_) {
          known.ids.push_back(shard.sample_id(places[k].index));
          known.indices.push_back(index);
        }
        collate_ != nullptr ? samples.push_back(std::move(sample)) : stacker.add(std::move(sample));
      } catch (...) {
        fail("sample " + std::to_string(places[k].index) + " of shard " + name_of(places[k].shard), batch_idx);
      }
    }
    if (known.skipped.size() == places.size()) return without_samples(batch_idx, std::move(known));
    try {
      Batch batch = collate_ != nullptr ? (*collate_)(std::move(samples)) : std::move(stacker).finish();
      if (identifies_samples_) {
        if (std::ssize(known.ids) != batch.size()) known.ids.clear();
        if (known.ids.empty() || options_.shuffle) known.indices.clear();
        batch.set_samples(std::move(known));
      }
      if (pins_memory_) pin_tensors(batch);
      return batch;
    } catch (...) {
      fail("the batch could not be made of its samples", batch_idx);
    }
  }

 private:
  [[nodiscard]] std::unique_ptr<StreamOrder> order_of(int64_t epoch) const {
    return std::make_unique<StreamOrder>(StreamOrderOptions{.shards = source_->shards(),
                                                            .seed = seed_,
                                                            .epoch = epoch,
                                                            .shuffle = options_.shuffle,
                                                            .window = options_.shuffle_shards},
                                         [this](size_t shard) { return count(shard); });
  }

  // Only what must be opened for it moves what is fetched ahead.
  [[nodiscard]] int64_t count(size_t shard) const {
    if (const std::optional<int64_t> samples = source_->known_samples(shard)) return *samples;
    note_use(shard);
    return source_->samples(shard, &abandoned_);
  }

  // Few shards: a batch lies in one window.
  using OpenShards = std::vector<std::pair<size_t, std::shared_ptr<const Shard>>>;
  [[nodiscard]] const Shard& open(size_t shard, OpenShards& opened) const {
    for (const auto& [number, each] : opened) {
      if (number == shard) return *each;
    }
    note_use(shard);
    opened.emplace_back(shard, source_->open(shard, &abandoned_));
    return *opened.back().second;
  }

  void note_use(size_t shard) const {
    if (prefetcher_ == nullptr) return;
    prefetcher_->permit(positions_[shard] + 1 + static_cast<size_t>(options_.prefetch_shards));
  }

  // The first shards of the next epoch follow those of this one.
  void fetch_ahead() {
    std::vector<size_t> shards = order_->shards();
    const std::vector<size_t> later = order_of(epoch_ + 1)->shards();
    const auto count = static_cast<int64_t>(std::min(later.size(), static_cast<size_t>(options_.prefetch_shards)));
    shards.insert(shards.end(), later.begin(), later.begin() + count);
    if (std::none_of(shards.begin(), shards.end(), [this](size_t shard) { return source_->copies(shard); })) return;
    positions_.resize(source_->shards());
    for (size_t k = 0; k < positions_.size(); ++k) positions_[shards[k]] = k;
    prefetcher_ = std::make_unique<ShardPrefetcher>(source_, std::move(shards), options_.fetch_threads);
  }

  // As DataLoader: in a prediction the ranks share batches, so that these are the batches of one process.
  [[nodiscard]] bool shares_whole_batches() const { return identifies_samples_ && !padded_; }

  // Rank r of n has the places r, r + n, r + 2 n, … of the order, unless ranks share batches.
  [[nodiscard]] int64_t place_of(int64_t batch_idx, size_t sample) const {
    const auto number = static_cast<int64_t>(sample);
    if (shares_whole_batches()) return (rank_ + batch_idx * world_size_) * options_.batch_size + number;
    return rank_ + (batch_idx * options_.batch_size + number) * world_size_;
  }

  [[nodiscard]] std::vector<StreamPlace> places_of(int64_t batch_idx) const {
    const int64_t step = shares_whole_batches() ? 1 : world_size_;
    std::vector<StreamPlace> places = order_->at(place_of(batch_idx, 0), step, options_.batch_size);
    if (std::ssize(places) == options_.batch_size) return places;
    if (padded_) pad(places, batch_idx * options_.batch_size);
    if (options_.drop_last && std::ssize(places) < options_.batch_size) places.clear();
    return places;
  }

  // At the end of the order the ranks without a sample take one from its beginning, so that all have the same number.
  void pad(std::vector<StreamPlace>& places, int64_t first) const {
    const int64_t all = order_->size();
    const int64_t of_rank = (all + world_size_ - 1) / world_size_;
    while (all > 0 && std::ssize(places) < options_.batch_size && first + std::ssize(places) < of_rank) {
      const int64_t place = rank_ + (first + std::ssize(places)) * world_size_;
      places.push_back(order_->at(place % all, 1, 1).at(0));
    }
  }

  [[nodiscard]] Batch sample_at(const Shard& shard, const StreamPlace& place) const {
    const uint64_t of_pass = mix_seed(seed_, static_cast<uint64_t>(epoch_));
    seed_sample_generator(mix_seed(mix_seed(of_pass, place.shard), static_cast<uint64_t>(place.index)));
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Batch sample = shard.get(place.index);
    return transform_ == nullptr ? sample : (*transform_)(std::move(sample));
  }

  [[nodiscard]] Batch without_samples(int64_t batch_idx, BatchSamples known) const {
    if (!identifies_samples_) {
      throw DataError("StreamLoader: none of the " + count_of(std::ssize(known.skipped), "sample") + " of batch " +
                      std::to_string(batch_idx) + " of " + source_->url() +
                      " can be read. The first: " + known.skipped[0].reason + " Repair the data or remove them.");
    }
    Batch batch;
    batch.set_samples(std::move(known));
    return batch;
  }

  [[nodiscard]] const std::string& name_of(size_t shard) const { return source_->index().shards[shard].key; }

  [[noreturn]] void fail(const std::string& what, int64_t batch_idx) const {
    throw DataError("StreamLoader: " + what + " of " + source_->url() + " (batch " + std::to_string(batch_idx) +
                    " of epoch " + std::to_string(epoch_) + "): " + exception_text(std::current_exception()));
  }

  std::shared_ptr<StreamSource> source_;
  StreamLoaderOptions options_;
  std::shared_ptr<const Transform> transform_;
  std::shared_ptr<const Collate> collate_;
  int64_t rank_;
  int64_t world_size_;
  bool padded_;
  bool pins_memory_;
  bool identifies_samples_;
  int64_t epoch_;
  uint64_t seed_;
  std::unique_ptr<StreamOrder> order_;
  mutable std::atomic<bool> abandoned_ = false;
  mutable std::atomic<int64_t> end_ = kUnknownEnd;  // the first batch that is known not to exist
  std::vector<size_t> positions_ = {};              // of each shard in the order
  std::unique_ptr<ShardPrefetcher> prefetcher_ = nullptr;
};

StreamLoader::StreamLoader(std::shared_ptr<StreamSource> source, StreamLoaderOptions options, Transform transform,
                           Collate collate)
    : source_(std::move(source)), options_(checked(options, "StreamLoaderOptions")) {
  if (source_ == nullptr) throw DataError("StreamLoader: no source was given.");
  if (transform) transform_ = std::make_shared<const Transform>(std::move(transform));
  if (collate) collate_ = std::make_shared<const Collate>(std::move(collate));
  if (options_.num_workers > 0) {
    prefetcher_ = std::make_shared<Prefetcher>(options_.num_workers, options_.prefetch_factor);
  }
}

StreamLoader::~StreamLoader() {
  if (source_ != nullptr) stop();
}

std::optional<int64_t> StreamLoader::num_batches() const {
  const std::optional<int64_t> all = source_->size();
  if (!all) return std::nullopt;
  if (identifies_samples_ && !padded_) {
    const int64_t size = options_.batch_size;
    return count_share_of_batches(options_.drop_last ? *all / size : (*all + size - 1) / size, rank_, world_size_,
                                  false);
  }
  const int64_t samples =
      padded_ ? (*all + world_size_ - 1) / world_size_ : (*all - rank_ + world_size_ - 1) / world_size_;
  if (options_.drop_last) return samples / options_.batch_size;
  return (samples + options_.batch_size - 1) / options_.batch_size;
}

void StreamLoader::start(int64_t epoch, int64_t first_batch) {
  if (source_ == nullptr) throw DataError("StreamLoader: it was moved from. Make a new one for each fit.");
  abandon();
  const std::optional<int64_t> end = num_batches();
  if (first_batch < 0 || (end && first_batch > *end)) {
    throw DataError("StreamLoader: cannot start at batch " + std::to_string(first_batch) + ": a pass over " +
                    source_->url() + " has " + count_of(end.value_or(0), "batch", "batches") +
                    ". Were the data set or the batch size changed since the start?");
  }
  pass_ = std::make_shared<const Pass>(*this, epoch);
  position_ = first_batch;
  if (prefetcher_ == nullptr) return;
  prefetcher_->start([pass = pass_](int64_t batch_idx, const std::atomic<bool>&) { return pass->fetch(batch_idx); },
                     first_batch, end.value_or(kUnknownEnd));
}

bool StreamLoader::next(Batch& batch) {
  const std::optional<int64_t> end = num_batches();
  if (pass_ == nullptr || (end && position_ >= *end)) return false;
  try {
    if (prefetcher_ != nullptr) {
      if (!prefetcher_->next(batch)) return false;
    } else {
      batch = pass_->fetch(position_);
    }
  } catch (...) {
    abandon();
    throw;
  }
  if (batch.empty() && pass_->ends_before(position_)) {
    stop();
    return false;
  }
  ++position_;
  return true;
}

void StreamLoader::abandon() {
  if (pass_ != nullptr) pass_->abandon();
  pass_ = nullptr;
}

void StreamLoader::stop() {
  abandon();
  if (prefetcher_ != nullptr) prefetcher_->stop();
}

bool StreamLoader::set_batch_size(int64_t samples) {
  StreamLoaderOptions changed = options_;
  changed.batch_size = samples;
  options_ = checked(changed, "StreamLoaderOptions");
  return true;
}

bool StreamLoader::shard(int64_t rank, int64_t world_size, bool padded) {
  rank_ = rank;
  world_size_ = world_size;
  padded_ = padded;
  return true;
}

State StreamLoader::state_dict() const {
  State state;
  state.set("shards", static_cast<int64_t>(source_->shards()));
  state.set("samples", source_->size());
  if (!source_->size()) state.tensors["counts"] = source_->counts();
  return state;
}

void StreamLoader::load_state_dict(const State& saved) {
  const auto shards = saved.get<int64_t>("shards");
  const auto samples = saved.get<std::optional<int64_t>>("samples");
  const std::optional<int64_t> now = source_->size();
  if (shards != static_cast<int64_t>(source_->shards()) || (samples && now && *samples != *now)) {
    const auto text = [](int64_t count, const std::optional<int64_t>& of) {
      return count_of(count, "shard") + (of ? " with " + count_of(*of, "sample") : "");
    };
    throw DataError("StreamLoader: " + source_->url() + " has " + text(static_cast<int64_t>(source_->shards()), now) +
                    ", and the checkpoint was saved with " + text(shards, samples) +
                    ". Continue with the same data, or start a new run from its weights.");
  }
  if (!now && saved.tensors.contains("counts")) source_->set_counts(saved.tensor("counts"));
}

}  // namespace levin
