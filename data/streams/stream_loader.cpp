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
  Pass(Settings settings, int64_t epoch)
      : settings_(std::move(settings)),
        epoch_(epoch),
        seed_(settings_.options.seed < 0 ? default_seed() : static_cast<uint64_t>(settings_.options.seed)),
        order_(order_of(epoch)) {
    if (settings_.options.prefetch_shards > 0 && settings_.source->copies_any()) fetch_ahead();
  }

  // Makes what other threads fetch for it end early.
  void abandon() const {
    abandoned_ = true;
    if (prefetcher_ != nullptr) prefetcher_->abandon();
  }

  // Returns true if fetch() has found that the pass ends before this batch.
  [[nodiscard]] bool ends_before(int64_t batch_idx) const { return end_ <= batch_idx; }

  // Returns an empty batch beyond the end, and if the pass is abandoned.
  [[nodiscard]] Batch fetch(int64_t batch_idx) const {
    const at::NoGradGuard no_grad;
    const PinnedBatches in_pinned_memory(settings_.pins_memory);
    const std::vector<StreamPlace> places = places_of(batch_idx);
    if (places.empty()) {
      for (int64_t end = end_; batch_idx < end && !end_.compare_exchange_weak(end, batch_idx);) continue;
      return {};
    }
    OpenShards shards;
    SampleStacker stacker(places.size(), nullptr);
    std::vector<Batch> samples;
    BatchSamples known{.batch = settings_.rank + batch_idx * settings_.world_size};
    for (size_t k = 0; k < places.size(); ++k) {
      if (abandoned_) return {};
      try {
        const Shard& shard = open(places[k].shard, shards);
        (void)detail::take_skip_reason();
        Batch sample = sample_at(shard, places[k]);
        const int64_t index = settings_.options.shuffle ? -1 : place_of(batch_idx, k);  // in the data set
        if (std::string reason = sample.empty() ? detail::take_skip_reason() : ""; !reason.empty()) {
          known.skipped.push_back({index, shard.sample_id(places[k].index), std::move(reason)});
          continue;
        }
        if (settings_.identifies_samples) {
          known.ids.push_back(shard.sample_id(places[k].index));
          known.indices.push_back(index);
        }
        settings_.collate != nullptr ? samples.push_back(std::move(sample)) : stacker.add(std::move(sample));
      } catch (...) {
        fail("sample " + std::to_string(places[k].index) + " of shard " + name_of(places[k].shard), batch_idx);
      }
    }
    if (known.skipped.size() == places.size()) return without_samples(batch_idx, std::move(known));
    try {
      Batch batch =
          settings_.collate != nullptr ? (*settings_.collate)(std::move(samples)) : std::move(stacker).finish();
      if (settings_.identifies_samples) {
        if (std::ssize(known.ids) != batch.size()) known.ids.clear();
        if (known.ids.empty() || settings_.options.shuffle) known.indices.clear();
        batch.set_samples(std::move(known));
      }
      if (settings_.pins_memory) pin_tensors(batch);
      return batch;
    } catch (...) {
      fail("the batch could not be made of its samples", batch_idx);
    }
  }

 private:
  [[nodiscard]] std::unique_ptr<StreamOrder> order_of(int64_t epoch) const {
    return std::make_unique<StreamOrder>(StreamOrderOptions{.shards = settings_.source->shards(),
                                                            .seed = seed_,
                                                            .epoch = epoch,
                                                            .shuffle = settings_.options.shuffle,
                                                            .window = settings_.options.shuffle_shards},
                                         [this](size_t shard) { return count(shard); });
  }

  // Only what must be opened for it moves what is fetched ahead.
  [[nodiscard]] int64_t count(size_t shard) const {
    if (const std::optional<int64_t> samples = settings_.source->known_samples(shard)) return *samples;
    note_use(shard);
    return settings_.source->samples(shard, &abandoned_);
  }

  // Few shards: a batch lies in one window.
  using OpenShards = std::vector<std::pair<size_t, std::shared_ptr<const Shard>>>;
  [[nodiscard]] const Shard& open(size_t shard, OpenShards& opened) const {
    for (const auto& [number, each] : opened) {
      if (number == shard) return *each;
    }
    note_use(shard);
    opened.emplace_back(shard, settings_.source->open(shard, &abandoned_));
    return *opened.back().second;
  }

  void note_use(size_t shard) const {
    if (prefetcher_ == nullptr) return;
    prefetcher_->permit(positions_[shard] + 1 + static_cast<size_t>(settings_.options.prefetch_shards));
  }

  // After the shards of this epoch, the first ones of the next.
  void fetch_ahead() {
    std::vector<size_t> shards = order_->shards();
    const std::vector<size_t> later = order_of(epoch_ + 1)->shards();
    const auto count =
        static_cast<int64_t>(std::min(later.size(), static_cast<size_t>(settings_.options.prefetch_shards)));
    shards.insert(shards.end(), later.begin(), later.begin() + count);
    positions_.resize(settings_.source->shards());
    for (size_t k = 0; k < positions_.size(); ++k) positions_[shards[k]] = k;
    prefetcher_ =
        std::make_unique<ShardPrefetcher>(settings_.source, std::move(shards), settings_.options.fetch_threads);
  }

  // Rank r of n has the places r, r + n, r + 2 n, … of the order, unless ranks share batches.
  [[nodiscard]] int64_t place_of(int64_t batch_idx, size_t sample) const {
    const auto number = static_cast<int64_t>(sample);
    if (settings_.shares_whole_batches())
      return (settings_.rank + batch_idx * settings_.world_size) * settings_.options.batch_size + number;
    return settings_.rank + (batch_idx * settings_.options.batch_size + number) * settings_.world_size;
  }

  [[nodiscard]] std::vector<StreamPlace> places_of(int64_t batch_idx) const {
    const int64_t step = settings_.shares_whole_batches() ? 1 : settings_.world_size;
    std::vector<StreamPlace> places = order_->at(place_of(batch_idx, 0), step, settings_.options.batch_size);
    if (std::ssize(places) == settings_.options.batch_size) return places;
    if (settings_.padded) pad(places, batch_idx * settings_.options.batch_size);
    if (settings_.options.drop_last && std::ssize(places) < settings_.options.batch_size) places.clear();
    return places;
  }

  // At the end of the order the ranks without a sample take one from its beginning, so that all have the same number.
  void pad(std::vector<StreamPlace>& places, int64_t first) const {
    const int64_t all = order_->size();
    const int64_t of_rank = (all + settings_.world_size - 1) / settings_.world_size;
    while (all > 0 && std::ssize(places) < settings_.options.batch_size && first + std::ssize(places) < of_rank) {
      const int64_t place = settings_.rank + (first + std::ssize(places)) * settings_.world_size;
      places.push_back(order_->at(place % all, 1, 1).at(0));
    }
  }

  [[nodiscard]] Batch sample_at(const Shard& shard, const StreamPlace& place) const {
    const uint64_t of_pass = mix_seed(seed_, static_cast<uint64_t>(epoch_));
    seed_sample_generator(mix_seed(mix_seed(of_pass, place.shard), static_cast<uint64_t>(place.index)));
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Batch sample = shard.get(place.index);
    return settings_.transform == nullptr ? sample : (*settings_.transform)(std::move(sample));
  }

  [[nodiscard]] Batch without_samples(int64_t batch_idx, BatchSamples known) const {
    if (!settings_.identifies_samples) {
      throw DataError("StreamLoader: none of the " + count_of(std::ssize(known.skipped), "sample") + " of batch " +
                      std::to_string(batch_idx) + " of " + settings_.source->url() +
                      " can be read. The first: " + known.skipped[0].reason + " Repair the data or remove them.");
    }
    Batch batch;
    batch.set_samples(std::move(known));
    return batch;
  }

  [[nodiscard]] const std::string& name_of(size_t shard) const { return settings_.source->index().shards[shard].key; }

  [[noreturn]] void fail(const std::string& what, int64_t batch_idx) const {
    throw DataError("StreamLoader: " + what + " of " + settings_.source->url() + " (batch " +
                    std::to_string(batch_idx) + " of epoch " + std::to_string(epoch_) +
                    "): " + exception_text(std::current_exception()));
  }

  Settings settings_;
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
    : settings_{.source = std::move(source), .options = checked(options, "StreamLoaderOptions")} {
  if (settings_.source == nullptr) throw DataError("StreamLoader: no source was given.");
  if (transform) settings_.transform = std::make_shared<const Transform>(std::move(transform));
  if (collate) settings_.collate = std::make_shared<const Collate>(std::move(collate));
  if (settings_.options.num_workers > 0) {
    prefetcher_ = std::make_shared<Prefetcher>(settings_.options.num_workers, settings_.options.prefetch_factor);
  }
}

