#include "levin/data/loading/dataloader.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "levin/core/options/error.h"
#include "levin/core/random.h"
#include "levin/data/data_module.h"
#include "levin/data/loading/sample_generator.h"
#include "levin/data/loading/skipped_sample.h"
#include "support/error_text.h"
#include "support/refused_threads.h"
#include "support/wait_until.h"

namespace levin::dataloader_test {
namespace {

using test::error_of;
using test::holds;
using test::is_blocked;
using test::threads;
using test::wait_until;

// Any function of the index as a data set of single samples.
class Samples : public Dataset {
 public:
  Samples(int64_t size, std::function<Batch(int64_t)> get) : size_(size), get_(std::move(get)) {}
  int64_t size() const override { return size_; }
  Batch get(int64_t index) const override {
    ++fetched;
    return get_(index);
  }
  mutable std::atomic<int64_t> fetched = 0;

 private:
  int64_t size_;
  std::function<Batch(int64_t)> get_;
};

std::shared_ptr<TensorDataset> counting(int64_t size) {
  return std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(size)});
}

std::vector<at::Tensor> rest_of_pass(Loader& loader) {
  std::vector<at::Tensor> batches;
  for (Batch batch; loader.next(batch);) batches.push_back(batch[0]);
  return batches;
}

std::vector<at::Tensor> pass(Loader& loader, int64_t epoch, int64_t first_batch = 0) {
  loader.start(epoch, first_batch);
  return rest_of_pass(loader);
}

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return at::equal(x, y); });
}

TEST(DataLoader, CutsSequentialBatchesAsViews) {
  const auto data = counting(10);
  DataLoader loader(data, {.batch_size = 4});
  const auto batches = pass(loader, 0);
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_TRUE(at::equal(batches[2], at::tensor({8, 9}, at::kLong)));
  EXPECT_EQ(batches[1].const_data_ptr(), data->tensors()[0][4].const_data_ptr());
}

TEST(DataLoader, CountsBatchesWithAndWithoutTheLast) {
  for (const int64_t workers : {0, 2}) {
    for (const bool drop_last : {false, true}) {
      for (int64_t size = 1; size < 10; ++size) {
        DataLoader loader(counting(size), {.batch_size = 3, .drop_last = drop_last, .num_workers = workers});
        const int64_t wanted = drop_last ? size / 3 : (size + 2) / 3;
        EXPECT_EQ(loader.num_batches(), wanted) << size;
        EXPECT_EQ(static_cast<int64_t>(pass(loader, 0).size()), wanted) << size;
      }
    }
  }
}

TEST(DataLoader, GivesTheSameBatchesWithAnyNumberOfWorkers) {
  for (const bool whole_batches : {true, false}) {
    std::shared_ptr<Dataset> data = counting(101);
    if (!whole_batches) {
      data = std::make_shared<Samples>(101, [](int64_t i) {  // augmentation, and samples of unequal cost
        std::this_thread::sleep_for(std::chrono::microseconds(i % 7 * 50));
        return Batch{at::randn({3}, sample_generator()).add(i)};
      });
    }
    DataLoader alone(data, {.batch_size = 4, .shuffle = true, .seed = 5});
    const auto first = pass(alone, 0);
    const auto second = pass(alone, 1);
    EXPECT_FALSE(same(first, second));
    for (const int64_t workers : {1, 2, 5}) {
      DataLoader loader(data,
                        {.batch_size = 4, .shuffle = true, .num_workers = workers, .prefetch_factor = 3, .seed = 5});
      EXPECT_TRUE(same(pass(loader, 0), first)) << workers;
      EXPECT_TRUE(same(pass(loader, 1), second)) << workers;
    }
  }
}

TEST(DataLoader, VisitsEverySampleOnceAndFollowsTheRunsSeed) {
  DataLoader loader(counting(50), {.batch_size = 8, .shuffle = true});
  const at::Tensor order = at::cat(pass(loader, 0));
  EXPECT_TRUE(at::equal(std::get<0>(order.sort()), at::arange(50)));
  set_default_seed(1);
  EXPECT_FALSE(at::equal(order, at::cat(pass(loader, 0))));
  set_default_seed(0);
  EXPECT_TRUE(at::equal(order, at::cat(pass(loader, 0))));
}

