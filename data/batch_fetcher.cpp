#include "levin/data/batch_fetcher.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "levin/core/error.h"
#include "levin/core/seed.h"
#include "levin/data/sample_generator.h"

namespace levin {

namespace {

// So that sample 3 and batch 3 do not draw the same numbers.
constexpr uint64_t kSampleStream = 1;
constexpr uint64_t kBatchStream = 2;

std::string described(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::ostringstream text;
  text << tensor.sizes() << " " << tensor.scalar_type();
  return text.str();
}

// The text of the exception being handled, without LibTorch's stack.
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

void check_alike(const std::vector<Batch>& samples, size_t place, const int64_t* indices) {
  const auto name = [&](size_t i) {
    return "sample " + std::to_string(indices == nullptr ? static_cast<int64_t>(i) : indices[i]);
  };
  const std::string fix = " Make get() return samples that are alike, or give the loader a collate function.";
  const Batch& sample = samples[place];
  if (sample.count() != samples[0].count()) {
    throw DataError("cannot stack: " + name(place) + " holds " + std::to_string(sample.count()) + " tensors but " +
                    name(0) + " holds " + std::to_string(samples[0].count()) + "." + fix);
  }
  for (size_t k = 0; k < sample.count(); ++k) {
    if (alike(sample.tensors[k], samples[0].tensors[k])) continue;
    throw DataError("cannot stack tensor " + std::to_string(k) + ": " + name(place) + " has " +
                    described(sample.tensors[k]) + " but " + name(0) + " has " + described(samples[0].tensors[k]) +
                    "." + fix);
  }
}

}  // namespace

Batch stack_samples(const std::vector<Batch>& samples, const int64_t* indices) {
  Batch batch;
  if (samples.empty()) return batch;
  for (size_t i = 0; i < samples.size(); ++i) check_alike(samples, i, indices);
  std::vector<at::Tensor> column(samples.size());
  for (size_t k = 0; k < samples[0].count(); ++k) {
    for (size_t i = 0; i < samples.size(); ++i) column[i] = samples[i].tensors[k];
    batch.tensors.push_back(at::stack(column));
  }
  return batch;
}

Batch BatchFetcher::fetch(int64_t batch_idx, const std::atomic<bool>* abandoned) const {
  const at::NoGradGuard no_grad;
  if (pass_.collate == nullptr && pass_.dataset->has_get_batch()) return gather(batch_idx);
  return get_each(batch_idx, abandoned);
}

Batch BatchFetcher::gather(int64_t batch_idx) const {
  const int64_t first = batch_idx * pass_.batch_size;
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
  const int64_t first = batch_idx * pass_.batch_size;
  std::vector<int64_t> indices(static_cast<size_t>(count_of(batch_idx)));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = index_at(first + static_cast<int64_t>(i));
  std::vector<Batch> samples;
  samples.reserve(indices.size());
  for (const int64_t index : indices) {
    if (abandoned != nullptr && abandoned->load(std::memory_order_relaxed)) return {};
    seed_sample_generator(mix_seed(pass_seed(), kSampleStream + 2 * static_cast<uint64_t>(index)));
    try {
      samples.push_back(pass_.dataset->get(index));
    } catch (...) {
      fail("sample " + std::to_string(index), batch_idx);
    }
  }
  try {
    return pass_.collate != nullptr ? (*pass_.collate)(std::move(samples)) : stack_samples(samples, indices.data());
  } catch (...) {
    fail("the batch could not be made of its samples", batch_idx);
  }
}

int64_t BatchFetcher::count_of(int64_t batch_idx) const {
  return std::min(pass_.batch_size, pass_.num_samples - batch_idx * pass_.batch_size);
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
