#include "levin/data/streams/stream_loader.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

#include "levin/core/storage/folder_store.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/sample_generator.h"
#include "levin/data/streams/stream_dataset.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::stream_loader_test {
namespace {

using test::error_of;
using test::expect_parts;
using test::TemporaryFolder;

// A folder as if it were far away: what is read is fetched, and noted.
class FarStore final : public FolderStore {
 public:
  using FolderStore::FolderStore;
  [[nodiscard]] std::string local_path(const std::string&) const override { return ""; }
  void fetch(const std::string& key, const std::string& path, const std::atomic<bool>* abandoned) const override {
    {
      const std::lock_guard lock(mutex_);
      fetched_.push_back(key);
    }
    FolderStore::fetch(key, path, abandoned);
  }
  [[nodiscard]] std::vector<std::string> fetched() const {
    const std::lock_guard lock(mutex_);
    return fetched_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::string> fetched_;
};

// Files of JSON lines, as many samples in each: {"x": 0}, {"x": 1}, …
void write_lines(const TemporaryFolder& folder, const std::vector<int64_t>& counts) {
  int64_t x = 0;
  for (size_t k = 0; k < counts.size(); ++k) {
    std::string text;
    for (int64_t i = 0; i < counts[k]; ++i) text += "{\"x\": " + std::to_string(x++) + "}\n";
    const std::string number = std::to_string(k);
    folder.write("part-" + std::string(5 - number.size(), '0') + number + ".jsonl", text);
  }
}

struct Far {
  explicit Far(const TemporaryFolder& folder, const TemporaryFolder& cache)
      : store(std::make_shared<FarStore>(folder.path())) {
    StreamSourceOptions options;
    options.cache = cache.path();
    source = std::make_shared<StreamSource>(store, options);
  }
  std::shared_ptr<FarStore> store;
  std::shared_ptr<StreamSource> source;
};

std::shared_ptr<StreamSource> near(const TemporaryFolder& folder) {
  return std::make_shared<StreamSource>(folder.path());
}

std::vector<std::vector<int64_t>> rest_of(StreamLoader& loader) {
  std::vector<std::vector<int64_t>> batches;
  for (Batch batch; loader.next(batch);) {
    const at::Tensor x = batch["x"].contiguous();
    batches.emplace_back(x.const_data_ptr<int64_t>(), x.const_data_ptr<int64_t>() + x.numel());
  }
  return batches;
}

std::vector<std::vector<int64_t>> pass(StreamLoader& loader, int64_t epoch = 0, int64_t first = 0) {
  loader.start(epoch, first);
  return rest_of(loader);
}

std::vector<int64_t> flat(const std::vector<std::vector<int64_t>>& batches) {
  std::vector<int64_t> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

std::vector<int64_t> sorted(std::vector<int64_t> all) {
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<int64_t> up_to(int64_t end) {
  std::vector<int64_t> all;
  for (int64_t k = 0; k < end; ++k) all.push_back(k);
  return all;
}

const std::vector<int64_t> kCounts{5, 1, 8, 3, 9, 2, 7, 6, 4};  // 45

TEST(StreamLoader, GivesEachSampleOnceAnEpochInADifferentOrder) {
  const TemporaryFolder folder;
  write_lines(folder, kCounts);
  StreamLoader loader(near(folder), {.batch_size = 4, .shuffle = true, .seed = 1});
  const auto first = flat(pass(loader, 0)), second = flat(pass(loader, 1));
  EXPECT_EQ(sorted(first), up_to(45));
  EXPECT_EQ(sorted(second), up_to(45));
  EXPECT_NE(first, second);
  EXPECT_NE(first, up_to(45));
  StreamLoader in_order(near(folder), {.batch_size = 4});
  EXPECT_EQ(flat(pass(in_order)), up_to(45));
}

TEST(StreamLoader, GivesTheSameBatchesForAnyNumberOfWorkersNearAndFar) {
  const TemporaryFolder folder, cache;
  write_lines(folder, kCounts);
  const Far far(folder, cache);
  StreamLoader alone(near(folder), {.batch_size = 4, .shuffle = true, .shuffle_shards = 3, .seed = 1});
  const auto wanted = pass(alone, 3);
  for (const int64_t workers : {0, 1, 3, 16}) {
    for (const int64_t prefetch : {0, 2, 100}) {
      for (const auto& source : {near(folder), far.source}) {
        StreamLoader loader(source, {.batch_size = 4,
                                     .shuffle = true,
                                     .shuffle_shards = 3,
                                     .num_workers = workers,
                                     .prefetch_shards = prefetch,
                                     .seed = 1});
        EXPECT_EQ(pass(loader, 3), wanted) << workers;
        EXPECT_EQ(pass(loader, 3), wanted) << workers;
      }
    }
  }
}

// More ranks times workers than there are shards, too.
TEST(StreamLoader, RanksTogetherGiveTheBatchesOfOneProcess) {
  for (const std::vector<int64_t>& counts : {kCounts, std::vector<int64_t>{24}}) {
    const TemporaryFolder folder, cache;
    write_lines(folder, counts);
    StreamLoader alone(near(folder), {.batch_size = 12, .shuffle = true, .seed = 1});
    const auto wanted = pass(alone, 1);
    for (const int64_t ranks : {2, 3, 4}) {
      std::vector<std::vector<int64_t>> joined(wanted.size());
      for (int64_t rank = 0; rank < ranks; ++rank) {
        StreamLoader loader(Far(folder, cache).source,
                            {.batch_size = 12 / ranks, .shuffle = true, .num_workers = 2, .seed = 1});
        EXPECT_TRUE(loader.shard(rank, ranks, /*padded=*/false));
        const auto own = pass(loader, 1);
        ASSERT_LE(own.size(), joined.size());
        for (size_t b = 0; b < own.size(); ++b) joined[b].insert(joined[b].end(), own[b].begin(), own[b].end());
      }
      for (size_t b = 0; b < wanted.size(); ++b) EXPECT_EQ(sorted(joined[b]), sorted(wanted[b])) << ranks;
    }
  }
}

TEST(StreamLoader, PaddedRanksHaveTheSameNumberOfSamples) {
  const TemporaryFolder folder;
  write_lines(folder, {5, 2});
  const auto in_order = up_to(7);
  for (const int64_t ranks : {2, 3, 5, 10}) {
    std::vector<int64_t> all;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      StreamLoader loader(near(folder), {.batch_size = 2});
      loader.shard(rank, ranks, /*padded=*/true);
      const auto own = flat(pass(loader));
      EXPECT_EQ(std::ssize(own), (7 + ranks - 1) / ranks);
      for (size_t k = 0; k < own.size(); ++k) EXPECT_EQ(own[k], (rank + std::ssize(std::vector<int>(k)) * ranks) % 7);
      all.insert(all.end(), own.begin(), own.end());
    }
    const std::set<int64_t> visited(all.begin(), all.end());
    EXPECT_EQ(visited.size(), 7);
  }
}

TEST(StreamLoader, LeavesOutTheIncompleteBatch) {
  const TemporaryFolder folder;
  write_lines(folder, {5, 2});
  for (const int64_t workers : {0, 2}) {
    StreamLoader loader(near(folder), {.batch_size = 3, .drop_last = true, .num_workers = workers});
    EXPECT_EQ(pass(loader), (std::vector<std::vector<int64_t>>{{0, 1, 2}, {3, 4, 5}}));
  }
}

TEST(StreamLoader, ContinuesAtAnyBatch) {
  const TemporaryFolder folder;
  write_lines(folder, kCounts);
  for (const int64_t workers : {0, 2}) {
    StreamLoader loader(near(folder), {.batch_size = 4, .shuffle = true, .num_workers = workers, .seed = 2});
    const auto whole = pass(loader, 5);
    ASSERT_EQ(whole.size(), 12);
    for (size_t first = 0; first <= whole.size(); ++first) {
      StreamLoader again(near(folder), {.batch_size = 4, .shuffle = true, .num_workers = workers, .seed = 2});
      const std::vector rest(whole.begin() + static_cast<int64_t>(first), whole.end());
      EXPECT_EQ(pass(again, 5, static_cast<int64_t>(first)), rest) << first;
    }
  }
}

TEST(StreamLoader, ResumesInsideAnEpochWithoutFetchingWhatCameBefore) {
  const TemporaryFolder folder, cache, new_cache;
  write_lines(folder, std::vector<int64_t>(60, 10));
  const StreamLoaderOptions options{
      .batch_size = 10, .shuffle = true, .shuffle_shards = 4, .prefetch_shards = 0, .seed = 4};
  State state;
  std::vector<std::vector<int64_t>> rest;
  {
    const Far far(folder, cache);
    StreamLoader loader(far.source, options);
    loader.start(2);
    Batch batch;
    for (int k = 0; k < 50; ++k) ASSERT_TRUE(loader.next(batch));
    state = loader.state_dict();
    rest = rest_of(loader);
    EXPECT_EQ(rest.size(), 10);
  }
  const Far far(folder, new_cache);  // on another machine
  StreamLoader loader(far.source, options);
  loader.load_state_dict(state);
  EXPECT_EQ(pass(loader, 2, 50), rest);
  EXPECT_LE(far.store->fetched().size(), 10 + 4);  // the window that was half done, and what follows
}

// A far store of 10,000 shards in MDS with 8 samples each, {"x": number of the shard}, which are made when fetched.
class MadeShards final : public FolderStore {
 public:
  static constexpr int64_t kShards = 10'000, kSamples = 8;
  explicit MadeShards(const TemporaryFolder& folder) : FolderStore(folder.path()) {
    const std::string shape =
        R"("column_names": ["x"], "column_encodings": ["int"], "column_sizes": [8], "compression": null, )"
        R"("format": "mds", "hashes": [], "version": 2)";
    header_ = "{" + shape + "}";
    std::string shards;
    for (int64_t k = 0; k < kShards; ++k) {
      shards += (k > 0 ? ",{" : "{") + shape + R"(, "samples": 8, "zip_data": null, "raw_data": {"basename": ")" +
                std::to_string(k) + R"(.mds", "bytes": )" + std::to_string(made(k).size()) + R"(, "hashes": {}}})";
    }
    folder.write("index.json", R"({"version": 2, "shards": [)" + shards + "]}");
  }
  [[nodiscard]] std::string local_path(const std::string&) const override { return ""; }
  [[nodiscard]] std::string read(const std::string& key, uint64_t offset,
                                 std::optional<uint64_t> length) const override {
    read_.push_back(key);  // by one thread
    return FolderStore::read(key, offset, length);
  }
  void fetch(const std::string& key, const std::string& path, const std::atomic<bool>* /*abandoned*/) const override {
    {
      const std::lock_guard lock(mutex_);
      fetched_.insert(std::stoll(key));
      ++fetches_;
    }
    std::ofstream(path, std::ios::binary) << made(std::stoll(key));
  }
  [[nodiscard]] const std::vector<std::string>& read_keys() const { return read_; }
  [[nodiscard]] std::set<int64_t> fetched() const {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(fetches_, fetched_.size()) << "a shard was fetched twice";
    return fetched_;
  }

 private:
  template <class Number>
  static std::string bytes_of(Number number) {
    return {reinterpret_cast<const char*>(&number), sizeof number};
  }
  [[nodiscard]] std::string made(int64_t shard) const {
    const size_t start = 4 + 4 * (kSamples + 1) + header_.size();
    std::string text = bytes_of(static_cast<uint32_t>(kSamples)), values;
    for (uint32_t k = 0; k <= kSamples; ++k) text += bytes_of(static_cast<uint32_t>(start + 8 * k));
    for (int64_t k = 0; k < kSamples; ++k) values += bytes_of(shard);
    return text + header_ + values;
  }

  std::string header_;
  mutable std::vector<std::string> read_;
  mutable std::mutex mutex_;
  mutable std::set<int64_t> fetched_;
  mutable size_t fetches_ = 0;
};