TEST(DataLoader, SkipsBatchesWithoutFetchingThem) {
  for (const int64_t workers : {0, 2}) {
    const auto data = std::make_shared<Samples>(40, [](int64_t i) { return Batch{at::full({1}, i)}; });
    DataLoader loader(data, {.batch_size = 4, .shuffle = true, .num_workers = workers});
    auto whole = pass(loader, 3);
    data->fetched = 0;
    whole.erase(whole.begin(), whole.begin() + 7);
    EXPECT_TRUE(same(pass(loader, 3, 7), whole));
    EXPECT_EQ(data->fetched, 12);
    EXPECT_TRUE(pass(loader, 3, 10).empty());
    EXPECT_TRUE(holds(error_of<DataError>([&] { loader.start(3, 11); }), {"batch 11", "10 batches"}));
  }
}

TEST(DataLoader, StartsAgainInTheMiddleOfAPass) {
  DataLoader loader(counting(1000), {.batch_size = 2, .shuffle = true, .num_workers = 3});
  const auto wanted = pass(loader, 9);
  for (int i = 0; i < 50; ++i) {
    loader.start(i);
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
  }
  EXPECT_TRUE(same(pass(loader, 9), wanted));
}

TEST(DataLoader, AbandonsAPassAndEndsWithoutFetchingTheRest) {
  std::atomic<bool> is_abandoned = false;
  const auto data = std::make_shared<Samples>(100000, [&](int64_t i) {
    EXPECT_TRUE(wait_until([&] { return is_abandoned.load(); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // a batch would take two seconds
    return Batch{at::full({1}, i)};
  });
  {
    DataLoader loader(data, {.batch_size = 1000, .num_workers = 2});
    loader.start(0);
    EXPECT_TRUE(wait_until([&] { return data->fetched == 2; })) << "both workers fetch";
    is_abandoned = true;
    loader.start(1);
  }
  EXPECT_LT(data->fetched, 1000);
}

TEST(DataLoader, StopEndsItsThreadsAndStartBeginsAnew) {
  const size_t before = threads().size();
  DataLoader loader(counting(12), {.batch_size = 2, .num_workers = 2});
  loader.start(0);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(threads().size(), before + 2);
  loader.stop();
  EXPECT_EQ(threads().size(), before);
  EXPECT_FALSE(loader.next(batch));
  EXPECT_EQ(pass(loader, 1).size(), 6U);
}

TEST(DataLoader, HoldsNoMoreThanItsShareAhead) {
  const auto data = std::make_shared<Samples>(100, [](int64_t i) { return Batch{at::full({1}, i)}; });
  const auto others = threads();
  DataLoader loader(data, {.batch_size = 1, .num_workers = 2, .prefetch_factor = 3});
  loader.start(0);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_TRUE(wait_until([&] { return data->fetched >= 7; })) << "one taken, 2 * 3 ahead";
  const auto all = threads();
  const auto rests = [&](pid_t thread) { return others.contains(thread) || is_blocked(thread); };
  EXPECT_TRUE(wait_until([&] { return std::all_of(all.begin(), all.end(), rests); }));
  EXPECT_EQ(data->fetched, 7);
}

TEST(DataLoader, NamesTheFailingSampleAndStartsAgain) {
  for (const int64_t workers : {0, 3}) {
    std::atomic<bool> broken = true;
    const auto data = std::make_shared<Samples>(40, [&](int64_t i) -> Batch {
      if (i == 17 && broken) throw std::runtime_error("picture 17 is torn");
      return {at::full({1}, i)};
    });
    DataLoader loader(data, {.batch_size = 4, .num_workers = workers});
    loader.start(2);
    Batch batch;
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(loader.next(batch));
    EXPECT_TRUE(holds(error_of<DataError>([&] { loader.next(batch); }),
                      {"sample 17", "batch 4 of epoch 2", "picture 17 is torn"}));
    EXPECT_FALSE(loader.next(batch));
    broken = false;
    EXPECT_EQ(pass(loader, 2).size(), 10U);
  }
}

// Reliability: ragged_samples.
TEST(DataLoader, NamesTheSampleWhoseShapeOrTypeDiffers) {
  for (const int64_t workers : {0, 2}) {
    DataLoader shapes(std::make_shared<Samples>(9,
                                                [](int64_t i) {
                                                  return Batch{at::zeros({2, i == 5 ? 4 : 3})};
                                                }),
                      {.batch_size = 3, .num_workers = workers});
    EXPECT_TRUE(holds(error_of<DataError>([&] { pass(shapes, 0); }),
                      {"sample 5", "[2, 4]", "sample 3", "[2, 3]", "batch 1 of epoch 0"}));
    DataLoader types(
        std::make_shared<Samples>(3, [](int64_t i) { return Batch{at::zeros({2}, i == 2 ? at::kLong : at::kFloat)}; }),
        {.batch_size = 3, .num_workers = workers});
    EXPECT_TRUE(holds(error_of<DataError>([&] { pass(types, 0); }), {"sample 2", "Long", "Float"}));
  }
}

// Contiguous samples are copied directly into the batch, others go through at::stack: both give the same batch.
TEST(DataLoader, StacksSamplesWithAnyMemoryLayout) {
  const auto table = at::arange(24).view({6, 4});
  const auto stacked = [](const std::vector<at::Tensor>& tensors) {
    std::vector<Batch> samples;
    for (const auto& tensor : tensors) samples.push_back(Batch{tensor, at::full({}, 7, at::kByte)});
    const Batch batch = stack_samples(samples);
    EXPECT_TRUE(at::equal(batch[1], at::full({static_cast<int64_t>(tensors.size())}, 7, at::kByte)));
    return at::equal(batch[0], at::stack(tensors)) && batch[0].scalar_type() == tensors[0].scalar_type();
  };
  const auto row = [&](int64_t i) { return table.select(0, i); };
  const auto column = [&](int64_t i) { return table.select(1, i).narrow(0, 0, 4); };
  EXPECT_TRUE(stacked({row(0), row(3), row(1)}));
  EXPECT_TRUE(stacked({column(0), column(2)}));
  EXPECT_TRUE(stacked({row(0), row(1), column(2), row(2), column(3)}));
  EXPECT_TRUE(stacked({column(1), row(1)}));
  EXPECT_TRUE(stacked({at::full({}, true), at::full({}, false)}));
  EXPECT_TRUE(stacked({at::zeros({0, 3}), at::zeros({0, 3})}));
  EXPECT_TRUE(stack_samples({}).empty());
  const auto weight = at::full({2}, 3.0).requires_grad_();
  EXPECT_TRUE(stack_samples({Batch{weight}, Batch{weight}})[0].requires_grad());
}

TEST(DataLoader, NamesABatchThatCannotBeGathered) {
  struct Bad : Dataset {
    int64_t size() const override { return 10; }
    Batch get(int64_t) const override { return {}; }
    bool has_get_batch() const override { return true; }
    Batch get_batch(const at::Tensor& indices) const override { return {at::zeros({2}).index_select(0, indices)}; }
  };
  DataLoader loader(std::make_shared<Bad>(), {.batch_size = 5});
  const std::string message = error_of<DataError>([&] { pass(loader, 0); });
  EXPECT_TRUE(holds(message, {"samples 0 to 4", "batch 0 of epoch 0"}));
  EXPECT_EQ(message.find("Exception raised from"), std::string::npos) << message;  // no C++ stack
}

TEST(DataLoader, CollatesWithAGivenFunction) {
  const Collate longest = [](std::vector<Batch> samples) {
    return Batch{at::full({static_cast<int64_t>(samples.size())}, samples.back()[0].numel())};
  };
  DataLoader loader(std::make_shared<Samples>(4, [](int64_t i) { return Batch{at::zeros({i})}; }),
                    {.batch_size = 2, .num_workers = 1}, nullptr, longest);
  const auto batches = pass(loader, 0);
  EXPECT_TRUE(at::equal(batches[1], at::full({2}, 3)));
}

// Samples with names; every third has nothing.
class Named : public Samples {
 public:
  Named() : Samples(7, [](int64_t i) { return i % 3 == 2 ? Batch() : Batch{at::full({}, i)}; }) {}
  std::string sample_id(int64_t index) const override { return index == 6 ? last : "s" + std::to_string(index); }
  std::string last = "s6";
};

TEST(DataLoader, ReportsWhichSamplesABatchHoldsIfItIsAsked) {
  using Ids = std::vector<std::string>;
  const auto dataset = std::make_shared<Named>();
  const Collate without_nothing = [](std::vector<Batch> samples) {
    std::erase_if(samples, [](const Batch& sample) { return sample.empty(); });
    std::vector<at::Tensor> rows;
    for (const Batch& sample : samples) rows.push_back(sample[0]);
    return Batch{at::stack(rows)};
  };
  DataLoader loader(dataset, {.batch_size = 4, .num_workers = 1}, nullptr, without_nothing);
  const auto ids = [&] {
    std::vector<Ids> all;
    loader.start(0);
    for (Batch batch; loader.next(batch);) all.push_back(batch.ids() == nullptr ? Ids() : *batch.ids());
    return all;
  };
  EXPECT_EQ(ids(), (std::vector<Ids>{{}, {}}));
  loader.identify_samples(true);
  EXPECT_EQ(ids(), (std::vector<Ids>{{"s0", "s1", "s3"}, {"s4", "s6"}}));
  dataset->last = "";  // unknown, and so are the others of the batch
  EXPECT_EQ(ids(), (std::vector<Ids>{{"s0", "s1", "s3"}, {}}));
}

TEST(DataLoader, FollowsItsSampler) {
  DataLoader loader(counting(10), {.batch_size = 2}, std::make_shared<SubsetSampler>(std::vector<int64_t>{7, 3, 5}));
  EXPECT_TRUE(at::equal(at::cat(pass(loader, 0)), at::tensor({7, 3, 5}, at::kLong)));
  DataLoader outside(counting(6), {}, std::make_shared<SubsetSampler>(std::vector<int64_t>{0, 6}));
  EXPECT_TRUE(holds(error_of<DataError>([&] { outside.start(0); }), {"index 6", "6 samples"}));
}

// Rank by rank, the samples of one pass.
std::vector<at::Tensor> shares(int64_t size, int64_t world, bool padded, DataLoaderOptions options, int64_t epoch = 0) {
  std::vector<at::Tensor> all;
  for (int64_t rank = 0; rank < world; ++rank) {
    DataLoader loader(counting(size), options);
    EXPECT_TRUE(loader.shard(rank, world, padded));
    const auto batches = pass(loader, epoch);
    EXPECT_EQ(static_cast<int64_t>(batches.size()), *loader.num_batches());
    all.push_back(batches.empty() ? at::empty({0}, at::kLong) : at::cat(batches));
  }
  return all;
}

TEST(DataLoader, SharesAnEvaluationOutWithoutRepeatingASample) {
  const auto all = shares(103, 4, false, {.batch_size = 8});
  std::vector<int64_t> sizes;
  for (const auto& share : all) sizes.push_back(share.size(0));
  EXPECT_EQ(sizes, (std::vector<int64_t>{26, 26, 26, 25}));
  EXPECT_TRUE(at::equal(std::get<0>(at::cat(all).sort()), at::arange(103)));
  EXPECT_TRUE(at::equal(all[1].slice(0, 0, 3), at::tensor({1, 5, 9}, at::kLong)));
  EXPECT_EQ(shares(2, 3, false, {})[2].size(0), 0);  // fewer samples than ranks
}

TEST(DataLoader, PadsTrainingSharesFromTheFront) {
  const auto all = shares(10, 4, true, {.batch_size = 2});
  EXPECT_TRUE(at::equal(all[0], at::tensor({0, 4, 8}, at::kLong)));
  EXPECT_TRUE(at::equal(all[2], at::tensor({2, 6, 0}, at::kLong)));
  EXPECT_TRUE(at::equal(all[3], at::tensor({3, 7, 1}, at::kLong)));
  for (const auto& share : shares(1, 3, true, {})) EXPECT_TRUE(at::equal(share, at::zeros({1}, at::kLong)));
}

TEST(DataLoader, RanksBatchesOfOneNumberMakeUpTheGlobalBatch) {
  for (const int64_t epoch : {0, 1}) {
    const auto all = shares(64, 2, true, {.batch_size = 4, .shuffle = true}, epoch);
    DataLoader whole(counting(64), {.batch_size = 8, .shuffle = true});
    const auto global = pass(whole, epoch);
    for (size_t b = 0; b < global.size(); ++b) {
      const auto at = static_cast<int64_t>(b) * 4;
      const auto together = at::stack({all[0].slice(0, at, at + 4), all[1].slice(0, at, at + 4)}, 1).flatten();
      EXPECT_TRUE(at::equal(together, global[b]));
    }
  }
}

TEST(DataLoader, KeepsOneOrderWhenOverfitting) {
  DataLoader loader(counting(20), {.batch_size = 20, .shuffle = true});
  loader.use_sequential_order();
  EXPECT_TRUE(at::equal(pass(loader, 3)[0], at::arange(20)));
  DataLoader subset(counting(20), {.batch_size = 10}, std::make_shared<SubsetSampler>(at::arange(5, 15), true));
  subset.use_sequential_order();
  EXPECT_TRUE(same(pass(subset, 3), pass(subset, 4)));
  EXPECT_TRUE(at::equal(std::get<0>(pass(subset, 3)[0].sort()), at::arange(5, 15)));
}

TEST(DataLoader, EndsTheWorkersThatStartedWhereTheSystemGivesNoMoreThreads) {
  const auto before = threads();
  DataLoader loader(counting(6), {.num_workers = 3});
  {
    const test::RefusedThreads refused(2);
    EXPECT_TRUE(
        holds(error_of<DataError>([&] { loader.start(0); }), {"cannot start worker thread 3 of 3", "num_workers"}));
  }
  EXPECT_TRUE(wait_until([&] { return threads() == before; }));  // the system lists a thread for a moment after its end
  EXPECT_EQ(pass(loader, 0).size(), 6U);
  EXPECT_EQ(threads().size(), before.size() + 3);
}

TEST(DataLoader, WorkersUseOneThreadEachAndNoAutograd) {
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  const auto data = std::make_shared<Samples>(4, [](int64_t) {
    return Batch{at::tensor({int64_t{at::get_num_threads()}, int64_t{at::GradMode::is_enabled()}}, at::kLong)};
  });
  DataLoader loader(data, {.batch_size = 1, .num_workers = 2});
  for (const auto& seen : pass(loader, 0)) EXPECT_TRUE(at::equal(seen[0], at::tensor({1, 0}, at::kLong))) << seen;
  EXPECT_EQ(at::get_num_threads(), 2);
  std::thread([] { EXPECT_EQ(at::get_num_threads(), 2); }).join();  // nor did later threads change
  EXPECT_TRUE(at::GradMode::is_enabled());
  at::set_num_threads(threads);
}

// get() runs below autograd: views, in-place operations and leaves must come out as they would under a NoGradGuard.
TEST(DataLoader, StacksAnySampleThatGetMakesOfTensorsWithGradients) {
  const at::Tensor leaf = at::arange(24, at::kFloat).reshape({4, 6}).requires_grad_(true);
  const auto get = [leaf](int64_t i) {
    const at::Tensor row = leaf.select(0, i);
    return Batch{row, row.view({2, 3}).t(), at::_neg_view(row), row.mul(2).add_(1), row.detach(), leaf};
  };
  std::vector<std::vector<at::Tensor>> columns(6);
  {
    const at::NoGradGuard no_grad;
    for (int64_t i = 0; i < 4; ++i) {
      const Batch sample = get(i);
      for (size_t k = 0; k < 6; ++k) columns[k].push_back(sample[k]);
    }
  }
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(std::make_shared<Samples>(4, get), {.batch_size = 4, .num_workers = workers});
    loader.start(0);
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    for (size_t k = 0; k < 6; ++k) {
      EXPECT_TRUE(at::equal(batch[k], at::stack(columns[k]))) << k;
      EXPECT_FALSE(batch[k].requires_grad()) << k;
    }
    const at::Tensor x = batch[0].requires_grad_(true);
    x.mul(x).sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), x.detach().mul(2)));
    EXPECT_TRUE(leaf.requires_grad() && !leaf.grad().defined());
  }
}

