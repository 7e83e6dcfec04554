#include "levin/data/files/npy.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/sets/npy_data.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::npy_test {
namespace {

using test::error_of;
using test::holds;
using test::TemporaryFolder;

// Written by NumPy: reference/arrays.py.
const nlohmann::json& recorded() {
  static const nlohmann::json all = [] {
    std::ifstream stream(test::source_dir() + "/tests/data/reference/arrays.json");
    return nlohmann::json::parse(stream);
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
  static const std::map<std::string, at::ScalarType> types = {{"bool", at::kBool},
                                                              {"int8", at::kChar},
                                                              {"int16", at::kShort},
                                                              {"int32", at::kInt},
                                                              {"int64", at::kLong},
                                                              {"uint8", at::kByte},
                                                              {"uint16", at::kUInt16},
                                                              {"uint32", at::kUInt32},
                                                              {"uint64", at::kUInt64},
                                                              {"float16", at::kHalf},
                                                              {"float32", at::kFloat},
                                                              {"float64", at::kDouble},
                                                              {"complex64", at::kComplexFloat},
                                                              {"complex128", at::kComplexDouble}};
  return types.at(name);
}

std::string npy(const std::string& description, const std::string& values, int major = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(major);
  bytes += '\0';
  const size_t length = description.size() + 1;
  for (int k = 0; k < (major == 1 ? 2 : 4); ++k) bytes += static_cast<char>(length >> (8 * k) & 0xFF);
  return bytes + description + "\n" + values;
}

TEST(Npy, ReadsBackWhatNumpyWrote) {
  const TemporaryFolder folder;
  for (const auto& c : recorded().at("good")) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    const at::Tensor array = map_npy(folder.write("a.npy", bytes_of(c.at("file"))));
    EXPECT_EQ(array.scalar_type(), type_named(c.at("dtype").get<std::string>()));
    EXPECT_EQ(array.sizes().vec(), c.at("sizes").get<std::vector<int64_t>>());
    const std::string values = bytes_of(c.at("values"));
    EXPECT_EQ(std::string_view(static_cast<const char*>(array.const_data_ptr()), array.nbytes()), values);
  }
}

TEST(Npy, KeepsTheFileMappedAndUnchanged) {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("a.npy", npy("{'descr': '<i2', 'fortran_order': False, 'shape': (3,)}", "abcdef"));
  at::Tensor array = map_npy(path);
  std::filesystem::remove(path);
  EXPECT_EQ(array[2].item<int64_t>(), 'e' + 256 * 'f');
  const std::string again =
      folder.write("a.npy", npy("{'descr': '<i2', 'fortran_order': False, 'shape': (3,)}", "abcdef"));
  at::Tensor written = map_npy(again);
  written.fill_(0);
  EXPECT_EQ(map_npy(again)[2].item<int64_t>(), 'e' + 256 * 'f');
}

TEST(Npy, ReportsWhichArraysItCannotMap) {
  const std::map<std::string, std::vector<std::string>> parts = {
      {"fortran", {"order is Fortran's", "ascontiguousarray"}},
      {"big-endian", {"big-endian", "newbyteorder"}},
      {"text", {"its type is \"<U1\"", "astype()"}},
      {"date", {"its type is \"<M8[D]\"", "astype()"}},
      {"record", {"records of several fields", "an array of its own"}},
      {"object", {"pickled Python objects", "numbers"}}};
  const TemporaryFolder folder;
  ASSERT_EQ(recorded().at("bad").size(), parts.size());
  for (const auto& c : recorded().at("bad")) {
    const auto name = c.at("name").get<std::string>();
    const std::string path = folder.write(name + ".npy", bytes_of(c.at("file")));
    const std::string error = error_of<DataError>([&] { (void)map_npy(path); });
    EXPECT_TRUE(holds(error, {path}));
    test::expect_parts(error, parts.at(name));
  }
}

TEST(Npy, TakesADescriptionInAnyOrderAndEitherQuotes) {
  for (const char* text : {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   ",
                           "{\"shape\":(2,3),\"descr\":\"<f4\",\"fortran_order\":False}",
                           "{ 'fortran_order' : False , 'shape' : ( 2 , 3 , ) , 'descr' : '<f4' }"}) {
    const NpyHeader header = read_npy_header("a.npy", npy(text, ""));
    EXPECT_EQ(header.type, at::kFloat);
    EXPECT_EQ(header.sizes, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(header.offset, 10 + std::strlen(text) + 1);
  }
}

TEST(Npy, RejectsADescriptionThatIsNotADictOfThree) {
  const auto error = [](const std::string& description) {
    return error_of<DataError>([&] { (void)read_npy_header("a.npy", npy(description, "")); });
  };
  const std::string rest = ", 'fortran_order': False, 'shape': (2,)}";
  EXPECT_TRUE(
      holds(error("{'descr': __import__('os')" + rest), {"a.npy: byte 20", "a text in quotes", "numpy.save()"}));
  EXPECT_TRUE(holds(error("{'descr': '<f4', 'descr': '<f4'" + rest), {"once each, saw \"descr\""}));
  EXPECT_TRUE(holds(error("{'descr': '<f4', 'more': 1" + rest), {"once each, saw \"more\""}));
  EXPECT_TRUE(holds(error("{'descr': '<f4', 'shape': (2,)}"), {"lacks fortran_order"}));
  EXPECT_TRUE(holds(error("{'descr': '<f4'" + rest + " + 1"), {"expected blanks and a line end"}));
  EXPECT_TRUE(holds(error("{'descr': '|f4'" + rest), {"the order of bytes"}));
  EXPECT_TRUE(holds(error("{'descr': 'f4'" + rest), {"a type such as \"<f4\", saw \"f4\""}));
  EXPECT_TRUE(holds(error("{'descr': '<f4"), {"a quote is not closed"}));
  EXPECT_TRUE(holds(error("{'descr': '<f4' 'fortran_order'"), {"expected \",\" or \"}\""}));
  EXPECT_TRUE(holds(error("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}"), {"expected True or False"}));
  for (const char* shape : {"(2)", "(-2,)", "(2 3)", "[2]", "(,)", "(2.0,)", "(99999999999999999999,)", "(2,"}) {
    EXPECT_NE(error(std::string("{'descr': '<f4', 'fortran_order': False, 'shape': ") + shape + "}"), "") << shape;
  }
}

TEST(Npy, RejectsFilesThatAreShortLongOrOfADifferentKind) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& content) {
    return error_of<DataError>([&] { (void)map_npy(folder.write("a.npy", content)); });
  };
  const auto shaped = [&](const std::string& shape, const std::string& values) {
    return npy("{'descr': '<f8', 'fortran_order': False, 'shape': " + shape + "}", values);
  };
  const std::string good = shaped("(2,)", std::string(16, 'x'));
  EXPECT_EQ(error(good), "");
  EXPECT_TRUE(holds(error(good.substr(0, good.size() - 1)), {"ends too early", "(2)", "need 16 bytes, there are 15"}));
  EXPECT_TRUE(holds(error(good + "x"), {"expected the end of the file, saw 1 more bytes"}));
  for (size_t i = 0; i < good.size() - 16; ++i) EXPECT_NE(error(good.substr(0, i)), "") << i;
  EXPECT_TRUE(holds(error("PK\x03\x04 a .npz archive"), {"byte 0: expected \\x93NUMPY", "PK"}));
  std::string version = good;
  version[6] = 4;
  EXPECT_TRUE(holds(error(version), {"expected version 1.0, 2.0 or 3.0, saw 4.0"}));
  std::string length = npy("{}", "", 2);
  length[10] = 1;
  EXPECT_TRUE(holds(error(length), {"byte 8", "65539 bytes, more than the 65536 allowed"}));
  // Shapes whose bytes overflow 64 bits, and one whose product would be a small number again.
  EXPECT_TRUE(holds(error(shaped("(9223372036854775807, 2)", "")), {"need more than 2^64 bytes"}));
  EXPECT_TRUE(holds(error(shaped("(4294967296, 4294967296)", "")), {"need more than 2^64 bytes"}));
  EXPECT_TRUE(holds(error(shaped("(1152921504606846976,)", "")), {"need 9223372036854775808 bytes, there are 0"}));
  EXPECT_TRUE(holds(error(shaped("(0, 4611686018427387904, 4)", "")),
                    {"a.npy: the sizes of the shape (0, 4611686018427387904, 4) multiply to more than 2^63"}));
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)map_npy(folder / "none.npy"); }), {"none.npy", "No such file"}));
}

