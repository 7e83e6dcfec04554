#include "levin/data/sets/text.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <set>

#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/text/text_reader.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::text_test {
namespace {

using test::error_of;
using test::holds;
using test::TemporaryFolder;

std::string gzipped(const std::string& text) {
  std::string bytes(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string input = text;
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

std::string text_of_length(size_t length) {
  std::string text(length, '\0');
  for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>(i * i / 3 + i);
  return text;
}

// ---- the reader ----------------------------------------------------------------------------------------------------

// What compress(1) makes of "TOBEORNOTTOBEORTOBEORNOT, aaaaaaaa"; `gzip -dc` restores it.
constexpr std::string_view kCompressed(
    "\x1f\x9d\x90\x54\x9e\x08\x29\xf2\x44\x8a\x93\x27\x54\x02\x0e\x2c\xa8\x90\xa0\x41\x84\x2c\x40\x84\x99\x48\x71\x22",
    28);

TEST(ReadText, ReadsPlainGzippedAndCompressedFilesAlike) {
  const TemporaryFolder folder;
  const std::string part = text_of_length(100'000);
  EXPECT_EQ(read_text(folder.write("a.txt", part)), part);
  EXPECT_EQ(read_text(folder.write("a.txt.gz", gzipped(part))), part);
  EXPECT_EQ(read_text(folder.write("b.txt.gz", gzipped("one") + gzipped(part))), "one" + part) << "two members";
  EXPECT_EQ(read_text(folder.write("a.txt.Z", std::string(kCompressed))), "TOBEORNOTTOBEORTOBEORNOT, aaaaaaaa");
  EXPECT_EQ(read_text(folder.write("empty.txt", "")), "");
}

TEST(ReadText, NamesFileByteAndWhatItExpected) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& bytes) {
    const std::string path = folder.write("bad", bytes);
    return error_of<DataError>([&] { (void)read_text(path, 1 << 20); });
  };
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)read_text(folder / "gone.txt"); }), {"gone.txt"}));
  const std::string zipped = gzipped(text_of_length(5000));
  EXPECT_TRUE(holds(message(zipped.substr(0, zipped.size() / 2)), {"/bad: byte ", "ends too early", "gzip"}));
  std::string damaged = zipped;
  damaged[damaged.size() - 6] ^= 1;
  EXPECT_TRUE(holds(message(damaged), {"/bad: byte ", "damaged gzip data"}));
  EXPECT_TRUE(holds(message("\x1f\x9d\x90\x41\xfe\x03"),
                    {"/bad: byte ", "damaged compress data", "expected a code below 258, saw"}));
  EXPECT_TRUE(holds(message("\x1f\x9d\x91"), {"byte 2", "9 to 16 bits, saw 17"}));
  EXPECT_TRUE(holds(message(gzipped(std::string(2 << 20, 'a'))), {"unpacks to more than the 1048576 bytes allowed"}));
}

// ---- blocks --------------------------------------------------------------------------------------------------------

TEST(TokenBlocks, GivesTokensAndThoseOnePlaceFurther) {
  const TokenBlocks blocks(at::arange(20, at::kByte), 4);
  EXPECT_EQ(blocks.size(), 16);
  const Batch one = blocks.get(3);
  EXPECT_TRUE(at::equal(one[0], at::tensor({3L, 4L, 5L, 6L})));
  EXPECT_TRUE(at::equal(one[1], at::tensor({4L, 5L, 6L, 7L})));
  const Batch batch = blocks.get_batch(at::tensor({15L, 0L}));
  EXPECT_TRUE(at::equal(batch[0], at::tensor({15L, 16L, 17L, 18L, 0L, 1L, 2L, 3L}).view({2, 4})));
  EXPECT_TRUE(at::equal(batch[1], batch[0] + 1));
  EXPECT_TRUE(
      at::equal(blocks.get_range(2, 3)[1], at::tensor({3L, 4L, 5L, 6L, 4L, 5L, 6L, 7L, 5L, 6L, 7L, 8L}).view({3, 4})));
  EXPECT_TRUE(holds(error_of<DataError>([] { TokenBlocks(at::arange(4, at::kByte), 4); }), {"at least 5", "got 4"}));
}

