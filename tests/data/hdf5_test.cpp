#include "levin/data/files/hdf5.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/sets/hdf5_data.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::hdf5_test {
namespace {

using test::error_of;
using test::holds;
using test::TemporaryFolder;

// Written by h5py: reference/arrays.py.
const nlohmann::json& recorded() {
  static const nlohmann::json all = [] {
    std::ifstream stream(test::source_dir() + "/tests/data/reference/arrays.json");
    return nlohmann::json::parse(stream).at("hdf5");
  }();
  return all;
}

std::string bytes_of(const nlohmann::json& digits) {
  const auto text = digits.get<std::string>();
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

at::ScalarType type_named(const std::string& name) {
  static const std::map<std::string, at::ScalarType> types = {
      {"bool", at::kBool},     {"int8", at::kChar},    {"int16", at::kShort},   {"int32", at::kInt},
      {"int64", at::kLong},    {"uint8", at::kByte},   {"uint16", at::kUInt16}, {"uint32", at::kUInt32},
      {"uint64", at::kUInt64}, {"float16", at::kHalf}, {"float32", at::kFloat}, {"float64", at::kDouble}};
  return types.at(name);
}

bool same_bytes(const at::Tensor& tensor, const std::string& bytes) {
  return tensor.nbytes() == bytes.size() && std::memcmp(tensor.const_data_ptr(), bytes.data(), bytes.size()) == 0;
}

void check_cases(const TemporaryFolder& folder, const nlohmann::json& file) {
  const std::string path = folder.write("a.h5", bytes_of(file.at("file")));
  for (const auto& c : file.at("cases")) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    const Hdf5Rows rows(path, c.at("name").get<std::string>());
    const auto sizes = c.at("sizes").get<std::vector<int64_t>>();
    ASSERT_EQ(rows.size(), sizes[0]);
    EXPECT_EQ(rows.is_mapped(), c.at("mapped").get<bool>());
    const at::Tensor all = rows.gather(at::arange(sizes[0], at::kLong));
    EXPECT_EQ(all.scalar_type(), type_named(c.at("dtype").get<std::string>()));
    EXPECT_EQ(all.sizes().vec(), sizes);
    const std::string values = bytes_of(c.at("values"));
    EXPECT_TRUE(same_bytes(all, values));
    const size_t row_bytes = values.size() / static_cast<size_t>(sizes[0]);
    std::string expected;
    for (const size_t row : {size_t{1}, static_cast<size_t>(sizes[0]) - 1, size_t{0}, size_t{1}}) {
      expected += values.substr(row * row_bytes, row_bytes);
    }
    EXPECT_TRUE(same_bytes(rows.gather(at::tensor({int64_t{1}, sizes[0] - 1, int64_t{0}, int64_t{1}})), expected));
  }
}

TEST(Hdf5Rows, ReadBackWhatH5pyWrote) {
  const TemporaryFolder folder;
  check_cases(folder, recorded().at("good"));
  check_cases(folder, recorded().at("user_block"));
}

TEST(Hdf5Rows, SayWhatTheyCannotUse) {
  const TemporaryFolder folder;
  const std::string bytes = bytes_of(recorded().at("bad").at("file"));
  const std::string path = folder.write("bad.h5", bytes);
  const auto error = [](const std::string& file, const std::string& name) {
    return error_of<DataError>([&] { const Hdf5Rows rows(file, name); });
  };
  EXPECT_TRUE(holds(error(path, "complex"), {"bad.h5:complex", "LibTorch has no such type", "Save it as"}));
  EXPECT_TRUE(holds(error(path, "text"), {"bad.h5:text", "LibTorch has no such type"}));
  EXPECT_TRUE(holds(error(path, "scalar"), {"bad.h5:scalar: it has no rows"}));
  EXPECT_TRUE(holds(error(path, "no rows"), {"bad.h5:no rows: it has no rows", "(n, …)"}));
  EXPECT_TRUE(holds(error(path, "other"), {"bad.h5:other: no such data set", "h5ls -r"}));
  EXPECT_TRUE(holds(error(folder / "none.h5", "x"), {"none.h5: cannot be opened as an HDF5 file", "Check the path"}));
  EXPECT_TRUE(holds(error(folder.write("t.h5", "no HDF5"), "x"), {"t.h5: cannot be opened as an HDF5 file"}));
  EXPECT_TRUE(holds(error(folder.write("c.h5", bytes.substr(0, bytes.size() / 2)), "scalar"), {"c.h5", "truncated"}));
}

// A checksum that no longer fits is found when its chunk is read.
TEST(Hdf5Rows, SayWhichRowCannotBeRead) {
  const TemporaryFolder folder;
  const auto& good = recorded().at("good");
  std::string bytes = bytes_of(good.at("file"));
  for (const auto& c : good.at("cases")) {
    if (c.at("name") != "checksum") continue;
    const std::string first_chunk = bytes_of(c.at("values")).substr(0, 12);
    const size_t place = bytes.find(first_chunk);
    ASSERT_NE(place, std::string::npos);
    bytes[place] = static_cast<char>(bytes[place] ^ 1);
  }
  const Hdf5Rows rows(folder.write("a.h5", bytes), "checksum");
  EXPECT_EQ(rows.gather(at::tensor({int64_t{6}})).numel(), 3);
  EXPECT_TRUE(holds(error_of<DataError>([&] {
                      (void)rows.gather(at::tensor({int64_t{6}, int64_t{1}}));
                    }),
                    {"a.h5:checksum: row 1 cannot be read", "Is the file damaged"}));
}

std::string eight_bytes(uint64_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

// Replaces the size (7, 3) of a data set by sizes that no file can hold.
TEST(Hdf5Rows, RefuseSizesThatNoFileHolds) {
  const TemporaryFolder folder;
  const std::string good = bytes_of(recorded().at("good").at("file"));
  const std::string sizes = eight_bytes(7) + eight_bytes(3);
  const auto error = [&](uint64_t rows, uint64_t columns) {
    std::string bytes = good;
    for (size_t at = bytes.find(sizes); at != std::string::npos; at = bytes.find(sizes, at + 1)) {
      bytes.replace(at, sizes.size(), eight_bytes(rows) + eight_bytes(columns));
    }
    const std::string path = folder.write("a.h5", bytes);
    return error_of<DataError>([&] { (void)Hdf5Rows(path, "checksum").gather(at::tensor({int64_t{0}})); });
  };
  EXPECT_EQ(error(7, 3), "");
  EXPECT_TRUE(
      holds(error(uint64_t{1} << 40, uint64_t{1} << 40),
            {"a.h5:checksum: its sizes multiply to more than 2^63 bytes", "one of 1099511627776", "Write it again"}));
  EXPECT_TRUE(holds(error(uint64_t{1} << 31, uint64_t{1} << 31), {"more than 2^63 bytes", "one of 2147483648"}));
}

std::vector<Batch> pass(Loader& loader, int64_t epoch) {
  std::vector<Batch> all;
  loader.start(epoch);
  for (Batch batch; loader.next(batch);) all.push_back(batch);
  return all;
}

// Several threads read a compressed data set and a mapped one at once.
TEST(Hdf5Data, GivesEveryRowOnceFromAnyNumberOfThreads) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.h5", bytes_of(recorded().at("good").at("file")));
  const at::Tensor whole = Hdf5Rows(path, "gzip").gather(at::arange(40, at::kLong));
  Hdf5Data data(
      {.path = path, .inputs = "gzip", .targets = "gzip", .test_path = path, .batch_size = 3, .num_workers = 4});
  data.setup(Stage::fit);
  const auto loader = data.train_dataloader();
  EXPECT_TRUE(data.val_dataloader().empty());
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    at::Tensor sum = at::zeros({3}, at::kLong);
    int64_t count = 0;
    for (const Batch& batch : pass(*loader, epoch)) {
      EXPECT_TRUE(at::equal(batch[0], batch[1]));
      sum += batch[0].sum(0);
      count += batch.size();
    }
    EXPECT_EQ(count, 40);
    EXPECT_TRUE(at::equal(sum, whole.sum(0)));
  }
  data.setup(Stage::test);
  EXPECT_TRUE(at::equal(pass(*data.test_dataloader()[0], 0)[0][0], whole.narrow(0, 0, 3)));
}