// Values at an odd place, as other writers than NumPy may leave them, are copied.
TEST(Npy, ReadsValuesThatAreNotAligned) {
  const TemporaryFolder folder;
  const std::string description = "{'descr': '<i4', 'fortran_order': False, 'shape': (1,)}";
  for (size_t blanks = 0; blanks < 4; ++blanks) {
    const at::Tensor array =
        map_npy(folder.write("a.npy", npy(description + std::string(blanks, ' '), std::string("\1\2\3\4", 4))));
    EXPECT_EQ(array[0].item<int64_t>(), 0x04030201);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(array.const_data_ptr()) % 4, 0U);
  }
}

std::string int_rows(int64_t count, int64_t width, int64_t first = 0) {
  std::string values;
  for (int64_t i = 0; i < count * width; ++i) {
    const auto value = static_cast<int32_t>(first + i);
    values.append(reinterpret_cast<const char*>(&value), 4);
  }
  return npy("{'descr': '<i4', 'fortran_order': False, 'shape': (" + std::to_string(count) + ", " +
                 std::to_string(width) + ")}",
             values);
}

std::vector<Batch> pass(Loader& loader, int64_t epoch) {
  std::vector<Batch> all;
  loader.start(epoch);
  for (Batch batch; loader.next(batch);) all.push_back(batch);
  return all;
}

