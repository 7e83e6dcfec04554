#include "levin/data/loading/combined_loader.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "support/error_text.h"
#include "support/paths.h"

namespace levin::combined_loader_test {
namespace {

using test::error_of;
using test::holds;

// Batches of one sample each: number k of loader `which` is 100 * which + k.
std::shared_ptr<DataLoader> numbered(int64_t which, int64_t batches, bool shuffle = false, int64_t workers = 0) {
  return std::make_shared<DataLoader>(
      std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(100 * which, 100 * which + batches)}),
      DataLoaderOptions{.shuffle = shuffle, .num_workers = workers});
}

// A loader of unknown length.
class Stream final : public Loader {
 public:
  explicit Stream(int64_t batches) : batches_(batches) {}
  void start(int64_t, int64_t first_batch) override { next_ = first_batch; }
  bool next(Batch& batch) override {
    if (next_ >= batches_) return false;
    batch = Batch{at::arange(next_, next_ + 1)};
    ++next_;
    return true;
  }
  std::optional<int64_t> num_batches() const override { return std::nullopt; }

 private:
  int64_t batches_;
  int64_t next_ = 0;
};

// "0 100, 1 101, 2 -": the numbers of each batch, - for a tensor without rows.
std::string rest_of_pass(Loader& loader) {
  std::string text;
  for (Batch batch; loader.next(batch);) {
    if (!text.empty()) text += ",";
    for (const auto& tensor : batch.tensors) {
      text += " " + (tensor.size(0) == 0 ? "-" : std::to_string(tensor[0].item<int64_t>()));
    }
  }
  return text;
}

std::string pass(Loader& loader, int64_t epoch = 0, int64_t first_batch = 0) {
  loader.start(epoch, first_batch);
  return rest_of_pass(loader);
}

// Made by reference/combined_loader.py with Lightning.
TEST(CombinedLoader, GivesTheBatchesThatLightningGivesInEveryMode) {
  const auto recorded =
      nlohmann::json::parse(read_file(test::source_dir() + "/tests/data/reference/combined_loader.json"));
  ASSERT_EQ(recorded["cases"].size(), 16U);
  for (const auto& entry : recorded["cases"]) {
    CombinedLoaderOptions options;
    for (const auto& [name, mode] : EnumNames<CombinedMode>::names) {
      if (name == entry["mode"]) options.mode = mode;
    }
    Loaders loaders;
    for (const int64_t length : entry["lengths"]) {
      loaders.push_back(numbered(static_cast<int64_t>(loaders.size()), length));
    }
    CombinedLoader loader(loaders, options);
    EXPECT_EQ(loader.num_batches(), entry["length"].get<int64_t>());
    EXPECT_EQ(pass(loader), entry["batches"].get<std::string>()) << entry["mode"];
  }
}

TEST(CombinedLoader, KnowsWhichLoaderABatchOfASequenceComesFrom) {
  const CombinedLoader sequence({numbered(0, 5), numbered(1, 2), numbered(2, 3)}, {.mode = CombinedMode::sequential});
  EXPECT_EQ(sequence.loader_of(4), 0U);
  EXPECT_EQ(sequence.loader_of(5), 1U);
  EXPECT_EQ(sequence.loader_of(9), 2U);
}

TEST(CombinedLoader, ContinuesInsideAPassWithTheSameBatches) {
  for (const auto mode :
       {CombinedMode::min_size, CombinedMode::max_size, CombinedMode::max_size_cycle, CombinedMode::sequential}) {
    for (const int64_t workers : {0, 2}) {
      CombinedLoader loader({numbered(0, 11, true, workers), numbered(1, 3, true), numbered(2, 4, true, workers)},
                            {.mode = mode});
      const int64_t batches = *loader.num_batches();
      loader.start(3);
      Batch batch;
      for (int64_t first = 0; first <= batches; ++first) {
        const std::string rest = rest_of_pass(loader);  // of the pass that has seen `first` batches
        EXPECT_EQ(pass(loader, 3, first), rest) << enum_name(mode) << " " << first;
        loader.start(3);
        for (int64_t b = 0; b <= first; ++b) loader.next(batch);
      }
      EXPECT_NE(pass(loader, 4), pass(loader, 3));
      loader.stop();
      EXPECT_FALSE(loader.next(batch));
    }
  }
}