TEST(BlockSampler, VisitsEachTokenOnceAPassFromADifferentPositionEachEpoch) {
  for (const int64_t tokens : {5, 6, 8, 9, 11, 12, 13, 100, 101, 102, 103, 104}) {
    const TokenBlocks blocks(at::arange(tokens, at::kInt), 4);
    const BlockSampler in_order(blocks, false);
    EXPECT_EQ(in_order.size(), (tokens - 1) / 4);
    EXPECT_TRUE(at::equal(in_order.order(1, 2), at::arange(in_order.size()) * 4));
    const BlockSampler shuffled(blocks, true);
    std::set<int64_t> starts;
    for (int64_t epoch = 0; epoch < 40; ++epoch) {
      const at::Tensor order = shuffled.order(7, epoch);
      EXPECT_TRUE(at::equal(order, shuffled.order(7, epoch)));
      const at::Tensor sorted = std::get<0>(order.sort());
      const auto start = sorted[0].item<int64_t>();
      starts.insert(start);
      EXPECT_GE(start, 0);
      EXPECT_TRUE(at::equal(sorted, at::arange(shuffled.size()) * 4 + start));
      EXPECT_LT(sorted[-1].item<int64_t>(), blocks.size());
    }
    EXPECT_GE(shuffled.size(), std::max<int64_t>(1, in_order.size() - 1));
    EXPECT_EQ(starts.size(), static_cast<size_t>(std::min<int64_t>(4, tokens - shuffled.size() * 4)));
  }
  const TokenBlocks blocks(at::arange(1000, at::kInt), 4);
  const BlockSampler shuffled(blocks, true);
  EXPECT_FALSE(at::equal(shuffled.order(7, 0) % 4, shuffled.order(8, 0) % 4) &&
               at::equal(shuffled.order(7, 0), shuffled.order(8, 0)));
}

// ---- the data module -----------------------------------------------------------------------------------------------

std::vector<Batch> batches_of(Loader& loader, int64_t epoch, int64_t first_batch = 0) {
  std::vector<Batch> all;
  loader.start(epoch, first_batch);
  for (Batch batch; loader.next(batch);) all.push_back(batch);
  return all;
}

TEST(TextFile, TrainsOnTheBeginningAndValidatesOnTheEnd) {
  const TemporaryFolder folder;
  const std::string text = text_of_length(1000);
  TextFile data(
      {.path = folder.write("a.txt", text), .block_size = 10, .batch_size = 8, .val_fraction = 0.2, .shuffle = false});
  data.setup(Stage::fit);
  EXPECT_EQ(data.vocab_size(), 256);
  EXPECT_EQ(data.bytes_per_token(), 1.0);
  const auto train = batches_of(*data.train_dataloader(), 0);
  EXPECT_EQ(train.size(), 10U);  // 79 blocks of 10: 799 tokens have one before them
  EXPECT_EQ(train[0][0].scalar_type(), at::kLong);
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(train[0][0][0][i].item<int64_t>(), static_cast<uint8_t>(text[static_cast<size_t>(i)]));
    EXPECT_EQ(train[0][1][0][i].item<int64_t>(), static_cast<uint8_t>(text[static_cast<size_t>(i) + 1]));
  }
  const auto val = batches_of(*data.val_dataloader()[0], 0);
  EXPECT_EQ(val[0][0][0][0].item<int64_t>(), static_cast<uint8_t>(text[800]));
}

TEST(TextFile, TestsOnWhatFollowsTheValidation) {
  const TemporaryFolder folder;
  const std::string text = text_of_length(1000);
  const TextFileOptions options{.path = folder.write("a.txt", text),
                                .block_size = 10,
                                .batch_size = 8,
                                .val_fraction = 0.2,
                                .test_fraction = 0.1,
                                .shuffle = false};
  const auto first = [](const Loaders& loaders) { return batches_of(*loaders[0], 0)[0][0][0][0].item<int64_t>(); };
  TextFile data(options);
  data.setup(Stage::fit);
  EXPECT_EQ(*data.train_dataloader()->num_batches(), 9);  // 68 blocks of 10: of 700 tokens, one is left to start from
  EXPECT_EQ(first(data.val_dataloader()), static_cast<uint8_t>(text[700]));
  EXPECT_EQ(*data.val_dataloader()[0]->num_batches(), 3);  // 19 blocks
  data.teardown(Stage::fit);
  data.setup(Stage::test);
  const auto batches = batches_of(*data.test_dataloader()[0], 0);
  ASSERT_EQ(batches.size(), 2U);
  int64_t blocks = 0;
  for (const Batch& batch : batches) {
    for (int64_t row = 0; row < batch[0].size(0); ++row, ++blocks) {
      for (int64_t i = 0; i < 10; ++i) {
        const auto place = static_cast<size_t>(900 + blocks * 10 + i);
        EXPECT_EQ(batch[0][row][i].item<int64_t>(), static_cast<uint8_t>(text[place]));
        EXPECT_EQ(batch[1][row][i].item<int64_t>(), static_cast<uint8_t>(text[place + 1]));
      }
    }
  }
  EXPECT_EQ(blocks, 9);
  EXPECT_EQ(data.bytes_per_token(), 1.0);
}