TEST(NpyData, GivesEveryRowOnceWithItsTarget) {
  const TemporaryFolder folder;
  NpyData data({.inputs = folder.write("x.npy", int_rows(10, 3)),
                .targets = folder.write("y.npy", int_rows(10, 1, 100)),
                .test_inputs = folder.write("tx.npy", int_rows(3, 3, 7)),
                .test_targets = folder.write("ty.npy", int_rows(3, 1)),
                .batch_size = 4,
                .val_fraction = 0.2,
                .num_workers = 2});
  data.setup(Stage::fit);
  std::vector<int64_t> seen;
  const auto train = pass(*data.train_dataloader(), 0), val = pass(*data.val_dataloader()[0], 0);
  for (const auto* batches : {&train, &val}) {
    for (const Batch& batch : *batches) {
      const auto [x, y] = batch.unpack<2>();
      EXPECT_EQ(x.scalar_type(), at::kInt);
      for (int64_t i = 0; i < batch.size(); ++i) {
        const int64_t row = y[i][0].item<int64_t>() - 100;
        EXPECT_TRUE(at::equal(x[i], at::arange(3 * row, 3 * row + 3, at::kInt)));
        seen.push_back(row);
      }
    }
  }
  EXPECT_EQ(train.size(), 2U);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  data.teardown(Stage::fit);
  data.setup(Stage::test);
  const auto test = pass(*data.test_dataloader()[0], 0);
  ASSERT_EQ(test.size(), 1U);
  EXPECT_EQ(test[0][0][2][2].item<int64_t>(), 15);
}

TEST(NpyData, ChecksFilesAndOptions) {
  const TemporaryFolder folder;
  const std::string ten = folder.write("ten.npy", int_rows(10, 1)), nine = folder.write("nine.npy", int_rows(9, 1));
  const std::string number =
      folder.write("one.npy", npy("{'descr': '<i4', 'fortran_order': False, 'shape': ()}", "abcd"));
  const auto error = [](NpyDataOptions options) {
    return error_of<Error>([&] {
      NpyData data(std::move(options));
      data.setup(Stage::fit);
    });
  };
  EXPECT_EQ(error({.inputs = ten, .targets = ten}), "");
  EXPECT_TRUE(holds(error({.inputs = ten, .targets = nine}), {"nine.npy holds 9 rows but", "ten.npy holds 10"}));
  EXPECT_TRUE(holds(error({.inputs = number}), {"one.npy: the array has no rows"}));
  EXPECT_TRUE(holds(error({.inputs = ten, .targets = ten, .val_inputs = nine}), {"nine.npy has none", "Give targets"}));
  EXPECT_TRUE(holds(error({}), {"NpyDataOptions.inputs", "must be set"}));
}