TEST(StreamLoader, ResumesAmongTenThousandShardsWithTheIndexAndTheShardsOfTheBatchAlone) {
  const TemporaryFolder folder, cache;
  const auto store = std::make_shared<MadeShards>(folder);
  StreamSourceOptions options;
  options.cache = cache.path();
  StreamLoader loader(std::make_shared<StreamSource>(store, options),
                      {.batch_size = 24, .shuffle = true, .prefetch_shards = 0, .seed = 3});
  loader.start(2, 1750);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  const at::Tensor x = batch["x"].contiguous();
  ASSERT_EQ(x.numel(), 24);
  const std::set<int64_t> shards(x.const_data_ptr<int64_t>(), x.const_data_ptr<int64_t>() + x.numel());
  EXPECT_EQ(store->fetched(), shards);
  EXPECT_LE(shards.size(), 16U);  // of one window of 8, or of two
  EXPECT_EQ(store->read_keys(), (std::vector<std::string>{"index.json"}));
}

TEST(StreamLoader, FetchesEachShardOnceAndAheadOfItsUse) {
  const TemporaryFolder folder, cache;
  write_lines(folder, std::vector<int64_t>(12, 4));
  const Far far(folder, cache);
  StreamLoader loader(far.source, {.batch_size = 4, .shuffle = true, .num_workers = 2, .seed = 4});
  EXPECT_EQ(sorted(flat(pass(loader, 0))), up_to(48));
  EXPECT_EQ(sorted(flat(pass(loader, 1))), up_to(48));
  auto fetched = far.store->fetched();
  std::sort(fetched.begin(), fetched.end());
  EXPECT_EQ(std::unique(fetched.begin(), fetched.end()), fetched.end());
  EXPECT_EQ(fetched.size(), 12);
}