TEST(DataLoader, RefusesWhatCannotWork) {
  EXPECT_TRUE(holds(error_of<ConfigError>([] { DataLoader(counting(3), {.batch_size = 0, .num_workers = -1}); }),
                    {"DataLoaderOptions.batch_size", "got 0", "num_workers", "got -1"}));
  EXPECT_TRUE(holds(error_of<DataError>([] { DataLoader(counting(0), {}); }), {"empty"}));
  EXPECT_TRUE(holds(
      error_of<ConfigError>([] { DataLoader(counting(3), {.shuffle = true}, std::make_shared<SequentialSampler>(3)); }),
      {"shuffle", "sampler"}));
  DataLoader not_started(counting(3), {});
  Batch batch;
  EXPECT_FALSE(not_started.next(batch));
}

TEST(Loaders, TakesOneLoaderAsValueOrHandleAndSeveral) {
  const auto shared = std::make_shared<DataLoader>(counting(3));
  EXPECT_EQ(Loaders(shared).size(), 1U);
  EXPECT_EQ(Loaders(DataLoader(counting(3))).size(), 1U);
  const Loaders two = {shared, shared};
  EXPECT_EQ(two.size(), 2U);
  EXPECT_TRUE(Loaders(std::shared_ptr<Loader>()).empty());
}