// Other bytes than 0 and 1 in a file of bools.
TEST(NpyData, MakesEveryBoolTrueOrFalse) {
  const TemporaryFolder folder;
  const NpyDataset data({folder.write(
      "b.npy", npy("{'descr': '|b1', 'fortran_order': False, 'shape': (4,)}", std::string("\0\1\2\xFF", 4)))});
  const at::Tensor batch = data.get_range(0, 4)[0];
  EXPECT_EQ(std::memcmp(batch.const_data_ptr(), "\0\1\1\1", 4), 0);
}

template <class Number>
std::string array_of(const std::string& type, const std::vector<Number>& numbers) {
  const std::string description =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + std::to_string(numbers.size()) + ",)}";
  return npy(description, std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)));
}

TEST(NpyData, GivesNumbersInTheTypeOfTheRunAndClassesAsInt64) {
  const TemporaryFolder folder;
  const std::string wide = folder.write("wide.npy", array_of<double>("<f8", {0.1, 0.2, 0.3}));
  const std::string classes = folder.write("classes.npy", array_of<int32_t>("<i4", {2, 0, 1}));
  const auto types = [&](NpyDataOptions options, at::ScalarType run = at::kFloat) {
    options.batch_size = 3;
    NpyData data(options);
    data.set_float_dtype(run);
    data.setup(Stage::fit);
    const Batch batch = pass(*data.train_dataloader(), 0)[0];
    return std::pair{batch[0].scalar_type(), batch[1].scalar_type()};
  };
  EXPECT_EQ(types({.inputs = wide, .targets = classes}), (std::pair{at::kFloat, at::kLong}));
  EXPECT_EQ(types({.inputs = wide, .targets = wide}, at::kDouble), (std::pair{at::kDouble, at::kDouble}));
  EXPECT_EQ(types({.inputs = classes, .targets = wide}), (std::pair{at::kInt, at::kFloat}));
  EXPECT_EQ(types({.inputs = classes,
                   .targets = classes,
                   .inputs_dtype = ArrayDtype::float32,
                   .targets_dtype = ArrayDtype::file}),
            (std::pair{at::kFloat, at::kInt}));
  EXPECT_EQ(
      types({.inputs = wide, .targets = wide, .inputs_dtype = ArrayDtype::file, .targets_dtype = ArrayDtype::float64}),
      (std::pair{at::kDouble, at::kDouble}));
  NpyData data({.inputs = wide, .targets = classes, .batch_size = 3, .shuffle = false});
  data.setup(Stage::fit);
  const Batch batch = pass(*data.train_dataloader(), 0)[0];
  EXPECT_TRUE(at::equal(batch[0], at::tensor({0.1F, 0.2F, 0.3F})));
  EXPECT_TRUE(at::equal(batch[1], at::tensor({2, 0, 1}, at::kLong)));
  EXPECT_TRUE(holds(data.about_dtypes(), {"wide.npy holds float64 and is read as float32",
                                          "classes.npy holds int32 and is read as int64", "inputs_dtype"}));
}

TEST(NpyData, PredictsWithoutTargetsAndKeepsTheOrderOfTheFile) {
  const TemporaryFolder folder;
  const std::string ten = folder.write("ten.npy", int_rows(10, 1));
  const NpyDataOptions options{
      .inputs = ten, .targets = ten, .test_inputs = ten, .batch_size = 10, .val_fraction = 0.3, .shuffle = false};
  NpyData data(options), tests(options);
  data.setup(Stage::predict);
  const auto loader = data.predict_dataloader()[0];
  loader->identify_samples(true);
  const Batch batch = pass(*loader, 0)[0];
  EXPECT_EQ(batch.count(), 1U);
  EXPECT_EQ(batch.ids()->at(9), "9");
  EXPECT_TRUE(holds(error_of<ConfigError>([&] { tests.setup(Stage::test); }), {"ten.npy has none", "Give targets"}));
  tests.setup(Stage::fit);
  const at::Tensor rows = pass(*tests.train_dataloader(), 0)[0][0].flatten();
  EXPECT_EQ(rows.size(0), 7);
  EXPECT_TRUE(at::equal(rows, std::get<0>(rows.sort())));
}

}  // namespace
}  // namespace levin::npy_test
