#include "levin/data/loading/dataloader.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <string>
#include <utility>

#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/seed.h"

namespace levin {

namespace {

std::shared_ptr<const Sampler> sampler_for(const DataLoaderOptions& options, int64_t size,
                                           std::shared_ptr<Sampler> given) {
  if (given != nullptr && options.shuffle) {
    throw ConfigError("DataLoaderOptions.shuffle: must be false with a sampler, which already sets the order.");
  }
  if (given != nullptr) return given;
  if (options.shuffle) return std::make_shared<RandomSampler>(size);
  return std::make_shared<SequentialSampler>(size);
}

// A sampler is often user code: its order is checked once per pass.
void check_order(const at::Tensor& order, int64_t wanted, int64_t dataset_size) {
  if (!order.defined() || order.dim() != 1 || order.scalar_type() != at::kLong || order.size(0) != wanted) {
    throw DataError("DataLoader: the sampler's order() must be a tensor (" + std::to_string(wanted) +
                    ") of int64, as its size() says.");
  }
  const auto [low, high] = at::aminmax(order);
  for (const int64_t index : {low.item<int64_t>(), high.item<int64_t>()}) {
    if (index >= 0 && index < dataset_size) continue;
    throw DataError("DataLoader: the sampler gave index " + std::to_string(index) + " but the data set holds " +
                    count_of(dataset_size, "sample") + ".");
  }
}

}  // namespace

DataLoader::DataLoader(std::shared_ptr<Dataset> dataset, DataLoaderOptions options, std::shared_ptr<Sampler> sampler,
                       Collate collate)
    : dataset_(std::move(dataset)), options_(checked(options, "DataLoaderOptions")) {
  if (dataset_ == nullptr) throw DataError("DataLoader: no data set was given.");
  if (dataset_->size() == 0)
    throw DataError("DataLoader: the data set is empty. Check the path or the split it reads.");
  sampler_ = sampler_for(options_, dataset_->size(), std::move(sampler));
  if (sampler_->size() == 0)
    throw DataError("DataLoader: the sampler returns no samples. Check the split that it represents.");
  if (collate) collate_ = std::make_shared<const Collate>(std::move(collate));
  if (options_.num_workers > 0) {
    prefetcher_ = std::make_unique<Prefetcher>(options_.num_workers, options_.prefetch_factor);
  }
}

void DataLoader::start(int64_t epoch, int64_t first_batch) {
  if (first_batch < 0 || first_batch > count_batches()) {
    throw DataError("DataLoader: cannot start at batch " + std::to_string(first_batch) + ": a pass has " +
                    count_of(count_batches(), "batch", "batches") +
                    ". Were data set or batch size changed since the start?");
  }
  pass_ = nullptr;
  pass_ = make_pass(epoch);
  position_ = first_batch;
  if (prefetcher_ == nullptr) return;
  prefetcher_->start([pass = pass_](int64_t batch_idx,
                                    const std::atomic<bool>& abandoned) { return pass->fetch(batch_idx, &abandoned); },
                     first_batch, count_batches());
}

void DataLoader::stop() {
  pass_ = nullptr;
  if (prefetcher_ != nullptr) prefetcher_->stop();
}

bool DataLoader::next(Batch& batch) {
  if (pass_ == nullptr || position_ >= count_batches()) return false;
  try {
    if (prefetcher_ != nullptr) {
      prefetcher_->next(batch);
    } else {
      batch = pass_->fetch(position_);
    }
  } catch (...) {
    pass_ = nullptr;
    throw;
  }
  ++position_;
  return true;
}

bool DataLoader::set_batch_size(int64_t samples) {
  DataLoaderOptions changed = options_;
  changed.batch_size = samples;
  options_ = checked(changed, "DataLoaderOptions");
  return true;
}

void DataLoader::use_sequential_order() {
  if (options_.shuffle) {
    sampler_ = std::make_shared<SequentialSampler>(dataset_->size());
  } else {
    same_order_ = true;
  }
}

bool DataLoader::shard(int64_t rank, int64_t world_size, bool padded) {
  rank_ = rank;
  world_size_ = world_size;
  padded_ = padded;
  return true;
}

int64_t DataLoader::count_samples() const {
  const int64_t all = sampler_->size();
  return padded_ ? (all + world_size_ - 1) / world_size_ : (all - rank_ + world_size_ - 1) / world_size_;
}

// PyTorch's DistributedSampler: padded with samples from the front, then every world_size-th.
at::Tensor DataLoader::own_share(const at::Tensor& order) const {
  at::Tensor all = order;
  while (padded_ && all.size(0) < count_samples() * world_size_) {
    const int64_t missing = count_samples() * world_size_ - all.size(0);
    all = at::cat({all, order.narrow(0, 0, std::min(missing, order.size(0)))});
  }
  return all.slice(0, rank_, std::nullopt, world_size_).contiguous();
}

int64_t DataLoader::count_batches() const {
  const int64_t samples = count_samples();
  if (samples == 0) return 0;  // an evaluation with fewer samples than ranks
  return options_.drop_last ? samples / options_.batch_size : (samples - 1) / options_.batch_size + 1;
}

std::shared_ptr<const BatchFetcher> DataLoader::make_pass(int64_t epoch) const {
  BatchFetcher::Pass pass;
  pass.dataset = dataset_;
  pass.collate = collate_;
  pass.num_samples = count_samples();
  pass.batch_size = options_.batch_size;
  pass.seed = options_.seed < 0 ? default_seed() : static_cast<uint64_t>(options_.seed);
  pass.epoch = epoch;
  if (!sampler_->is_sequential() || world_size_ > 1) {
    pass.order = sampler_->order(pass.seed, same_order_ ? 0 : epoch).contiguous();
    check_order(pass.order, sampler_->size(), dataset_->size());
    if (world_size_ > 1) pass.order = own_share(pass.order);
  } else if (pass.num_samples > dataset_->size()) {
    throw DataError("DataLoader: the sampler visits " + count_of(pass.num_samples, "sample") +
                    " but the data set holds " + std::to_string(dataset_->size()) + ".");
  }
  return std::make_shared<const BatchFetcher>(std::move(pass));
}

}  // namespace levin