TEST(StreamLoader, BeginsTheNextEpochWhileWorkersAreInThisOne) {
  const TemporaryFolder folder, cache;
  write_lines(folder, kCounts);
  const Far far(folder, cache);
  StreamLoader loader(far.source, {.batch_size = 2, .shuffle = true, .num_workers = 8, .seed = 4});
  StreamLoader quiet(near(folder), {.batch_size = 2, .shuffle = true, .seed = 4});
  for (int64_t epoch = 0; epoch < 30; ++epoch) {
    loader.start(epoch);
    Batch batch;
    for (int64_t k = 0; k < epoch % 5; ++k) ASSERT_TRUE(loader.next(batch));
  }
  EXPECT_EQ(pass(loader, 30), pass(quiet, 30));
}

TEST(StreamLoader, KnowsTheNumberOfBatchesOnlyIfTheIndexHasTheNumberOfSamples) {
  const TemporaryFolder folder;
  write_lines(folder, kCounts);
  StreamLoader loader(near(folder), {.batch_size = 4});
  EXPECT_EQ(loader.num_batches(), std::nullopt);
  (void)pass(loader);
  EXPECT_EQ(loader.num_batches(), std::nullopt);  // in the first epoch as in the others
}

TEST(StreamLoader, RefusesTheStateOfOtherData) {
  const TemporaryFolder folder, other;
  write_lines(folder, {3, 3});
  write_lines(other, {3, 3, 3});
  const StreamLoader loader(near(folder));
  StreamLoader another(near(other));
  expect_parts(error_of([&] { another.load_state_dict(loader.state_dict()); }),
               {"StreamLoader: ", other.path(), " has 3 shards, and the checkpoint was saved with 2 shards.",
                "Continue with the same data, or start a new run from its weights."});
}

