#include "levin/data/files/token_file.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/data/sets/text.h"
#include "levin/data/sets/token_file_data.h"
#include "levin/data/text/text_tokenizer.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::token_file_test {
namespace {

using test::error_of;
using test::holds;
using test::TemporaryFolder;

std::vector<int32_t> counting(int32_t count, int32_t first = 0) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) ids[static_cast<size_t>(i)] = first + i;
  return ids;
}

std::vector<int64_t> ids_in(const TokenFiles& files, int64_t first, int64_t count, int64_t vocab_size = 0) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  files.read(first, count, vocab_size, ids.data());
  return ids;
}

// A .npy file of 32-bit or 64-bit integers, signed.
std::string npy_of(const std::vector<int64_t>& ids) {
  std::string header = "{'descr': '<i8', 'fortran_order': False, 'shape': (" + std::to_string(ids.size()) + ",)}\n";
  std::string bytes =
      std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size()) + std::string(1, '\0') + header;
  return bytes.append(reinterpret_cast<const char*>(ids.data()), 8 * ids.size());
}

TEST(TokenFiles, HoldTheIdsAloneLittleEndian) {
  const TemporaryFolder folder;
  write_token_file(folder / "a.bin", std::vector<int32_t>{1, 513, 65535}, TokenType::uint16);
  EXPECT_EQ(read_file(folder / "a.bin"), std::string("\1\0\1\2\xFF\xFF", 6));
  write_token_file(folder / "b.bin", std::vector<int32_t>{1, 0x01020304}, TokenType::uint32);
  EXPECT_EQ(read_file(folder / "b.bin"), std::string("\1\0\0\0\4\3\2\1", 8));
  EXPECT_EQ(ids_in(TokenFiles(folder / "b.bin", TokenType::uint32), 0, 2), (std::vector<int64_t>{1, 0x01020304}));
  EXPECT_TRUE(holds(error_of<DataError>([&] {
                      write_token_file(folder / "a.bin", std::vector<int32_t>{0, 65536}, TokenType::uint16);
                    }),
                    {"a.bin: token 1 has the id 65536", "0 to 65535", "uint32"}));
  EXPECT_TRUE(holds(
      error_of<DataError>([&] { write_token_file(folder / "a.bin", std::vector<int32_t>{-1}, TokenType::uint32); }),
      {"token 0 has the id -1"}));
  EXPECT_EQ(read_file(folder / "a.bin").size(), 6U);
}

TEST(TokenFiles, JoinAFoldersFilesByName) {
  const TemporaryFolder folder;
  write_token_file(folder / "shard_b.bin", counting(5, 10), TokenType::uint16);
  write_token_file(folder / "shard_a.bin", counting(10), TokenType::uint16);
  (void)folder.write("shard_c.npy", npy_of({15, 16, 70000}));
  (void)folder.write("empty.bin", "");
  (void)folder.write("readme.txt", "no tokens");
  const TokenFiles files(folder.path(), TokenType::uint16);
  ASSERT_EQ(files.size(), 18);
  EXPECT_EQ(ids_in(files, 8, 10), (std::vector<int64_t>{8, 9, 10, 11, 12, 13, 14, 15, 16, 70000}));
  for (int64_t first = 0; first < 17; ++first) {
    EXPECT_EQ(ids_in(files, first, 1), std::vector<int64_t>{first});
  }
  EXPECT_EQ(ids_in(files, 10, 5), (std::vector<int64_t>{10, 11, 12, 13, 14}));
}

TEST(TokenFiles, NameThePlaceOfAnIdOutsideTheVocabulary) {
  const TemporaryFolder folder;
  write_token_file(folder / "a.bin", counting(10), TokenType::uint16);
  (void)folder.write("b.npy", npy_of({1, 2, -3, 4}));
  const TokenFiles files(folder.path(), TokenType::uint16);
  EXPECT_EQ(ids_in(files, 0, 12, 10).back(), 2);
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)ids_in(files, 3, 8, 9); }),
                    {"a.bin: token 9 has the id 9", "within 0 to 8", "vocab_size", "dtype"}));
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)ids_in(files, 3, 11); }), {"b.npy: token 2 has the id -3"}));
}

TEST(TokenFiles, SayWhatIsWrongWithAFile) {
  const TemporaryFolder folder, none;
  const auto error = [&](const std::string& path) {
    return error_of<DataError>([&] { const TokenFiles files(path, TokenType::uint32); });
  };
  EXPECT_TRUE(
      holds(error(folder.write("a.bin", "12345")), {"a.bin: 5 bytes are no whole number of ids of 4 bytes", "dtype"}));
  EXPECT_TRUE(holds(error(none.path()), {"the folder holds no .bin or .npy files"}));
  EXPECT_TRUE(holds(error(none / "a.bin"), {"a.bin", "No such file"}));
  std::string floats = npy_of({1});
  floats.replace(floats.find("<i8"), 3, "<f8");
  EXPECT_TRUE(holds(error(folder.write("f.npy", floats)), {"f.npy: expected one row of integers", "Double"}));
}

