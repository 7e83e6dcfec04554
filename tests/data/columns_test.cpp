// Tables of numbers and categories. Parquet and Arrow files are in columns_peers.py, which compares them with pyarrow.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <thread>

#include "levin/core/options/error.h"
#include "levin/data/columns/csv_columns_file.h"
#include "levin/data/columns/group_sampler.h"
#include "levin/data/columns/table_csv.h"
#include "levin/data/columns/table_dataset.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::columns_test {
namespace {

using test::error_of;
using test::holds;
using test::TemporaryFolder;

std::vector<int64_t> values_of(const at::Tensor& tensor) {
  const at::Tensor all = tensor.contiguous();
  return {all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel()};
}

std::vector<Batch> batches_of(const std::shared_ptr<Loader>& loader) {
  std::vector<Batch> all;
  loader->identify_samples(true);
  loader->start(0);
  for (Batch batch; loader->next(batch);) all.push_back(batch);
  return all;
}

TEST(GroupSampler, ShufflesGroupsAndTheRowsOfAWindow) {
  const GroupSampler sampler({10, 10, 10, 10, 10, 10}, at::arange(60, at::kLong), 20, true);
  std::set<std::vector<int64_t>> orders, first_groups;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const std::vector<int64_t> order = values_of(sampler.order(7, epoch));
    EXPECT_EQ(order, values_of(sampler.order(7, epoch)));
    orders.insert(order);
    std::vector<int64_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, values_of(at::arange(60, at::kLong)));
    for (size_t window = 0; window < 3; ++window) {  // of two groups
      std::set<int64_t> groups;
      for (size_t i = 0; i < 20; ++i) groups.insert(order[20 * window + i] / 10);
      EXPECT_EQ(groups.size(), 2U);
      if (window == 0) first_groups.insert(std::vector<int64_t>(groups.begin(), groups.end()));
    }
  }
  EXPECT_EQ(orders.size(), 20U);
  EXPECT_GT(first_groups.size(), 5U);
  EXPECT_NE(values_of(sampler.order(7, 0)), values_of(sampler.order(8, 0)));
}

TEST(GroupSampler, VisitsTheGivenRowsAlone) {
  const at::Tensor rows = at::tensor({1, 4, 5, 12, 13}, at::kLong);
  EXPECT_EQ(values_of(GroupSampler({5, 0, 5, 5}, rows, 1, false).order(1, 2)), values_of(rows));
  std::vector<int64_t> order = values_of(GroupSampler({5, 0, 5, 5}, rows, 1, true).order(1, 2));
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, values_of(rows));
  EXPECT_TRUE(holds(error_of<Error>([&] { GroupSampler({5, 5}, rows, 1, true); }), {"from 0 to 9"}));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      GroupSampler({5}, at::tensor({2, 1}, at::kLong), 1, true);
                    }),
                    {"increasing"}));
}

TEST(MomentSums, AreTheMomentsOfAllNumbersInAnyParts) {
  const std::vector<double> numbers = {1e6 + 1, std::nan(""), 1e6 + 2, 1e6 + 4, 1e6 - 3, 1e6};
  for (size_t cut = 0; cut <= numbers.size(); ++cut) {
    MomentSums sums;
    sums.add({numbers.begin(), numbers.begin() + static_cast<int64_t>(cut)});
    sums.add({numbers.begin() + static_cast<int64_t>(cut), numbers.end()});
    EXPECT_DOUBLE_EQ(sums.mean(), 1e6 + 0.8);
    EXPECT_NEAR(sums.std(), std::sqrt((0.04 + 1.44 + 10.24 + 14.44 + 0.64) / 5), 1e-9);
  }
  MomentSums constant;
  constant.add({3, 3, 3});
  EXPECT_EQ(constant.std(), 1);  // not 0, by which nothing can be divided
}

