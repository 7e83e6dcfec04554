#include "levin/data/loading/batch_fetcher.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>

#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/seed.h"
#include "levin/data/loading/sample_generator.h"

namespace levin {

namespace {

// So that sample 3 and batch 3 do not draw the same numbers.
constexpr uint64_t kSampleStream = 1;
constexpr uint64_t kBatchStream = 2;

constexpr const char* kNotABatch = "the batch could not be made of its samples";

std::string described(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::ostringstream text;
  text << tensor.sizes() << " " << tensor.scalar_type();
  return text.str();
}

// The text of the current exception, without LibTorch's stack.
std::string cause_in_flight() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

bool alike(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
}

std::string name_of(size_t place, const int64_t* indices) {
  return "sample " + std::to_string(indices == nullptr ? static_cast<int64_t>(place) : indices[place]);
}

void check_alike(const Batch& first, const Batch& sample, size_t place, const int64_t* indices) {
  const std::string fix = " Make get() return samples that are alike, or give the loader a collate function.";
  if (sample.count() != first.count()) {
    throw DataError("cannot stack: " + name_of(place, indices) + " holds " + count_of(sample.count(), "tensor") +
                    " but " + name_of(0, indices) + " holds " + std::to_string(first.count()) + "." + fix);
  }
  for (size_t k = 0; k < sample.count(); ++k) {
    if (alike(sample.tensors[k], first.tensors[k])) continue;
    throw DataError("cannot stack tensor " + std::to_string(k) + ": " + name_of(place, indices) + " has " +
                    described(sample.tensors[k]) + " but " + name_of(0, indices) + " has " +
                    described(first.tensors[k]) + "." + fix);
  }
}

// Whether the numbers are contiguous in memory.
bool is_plain(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && !tensor.is_quantized() && tensor.is_contiguous() &&
         !tensor.is_neg() && !tensor.is_conj() && !tensor.requires_grad();
}

// Stacks samples one by one. Plain ones are copied directly to the batch, while they are still in the cache; at::stack,
// which needs all of them first, takes twice as long for small samples. Others are left to it.
class Stacker {
 public:
  Stacker(size_t count, const int64_t* indices) : count_(count), indices_(indices) {}

  /// Throws DataError if the sample is not like the first one.
  void add(Batch sample) {
    check_alike(added_ == 0 ? sample : first_, sample, added_, indices_);
    if (added_ == 0) start(sample);
    for (size_t k = 0; k < columns_.size(); ++k) columns_[k].add(sample.tensors[k], added_, count_);
    ++added_;
  }

  [[nodiscard]] Batch finish() && {
    Batch batch;
    for (auto& column : columns_) batch.tensors.push_back(column.finish());
    return batch;
  }

 private:
  struct Column {
    at::Tensor stacked = {};               // (samples, …); undefined if the samples are kept for at::stack
    std::vector<at::Tensor> samples = {};  // kept

    void add(const at::Tensor& sample, size_t place, size_t count) {
      if (stacked.defined() && is_plain(sample)) {
        const size_t bytes = sample.nbytes();
        auto* start = static_cast<char*>(stacked.mutable_data_ptr());
        if (bytes > 0) std::memcpy(start + place * bytes, sample.const_data_ptr(), bytes);
        return;
      }
      if (stacked.defined()) give_up(place, count);
      samples.push_back(sample);
    }
    // A later sample is not plain: the stacked rows become samples again.
    void give_up(size_t place, size_t count) {
      samples.reserve(count);
      for (size_t i = 0; i < place; ++i) samples.push_back(stacked.select(0, static_cast<int64_t>(i)));
      stacked.reset();
    }
    [[nodiscard]] at::Tensor finish() { return stacked.defined() ? std::move(stacked) : at::stack(samples); }
  };

  void start(const Batch& sample) {
    first_ = sample;
    columns_.resize(sample.count());
    for (size_t k = 0; k < columns_.size(); ++k) {
      const at::Tensor& tensor = sample.tensors[k];
      if (!is_plain(tensor)) continue;
      std::vector<int64_t> sizes = {static_cast<int64_t>(count_)};
      sizes.insert(sizes.end(), tensor.sizes().begin(), tensor.sizes().end());
      columns_[k].stacked = at::empty(sizes, tensor.options());
    }
  }

  size_t count_;
  const int64_t* indices_;
  size_t added_ = 0;
  Batch first_;
  std::vector<Column> columns_;
};

}  // namespace

Batch stack_samples(const std::vector<Batch>& samples, const int64_t* indices) {
  Stacker stacker(samples.size(), indices);
  for (const auto& sample : samples) stacker.add(sample);
  return std::move(stacker).finish();
}

Batch BatchFetcher::fetch(int64_t batch_idx, const std::atomic<bool>* abandoned) const {
  const at::NoGradGuard no_grad;
  if (pass_.collate == nullptr && pass_.dataset->has_get_batch()) return gather(batch_idx);
  return get_each(batch_idx, abandoned);
}

Batch BatchFetcher::gather(int64_t batch_idx) const {
  const int64_t first = first_of(batch_idx);
  const int64_t count = count_of(batch_idx);
  seed_sample_generator(mix_seed(pass_seed(), kBatchStream + 2 * static_cast<uint64_t>(batch_idx)));
  try {
    if (!pass_.order.defined()) return pass_.dataset->get_range(first, count);
    return pass_.dataset->get_batch(pass_.order.narrow(0, first, count));
  } catch (...) {
    fail("samples " + std::to_string(index_at(first)) + " to " + std::to_string(index_at(first + count - 1)),
         batch_idx);
  }
}

Batch BatchFetcher::get_each(int64_t batch_idx, const std::atomic<bool>* abandoned) const {
  const int64_t first = first_of(batch_idx);
  std::vector<int64_t> indices(static_cast<size_t>(count_of(batch_idx)));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = index_at(first + static_cast<int64_t>(i));
  Stacker stacker(indices.size(), indices.data());
  std::vector<Batch> samples;  // for collate
  for (const int64_t index : indices) {
    if (abandoned != nullptr && abandoned->load(std::memory_order_relaxed)) return {};
    Batch sample = get_one(index, batch_idx);
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
    return pass_.collate != nullptr ? (*pass_.collate)(std::move(samples)) : std::move(stacker).finish();
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
                  std::to_string(pass_.epoch) + "): " + cause_in_flight());
}

}  // namespace levin
