#include "levin/data/loading/combined_loader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/data/batch_rows.h"

namespace levin {

namespace {

// The pass that a loader begins when it has ended `cycle` times in an epoch: the first is the epoch's own, and no two
// of a run are equal.
int64_t pass_number(int64_t epoch, int64_t cycle) {
  return epoch + (cycle << 32);
}

// The key of a loader's state and options.
std::string part_name(size_t k) {
  return "loader_" + std::to_string(k);
}

}  // namespace

CombinedLoader::CombinedLoader(Loaders loaders, CombinedLoaderOptions options)
    : loaders_(std::move(loaders)), options_(checked(options, "CombinedLoaderOptions")), empty_(loaders_.size()) {
  if (loaders_.empty()) throw ConfigError("CombinedLoader: no loader was given. Give at least one.");
  check_different();
  if (options_.names.empty() || options_.names.size() == loaders_.size()) return;
  throw ConfigError("CombinedLoaderOptions.names: " + count_of(static_cast<int64_t>(options_.names.size()), "name") +
                    " for " + count_of(static_cast<int64_t>(loaders_.size()), "loader") +
                    ". Give one for each, or none.");
}

CombinedLoader::operator std::shared_ptr<Loader>() && {
  return std::make_shared<CombinedLoader>(std::move(*this));
}

// A loader has one pass at a time. One after another its passes may follow each other.
void CombinedLoader::check_different() const {
  if (options_.mode == CombinedMode::sequential) return;
  for (size_t k = 0; k < loaders_.size(); ++k) {
    for (size_t i = 0; i < k; ++i) {
      if (loaders_[i] != loaders_[k]) continue;
      throw ConfigError("CombinedLoader: loaders " + std::to_string(i) + " and " + std::to_string(k) +
                        " are the same object, which gives each batch once. Make two loaders of the data set.");
    }
  }
}

int64_t CombinedLoader::length(size_t k) const {
  if (const std::optional<int64_t> batches = loaders_[k]->num_batches()) return *batches;
  throw ConfigError("CombinedLoader: loader " + std::to_string(k) + " does not know how many batches it has, which " +
                    enum_name(options_.mode) + " needs. Use mode min_size, or a loader that knows.");
}

std::optional<int64_t> CombinedLoader::num_batches() const {
  std::optional<int64_t> least;
  int64_t most = 0, sum = 0;
  for (size_t k = 0; k < loaders_.size(); ++k) {
    if (options_.mode == CombinedMode::min_size) {
      const std::optional<int64_t> batches = loaders_[k]->num_batches();
      if (!batches) return std::nullopt;
      least = std::min(*batches, least.value_or(*batches));
    } else {
      most = std::max(most, length(k));
      sum += length(k);
    }
  }
  if (options_.mode == CombinedMode::min_size) return least;
  return options_.mode == CombinedMode::sequential ? sum : most;
}

size_t CombinedLoader::loader_of(int64_t batch_idx) const {
  size_t k = 0;
  for (; k + 1 < loaders_.size() && batch_idx >= length(k); ++k) batch_idx -= length(k);
  return k;
}

void CombinedLoader::check_lengths() const {
  if (options_.mode == CombinedMode::min_size) return;
  for (size_t k = 0; k < loaders_.size(); ++k) {
    if (length(k) <= length(0) || options_.mode != CombinedMode::max_size) continue;
    throw ConfigError(
        "CombinedLoader: with max_size the first loader must be the longest, because its batches determine "
        "how many samples a batch has: loader " +
        std::to_string(k) + " has " + std::to_string(length(k)) + " batches and loader 0 has " +
        std::to_string(length(0)) + ". Change their order.");
  }
}

// `position`: batches of the pass before, of this loader.
void CombinedLoader::start_loader(size_t k, int64_t position) {
  const bool cycles = options_.mode == CombinedMode::max_size_cycle && length(k) > 0;
  if (cycles) {
    loaders_[k]->start(pass_number(epoch_, position / length(k)), position % length(k));
  } else {
    loaders_[k]->start(epoch_, options_.mode == CombinedMode::min_size ? position : std::min(position, length(k)));
  }
}

void CombinedLoader::start(int64_t epoch, int64_t first_batch) {
  running_ = false;
  check_lengths();
  epoch_ = epoch;
  position_ = started_at_ = first_batch;
  if (options_.mode == CombinedMode::sequential) {
    int64_t before = first_batch;
    const size_t k = loader_of(first_batch);
    for (size_t i = 0; i < k; ++i) before -= length(i);
    start_loader(k, before);
  } else {
    for (size_t k = 0; k < loaders_.size(); ++k) {
      if (options_.mode == CombinedMode::max_size) without_rows(k);
      start_loader(k, first_batch);
    }
  }
  running_ = true;
}

// A batch is fetched for it, because a pass may begin where the loader has ended already.
const Batch& CombinedLoader::without_rows(size_t k) {
  if (k == 0 || !empty_[k].empty() || length(k) == 0) return empty_[k];
  Batch first;
  loaders_[k]->start(epoch_);
  if (loaders_[k]->next(first)) {
    empty_[k] = cut_rows(first, 0, 0, [&](size_t place) { return first.tensors[place].narrow(0, 0, 0).clone(); });
  }
  return empty_[k];
}

bool CombinedLoader::next_of(size_t k, Batch& batch) {
  const bool cycles = options_.mode == CombinedMode::max_size_cycle && length(k) > 0;
  if (cycles && position_ != started_at_ && position_ % length(k) == 0) start_loader(k, position_);
  if (loaders_[k]->next(batch)) return true;
  if (options_.mode != CombinedMode::max_size) return false;
  batch = without_rows(k);
  return true;
}

bool CombinedLoader::next_in_sequence(Batch& batch) {
  const size_t k = loader_of(position_);
  if (position_ != started_at_ && k != loader_of(position_ - 1)) {
    loaders_[loader_of(position_ - 1)]->stop();
    start_loader(k, 0);
  }
  if (!loaders_[k]->next(batch)) return false;
  if (batch.samples() != nullptr) {
    BatchSamples samples = *batch.samples();
    samples.loader = static_cast<int64_t>(k);
    batch.set_samples(std::move(samples));
  }
  return true;
}

void CombinedLoader::append(Batch& whole, const Batch& part, size_t k) const {
  if (!options_.names.empty()) return whole.add({options_.names[k], part});
  const bool both_named = whole.structure() != nullptr && part.structure() != nullptr;
  const auto clashes = [&](const BatchStructure::Field& field) { return whole.has(field.name); };
  if (both_named && std::any_of(part.structure()->fields.begin(), part.structure()->fields.end(), clashes)) {
    // Two loaders of one data module: tensors are found by their places.
    if (part.structure()->has_tensors_only()) return append_fields(whole, Batch(part.tensors));
    for (const auto& field : part.structure()->fields) {
      if (!clashes(field)) continue;
      throw DataError("CombinedLoader: loader " + std::to_string(k) + " gives a field \"" + field.name +
                      "\", which a loader before it gives too. Set CombinedLoaderOptions.names, so that they become "
                      "\"name." +
                      field.name + "\".");
    }
  }
  append_fields(whole, part);
}

bool CombinedLoader::next(Batch& batch) {
  const std::optional<int64_t> batches = num_batches();
  if (!running_ || (batches && position_ >= *batches)) return false;
  running_ = false;  // unless all goes well
  Batch whole;
  if (options_.mode == CombinedMode::sequential) {
    if (!next_in_sequence(whole)) return false;
  } else {
    for (size_t k = 0; k < loaders_.size(); ++k) {
      Batch part;
      if (!next_of(k, part)) return false;
      append(whole, part, k);
    }
  }
  batch = std::move(whole);
  ++position_;
  running_ = true;
  return true;
}

void CombinedLoader::stop() {
  running_ = false;
  for (const auto& loader : loaders_) loader->stop();
}

void CombinedLoader::use_sequential_order() {
  for (const auto& loader : loaders_) loader->use_sequential_order();
}

void CombinedLoader::pin_memory(bool pins) {
  for (const auto& loader : loaders_) loader->pin_memory(pins);
}

void CombinedLoader::identify_samples(bool identifies) {
  for (const auto& loader : loaders_) loader->identify_samples(identifies && options_.mode == CombinedMode::sequential);
}

bool CombinedLoader::may_be_read_ahead() const {
  return std::all_of(loaders_.begin(), loaders_.end(), [](const auto& loader) { return loader->may_be_read_ahead(); });
}

State CombinedLoader::state_dict() const {
  State all;
  for (size_t k = 0; k < loaders_.size(); ++k) {
    const State one = loaders_[k]->state_dict();
    if (!one.empty()) all.put(part_name(k), one);
  }
  return all;
}

void CombinedLoader::add_to_checkpoint(State& state) const {
  for (size_t k = 0; k < loaders_.size(); ++k) {
    State one = state.part(part_name(k));
    loaders_[k]->add_to_checkpoint(one);
    if (!one.empty()) state.put(part_name(k), one);
  }
}

void CombinedLoader::load_state_dict(const State& state) {
  for (size_t k = 0; k < loaders_.size(); ++k) {
    const State one = state.part(part_name(k));
    if (!one.empty()) loaders_[k]->load_state_dict(one);
  }
}

bool CombinedLoader::shard(int64_t rank, int64_t world_size, bool padded) {
  bool all = true;
  for (const auto& loader : loaders_) all = loader->shard(rank, world_size, padded) && all;
  return all;
}

ConfigNode CombinedLoader::written_options() const {
  ConfigNode node = write_options(options_);
  for (size_t k = 0; k < loaders_.size(); ++k) node.set(part_name(k), loaders_[k]->written_options());
  return node;
}

int64_t CombinedLoader::num_workers() const {
  int64_t workers = 0;
  for (const auto& loader : loaders_) workers += loader->num_workers();
  return workers;
}

}  // namespace levin