TEST(DataLoader, TakesADataSetByValue) {
  TensorDataset data{at::arange(10), at::arange(10, 20)};
  DataLoader copied(data, {.batch_size = 4}), moved(std::move(data), {.batch_size = 4});
  DataLoader in_order(TensorDataset{at::arange(3)}, {.batch_size = 2},
                      std::make_shared<SubsetSampler>(std::vector<int64_t>{2, 0}));
  copied.start(0);
  moved.start(0);
  in_order.start(0);
  EXPECT_TRUE(at::equal(at::cat(rest_of_pass(copied)), at::arange(10)));
  EXPECT_TRUE(at::equal(at::cat(rest_of_pass(moved)), at::arange(10)));
  EXPECT_TRUE(at::equal(at::cat(rest_of_pass(in_order)), at::tensor({2, 0}, at::kLong)));
}

TEST(DataLoader, SaysThatItWasMovedFrom) {
  DataLoader first(TensorDataset{torch::arange(4)}, {.batch_size = 2});
  const std::shared_ptr<Loader> second = std::move(first);
  EXPECT_EQ(error_of<DataError>([&] { first.start(0); }),  // NOLINT(bugprone-use-after-move)
            "DataLoader: it was moved from. Make a new one for each fit.");
  second->start(0);
}

TEST(DataLoader, IsReturnedByValueFromAHook) {
  struct Numbers : DataModule {
    std::shared_ptr<Loader> train_dataloader() override { return DataLoader(data, {.batch_size = 4}); }
    Loaders val_dataloader() override { return {DataLoader(data, {.batch_size = 2}), DataLoader(data)}; }
    TensorDataset data{at::arange(10)};
  } numbers;
  EXPECT_EQ(numbers.train_dataloader()->num_batches(), 3);
  const Loaders val = numbers.val_dataloader();
  ASSERT_EQ(val.size(), 2U);
  EXPECT_EQ(val[0]->num_batches(), 5);
  EXPECT_EQ(val[1]->num_batches(), 10);
}