TEST(StreamLoader, RefusesAShardThatHasChangedSinceItWasCounted) {
  const TemporaryFolder folder;
  write_lines(folder, {3, 3});
  StreamLoader loader(near(folder), {.batch_size = 2});
  (void)pass(loader);
  const State state = loader.state_dict();
  write_lines(folder, {3, 4});
  StreamLoader again(near(folder), {.batch_size = 2});
  again.load_state_dict(state);
  expect_parts(error_of([&] { (void)pass(again); }),
               {"StreamLoader: ", "part-00001.jsonl", "it has 4 samples now, and had 3 when it was counted",
                "Restore the data, or start a new run."});
}

TEST(StreamLoader, NamesTheSampleThatCannotBeRead) {
  const TemporaryFolder folder;
  write_lines(folder, {3});
  folder.write("part-00001.jsonl", "{\"x\": 1}\n{\"x\": }\n");
  for (const int64_t workers : {0, 2}) {
    StreamLoader loader(near(folder), {.batch_size = 2, .num_workers = workers});
    expect_parts(error_of([&] { (void)pass(loader); }),
                 {"StreamLoader: sample 1 of shard part-00001.jsonl of ", folder.path(), "(batch 2 of epoch 0)"});
  }
}

TEST(StreamLoader, NamesTheSamplesOfPredictions) {
  const TemporaryFolder folder;
  write_lines(folder, {2, 2});
  StreamLoader loader(near(folder), {.batch_size = 3});
  loader.identify_samples(true);
  loader.start(0);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  ASSERT_NE(batch.ids(), nullptr);
  EXPECT_EQ(*batch.ids(), (std::vector<std::string>{"part-00000.jsonl:0", "part-00000.jsonl:1", "part-00001.jsonl:0"}));
}