TEST(CsvColumns, HoldNumbersIfAllValuesAreNumbersOrMissing) {
  const TemporaryFolder folder;
  const auto file = open_csv_columns(folder.write("t.csv", "a,b,c,d,e\n1,x,,\"\",7\n NA ,2,,NA,-9\n+2.5,\"x\",,3,NA\n"),
                                     ',', true, {"", "NA", "-9"});
  std::vector<ColumnType> types;
  for (const ColumnInfo& column : file->columns()) types.push_back(column.type);
  EXPECT_EQ(types, (std::vector<ColumnType>{ColumnType::category, ColumnType::category, ColumnType::number,
                                            ColumnType::number, ColumnType::number}));
  std::vector<ColumnValues> values;
  EXPECT_EQ(file->read(0, {{1, ColumnType::category}, {3, ColumnType::number}, {4, ColumnType::number}}, values), "");
  EXPECT_EQ(values[0].values, (std::vector<std::string>{"x", "2"}));
  EXPECT_EQ(values[0].codes, (std::vector<int32_t>{0, 1, 0}));
  EXPECT_TRUE(std::isnan(values[1].numbers[0]) && std::isnan(values[1].numbers[1]) && values[1].numbers[2] == 3);
  EXPECT_TRUE(values[2].numbers[0] == 7 && std::isnan(values[2].numbers[1]) && std::isnan(values[2].numbers[2]));
}

TEST(TableCsv, NamesTheDelimiterThatAFileSeemsToHave) {
  const TemporaryFolder folder;
  for (const auto& [character, hint] :
       {std::pair(";", "set delimiter: \";\""), std::pair("\t", "set delimiter: \"\\t\"")}) {
    TableCsvOptions options;
    options.path = folder.write("t.csv", std::string("a") + character + "b\n1" + character + "2\n");
    options.target = "b";
    EXPECT_TRUE(holds(error_of<DataError>([&] { TableCsv(options).setup(Stage::fit); }), {"no column \"b\"", hint}));
    options.delimiter = character;
    options.val_fraction = 0;
    TableCsv(options).setup(Stage::fit);
  }
  TableCsvOptions options;
  options.path = folder.write("t.csv", "a;b,c\n1,2\n");  // a name like any other
  options.target = "d";
  EXPECT_EQ(error_of<DataError>([&] { TableCsv(options).setup(Stage::fit); }).find("delimiter"), std::string::npos);
}

constexpr const char* kPeople =
    "name,city,age,height,kind\n"
    "ann,Ulm,30,1.5,a\nbob,,20,,b\ncid,Bonn,NA,1.7,a\ndan,Ulm,40,1.8,b\neve,Ulm,10,1.6,a\n";

TEST(TableCsv, GivesNumbersCodesAndClasses) {
  const TemporaryFolder folder;
  TableCsvOptions options;
  options.path = folder.write("t.csv", kPeople);
  options.target = "kind";
  options.id = "name";
  options.val_fraction = 0;
  options.shuffle = false;
  TableCsv data(options);
  data.setup(Stage::fit);
  const Batch batch = batches_of(data.train_dataloader()).at(0);
  EXPECT_TRUE(at::equal(batch["features"].nan_to_num(-1),
                        at::tensor({30.F, 1.5F, 20.F, -1.F, -1.F, 1.7F, 40.F, 1.8F, 10.F, 1.6F}).view({5, 2})));
  EXPECT_EQ(values_of(batch["categories"]), (std::vector<int64_t>{2, 3, 1, 2, 2}));  // Bonn, Ulm, missing
  EXPECT_EQ(values_of(batch["targets"]), (std::vector<int64_t>{0, 1, 0, 1, 0}));
  EXPECT_EQ(*batch.ids(), (std::vector<std::string>{"ann", "bob", "cid", "dan", "eve"}));
  EXPECT_EQ(data.label_names(), (std::vector<std::string>{"a", "b"}));
  const TableSummary& summary = data.summary();
  EXPECT_EQ(summary.features[1].name, "age");
  EXPECT_DOUBLE_EQ(summary.features[1].mean, 25);
  EXPECT_DOUBLE_EQ(summary.features[1].std, std::sqrt((25 + 25 + 225 + 225) / 4.0));
  EXPECT_EQ(summary.features[0].num_codes(), 4);
}