TEST(TextFile, ContinuesInTheMiddleOfAnEpochWithTheSameBatches) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.txt", text_of_length(3000));
  TextFile data({.path = path, .block_size = 10, .batch_size = 8});
  TextFile with_worker({.path = path, .block_size = 10, .batch_size = 8, .num_workers = 2});
  data.setup(Stage::fit);
  with_worker.setup(Stage::fit);
  const auto whole = batches_of(*data.train_dataloader(), 3);
  const auto rest = batches_of(*with_worker.train_dataloader(), 3, 5);
  ASSERT_EQ(rest.size() + 5, whole.size());
  for (size_t i = 0; i < rest.size(); ++i) EXPECT_TRUE(at::equal(rest[i][0], whole[i + 5][0]));
  EXPECT_FALSE(at::equal(batches_of(*data.train_dataloader(), 4)[0][0], whole[0][0]));
}

TEST(TextFile, TakesAsManyBlocksAsFitIntoMaxTokens) {
  const TemporaryFolder folder;
  const std::string path = folder.write("t.txt", std::string(1000, 'x'));
  TextFile data({.path = path, .block_size = 8, .max_tokens = 50});
  data.setup(Stage::fit);
  const auto loader = data.train_dataloader();
  EXPECT_EQ(loader->batch_size(), 6);
  EXPECT_TRUE(holds(error_of<ConfigError>([&] { TextFile({.path = path, .block_size = 8, .max_tokens = 7}); }),
                    {"TextFileOptions.max_tokens", "block_size, 8", "got 7"}));
}

TEST(TextFile, PredictsFromAPromptWithoutReadingTheText) {
  TextFile data({.path = "/gone.txt", .prompt = "And God", .num_samples = 3});
  data.setup(Stage::predict);
  const auto batches = batches_of(*data.predict_dataloader()[0], 0);
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0][0].sizes(), (std::vector<int64_t>{3, 7}));
  data.teardown(Stage::predict);
  EXPECT_EQ(data.prediction_text(batches[0][0]), std::vector<std::string>(3, "And God"));
}

TEST(TextFile, ReportsWhatIsMissing) {
  const TemporaryFolder folder;
  const auto message = [&](TextFileOptions options) {
    return error_of<DataError>([&] { TextFile(options).setup(Stage::fit); });
  };
  EXPECT_TRUE(holds(message({.path = (folder / "gone.txt")}), {"gone.txt"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { TextFile().setup(Stage::fit); }), {"TextFileOptions.path"}));
  EXPECT_TRUE(holds(message({.path = folder.write("short.txt", "too short"), .block_size = 16, .val_fraction = 0}),
                    {"short.txt", "9 tokens for training", "at least 17", ".block_size"}));
  EXPECT_TRUE(holds(message({.path = folder.write("a.txt", std::string(100, 'a')), .block_size = 16}),
                    {"a.txt", "10 tokens for validation", ".val_fraction"}));
  EXPECT_TRUE(holds(message({.tokenizer = "bite"}), {"\"byte\"", ".tiktoken", "\"bite\""}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { TextFile({.val_fraction = 0.5, .test_fraction = 0.5}); }),
                    {"TextFileOptions.test_fraction", "val_fraction, 0.5", "test_fraction, 0.5", "below 1"}));
  const std::string path = folder.write("b.txt", std::string(100, 'a'));
  const auto of_test = [&](TextFileOptions options) {
    return error_of<Error>([&] { TextFile(options).setup(Stage::test); });
  };
  EXPECT_TRUE(holds(of_test({.path = path}), {"TextFileOptions.test_fraction", "0 holds nothing out"}));
  EXPECT_TRUE(holds(of_test({.path = path, .block_size = 16, .test_fraction = 0.1}),
                    {"b.txt", "10 tokens for the test", ".test_fraction"}));
}

TEST(TextFile, LeavesOutAnIncompleteLastBatch) {
  const TemporaryFolder folder;
  TextFileOptions options{.path = folder.write("a.txt", text_of_length(101)),
                          .block_size = 10,
                          .batch_size = 4,
                          .val_fraction = 0,
                          .shuffle = false};
  for (const bool drop_last : {false, true}) {
    options.drop_last = drop_last;
    TextFile data(options);
    data.setup(Stage::fit);
    EXPECT_EQ(batches_of(*data.train_dataloader(), 0).size(), drop_last ? 2U : 3U);  // ten blocks
  }
}

}  // namespace
}  // namespace levin::text_test