// For predictions, so that the ranks' batches are the batches of one process.
TEST(DataLoader, SharesWholeBatchesThatIdentifyTheirSamples) {
  const auto numbers = std::make_shared<TensorDataset>(std::vector{at::arange(10)});
  for (const bool drops : {false, true}) {
    for (const int64_t ranks : {1, 2, 3, 4, 5}) {
      std::map<int64_t, std::vector<int64_t>> seen;  // by the number of the batch
      int64_t batches = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        DataLoader loader(numbers, {.batch_size = 3, .drop_last = drops});
        loader.shard(rank, ranks, /*padded=*/false);
        loader.identify_samples(true);
        batches += *loader.num_batches();
        loader.start(0);
        for (Batch batch; loader.next(batch);) {
          seen[batch.samples()->batch] = batch.samples()->indices;
          const auto* values = batch[0].const_data_ptr<int64_t>();
          EXPECT_EQ(batch.samples()->indices, std::vector<int64_t>(values, values + batch.size()));
        }
      }
      std::map<int64_t, std::vector<int64_t>> expected = {{0, {0, 1, 2}}, {1, {3, 4, 5}}, {2, {6, 7, 8}}, {3, {9}}};
      if (drops) expected.erase(3);
      EXPECT_EQ(seen, expected) << ranks;
      EXPECT_EQ(batches, std::ssize(expected)) << ranks;
    }
  }
}

