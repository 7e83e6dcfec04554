#include "levin/data/loading/dataloader.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/core/random.h"
#include "levin/data/loading/length_batch_sampler.h"

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

bool cuts_by_length(const DataLoaderOptions& options) {
  return options.max_tokens > 0 || options.bucket_by_length;
}

void check_no_option_cuts(const DataLoaderOptions& options) {
  const std::string rule = " with a batch sampler, which already determines the batches.";
  if (options.batch_size != 1) throw ConfigError("DataLoaderOptions.batch_size: must be left at 1" + rule);
  if (options.shuffle) throw ConfigError("DataLoaderOptions.shuffle: must be false" + rule);
  if (options.drop_last) throw ConfigError("DataLoaderOptions.drop_last: must be false" + rule);
  if (cuts_by_length(options)) {
    throw ConfigError("DataLoaderOptions.max_tokens and .bucket_by_length: must not be set" + rule);
  }
}

constexpr const char* kIfItChanges =
    " If the data set changes during a run, make a new loader for it (reload_dataloaders_every_n_epochs).";

// Both are often user code: what they return is checked once per pass.
void check_indices(const at::Tensor& indices, const char* whose, int64_t dataset_size) {
  if (indices.numel() == 0) return;
  const auto [low, high] = at::aminmax(indices);
  for (const int64_t index : {low.item<int64_t>(), high.item<int64_t>()}) {
    if (index >= 0 && index < dataset_size) continue;
    throw DataError(std::string("DataLoader: the ") + whose + " gave index " + std::to_string(index) +
                    " but the data set holds " + count_of(dataset_size, "sample") + "." + kIfItChanges);
  }
}

void check_batches(const IndexBatches& batches, const std::optional<int64_t>& wanted) {
  const auto count = static_cast<int64_t>(batches.size());
  if (wanted && count != *wanted) {
    throw DataError("DataLoader: the batch sampler's batches() gave " + count_of(count, "batch", "batches") +
                    " but its num_batches() says " + std::to_string(*wanted) +
                    ". Return the same number for every epoch, or nullopt from num_batches().");
  }
  for (size_t b = 0; b < batches.size(); ++b) {
    if (!batches[b].empty()) continue;
    throw DataError("DataLoader: the batch sampler gave a batch without samples, number " + std::to_string(b) +
                    ". Leave it out.");
  }
}

void check_order(const at::Tensor& order, int64_t wanted, int64_t dataset_size) {
  if (!order.defined() || order.dim() != 1 || order.scalar_type() != at::kLong || order.size(0) != wanted) {
    throw DataError("DataLoader: the sampler's order() must be a tensor (" + std::to_string(wanted) +
                    ") of int64, as its size() says.");
  }
  check_indices(order, "sampler", dataset_size);
}

}  // namespace

DataLoader::DataLoader(std::shared_ptr<Dataset> dataset, DataLoaderOptions options, std::shared_ptr<Sampler> sampler,
                       Collate collate)
    : dataset_(std::move(dataset)), options_(checked(options, "DataLoaderOptions")) {
  if (dataset_ == nullptr) throw DataError("DataLoader: no data set was given.");
  if (cuts_by_length(options_) && sampler != nullptr) {
    throw ConfigError(
        "DataLoaderOptions.max_tokens and .bucket_by_length: must not be set with a sampler. Give the loader a "
        "LengthBatchSampler of that sampler instead.");
  }
  if (cuts_by_length(options_) && options_.drop_last) {
    throw ConfigError("DataLoaderOptions.drop_last: must be false with max_tokens or bucket_by_length.");
  }
  if (dataset_->size() > 0) sampler_ = sampler_for(options_, dataset_->size(), std::move(sampler));
  start_up(std::move(collate));
  if (cuts_by_length(options_)) use_batches_by_length();
}

DataLoader::operator std::shared_ptr<Loader>() && {
  return std::make_shared<DataLoader>(std::move(*this));
}