std::vector<Batch> pass(Loader& loader, int64_t epoch, int64_t first_batch = 0) {
  std::vector<Batch> all;
  loader.start(epoch, first_batch);
  for (Batch batch; loader.next(batch);) all.push_back(batch);
  return all;
}

TEST(TokenFileData, GivesBlocksAndTheTokensThatFollow) {
  const TemporaryFolder folder;
  write_token_file(folder / "all.bin", counting(100), TokenType::uint16);
  TokenFileData data({.path = folder / "all.bin",
                      .test_path = folder / "all.bin",
                      .block_size = 8,
                      .vocab_size = 100,
                      .batch_size = 3,
                      .val_fraction = 0.2,
                      .num_workers = 2});
  data.setup(Stage::fit);
  const auto loader = data.train_dataloader();
  const auto first = pass(*loader, 0), second = pass(*loader, 1), again = pass(*loader, 0, 1);
  std::set<int64_t> seen;
  for (const Batch& batch : first) {
    const auto [x, y] = batch.unpack<2>();
    EXPECT_TRUE(at::equal(y, x.add(1)));
    for (int64_t i = 0; i < x.size(0); ++i) {
      for (int64_t k = 0; k < 8; ++k) EXPECT_TRUE(seen.insert(x[i][k].item<int64_t>()).second);
    }
  }
  EXPECT_EQ(seen.size(), 72U);  // nine of ten blocks, each from a different start
  EXPECT_LT(*seen.rbegin(), 79);
  EXPECT_FALSE(at::equal(first[0][0], second[0][0]));
  EXPECT_TRUE(at::equal(again[0][0], first[1][0]));
  const auto val = pass(*data.val_dataloader()[0], 0);
  ASSERT_EQ(val.size(), 1U);
  EXPECT_EQ(val[0][0][0][0].item<int64_t>(), 80);
  EXPECT_EQ(val[0].size(), 2);
  data.setup(Stage::test);
  EXPECT_EQ(pass(*data.test_dataloader()[0], 0).size(), 4U);
}

// Blocks are the same in memory and in a file.
TEST(TokenFileData, VisitsTheBlocksThatTextFileVisits) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 500; ++i) text += std::to_string(i * i) + " ";
  const std::string path = folder.write("text.txt", text);
  write_token_file(folder / "text.bin", ByteTokenizer().encode(text), TokenType::uint16);
  TextFile in_memory({.path = path, .block_size = 32, .val_fraction = 0});
  TokenFileData in_file({.path = folder / "text.bin", .block_size = 32, .vocab_size = 256});
  in_memory.setup(Stage::fit);
  in_file.setup(Stage::fit);
  const auto expected = pass(*in_memory.train_dataloader(), 3), seen = pass(*in_file.train_dataloader(), 3);
  ASSERT_EQ(seen.size(), expected.size());
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_TRUE(at::equal(seen[i][0], expected[i][0]));
    EXPECT_TRUE(at::equal(seen[i][1], expected[i][1]));
  }
}

TEST(TokenFileData, ReportsWhatIsMissing) {
  const TemporaryFolder folder;
  write_token_file(folder / "a.bin", counting(9), TokenType::uint16);
  const auto error = [&](TokenFileDataOptions options) {
    return error_of<Error>([&] {
      TokenFileData data(std::move(options));
      data.setup(Stage::fit);
      (void)pass(*data.train_dataloader(), 0);
    });
  };
  EXPECT_EQ(error({.path = folder / "a.bin", .block_size = 8}), "");
  EXPECT_TRUE(
      holds(error({.path = folder / "a.bin", .block_size = 9}), {"gives 9 tokens", "at least 10", "block_size"}));
  EXPECT_TRUE(
      holds(error({.path = folder / "a.bin", .block_size = 8, .vocab_size = 8}), {"batch 0", "a.bin: token 8"}));
  EXPECT_TRUE(holds(error({}), {"TokenFileDataOptions.path", "must be set"}));
}

TEST(TokenFileData, LeavesOutAnIncompleteLastBatch) {
  const TemporaryFolder folder;
  write_token_file(folder / "a.bin", counting(81), TokenType::uint16);
  TokenFileDataOptions options{
      .path = folder / "a.bin", .val_path = folder / "a.bin", .block_size = 8, .batch_size = 4, .shuffle = false};
  for (const bool drop_last : {false, true}) {
    options.drop_last = drop_last;
    TokenFileData data(options);
    data.setup(Stage::fit);
    EXPECT_EQ(pass(*data.train_dataloader(), 0).size(), drop_last ? 2U : 3U);  // ten blocks
    EXPECT_EQ(pass(*data.val_dataloader()[0], 0).size(), 3U);                  // which are all evaluated
  }
}

}  // namespace
}  // namespace levin::token_file_test
