// A bounded queue as a loader. Threads wait for events and never for a time.
#include "levin/data/loading/queue_loader.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <stdexcept>
#include <thread>

#include "levin/core/options/error.h"
#include "levin/data/loading/combined_loader.h"
#include "support/error_text.h"
#include "support/field_count.h"

namespace levin::queue_loader_test {
namespace {

using test::error_of;
using test::expect_parts;

using Numbers = std::vector<int64_t>;

Batch sample_of(int64_t number) {
  return {{"x", at::full({2}, number, at::kLong)}};
}

Batch batch_of(int64_t first, int64_t count) {
  return {{"x", at::arange(first, first + count, at::kLong).unsqueeze(1).expand({count, 2}).contiguous()}};
}

Numbers numbers_of(const Batch& batch) {
  const at::Tensor& x = batch["x"];
  EXPECT_EQ(x.sizes(), (std::vector<int64_t>{batch.size(), 2}));
  Numbers all;
  for (int64_t i = 0; i < x.size(0); ++i) all.push_back(x[i][1].item<int64_t>());
  return all;
}

// The numbers of each batch that is left.
std::vector<Numbers> batches_left(QueueLoader& loader) {
  std::vector<Numbers> all;
  loader.start(0);
  for (Batch batch; loader.next(batch);) all.push_back(numbers_of(batch));
  return all;
}

void expect_counts(const QueueCounts& counts, int64_t pushed, int64_t delivered, int64_t dropped, int64_t waiting) {
  EXPECT_EQ(counts.pushed, pushed);
  EXPECT_EQ(counts.delivered, delivered);
  EXPECT_EQ(counts.dropped, dropped);
  EXPECT_EQ(counts.waiting, waiting);
}

TEST(QueueLoader, GivesSamplesInTheirOrderInBatches) {
  QueueLoader loader({.batch_size = 2});
  const QueueProducer producer = loader.producer();
  for (int64_t k = 0; k < 5; ++k) EXPECT_TRUE(producer.push(sample_of(k)));
  producer.close();
  EXPECT_EQ(batches_left(loader), (std::vector<Numbers>{{0, 1}, {2, 3}, {4}}));
  expect_counts(loader.counts(), 5, 5, 0, 0);
}

TEST(QueueLoader, LeavesOutTheIncompleteBatchWithDropLast) {
  QueueLoader loader({.batch_size = 2, .drop_last = true});
  const QueueProducer producer = loader.producer();
  for (int64_t k = 0; k < 5; ++k) EXPECT_TRUE(producer.push(sample_of(k)));
  producer.close();
  EXPECT_EQ(batches_left(loader), (std::vector<Numbers>{{0, 1}, {2, 3}}));
  expect_counts(loader.counts(), 5, 4, 1, 0);
}

TEST(QueueLoader, GivesBatchesUnchangedBetweenSamples) {
  QueueLoader loader({.batch_size = 2});
  const QueueProducer producer = loader.producer();
  EXPECT_TRUE(producer.push(sample_of(0)));
  EXPECT_TRUE(producer.push_batch(batch_of(10, 3)));
  EXPECT_TRUE(producer.push(sample_of(1)));
  producer.close();
  EXPECT_EQ(batches_left(loader), (std::vector<Numbers>{{10, 11, 12}, {0, 1}}));
  expect_counts(loader.counts(), 5, 5, 0, 0);
}

TEST(QueueLoader, PassesContinueWithTheQueue) {
  QueueLoader loader;
  const QueueProducer producer = loader.producer();
  for (int64_t k = 0; k < 3; ++k) EXPECT_TRUE(producer.push(sample_of(k)));
  Batch batch;
  loader.start(0);
  ASSERT_TRUE(loader.next(batch));
  producer.close();
  loader.start(1, 5);
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(numbers_of(batch), Numbers{1});
  EXPECT_EQ(batches_left(loader), (std::vector<Numbers>{{2}}));
  EXPECT_EQ(batches_left(loader), std::vector<Numbers>{});
}

TEST(QueueLoader, UsesTheCollateFunction) {
  QueueLoader loader({.batch_size = 3}, [](std::vector<Batch> samples) {
    return Batch{{"x", at::full({1, 2}, static_cast<int64_t>(samples.size()), at::kLong)}};
  });
  const QueueProducer producer = loader.producer();
  for (int64_t k = 0; k < 3; ++k) EXPECT_TRUE(producer.push(sample_of(k)));
  producer.close();
  EXPECT_EQ(batches_left(loader), (std::vector<Numbers>{{3}}));
}

TEST(QueueLoader, SamplesThatDifferAreRefusedInTheWordsOfPush) {
  QueueLoader loader({.batch_size = 2});
  const QueueProducer producer = loader.producer();
  EXPECT_TRUE(producer.push({at::ones({2})}));
  EXPECT_TRUE(producer.push({at::ones({3})}));
  producer.close();
  Batch batch;
  const std::string text = error_of<DataError>([&] { (void)loader.next(batch); });
  expect_parts(text, {"QueueLoader: ", "Push samples that are alike"});
  EXPECT_EQ(text.find("get()"), std::string::npos) << text;
}

TEST(QueueLoader, IsNotReadAheadAndHasNoLength) {
  QueueLoader loader;
  EXPECT_FALSE(loader.may_be_read_ahead());
  EXPECT_EQ(loader.num_batches(), std::nullopt);
  EXPECT_TRUE(loader.shard(1, 2, true));
}

// ---- a full queue --------------------------------------------------------------------------------------------------

TEST(QueueLoader, AProducerWaitsUntilABatchIsTaken) {
  QueueLoader loader({.capacity = 1});
  const QueueProducer producer = loader.producer();
  ASSERT_TRUE(producer.push(sample_of(0)));
  EXPECT_FALSE(producer.try_push(sample_of(7)));
  EXPECT_FALSE(producer.try_push_batch(batch_of(7, 1)));
  EXPECT_FALSE(producer.push_for(sample_of(7), std::chrono::milliseconds(1)));
  EXPECT_FALSE(producer.push_batch_for(batch_of(7, 1), std::chrono::milliseconds(1)));
  expect_counts(loader.counts(), 1, 0, 0, 1);
  auto pushed = std::async(std::launch::async, [&] { return producer.push(sample_of(1)); });
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(numbers_of(batch), Numbers{0});
  EXPECT_TRUE(pushed.get());
  expect_counts(loader.counts(), 2, 1, 0, 1);
}

TEST(QueueLoader, OnlyTheSampleThatCompletesABatchNeedsRoom) {
  QueueLoader loader({.capacity = 1, .batch_size = 2});
  const QueueProducer producer = loader.producer();
  for (int64_t k = 0; k < 3; ++k) EXPECT_TRUE(producer.try_push(sample_of(k)));
  EXPECT_FALSE(producer.try_push(sample_of(3)));
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_TRUE(producer.try_push(sample_of(3)));
  expect_counts(loader.counts(), 4, 2, 0, 2);
}

TEST(QueueLoader, NeverHoldsMoreThanItsCapacity) {
  QueueLoader loader({.capacity = 2});
  std::jthread thread([producer = loader.producer()] {
    for (int64_t k = 0; k < 200; ++k) EXPECT_TRUE(producer.push(sample_of(k)));
    producer.close();
  });
  Numbers all;
  for (Batch batch; loader.next(batch);) {
    EXPECT_LE(loader.counts().waiting, 2);
    all.push_back(numbers_of(batch)[0]);
  }
  Numbers wanted(200);
  for (size_t k = 0; k < wanted.size(); ++k) wanted[k] = static_cast<int64_t>(k);
  EXPECT_EQ(all, wanted);
}

TEST(QueueLoader, DropsExactlyTheOldestBatches) {
  QueueLoader loader({.capacity = 2, .batch_size = 2, .when_full = WhenFull::drop_oldest});
  const QueueProducer producer = loader.producer();
  for (int64_t k = 0; k < 11; ++k) EXPECT_TRUE(producer.push(sample_of(k)));
  expect_counts(loader.counts(), 11, 0, 6, 5);
  EXPECT_TRUE(producer.push_batch(batch_of(20, 3)));
  expect_counts(producer.counts(), 14, 0, 8, 6);
  producer.close();
  EXPECT_EQ(batches_left(loader), (std::vector<Numbers>{{8, 9}, {20, 21, 22}, {10}}));
  expect_counts(loader.counts(), 14, 6, 8, 0);
}

TEST(QueueLoader, GetsEverySampleOfManyProducersOnce) {
  constexpr int64_t kThreads = 4, kEach = 300;
  QueueLoader loader({.capacity = 2, .batch_size = 7});
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([producer = loader.producer(), t] {
      for (int64_t k = 0; k < kEach; ++k) EXPECT_TRUE(producer.push(sample_of(t * kEach + k)));
    });
  }
  std::jthread closer([&threads, producer = loader.producer()] {
    for (std::thread& thread : threads) thread.join();
    producer.close();
  });
  Numbers all;
  std::vector<Numbers> of_thread(kThreads);
  for (const Numbers& batch : batches_left(loader)) {
    for (const int64_t number : batch) of_thread[static_cast<size_t>(number / kEach)].push_back(number);
    all.insert(all.end(), batch.begin(), batch.end());
  }
  for (const Numbers& numbers : of_thread) EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
  std::sort(all.begin(), all.end());
  ASSERT_EQ(std::ssize(all), kThreads * kEach);
  for (int64_t k = 0; k < kThreads * kEach; ++k) EXPECT_EQ(all[static_cast<size_t>(k)], k);
}

// ---- the end -------------------------------------------------------------------------------------------------------

TEST(QueueLoader, CloseReleasesWhoWaits) {
  QueueLoader full({.capacity = 1});
  const QueueProducer producer = full.producer();
  ASSERT_TRUE(producer.push(sample_of(0)));
  auto pushed = std::async(std::launch::async, [&] { return producer.push(sample_of(1)); });
  producer.close();
  EXPECT_FALSE(pushed.get());
  EXPECT_TRUE(producer.is_closed());
  EXPECT_FALSE(producer.push(sample_of(2)));
  EXPECT_FALSE(producer.try_push_batch(batch_of(2, 1)));
  EXPECT_EQ(batches_left(full), (std::vector<Numbers>{{0}}));

  QueueLoader empty;
  const QueueProducer other = empty.producer();
  auto taken = std::async(std::launch::async, [&] {
    Batch batch;
    return empty.next(batch);
  });
  other.close();
  EXPECT_FALSE(taken.get());
}

TEST(QueueLoader, AnErrorOfAProducerArrivesAfterWhatItPushed) {
  QueueLoader loader;
  const QueueProducer producer = loader.producer();
  EXPECT_TRUE(producer.push(sample_of(0)));
  producer.close(std::make_exception_ptr(std::out_of_range("the simulation diverged")));
  producer.close();  // changes nothing
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  for (int k = 0; k < 2; ++k) {
    EXPECT_EQ(error_of<std::out_of_range>([&] { (void)loader.next(batch); }), "the simulation diverged");
  }
}

TEST(QueueLoader, ItsDestructorReleasesProducers) {
  auto loader = std::make_unique<QueueLoader>(QueueLoaderOptions{.capacity = 1});
  std::vector<std::future<bool>> pushed;
  for (int64_t t = 0; t < 3; ++t) {
    pushed.push_back(std::async(std::launch::async, [producer = loader->producer()] {
      while (producer.push(sample_of(0))) {
      }
      return producer.is_closed();
    }));
  }
  Batch batch;
  ASSERT_TRUE(loader->next(batch));
  const QueueProducer late = loader->producer();
  loader.reset();
  for (auto& result : pushed) EXPECT_TRUE(result.get());
  EXPECT_FALSE(late.push(sample_of(0)));
  late.close();
  EXPECT_EQ(late.counts().waiting, 0);
}

TEST(QueueLoader, MovesWithItsQueue) {
  QueueLoader first;
  const QueueProducer producer = first.producer();
  EXPECT_TRUE(producer.push(sample_of(0)));
  {
    const Loaders loaders(std::move(first));
    EXPECT_FALSE(producer.is_closed());
    Batch batch;
    ASSERT_TRUE(loaders[0]->next(batch));
    EXPECT_EQ(numbers_of(batch), Numbers{0});
  }
  EXPECT_TRUE(producer.is_closed());
}

TEST(QueueLoader, DoesNotWaitForProducersThatAreGone) {
  QueueLoader loader;
  auto producer = std::make_unique<QueueProducer>(loader.producer());
  EXPECT_TRUE(producer->push(sample_of(0)));
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  auto message = std::async(std::launch::async, [&] { return error_of<DataError>([&] { (void)loader.next(batch); }); });
  producer.reset();
  expect_parts(message.get(), {"QueueLoader: ", "destroyed without closing", "QueueProducer.close()"});
}

// ---- mistakes ------------------------------------------------------------------------------------------------------

TEST(QueueLoader, NamesTheFieldOfSamplesThatDiffer) {
  QueueLoader loader({.batch_size = 2});
  const QueueProducer producer = loader.producer();
  EXPECT_TRUE(producer.push(sample_of(0)));
  EXPECT_TRUE(producer.push({{"x", at::zeros({3}, at::kLong)}}));
  EXPECT_TRUE(producer.push(sample_of(2)));
  EXPECT_TRUE(producer.push(sample_of(3)));
  Batch batch;
  expect_parts(error_of<DataError>([&] { (void)loader.next(batch); }),
               {"QueueLoader: the batch could not be made", "field \"x\"", "[3]", "[2]"});
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(numbers_of(batch), (Numbers{2, 3}));
}

TEST(QueueLoader, RefusesWhatHasNoTensors) {
  QueueLoader loader;
  const QueueProducer producer = loader.producer();
  expect_parts(error_of<DataError>([&] { (void)producer.push({}); }), {"QueueProducer: the sample has no tensors"});
  expect_parts(error_of<DataError>([&] { (void)producer.push_batch({}); }),
               {"QueueProducer: the batch has no tensors"});
  expect_counts(loader.counts(), 0, 0, 0, 0);
}

TEST(QueueLoader, ChecksItsOptions) {
  expect_parts(error_of<ConfigError>([] { QueueLoader({.capacity = 0, .batch_size = -1}); }),
               {"QueueLoaderOptions.capacity: must be >= 1, got 0", "QueueLoaderOptions.batch_size"});
  EXPECT_EQ(levin::testing::field_count<QueueLoaderOptions>(), field_names<QueueLoaderOptions>().size());
}

// ---- checkpoints ---------------------------------------------------------------------------------------------------

TEST(QueueLoader, ItsStateHoldsCountsAndNotTheQueue) {
  QueueLoader loader({.capacity = 2, .when_full = WhenFull::drop_oldest});
  const QueueProducer producer = loader.producer();
  for (int64_t k = 0; k < 5; ++k) EXPECT_TRUE(producer.push(sample_of(k)));
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  QueueLoader resumed;
  resumed.load_state_dict(loader.state_dict());
  expect_counts(resumed.counts(), 4, 1, 3, 0);
  EXPECT_FALSE(QueueLoader().state_dict().empty());
}

TEST(QueueLoader, RefusesADamagedState) {
  QueueLoader loader;
  expect_parts(error_of<CheckpointError>([&] { loader.load_state_dict({}); }), {"delivered"});
  State negative;
  negative.set("delivered", int64_t{-1});
  negative.set("dropped", int64_t{0});
  expect_parts(error_of<CheckpointError>([&] { loader.load_state_dict(negative); }), {"QueueLoader: ", "-1 delivered"});
}

}  // namespace
}  // namespace levin::queue_loader_test