TEST(TableCsv, FindsMeansAndCategoriesInTheTrainingPartAlone) {
  const TemporaryFolder folder;
  std::string text = "number,kind,y\n";
  for (int row = 0; row < 200; ++row) {
    text += std::to_string(row * row) + ",k" + std::to_string(row) + "," + std::to_string(row) + "\n";
  }
  TableCsvOptions options;
  options.path = folder.write("t.csv", text);
  options.target = "y";
  options.batch_size = 1000;
  options.val_fraction = 0.25;
  TableCsv data(options);
  data.setup(Stage::fit);
  const at::Tensor numbers = batches_of(data.train_dataloader())[0]["features"].to(at::kDouble);
  ASSERT_EQ(numbers.size(0), 150);
  EXPECT_NEAR(data.summary().features[0].mean, numbers.mean().item<double>(), 1e-9);
  EXPECT_NEAR(data.summary().features[0].std, numbers.std(/*unbiased=*/false).item<double>(), 1e-9);
  EXPECT_EQ(data.summary().features[1].values.size(), 150U);
  const Batch held_out = batches_of(data.val_dataloader()[0])[0];
  EXPECT_EQ(values_of(held_out["categories"]), std::vector<int64_t>(50, 0));  // each row has a kind of its own
  EXPECT_EQ(numbers.sqrt().sum().item<double>() + held_out["targets"].sum().item<double>(), 199 * 100);
}

TEST(TableCsv, LeavesOutRowsThatCannotBeReadOrLackATarget) {
  const TemporaryFolder folder;
  TableCsvOptions options;
  options.path = folder.write("t.csv", "v,city,y\n1,Ulm,a\n2\n3,Bonn,\n4,Ulm,b\n5,\"Ulm,b\n6,Bonn,a\n");
  options.test_path = folder.write("new.csv", "v,city\n7,Ulm\n8\n9,Bonn\n");
  options.target = "y";
  options.val_fraction = 0;
  options.on_error = OnRowError::skip;
  for (const bool stratified : {false, true}) {
    options.stratified_split = stratified;
    TableCsv data(options);
    data.setup(Stage::fit);
    const Batch batch = batches_of(data.train_dataloader()).at(0);
    at::Tensor values = std::get<0>(batch["features"].squeeze(1).sort());
    EXPECT_TRUE(at::equal(values, at::tensor({1.F, 4.F, 6.F})));
    EXPECT_EQ(data.summary().features[0].mean, 11. / 3);
    data.setup(Stage::predict);
    const std::vector<Batch> predicted = batches_of(data.predict_dataloader()[0]);
    ASSERT_EQ(predicted.size(), 1U);
    EXPECT_TRUE(at::equal(predicted[0]["features"].squeeze(1), at::tensor({7.F, 9.F})));
    EXPECT_EQ(predicted[0].samples()->indices, (std::vector<int64_t>{0, 2}));
    ASSERT_EQ(predicted[0].samples()->skipped.size(), 1U);
    EXPECT_TRUE(holds(predicted[0].samples()->skipped[0].reason, {"new.csv:3:1: expected 2 fields"}));
  }
  options.on_error = OnRowError::raise;
  EXPECT_TRUE(holds(error_of<DataError>([&] { TableCsv(options).setup(Stage::fit); }), {"t.csv:3:1"}));
}

