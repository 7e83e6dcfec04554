#include "levin/data/sets/row_module.h"

#include <cmath>
#include <utility>

#include "levin/core/error.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/sampler.h"

namespace levin::detail {

void RowModule::setup(Stage stage) {
  if (stage == Stage::test || stage == Stage::predict) {
    if (test_ == nullptr) test_ = open_test();
    has_test_ = test_ != nullptr;
    return;
  }
  if (train_ != nullptr) return;
  train_ = open_train();
  val_ = open_val();
  if (val_ != nullptr) return;
  const int64_t all = train_->size();
  const auto held_out = static_cast<int64_t>(std::floor(static_cast<double>(all) * options_.val_fraction));
  if (held_out == 0) return;
  const at::Tensor order = RandomSampler(all).order(static_cast<uint64_t>(options_.split_seed), 0);
  train_part_ = order.narrow(0, 0, all - held_out);
  val_part_ = order.narrow(0, all - held_out, held_out);
  val_ = train_;
}

void RowModule::teardown(Stage /*stage*/) {
  train_ = val_ = test_ = nullptr;
  train_part_ = val_part_ = at::Tensor();
}

std::shared_ptr<Loader> RowModule::loader(const std::shared_ptr<Dataset>& rows, const at::Tensor& part,
                                          bool is_training) const {
  if (rows == nullptr) throw DataError(name_ + ": call setup() with the stage before asking for its loaders.");
  const bool shuffle = is_training && options_.shuffle;
  const DataLoaderOptions options{.batch_size = options_.batch_size,
                                  .shuffle = shuffle && !part.defined(),
                                  .drop_last = is_training && options_.drop_last,
                                  .num_workers = options_.num_workers};
  return std::make_shared<DataLoader>(rows, options,
                                      part.defined() ? std::make_shared<SubsetSampler>(part, shuffle) : nullptr);
}

std::shared_ptr<Loader> RowModule::train_dataloader() {
  return loader(train_, train_part_, true);
}

Loaders RowModule::val_dataloader() {
  if (train_ != nullptr && val_ == nullptr) return {};
  return loader(val_, val_part_, false);
}

Loaders RowModule::test_dataloader() {
  if (!has_test_) return {};
  return loader(test_, {}, false);
}

}  // namespace levin::detail