TEST(StreamLoader, TransformsDrawTheSameNumbersForAnyNumberOfWorkers) {
  const TemporaryFolder folder;
  write_lines(folder, kCounts);
  std::vector<at::Tensor> all;
  for (const int64_t workers : {0, 3}) {
    StreamLoader loader(near(folder), {.batch_size = 4, .shuffle = true, .num_workers = workers, .seed = 9},
                        [](Batch sample) { return Batch{at::rand({}, sample_generator()).add(sample["x"])}; });
    loader.start(1);
    std::vector<at::Tensor> drawn;
    for (Batch batch; loader.next(batch);) drawn.push_back(batch[0]);
    all.push_back(at::cat(drawn));
  }
  EXPECT_TRUE(all[0].equal(all[1]));
  const at::Tensor drawn = all[0].sub(all[0].floor());
  EXPECT_GT(drawn.std().item<double>(), 0.2);  // of a uniform distribution: 0.29
}

TEST(StreamDataset, ReadsSamplesByTheirIndexBesideALoader) {
  const TemporaryFolder folder, cache;
  write_lines(folder, {3, 0, 4, 1});
  const Far far(folder, cache);
  StreamLoader loader(far.source, {.batch_size = 3, .num_workers = 2});
  loader.start(0);
  const auto data = std::make_shared<StreamDataset>(far.source);
  ASSERT_EQ(data->size(), 8);
  for (const int64_t index : {7, 0, 3, 6, 2}) {
    EXPECT_EQ(data->get(index)["x"].item<int64_t>(), index);
  }
  EXPECT_EQ(data->sample_id(7), "part-00003.jsonl:0");
  EXPECT_EQ(flat(rest_of(loader)), up_to(8));
  DataLoader by_index(data, {.batch_size = 8, .num_workers = 2});
  by_index.start(0);
  Batch batch;
  ASSERT_TRUE(by_index.next(batch));
  EXPECT_TRUE(batch["x"].equal(at::arange(8)));
  for (const int64_t index : {int64_t{-1}, int64_t{8}}) {
    expect_parts(error_of([&] { (void)data->get(index); }),
                 {"StreamDataset: there is no sample " + std::to_string(index), "has 8 samples."});
  }
}

}  // namespace
}  // namespace levin::stream_loader_test