TEST(DataLoader, LeavesOutSamplesThatTheDataSetSkips) {
  struct Holes : Dataset {
    int64_t size() const override { return 7; }
    Batch get(int64_t index) const override {
      if (index % 3 == 0) return skipped_sample("no " + std::to_string(index));
      return {at::full({2}, index, at::kLong)};
    }
  };
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(std::make_shared<Holes>(), {.batch_size = 4, .num_workers = workers});
    loader.start(0);
    Batch first, second;
    ASSERT_TRUE(loader.next(first));
    ASSERT_TRUE(loader.next(second));
    EXPECT_TRUE(at::equal(first[0], at::tensor({1, 1, 2, 2}, at::kLong).view({2, 2})));
    EXPECT_TRUE(at::equal(second[0], at::tensor({4, 4, 5, 5}, at::kLong).view({2, 2})));
    loader.identify_samples(true);
    loader.start(0);
    ASSERT_TRUE(loader.next(first));
    EXPECT_EQ(first.samples()->indices, (std::vector<int64_t>{1, 2}));
    ASSERT_EQ(first.samples()->skipped.size(), 2U);
    EXPECT_EQ(first.samples()->skipped[1].reason, "no 3");
    EXPECT_EQ(first.ids(), nullptr);
  }
}

}  // namespace
}  // namespace levin::dataloader_test