TEST(CombinedLoader, ShufflesALoaderAnewEachTimeItBegins) {
  CombinedLoader loader({numbered(0, 400), numbered(1, 40, true)});
  std::vector<std::vector<int64_t>> orders;
  for (const int64_t epoch : {0, 1}) {
    loader.start(epoch);
    Batch batch;
    for (int64_t b = 0; loader.next(batch); ++b) {
      if (b % 40 == 0) orders.emplace_back();
      orders.back().push_back(batch[1][0].item<int64_t>());
    }
  }
  ASSERT_EQ(orders.size(), 20U);
  for (size_t i = 0; i < orders.size(); ++i) {
    for (size_t k = 0; k < i; ++k) EXPECT_NE(orders[i], orders[k]);
  }
}

TEST(CombinedLoader, TakesAStreamOnlyWhereItsLengthDoesNotMatter) {
  CombinedLoader loader({numbered(1, 5), std::make_shared<Stream>(3)}, {.mode = CombinedMode::min_size});
  EXPECT_EQ(loader.num_batches(), std::nullopt);
  EXPECT_EQ(pass(loader), " 100 0, 101 1, 102 2");
  EXPECT_EQ(pass(loader, 0, 1), " 101 1, 102 2");
  for (const auto mode : {CombinedMode::max_size, CombinedMode::max_size_cycle, CombinedMode::sequential}) {
    CombinedLoader unknown({numbered(1, 5), std::make_shared<Stream>(3)}, {.mode = mode});
    EXPECT_TRUE(holds(error_of<ConfigError>([&] { unknown.start(0); }), {"loader 1", enum_name(mode), "min_size"}));
  }
}

TEST(CombinedLoader, SharesEachLoaderOutAmongTheRanks) {
  std::string all;
  for (int64_t rank = 0; rank < 2; ++rank) {
    CombinedLoader loader({numbered(0, 6), numbered(1, 2)}, {});
    EXPECT_TRUE(loader.shard(rank, 2, /*padded=*/true));
    EXPECT_EQ(loader.num_batches(), 3);
    all += pass(loader) + ";";
  }
  EXPECT_EQ(all, " 0 100, 2 100, 4 100; 1 101, 3 101, 5 101;");
  CombinedLoader with_stream({numbered(0, 6), std::make_shared<Stream>(3)}, {.mode = CombinedMode::min_size});
  EXPECT_FALSE(with_stream.shard(0, 2, true));
}

TEST(CombinedLoader, RefusesWhatCannotBeCombined) {
  EXPECT_TRUE(holds(error_of<ConfigError>([] { CombinedLoader(Loaders{}); }), {"CombinedLoader", "at least one"}));
  const auto one = numbered(0, 3);
  for (const auto mode : {CombinedMode::min_size, CombinedMode::max_size, CombinedMode::max_size_cycle}) {
    EXPECT_TRUE(holds(error_of<ConfigError>([&] {
                        CombinedLoader({numbered(1, 3), one, one}, {.mode = mode});
                      }),
                      {"loaders 1 and 2 are the same object", "Make two loaders"}));
  }
  CombinedLoader in_turn({one, one}, {.mode = CombinedMode::sequential});
  EXPECT_EQ(pass(in_turn), " 0, 1, 2, 0, 1, 2");
  CombinedLoader wrong_order({numbered(0, 2), numbered(1, 3)}, {.mode = CombinedMode::max_size});
  EXPECT_TRUE(holds(error_of<ConfigError>([&] { wrong_order.start(0); }),
                    {"max_size", "loader 1 has 3 batches", "loader 0 has 2", "order"}));
}

TEST(CombinedLoader, IsMadeAndReturnedByValue) {
  const auto make = []() -> std::shared_ptr<Loader> {
    return CombinedLoader({DataLoader(TensorDataset{at::arange(6)}, {.batch_size = 2}),
                           DataLoader(TensorDataset{at::arange(4)}, {.batch_size = 2})},
                          {.mode = CombinedMode::min_size});
  };
  const std::shared_ptr<Loader> loader = make();
  EXPECT_EQ(loader->num_batches(), 2);
  loader->start(0);
  Batch batch;
  ASSERT_TRUE(loader->next(batch));
  EXPECT_EQ(batch.count(), 2);
}

}  // namespace
}  // namespace levin::combined_loader_test