StreamLoader::~StreamLoader() {
  if (settings_.source != nullptr) stop();
}

std::optional<int64_t> StreamLoader::num_batches() const {
  const std::optional<int64_t> all = settings_.source->size();
  if (!all) return std::nullopt;
  const auto own = [this](int64_t count) {
    return count_share_of_batches(count, settings_.rank, settings_.world_size, settings_.padded);
  };
  const auto batches_of = [this](int64_t samples) {
    const int64_t size = settings_.options.batch_size;
    return settings_.options.drop_last ? samples / size : (samples + size - 1) / size;
  };
  return settings_.shares_whole_batches() ? own(batches_of(*all)) : batches_of(own(*all));
}

void StreamLoader::start(int64_t epoch, int64_t first_batch) {
  if (settings_.source == nullptr) throw DataError("StreamLoader: it was moved from. Make a new one for each fit.");
  abandon();
  const std::optional<int64_t> end = num_batches();
  if (first_batch < 0 || (end && first_batch > *end)) {
    throw DataError("StreamLoader: cannot start at batch " + std::to_string(first_batch) + ": a pass over " +
                    settings_.source->url() + " has " + count_of(end.value_or(0), "batch", "batches") +
                    ". Were the data set or the batch size changed since the start?");
  }
  pass_ = std::make_shared<const Pass>(settings_, epoch);
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
  StreamLoaderOptions changed = settings_.options;
  changed.batch_size = samples;
  settings_.options = checked(changed, "StreamLoaderOptions");
  return true;
}

