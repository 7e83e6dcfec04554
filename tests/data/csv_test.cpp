#include "levin/data/sets/csv.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "levin/core/error.h"
#include "levin/data/sets/csv_reader.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::csv_test {
namespace {

using test::error_of;
using test::holds;
using test::TemporaryFolder;

constexpr const char* kFlowers = "width,\"height, cm\",kind\r\n1,2.5,rose\r\n-3e1,4,\"tu\"\"lip\"\r\n\r\n5,6,rose";

TEST(ReadCsv, KeepsQuotedDelimitersQuotesAndLineEnds) {
  const TemporaryFolder folder;
  const auto rows = read_csv(folder.write("a.csv",
                                          "\xEF\xBB\xBF"
                                          "a;\"x;\ny\"\n\"q\"\"q\";\n"),
                             ';');
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0][1].text, "x;\ny");
  EXPECT_EQ(rows[1][0].text, "q\"q");
  EXPECT_EQ(rows[1][0].line, 3);
  EXPECT_EQ(rows[1][1].text, "");
}

TEST(ReadCsv, PointsAtWhatIsWrong) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& text) {
    const std::string path = folder.write("bad.csv", text);
    return error_of<DataError>([&] { (void)read_csv(path); });
  };
  EXPECT_TRUE(holds(error("a,b\n1,\"2\n3"), {"bad.csv:2:3:", "never closed"}));
  EXPECT_TRUE(holds(error("a,b\n\"1\"x,2\n"), {"bad.csv:2:4:", "\"x\""}));
  EXPECT_TRUE(holds(error("a,b\n1,2\n\n1,2,3\n"), {"bad.csv:4:1:", "expected 2 fields", "saw 3"}));
}

TEST(CsvDataset, ReadsFeaturesAndClassTargetByName) {
  const TemporaryFolder folder;
  const CsvDataset data({.path = folder.write("f.csv", kFlowers), .target = "kind", .target_is_class = true});
  EXPECT_EQ(data.size(), 3);
  const auto [x, y] = data.get_range(0, 3).unpack<2>();
  EXPECT_TRUE(at::equal(x, at::tensor({1.F, 2.5F, -30.F, 4.F, 5.F, 6.F}).view({3, 2})));
  EXPECT_TRUE(at::equal(y, at::tensor({0, 1, 0}, at::kLong)));
  EXPECT_EQ(data.classes(), (std::vector<std::string>{"rose", "tu\"lip"}));
  EXPECT_EQ(data.feature_names(), (std::vector<std::string>{"width", "height, cm"}));
}

TEST(CsvDataset, ReadsColumnsByNumberWithoutHeaderAndSortsNumbersAsNumbers) {
  const TemporaryFolder folder;
  const std::string path = folder.write("n.csv", "10,1,7\n9,2,8\n");
  const CsvDataset numbers({.path = path, .header = false, .features = {"2"}, .target = "0"});
  EXPECT_TRUE(at::equal(numbers.get_range(0, 2)[0], at::tensor({7.F, 8.F}).view({2, 1})));
  EXPECT_TRUE(at::equal(numbers.get_range(0, 2)[1], at::tensor({10.F, 9.F})));
  const CsvDataset classes({.path = path, .header = false, .target = "0", .target_is_class = true});
  EXPECT_EQ(classes.classes(), (std::vector<std::string>{"9", "10"}));
}

TEST(CsvDataset, NamesFileLineColumnAndText) {
  const TemporaryFolder folder;
  const std::string path = folder.write("f.csv", "a,b\n1,2\n3,x4\n");
  EXPECT_TRUE(
      holds(error_of<DataError>([&] { CsvDataset({.path = path}); }), {"f.csv:3:3:", "column \"b\"", "\"x4\""}));
  EXPECT_TRUE(
      holds(error_of<DataError>([&] { CsvDataset({.path = path, .target = "bb"}); }), {"no column \"bb\"", "a, b"}));
  EXPECT_TRUE(holds(error_of<DataError>([&] { CsvDataset({.path = folder.write("e.csv", "a,b\n")}); }), {"no rows"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { CsvDataset({}); }), {"path", "must be set"}));
  EXPECT_TRUE(
      holds(error_of<Error>([&] { CsvDataset({.path = (folder / "none.csv")}); }), {"none.csv", "No such file"}));
}

TEST(CsvData, SplitsRowsAndKeepsClassNumbersForTests) {
  const TemporaryFolder folder;
  std::string text = "v,kind\n";
  for (int i = 0; i < 10; ++i) text += std::to_string(i) + (i % 2 == 0 ? ",even\n" : ",odd\n");
  CsvData data({.path = folder.write("train.csv", text),
                .test_path = folder.write("test.csv", "v,kind\n7,odd\n"),
                .target = "kind",
                .target_is_class = true,
                .batch_size = 100,
                .val_fraction = 0.3});
  data.setup(Stage::fit);
  data.setup(Stage::test);
  Batch train, val, test;
  const auto train_loader = data.train_dataloader();
  train_loader->start(0);
  ASSERT_TRUE(train_loader->next(train));
  const Loaders loaders = data.val_dataloader();
  loaders[0]->start(0);
  ASSERT_TRUE(loaders[0]->next(val));
  EXPECT_EQ(train.size(), 7);
  EXPECT_EQ(val.size(), 3);
  EXPECT_EQ(train[0].sum().add(val[0].sum()).item<float>(), 45.F);  // every row once: 0 + 1 + … + 9
  EXPECT_TRUE(at::equal(train[1], train[0].squeeze(1).remainder(2).to(at::kLong)));
  const Loaders tests = data.test_dataloader();
  tests[0]->start(0);
  ASSERT_TRUE(tests[0]->next(test));
  EXPECT_EQ(test[1].item<int64_t>(), 1);  // alone in its file, "odd" would be 0
}

TEST(CsvData, SplitsAndBatchesByClass) {
  const TemporaryFolder folder;
  std::string text = "x,kind\n";
  for (int i = 0; i < 100; ++i) text += std::to_string(i) + (i % 5 == 0 ? ",rare\n" : ",usual\n");
  CsvDataOptions options{.path = folder.write("t.csv", text),
                         .target = "kind",
                         .target_is_class = true,
                         .batch_size = 10,
                         .val_fraction = 0.2,
                         .stratified_split = true,
                         .batching = {.stratified = true}};
  CsvData data(options);
  data.setup(Stage::fit);
  const auto rare_of_each = [](const std::shared_ptr<Loader>& loader) {
    std::vector<int64_t> counts;
    loader->start(0);
    for (Batch batch; loader->next(batch);) counts.push_back((batch[1] == 0).sum().item<int64_t>());
    return counts;
  };
  EXPECT_EQ(rare_of_each(data.train_dataloader()), std::vector<int64_t>(8, 2));
  const auto held_out = rare_of_each(data.val_dataloader()[0]);
  EXPECT_EQ(held_out[0] + held_out[1], 4);
  options.target_is_class = false;
  EXPECT_TRUE(holds(error_of<ConfigError>([&] { CsvData{options}; }), {"target_is_class", "stratified_split"}));
}

}  // namespace
}  // namespace levin::csv_test