TEST(TableCsv, WarnsOfAColumnOfNumbersThatOneTextMakesCategories) {
  const TemporaryFolder folder;
  std::string text = "price,y\n";
  for (int row = 0; row < 20; ++row) text += row == 7 ? "n.a.,1\n" : std::to_string(row) + ",1\n";
  const auto file = open_csv_columns(folder.write("t.csv", text), ',', true, {""});
  EXPECT_EQ(file->columns()[0].type, ColumnType::category);
  EXPECT_TRUE(holds(file->columns()[0].doubt,
                    {"19 of its 20 values are numbers, and line 9 has \"n.a.\"", "`missing`", "`categories`"}));
  EXPECT_EQ(file->columns()[1].doubt, "");
  EXPECT_EQ(open_csv_columns(folder.write("t.csv", text), ',', true, {"n.a."})->columns()[0].doubt, "");
}

TEST(TableCsv, ReadsNewRowsWithTheStateOfACheckpoint) {
  const TemporaryFolder folder;
  TableCsvOptions options;
  options.path = folder.write("t.csv", kPeople);
  options.target = "kind";
  options.id = "name";
  options.val_fraction = 0;
  TableCsv training(options);
  training.setup(Stage::fit);
  (void)training.train_dataloader();

  options.path = folder / "is_gone.csv";
  options.test_path =
      folder.write("n.csv", "age,height,more,city,name\n7,,x,Paris,zoe\nNA,2,x,,\n9,1,x,Bonn,\"o\"\"k\"\n");
  TableCsv data(options);
  data.setup(Stage::predict);
  data.load_state_dict(training.state_dict());
  const Batch batch = batches_of(data.predict_dataloader()[0]).at(0);
  EXPECT_EQ(batch.names(), (std::vector<std::string>{"features", "categories"}));
  EXPECT_TRUE(at::equal(batch["features"].nan_to_num(-1), at::tensor({7.F, -1.F, -1.F, 2.F, 9.F, 1.F}).view({3, 2})));
  EXPECT_EQ(values_of(batch["categories"]), (std::vector<int64_t>{0, 3, 1}));  // unknown, missing, Bonn
  EXPECT_EQ(*batch.ids(), (std::vector<std::string>{"zoe", "1", "o\"k"}));
  EXPECT_EQ(data.label_names(), (std::vector<std::string>{"a", "b"}));
}

TEST(TableCsv, ReadsNewRowsWithoutAHeaderOrATarget) {
  const TemporaryFolder folder;
  TableCsvOptions options;
  options.path = folder.write("t.csv", "1,a,5\n2,b,6\n");
  options.test_path = folder.write("n.csv", "b,7\nc,8\n");
  options.header = false;
  options.target = "0";
  options.val_fraction = 0;
  TableCsv data(options);
  data.setup(Stage::predict);
  const Batch batch = batches_of(data.predict_dataloader()[0]).at(0);
  EXPECT_TRUE(at::equal(batch["features"], at::tensor({7.F, 8.F}).view({2, 1})));
  EXPECT_EQ(values_of(batch["categories"]), (std::vector<int64_t>{2, 0}));
}