DataLoader::DataLoader(std::shared_ptr<Dataset> dataset, DataLoaderOptions options,
                       std::shared_ptr<const BatchSampler> batch_sampler, Collate collate, Private)
    : dataset_(std::move(dataset)),
      options_(checked(options, "DataLoaderOptions")),
      batch_sampler_(std::move(batch_sampler)) {
  if (dataset_ == nullptr) throw DataError("DataLoader: no data set was given.");
  if (batch_sampler_ == nullptr) throw DataError("DataLoader: no batch sampler was given.");
  check_no_option_cuts(options_);
  start_up(std::move(collate));
}

void DataLoader::start_up(Collate collate) {
  if (dataset_->size() < 0) {
    const Dataset& dataset = *dataset_;
    throw DataError("DataLoader: size() of the data set " + detail::readable_type_name(typeid(dataset)) + " is " +
                    std::to_string(dataset.size()) + ". Return the number of samples.");
  }
  if (dataset_->size() == 0)
    throw DataError("DataLoader: the data set is empty. Check the path or the split it reads.");
  if (sampler_ != nullptr && sampler_->size() == 0)
    throw DataError("DataLoader: the sampler returns no samples. Check the split that it represents.");
  if (collate) collate_ = std::make_shared<const Collate>(std::move(collate));
  if (options_.num_workers > 0) {
    prefetcher_ = std::make_shared<Prefetcher>(options_.num_workers, options_.prefetch_factor);
  }
}

void DataLoader::use_batches_by_length() {
  batch_sampler_ =
      std::make_shared<LengthBatchSampler>(std::exchange(sampler_, nullptr), lengths_of(*dataset_),
                                           LengthBatchSamplerOptions{.max_tokens = options_.max_tokens,
                                                                     .batch_size = options_.batch_size,
                                                                     .bucket_by_length = options_.bucket_by_length,
                                                                     .shuffle = options_.shuffle});
}

void DataLoader::start(int64_t epoch, int64_t first_batch) {
  if (dataset_ == nullptr) throw DataError("DataLoader: it was moved from. Make a new one for each fit.");
  pass_ = nullptr;
  make_pass(epoch);
  if (first_batch < 0 || first_batch > pass_batches_) {
    pass_ = nullptr;
    throw DataError("DataLoader: cannot start at batch " + std::to_string(first_batch) + ": a pass has " +
                    count_of(pass_batches_, "batch", "batches") +
                    ". Were data set or batch size changed since the start?");
  }
  position_ = first_batch;
  if (prefetcher_ == nullptr) return;
  prefetcher_->start(
      [pass = pass_](int64_t batch_idx, const std::atomic<bool>& abandoned) {
        return pass->fetch_ahead(batch_idx, abandoned);
      },
      first_batch, pass_batches_);
}

void DataLoader::stop() {
  pass_ = nullptr;
  if (prefetcher_ != nullptr) prefetcher_->stop();
}