TEST(Hdf5Data, ChecksNamesAndOptions) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.h5", bytes_of(recorded().at("good").at("file")));
  const auto error = [](Hdf5DataOptions options) {
    return error_of<Error>([&] {
      Hdf5Data data(std::move(options));
      data.setup(Stage::fit);
    });
  };
  EXPECT_TRUE(holds(error({.path = path, .inputs = "gzip", .targets = "row"}),
                    {"a.h5:row holds 5 rows but gzip holds 40", "a row for each sample"}));
  EXPECT_TRUE(holds(error({.path = path}), {"a.h5:x: no such data set"}));
  EXPECT_TRUE(holds(error({}), {"Hdf5DataOptions.path", "must be set"}));
}

TEST(Hdf5Data, PredictsWithoutTargets) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.h5", bytes_of(recorded().at("good").at("file")));
  Hdf5Data data({.path = path, .inputs = "gzip", .targets = "labels", .test_path = path, .batch_size = 40});
  data.setup(Stage::predict);
  const auto loader = data.predict_dataloader()[0];
  loader->identify_samples(true);
  const Batch batch = pass(*loader, 0)[0];
  EXPECT_EQ(batch.count(), 1U);
  EXPECT_EQ(batch.ids()->at(39), "39");
  EXPECT_TRUE(holds(error_of<DataError>([&] {
                      Hdf5Data tests({.path = path, .inputs = "gzip", .targets = "labels", .test_path = path});
                      tests.setup(Stage::test);
                    }),
                    {"a.h5:labels: no such data set"}));
}

}  // namespace
}  // namespace levin::hdf5_test