TEST(TableCsv, NamesTheFileTheLineAndTheColumn) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& text, const std::function<void(TableCsvOptions&)>& change) {
    TableCsvOptions options;
    options.path = folder.write("t.csv", text);
    options.target = "y";
    options.val_fraction = 0;
    change(options);
    return error_of<Error>([&] {
      TableCsv data(options);
      data.setup(Stage::fit);
      (void)batches_of(data.train_dataloader());
      data.setup(Stage::test);
      (void)batches_of(data.test_dataloader()[0]);
    });
  };
  const auto test_file = [&](const std::string& text) {
    return [&folder, text](TableCsvOptions& options) { options.test_path = folder.write("n.csv", text); };
  };
  const auto same = [](TableCsvOptions&) {};
  EXPECT_TRUE(holds(error("x,y\n1,2\n3\n", same), {"t.csv:3:1:", "expected 2 fields", "saw 1"}));
  EXPECT_TRUE(holds(error("x,y\n1,2\n3,\n", same), {"t.csv: line 3:", "finite number", "\"y\""}));
  EXPECT_TRUE(holds(error("x,y\n1,a\n\n3,\n", same), {"t.csv: line 4:", "no class", "\"y\""}));
  EXPECT_TRUE(holds(error("x,y\n1,2\ninf,3\n", same), {"t.csv: line 3:", "infinite", "\"x\""}));
  EXPECT_TRUE(holds(error("x,z\n1,2\n", same), {"t.csv: no column \"y\"", "x, z"}));
  EXPECT_TRUE(holds(error("y\n1\n", same), {"t.csv: no column is left"}));
  EXPECT_TRUE(holds(error("x,y\n", same), {"t.csv: it holds no rows"}));
  EXPECT_TRUE(holds(error("x,y\n1,2\n", [](auto& options) { options.categories = {"y"}; }),
                    {"t.csv: column \"y\" of `categories`"}));
  EXPECT_TRUE(holds(error("x,y\na,2\nb,2\nc,2\n", [](auto& options) { options.max_categories = 2; }),
                    {"column \"x\" has more than 2 categories", "max_categories"}));
  EXPECT_TRUE(holds(error("x,y\n1,a\n", test_file("x,y\n1,b\n")), {"n.csv: line 2:", "unknown class", "Known: a"}));
  EXPECT_TRUE(holds(error("x,y\n1,2\n", test_file("x,y\nmany,2\n")), {"n.csv:2:1:", "expected a number", "\"many\""}));
  EXPECT_TRUE(holds(error("x,y\n1,2\n", test_file("y\n2\n")), {"n.csv: no column \"x\""}));
}

// Counts how often a group is read.
class CountedFile final : public ColumnFile {
 public:
  CountedFile(std::shared_ptr<const ColumnFile> file, std::vector<int64_t> rows)
      : file_(std::move(file)), rows_(std::move(rows)) {}
  [[nodiscard]] const std::vector<ColumnInfo>& columns() const override { return file_->columns(); }
  [[nodiscard]] const std::vector<int64_t>& group_rows() const override { return rows_; }
  [[nodiscard]] std::string read(size_t group, const std::vector<WantedColumn>& wanted,
                                 std::vector<ColumnValues>& values) const override {
    ++reads;
    const std::string problem = file_->read(0, wanted, values);
    const auto first = std::accumulate(rows_.begin(), rows_.begin() + static_cast<int64_t>(group), int64_t{0});
    for (ColumnValues& column : values)
      column.numbers = {column.numbers.begin() + first, column.numbers.begin() + first + rows_[group]};
    return problem;
  }
  [[nodiscard]] std::string position_text(size_t, int64_t) const override { return ""; }
  mutable std::atomic<int> reads = 0;

 private:
  std::shared_ptr<const ColumnFile> file_;
  std::vector<int64_t> rows_;
};

TEST(TableDataset, DecodesAGroupOnceForAllWorkers) {
  const TemporaryFolder folder;
  std::string text = "x\n";
  for (int row = 0; row < 400; ++row) text += std::to_string(row) + "\n";
  const auto file = std::make_shared<CountedFile>(open_csv_columns(folder.write("t.csv", text), ',', true, {}),
                                                  std::vector<int64_t>(20, 20));
  TableSource source{.file = file, .path = "t.csv", .features = {{0, ColumnType::number}}};
  TableSummary summary{.features = {TableColumn{.name = "x"}}};
  for (const int64_t workers : {0, 4}) {
    file->reads = 0;
    const auto rows = std::make_shared<TableDataset>(source, std::make_shared<TableSummary>(summary), at::kFloat, 120);
    DataLoader loader(rows, {.batch_size = 7, .num_workers = workers},
                      std::make_shared<GroupSampler>(file->group_rows(), at::arange(400, at::kLong), 40, true));
    double sum = 0;
    loader.start(3);
    for (Batch batch; loader.next(batch);) sum += batch[0].sum().item<double>();
    EXPECT_EQ(sum, 399 * 200);
    EXPECT_EQ(file->reads, 20);
  }
}

}  // namespace
}  // namespace levin::columns_test
