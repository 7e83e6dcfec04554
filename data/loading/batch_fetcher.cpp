#include "levin/data/loading/batch_fetcher.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <string>

#include "levin/core/options/error.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/random.h"
#include "levin/data/batch_memory.h"
#include "levin/data/loading/sample_generator.h"
#include "levin/data/loading/skipped_sample.h"

namespace levin {

namespace {

// So that sample 3 and batch 3 do not draw the same numbers.
constexpr uint64_t kSampleStream = 1;
constexpr uint64_t kBatchStream = 2;

constexpr const char* kNotABatch = "the batch could not be made of its samples";

}  // namespace

Batch BatchFetcher::fetch(int64_t batch_idx, const std::atomic<bool>* abandoned) const {
  const at::NoGradGuard no_grad;
  const PinnedBatches in_pinned_memory(pass_.pins_memory);
  if (pass_.collate == nullptr && pass_.dataset->has_get_batch()) return gather(batch_idx);
  return get_each(batch_idx, abandoned);
}

Batch BatchFetcher::fetch_ahead(int64_t batch_idx, const std::atomic<bool>& abandoned) const {
  Batch batch = fetch(batch_idx, &abandoned);
  if (pass_.pins_memory) pin_tensors(batch);
  return batch;
}

Batch BatchFetcher::gather(int64_t batch_idx) const {
  const int64_t first = first_of(batch_idx);
  const int64_t count = count_of(batch_idx);
  seed_sample_generator(mix_seed(pass_seed(), kBatchStream + 2 * static_cast<uint64_t>(batch_idx)));
  try {
    Batch batch = pass_.order.defined() ? pass_.dataset->get_batch(pass_.order.narrow(0, first, count))
                                        : pass_.dataset->get_range(first, count);
    if (pass_.identifies_samples) identify(batch, batch_idx, indices_of(batch_idx));
    return batch;
  } catch (...) {
    fail("samples " + std::to_string(index_at(first)) + " to " + std::to_string(index_at(first + count - 1)),
         batch_idx);
  }
}

Batch BatchFetcher::get_each(int64_t batch_idx, const std::atomic<bool>* abandoned) const {
  const std::vector<int64_t> indices = indices_of(batch_idx);
  SampleStacker stacker(indices.size(), indices.data());
  std::vector<Batch> samples;  // for collate
  std::vector<int64_t> kept;   // without the samples that have nothing, which a collate function leaves out
  std::vector<SkippedSample> skipped;
  for (const int64_t index : indices) {
    if (abandoned != nullptr && abandoned->load(std::memory_order_relaxed)) return {};
    (void)detail::take_skip_reason();
    Batch sample = get_one(index, batch_idx);
    std::string reason = sample.empty() ? detail::take_skip_reason() : "";
    if (!sample.empty()) kept.push_back(index);
    if (!reason.empty()) {
      skipped.push_back({index, pass_.dataset->sample_id(index), std::move(reason)});
      continue;
    }
    if (pass_.collate != nullptr) {
      samples.push_back(std::move(sample));
      continue;
    }
    try {
      stacker.add(std::move(sample));
    } catch (...) {
      fail(kNotABatch, batch_idx);
    }
  }
  try {
    if (skipped.size() == indices.size()) return without_samples(batch_idx, std::move(skipped));
    Batch batch = pass_.collate != nullptr ? (*pass_.collate)(std::move(samples)) : std::move(stacker).finish();
    if (pass_.identifies_samples) identify(batch, batch_idx, std::move(kept), std::move(skipped));
    return batch;
  } catch (...) {
    fail(kNotABatch, batch_idx);
  }
}

Batch BatchFetcher::get_one(int64_t index, int64_t batch_idx) const {
  seed_sample_generator(mix_seed(pass_seed(), kSampleStream + 2 * static_cast<uint64_t>(index)));
  // Without autograd's bookkeeping, a fifth of the time of a sample with four small operations.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  try {
    return pass_.dataset->get(index);
  } catch (...) {
    fail("sample " + std::to_string(index), batch_idx);
  }
}

// A collate function may make something else than a row of each sample; its batches are then left without ids.
void BatchFetcher::identify(Batch& batch, int64_t batch_idx, std::vector<int64_t> indices,
                            std::vector<SkippedSample> skipped) const {
  BatchSamples samples{.batch = pass_.first_number + batch_idx * pass_.number_step, .skipped = std::move(skipped)};
  if (std::ssize(indices) == batch.size()) {
    samples.ids.reserve(indices.size());
    for (const int64_t index : indices) samples.ids.push_back(pass_.dataset->sample_id(index));
    const auto is_unknown = [](const std::string& id) { return id.empty(); };
    if (std::any_of(samples.ids.begin(), samples.ids.end(), is_unknown)) samples.ids.clear();
    samples.indices = std::move(indices);
  }
  batch.set_samples(std::move(samples));
}

// A prediction continues with the next batch; otherwise there is nothing to compute with.
Batch BatchFetcher::without_samples(int64_t batch_idx, std::vector<SkippedSample> skipped) const {
  if (!pass_.identifies_samples) {
    throw DataError("none of its " + levin::count_of(std::ssize(skipped), "sample") +
                    " can be read. The first: " + skipped[0].reason + " Repair the data or remove them.");
  }
  Batch batch;
  identify(batch, batch_idx, {}, std::move(skipped));
  return batch;
}

std::vector<int64_t> BatchFetcher::indices_of(int64_t batch_idx) const {
  const int64_t first = first_of(batch_idx);
  std::vector<int64_t> indices(static_cast<size_t>(count_of(batch_idx)));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = index_at(first + static_cast<int64_t>(i));
  return indices;
}

int64_t BatchFetcher::first_of(int64_t batch_idx) const {
  if (pass_.ends.empty()) return batch_idx * pass_.batch_size;
  return batch_idx == 0 ? 0 : pass_.ends[static_cast<size_t>(batch_idx) - 1];
}

int64_t BatchFetcher::count_of(int64_t batch_idx) const {
  if (!pass_.ends.empty()) return pass_.ends[static_cast<size_t>(batch_idx)] - first_of(batch_idx);
  return std::min(pass_.batch_size, pass_.num_samples - first_of(batch_idx));
}

int64_t BatchFetcher::index_at(int64_t place) const {
  return pass_.order.defined() ? pass_.order.const_data_ptr<int64_t>()[place] : place;
}

uint64_t BatchFetcher::pass_seed() const {
  return mix_seed(pass_.seed, static_cast<uint64_t>(pass_.epoch));
}

void BatchFetcher::fail(const std::string& what, int64_t batch_idx) const {
  throw DataError("DataLoader: " + what + " (batch " + std::to_string(batch_idx) + " of epoch " +
                  std::to_string(pass_.epoch) + "): " + exception_text(std::current_exception()));
}

}  // namespace levin
