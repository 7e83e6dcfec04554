#include "levin/data/sets/token_file_data.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/text/text_blocks.h"

namespace levin {

namespace {

const BatchNames& token_names() {
  static const BatchNames names{"input_ids", "labels"};
  return names;
}

}  // namespace

TokenFileDataset::TokenFileDataset(const std::string& path, TokenFileDatasetOptions options)
    : files_(path, options.dtype), options_(options) {
  const auto place = [&](double share) { return static_cast<int64_t>(static_cast<double>(files_.size()) * share); };
  first_ = place(options_.start);
  count_ = place(options_.end) - first_;
  if (count_ > options_.block_size) return;
  throw DataError("TokenFileDataset: " + path + " gives " + count_of(count_, "token") + ", expected at least " +
                  std::to_string(options_.block_size + 1) +
                  " (block_size and one more). Give more tokens, a smaller block_size or another val_fraction.");
}

Batch TokenFileDataset::get(int64_t index) const {
  at::Tensor row = at::empty({options_.block_size + 1}, at::TensorOptions().dtype(at::kLong));
  files_.read(first_ + index, row.numel(), options_.vocab_size, row.mutable_data_ptr<int64_t>());
  return {{row.narrow(0, 0, options_.block_size), row.narrow(0, 1, options_.block_size)}, token_names()};
}

Batch TokenFileDataset::get_batch(const at::Tensor& indices) const {
  const at::Tensor all = indices.contiguous();
  const int64_t count = all.size(0), width = options_.block_size + 1;
  at::Tensor rows = at::empty({count, width}, at::TensorOptions().dtype(at::kLong));
  for (int64_t i = 0; i < count; ++i) {
    files_.read(first_ + all.const_data_ptr<int64_t>()[i], width, options_.vocab_size,
                rows.mutable_data_ptr<int64_t>() + i * width);
  }
  return {{rows.narrow(1, 0, options_.block_size), rows.narrow(1, 1, options_.block_size)}, token_names()};
}

TokenFileData::TokenFileData(TokenFileDataOptions options)
    : options_(checked(std::move(options), "TokenFileDataOptions")) {
  save_hyperparameters(options_);
}

std::shared_ptr<TokenFileDataset> TokenFileData::part(const std::string& path, double start, double end) const {
  return std::make_shared<TokenFileDataset>(path, TokenFileDatasetOptions{.block_size = options_.block_size,
                                                                          .vocab_size = options_.vocab_size,
                                                                          .dtype = options_.dtype,
                                                                          .start = start,
                                                                          .end = end});
}

void TokenFileData::setup(Stage stage) {
  if (stage == Stage::test || stage == Stage::predict) {
    if (!options_.test_path.empty() && test_ == nullptr) test_ = part(options_.test_path, 0, 1);
    return;
  }
  if (train_ != nullptr) return;
  const bool held_out = options_.val_path.empty() && options_.val_fraction > 0;
  const double trained = held_out ? 1 - options_.val_fraction : 1;
  train_ = part(options_.path, 0, trained);
  if (held_out) val_ = part(options_.path, trained, 1);
  if (!options_.val_path.empty()) val_ = part(options_.val_path, 0, 1);
}

void TokenFileData::teardown(Stage /*stage*/) {
  train_ = val_ = test_ = nullptr;
}

std::shared_ptr<Loader> TokenFileData::loader(const std::shared_ptr<TokenFileDataset>& tokens, bool is_training) const {
  if (tokens == nullptr) throw DataError("TokenFileData: call setup() with the stage before asking for its loaders.");
  return std::make_shared<DataLoader>(
      tokens,
      DataLoaderOptions{.batch_size = options_.batch_size,
                        .drop_last = is_training && options_.drop_last,
                        .num_workers = options_.num_workers},
      std::make_shared<BlockSampler>(tokens->num_tokens(), options_.block_size, is_training && options_.shuffle));
}

std::shared_ptr<Loader> TokenFileData::train_dataloader() {
  return loader(train_, true);
}

Loaders TokenFileData::val_dataloader() {
  if (train_ != nullptr && val_ == nullptr) return {};
  return loader(val_, false);
}

Loaders TokenFileData::test_dataloader() {
  if (options_.test_path.empty()) return {};
  return loader(test_, false);
}

}  // namespace levin