bool StreamLoader::shard(int64_t rank, int64_t world_size, bool padded) {
  settings_.rank = rank;
  settings_.world_size = world_size;
  settings_.padded = padded;
  return true;
}

State StreamLoader::state_dict() const {
  State state;
  state.set("shards", static_cast<int64_t>(settings_.source->shards()));
  state.set("samples", settings_.source->size());
  if (!settings_.source->size()) state.tensors["counts"] = settings_.source->counts();
  return state;
}

void StreamLoader::load_state_dict(const State& saved) {
  const auto shards = saved.get<int64_t>("shards");
  const auto samples = saved.get<std::optional<int64_t>>("samples");
  const std::optional<int64_t> now = settings_.source->size();
  if (shards != static_cast<int64_t>(settings_.source->shards()) || (samples && now && *samples != *now)) {
    const auto text = [](int64_t count, const std::optional<int64_t>& of) {
      return count_of(count, "shard") + (of ? " with " + count_of(*of, "sample") : "");
    };
    throw DataError("StreamLoader: " + settings_.source->url() + " has " +
                    text(static_cast<int64_t>(settings_.source->shards()), now) +
                    ", and the checkpoint was saved with " + text(shards, samples) +
                    ". Continue with the same data, or start a new run from its weights.");
  }
  if (!now && saved.tensors.contains("counts")) settings_.source->set_counts(saved.tensor("counts"));
}

}  // namespace levin