bool DataLoader::next(Batch& batch) {
  if (pass_ == nullptr || position_ >= pass_batches_) return false;
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

std::optional<int64_t> DataLoader::batch_size() const {
  return batch_sampler_ == nullptr ? options_.batch_size : batch_sampler_->batch_size();
}

bool DataLoader::set_batch_size(int64_t samples) {
  if (batch_sampler_ != nullptr) return false;
  DataLoaderOptions changed = options_;
  changed.batch_size = samples;
  options_ = checked(changed, "DataLoaderOptions");
  return true;
}

void DataLoader::use_sequential_order() {
  if (options_.shuffle && sampler_ != nullptr) {
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

// Sample by sample, the same samples would be in other batches than in one process, and a sum may then be rounded
// differently. Training has batches of all ranks (padded), and an evaluation with metrics shares samples evenly.
bool DataLoader::shares_whole_batches() const {
  return identifies_samples_ && !padded_;
}

void DataLoader::take_whole_batches(BatchFetcher::Pass& pass) const {
  const int64_t all = pass.order.size(0), size = options_.batch_size;
  std::vector<at::Tensor> own;
  for (int64_t first = rank_ * size; first < all; first += world_size_ * size) {
    const int64_t count = std::min(size, all - first);
    if (count < size && options_.drop_last) break;
    own.push_back(pass.order.narrow(0, first, count));
    pass.ends.push_back(count + (pass.ends.empty() ? 0 : pass.ends.back()));
  }
  pass.order = own.empty() ? pass.order.narrow(0, 0, 0) : at::cat(own);
  pass.num_samples = pass.order.size(0);
}

std::optional<int64_t> DataLoader::num_batches() const {
  if (batch_sampler_ != nullptr) {
    const std::optional<int64_t> all = batch_sampler_->num_batches();
    return all ? std::optional(count_share_of_batches(*all, rank_, world_size_, padded_)) : std::nullopt;
  }
  if (shares_whole_batches()) {
    const int64_t all = sampler_->size(), size = options_.batch_size;
    return count_share_of_batches(options_.drop_last ? all / size : (all + size - 1) / size, rank_, world_size_, false);
  }
  const int64_t samples = count_samples();
  if (samples == 0) return 0;  // an evaluation with fewer samples than ranks
  return options_.drop_last ? samples / options_.batch_size : (samples - 1) / options_.batch_size + 1;
}

BatchFetcher::Pass DataLoader::cut_by_sampler(int64_t epoch) const {
  BatchFetcher::Pass pass;
  pass.num_samples = count_samples();
  pass.batch_size = options_.batch_size;
  pass.seed = options_.seed < 0 ? default_seed() : static_cast<uint64_t>(options_.seed);
  if (!sampler_->is_sequential() || world_size_ > 1) {
    pass.order = sampler_->order(pass.seed, same_order_ ? 0 : epoch).contiguous();
    check_order(pass.order, sampler_->size(), dataset_->size());
    if (world_size_ > 1 && shares_whole_batches()) {
      take_whole_batches(pass);
    } else if (world_size_ > 1) {
      pass.order = own_share(pass.order);
    }
  } else if (pass.num_samples > dataset_->size()) {
    throw DataError("DataLoader: the sampler visits " + count_of(pass.num_samples, "sample") +
                    " but the data set holds " + std::to_string(dataset_->size()) + "." + kIfItChanges);
  }
  return pass;
}

BatchFetcher::Pass DataLoader::cut_by_batch_sampler(int64_t epoch) const {
  BatchFetcher::Pass pass;
  pass.seed = options_.seed < 0 ? default_seed() : static_cast<uint64_t>(options_.seed);
  IndexBatches batches = batch_sampler_->batches(pass.seed, same_order_ ? 0 : epoch);
  check_batches(batches, batch_sampler_->num_batches());
  batches = share_of_batches(std::move(batches), rank_, world_size_, padded_, batch_sampler_->may_split());
  std::vector<int64_t> order;
  for (const auto& batch : batches) {
    order.insert(order.end(), batch.begin(), batch.end());
    pass.ends.push_back(static_cast<int64_t>(order.size()));
  }
  pass.order = at::tensor(order, at::TensorOptions().dtype(at::kLong));
  pass.num_samples = pass.order.numel();
  check_indices(pass.order, "batch sampler", dataset_->size());
  return pass;
}

void DataLoader::make_pass(int64_t epoch) {
  BatchFetcher::Pass pass = batch_sampler_ == nullptr ? cut_by_sampler(epoch) : cut_by_batch_sampler(epoch);
  pass.dataset = dataset_;
  pass.collate = collate_;
  pass.epoch = epoch;
  pass.pins_memory = pins_memory_;
  pass.identifies_samples = identifies_samples_;
  pass.first_number = rank_;
  pass.number_step = world_size_;
  pass_batches_ = batch_sampler_ == nullptr ? *num_batches() : static_cast<int64_t>(pass.ends.size());
  pass_ = std::make_shared<const BatchFetcher>(std::move(pass));
}

ConfigNode DataLoader::written_options() const {
  return write_options(options_);
}

}  // namespace levin
