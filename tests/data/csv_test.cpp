#include "levin/data/sets/csv.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>

#include "levin/core/files/csv.h"
#include "levin/core/options/error.h"
#include "levin/data/loading/skipped_sample.h"
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

// A field too few, a text for a number, a quote that is never closed, text after a quote.
constexpr const char* kDamaged = "a,b,kind\n0,1,x\n2\n4,oops,y\n6,\"7,y\n8,9,z\n\"10\"1,11,y\n12,\"1\n3\",x\n14,15,y\n";

TEST(CsvDataset, LeavesOutRowsThatCannotBeRead) {
  const TemporaryFolder folder;
  const std::string path = folder.write("d.csv", kDamaged);
  for (const int64_t in_memory : {int64_t{1} << 30, int64_t{0}}) {
    CsvDataset data({.path = path,
                     .target = "kind",
                     .target_is_class = true,
                     .max_in_memory = {in_memory},
                     .on_error = OnRowError::skip});
    EXPECT_EQ(data.size(), 8);
    EXPECT_TRUE(at::equal(data.readable_rows(), at::tensor({0, 4, 7}, at::kLong)));
    EXPECT_EQ(data.classes(), (std::vector<std::string>{"x", "y", "z"}));
    EXPECT_TRUE(at::equal(data.get(7)[0], at::tensor({14.F, 15.F}))) << in_memory;
    EXPECT_EQ(data.get(4)[1].item<int64_t>(), 2);
    EXPECT_FALSE(data.has_get_batch());
    const std::vector<std::pair<int64_t, std::string>> reasons = {
        {1, "d.csv:3:1: expected 3 fields as in line 1, saw 1."},
        {2, "d.csv:4:3: expected a number in column \"b\""},
        {3, "d.csv:7:2: expected a delimiter or the line's end"},
        {5, "d.csv:7:5: expected a delimiter"},
        {6, "d.csv:8:4: expected a number in column \"b\""}};
    for (const auto& [row, reason] : reasons) {
      EXPECT_TRUE(data.get(row).empty());
      EXPECT_TRUE(holds(detail::take_skip_reason(), {reason}));
    }
    data.asks_for_readable_rows();
    ASSERT_TRUE(data.has_get_batch());
    EXPECT_TRUE(
        at::equal(data.get_batch(data.readable_rows())[0], at::tensor({0.F, 1.F, 8.F, 9.F, 14.F, 15.F}).view({3, 2})));
  }
  const auto raise = [&] { CsvDataset({.path = path, .target = "kind", .target_is_class = true}); };
  EXPECT_TRUE(holds(error_of<DataError>(raise), {"d.csv:3:1"}));
}

TEST(CsvDataset, RefusesAFileOfWhichMostIsDamaged) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& text) {
    const std::string path = folder.write("d.csv", text);
    return error_of<DataError>([&] { CsvDataset({.path = path, .on_error = OnRowError::skip}); });
  };
  EXPECT_TRUE(
      holds(error("a,b\nx,y\n"), {"1 of the first 1 row cannot be read. The first: ", "d.csv:2:1", "delimiter"}));
  std::string text = "a,b\n";
  for (int row = 0; row < 9000; ++row) text += row % 8 == 0 ? "1\n" : "1,2\n";
  EXPECT_TRUE(holds(error(text), {"1001 of the first 8001 rows cannot be read"}));
  EXPECT_EQ(error(text.substr(0, text.size() / 2)), "");  // up to 1000 may be
}

TEST(CsvData, TrainsOnTheReadableRowsAndListsTheOthersInAPrediction) {
  const TemporaryFolder folder;
  CsvData data({.path = folder.write("train.csv", kDamaged),
                .test_path = folder.write("new.csv", "a,b,kind\n1,2,x\n3\n5,6,unknown\n"),
                .target = "kind",
                .target_is_class = true,
                .batch_size = 100,
                .val_fraction = 0.34,
                .on_error = OnRowError::skip});
  data.setup(Stage::fit);
  int64_t rows = 0;
  for (const auto& loader : {data.train_dataloader(), data.val_dataloader()[0]}) {
    loader->start(0);
    for (Batch batch; loader->next(batch);) rows += batch.size();
  }
  EXPECT_EQ(rows, 3);
  data.setup(Stage::predict);
  const auto loader = data.predict_dataloader()[0];
  loader->identify_samples(true);
  loader->start(0);
  Batch batch;
  ASSERT_TRUE(loader->next(batch));
  EXPECT_EQ(batch.size(), 2);  // a row is not left out because of its class
  ASSERT_NE(batch.samples(), nullptr);
  EXPECT_EQ(batch.samples()->indices, (std::vector<int64_t>{0, 2}));
  ASSERT_EQ(batch.samples()->skipped.size(), 1);
  EXPECT_EQ(batch.samples()->skipped[0].index, 1);
  EXPECT_TRUE(holds(batch.samples()->skipped[0].reason, {"new.csv:3:1: expected 3 fields"}));
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

// All batches of the first loader of a stage.
std::vector<Batch> batches_of(const std::shared_ptr<Loader>& loader) {
  std::vector<Batch> all;
  loader->identify_samples(true);
  loader->start(0);
  for (Batch batch; loader->next(batch);) all.push_back(batch);
  return all;
}

std::vector<Batch> predicted(CsvDataOptions options) {
  CsvData data(std::move(options));
  data.setup(Stage::predict);
  return batches_of(data.predict_dataloader()[0]);
}

TEST(CsvData, PredictsRowsWithoutATarget) {
  const TemporaryFolder folder;
  const std::string train = folder.write("train.csv", "a,y,b\n1,10,2\n3,20,4\n");
  const auto rows = predicted({.path = train, .test_path = folder.write("new.csv", "a,b\n5,6\n7,8\n"), .target = "y"});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].names(), std::vector<std::string>{"features"});
  EXPECT_TRUE(at::equal(rows[0][0], at::tensor({5.F, 6.F, 7.F, 8.F}).view({2, 2})));
  EXPECT_EQ(*rows[0].ids(), (std::vector<std::string>{"0", "1"}));
  CsvData tests({.path = train, .test_path = folder / "new.csv", .target = "y"});
  EXPECT_TRUE(holds(error_of<DataError>([&] { tests.setup(Stage::test); }), {"new.csv", "no column \"y\""}));
}

// What the model was trained on is found by name; the file may hold more, and a target that cannot be read.
TEST(CsvData, PredictsFromTheColumnsOfTheTraining) {
  const TemporaryFolder folder;
  const std::string train = folder.write("train.csv", "a,y,b,name\n1,10,2,p\n3,20,4,q\n");
  const auto features = [&](const std::string& text, CsvDataOptions options = {}) {
    options.path = train;
    options.test_path = folder.write("new.csv", text);
    if (options.target.empty()) options.target = "y";
    if (options.id.empty()) options.id = "name";
    return predicted(std::move(options))[0];
  };
  const at::Tensor wanted = at::tensor({5.F, 6.F}).view({1, 2});
  EXPECT_TRUE(at::equal(features("name,note,b,a\nr,text,6,5\n")[0], wanted));
  EXPECT_TRUE(at::equal(features("name,b,y,a\nr,6,?,5\n")[0], wanted));
  EXPECT_EQ(features("name,b,y,a\nr,6,?,5\n").count(), 1U);
  EXPECT_EQ(features("name,b,y,a\nr,6,9,5\n")[1].item<float>(), 9.F);  // there as before, for those who read it
  EXPECT_EQ(*features("name,b,a\n\"r,1\",6,5\n").ids(), std::vector<std::string>{"r,1"});
  EXPECT_TRUE(at::equal(features("b,a,name\n6,5,r\n", {.features = {"2"}})[0], wanted.narrow(1, 1, 1)));
  EXPECT_EQ(features("name,b,y,a\nr,6,other,5\n", {.features = {"a"}, .target_is_class = true}).count(), 1U);
}

// If columns were taken by position, a wrong column would silently become a feature.
TEST(CsvData, AFeatureThatANewFileLacksIsAnError) {
  const TemporaryFolder folder;
  CsvDataOptions options{.path = folder.write("t.csv", "a,b,kind\n1,2,x\n3,4,y\n"),
                         .test_path = folder.write("n.csv", "customer,a\n7,8\n"),
                         .target = "kind",
                         .target_is_class = true};
  const auto error = [&](Stage stage) {
    return error_of<DataError>([&] {
      CsvData data(options);
      data.setup(stage);
      if (stage == Stage::predict) (void)data.predict_dataloader();
    });
  };
  for (const Stage stage : {Stage::predict, Stage::test}) {
    EXPECT_TRUE(holds(error(stage), {"n.csv: no column \"b\". Columns: customer, a."}));
  }
  options.test_path = folder.write("n.csv", "A,B\n7,8\n");
  EXPECT_TRUE(holds(error(Stage::predict), {"no column \"a\". Columns: A, B."}));
}

TEST(CsvData, PredictsRowsWithoutATargetOrAHeader) {
  const TemporaryFolder folder;
  CsvDataOptions options{.path = folder.write("train.csv", "1,10,2\n3,20,4\n"),
                         .test_path = folder.write("new.csv", "5,6\n"),
                         .header = false,
                         .target = "1"};
  EXPECT_TRUE(at::equal(predicted(options)[0][0], at::tensor({5.F, 6.F}).view({1, 2})));
  options.features = {"2"};
  EXPECT_TRUE(at::equal(predicted(options)[0][0], at::tensor({6.F}).view({1, 1})));
  options.test_path = folder / "train.csv";
  EXPECT_TRUE(at::equal(predicted(options)[0][0], at::tensor({2.F, 4.F}).view({2, 1})));
}

TEST(CsvData, LeavesOutAnIncompleteLastBatch) {
  const TemporaryFolder folder;
  std::string text = "x,kind\n";
  for (int i = 0; i < 10; ++i) text += std::to_string(i) + (i % 2 == 0 ? ",even\n" : ",odd\n");
  CsvDataOptions options{.path = folder.write("t.csv", text),
                         .target = "kind",
                         .target_is_class = true,
                         .batch_size = 3,
                         .val_fraction = 0};
  for (const bool stratified : {false, true}) {
    options.batching.stratified = stratified;
    for (const bool drop_last : {false, true}) {
      options.drop_last = drop_last;
      CsvData data(options);
      data.setup(Stage::fit);
      EXPECT_EQ(batches_of(data.train_dataloader()).size(), drop_last ? 3U : 4U);
    }
  }
  options.batching = {.max_tokens = 5};
  EXPECT_TRUE(holds(error_of<ConfigError>([&] { CsvData{options}; }),
                    {"CsvDataOptions.batching.max_tokens: must be unset with drop_last"}));
}

TEST(CsvData, KeepsTheOrderOfTheFileUnlessItShuffles) {
  const TemporaryFolder folder;
  std::string text = "x\n";
  for (int i = 0; i < 20; ++i) text += std::to_string(i) + "\n";
  CsvData data({.path = folder.write("t.csv", text), .batch_size = 20, .val_fraction = 0.25, .shuffle = false});
  data.setup(Stage::fit);
  const at::Tensor train = batches_of(data.train_dataloader())[0][0].squeeze(1);
  const at::Tensor val = batches_of(data.val_dataloader()[0])[0][0].squeeze(1);
  EXPECT_EQ(train.size(0), 15);
  for (const at::Tensor& rows : {train, val}) EXPECT_TRUE(at::equal(rows, std::get<0>(rows.sort())));
  EXPECT_TRUE(at::equal(std::get<0>(at::cat({train, val}).sort()), at::arange(20, at::kFloat)));
}

TEST(CsvData, ReadsAllDigitsForARunInDoublePrecision) {
  const TemporaryFolder folder;
  CsvData data({.path = folder.write("t.csv", "x,y\n0.1,0.3\n"), .target = "y", .val_fraction = 0});
  data.set_float_dtype(at::kDouble);
  data.setup(Stage::fit);
  const Batch wide = batches_of(data.train_dataloader())[0];
  EXPECT_EQ(wide[0].item<double>(), 0.1);
  EXPECT_EQ(wide[1].item<double>(), 0.3);
  data.set_float_dtype(at::kFloat);  // by the trainer of a different run
  data.setup(Stage::fit);
  EXPECT_EQ(batches_of(data.train_dataloader())[0][0].item<double>(), static_cast<double>(0.1F));
}

TEST(CsvData, NamesPredictedClasses) {
  const TemporaryFolder folder;
  CsvData data({.path = folder.write("t.csv", "x,kind\n1,b\n2,a\n"),
                .test_path = folder.write("n.csv", "x\n3\n"),
                .target = "kind",
                .target_is_class = true});
  data.setup(Stage::predict);
  EXPECT_EQ(data.label_names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(data.prediction_text(at::tensor({1, 0, 7}, at::kLong)), (std::vector<std::string>{"b", "a", "7"}));
  EXPECT_TRUE(data.prediction_text(at::tensor({1.F})).empty());
}

// The training file may be on another machine.
TEST(CsvData, PredictsWithoutTheTrainingFile) {
  const TemporaryFolder folder;
  const CsvDataOptions options{.path = folder.write("t.csv", "a,key,kind,b\n1,k,z,2\n3,l,y,4\n"),
                               .test_path = folder.write("n.csv", "more,b,a,kind\n9,6,5,y\n"),
                               .target = "kind",
                               .id = "key",
                               .target_is_class = true};
  CsvData trained(options);
  trained.setup(Stage::fit);
  const State state = trained.state_dict();
  ASSERT_TRUE(std::filesystem::remove(options.path));
  const at::Tensor wanted = at::tensor({5.F, 6.F}).view({1, 2});

  CsvData restored({.path = options.path,
                    .test_path = options.test_path,
                    .features = {"a", "b"},
                    .target = "kind",
                    .target_is_class = true});
  restored.setup(Stage::predict);
  EXPECT_TRUE(restored.label_names().empty());
  restored.load_state_dict(state);
  EXPECT_EQ(restored.label_names(), (std::vector<std::string>{"y", "z"}));
  const Batch known = batches_of(restored.predict_dataloader()[0]).at(0);
  EXPECT_TRUE(at::equal(known[0], wanted));
  EXPECT_EQ(known[1].item<int64_t>(), 0);

  // All features, by the names that the checkpoint has.
  std::ofstream(options.test_path) << "key,more,b,a\nq,9,6,5\n";
  CsvData all(options);
  all.setup(Stage::predict);
  all.load_state_dict(state);
  const Batch named = batches_of(all.predict_dataloader()[0]).at(0);
  EXPECT_TRUE(at::equal(named[0], wanted));
  EXPECT_EQ(*named.ids(), std::vector<std::string>{"q"});

  // Without a checkpoint: numbers of classes, and a label has none.
  std::ofstream(options.test_path) << "a,b,kind\n5,6,y\n";
  CsvData unknown({.path = options.path, .test_path = options.test_path, .target = "kind", .target_is_class = true});
  unknown.setup(Stage::predict);
  testing::internal::CaptureStderr();
  const Batch plain = batches_of(unknown.predict_dataloader()[0]).at(0);
  EXPECT_TRUE(holds(testing::internal::GetCapturedStderr(), {"names of the classes are unknown", "t.csv"}));
  EXPECT_TRUE(at::equal(plain[0], wanted));
  EXPECT_EQ(plain.count(), 1U);
  EXPECT_TRUE(unknown.label_names().empty());
}

TEST(CsvDataset, FindsTheNumbersOfClassesWithoutLookingAtEach) {
  const TemporaryFolder folder;
  const auto seconds = [&](int count) {
    std::string text = "x,kind\n";
    for (int i = 0; i < count; ++i) text += "1,a class of which there are many: " + std::to_string(i) + "\n";
    CsvDatasetOptions options{.path = folder.write("many.csv", text), .target = "kind", .target_is_class = true};
    for (int i = 0; i < count; ++i) options.classes.push_back("a class of which there are many: " + std::to_string(i));
    const std::clock_t begin = std::clock();
    const CsvDataset data(options);
    const double took = static_cast<double>(std::clock() - begin);
    EXPECT_TRUE(at::equal(data.get_range(0, count)[1], at::arange(count, at::kLong)));
    return took;
  };
  EXPECT_LT(seconds(20000), 9 * seconds(5000));  // four times as many; 15 times the time where each looks at all others
}

// A table with quoted delimiters, quotes and line ends, both line ends, and empty lines; `rows` of it.
std::string random_table(int rows, std::mt19937& random) {
  const auto pick = [&](std::initializer_list<const char*> all) {
    return std::string(all.begin()[random() % all.size()]);
  };
  std::string text = pick({"", "\xEF\xBB\xBF", "\n\r\n"}) + "name,\"a, b\",c,kind\r\n";
  for (int row = 0; row < rows; ++row) {
    text += pick({"", "\"\"", "x", "\"r\"\"1\"\"\"", "\"two\nlines, \r\n\"", "a\"b"}) + "," +
            pick({"1", "-2.5", " +3e2 ", "\"7\"", "0"}) + "," + std::to_string(row) + "," +
            pick({"10", "9", "\"9\"", "-1"}) + pick({"\n", "\r\n", "\n\n", "\r\n\n\r\n"});
  }
  return text;
}

TEST(CsvDataset, AMappedFileGivesTheSameSamples) {
  const TemporaryFolder folder;
  std::mt19937 random(1);
  for (const int rows : {1, 15, 16, 17, 33, 200}) {
    CsvDatasetOptions options{.path = folder.write("t.csv", random_table(rows, random)),
                              .target = "kind",
                              .id = "name",
                              .target_is_class = rows % 2 == 0};
    const CsvDataset in_memory(options);
    options.max_in_memory = {0};
    const CsvDataset mapped(options);
    ASSERT_EQ(mapped.size(), rows);
    EXPECT_EQ(mapped.feature_names(), (std::vector<std::string>{"a, b", "c"}));
    EXPECT_EQ(mapped.classes(), in_memory.classes());
    const at::Tensor order = at::randint(rows, {3 * rows}, at::kLong);
    const auto expect_equal = [](const Batch& a, const Batch& b) {
      EXPECT_TRUE(at::equal(a["features"], b["features"]));
      EXPECT_TRUE(at::equal(a["targets"], b["targets"]));
      EXPECT_EQ(a["targets"].scalar_type(), b["targets"].scalar_type());
    };
    expect_equal(mapped.get_batch(order), in_memory.get_batch(order));
    expect_equal(mapped.get_range(rows / 3, rows - rows / 3), in_memory.get_range(rows / 3, rows - rows / 3));
    expect_equal(mapped.get(rows - 1), in_memory.get(rows - 1));
    if (options.target_is_class) {
      EXPECT_TRUE(at::equal(mapped.labels(), in_memory.labels()));
    }
    for (int row = 0; row < rows; ++row) EXPECT_EQ(mapped.sample_id(row), in_memory.sample_id(row));
    EXPECT_TRUE(at::equal(mapped.get_range(0, rows)["features"].select(1, 1), at::arange(rows, at::kFloat)));
  }
}

TEST(CsvDataset, AMappedFileIsCheckedWhenItIsOpened) {
  const TemporaryFolder folder;
  std::string text = "a,b\n";
  for (int row = 0; row < 40; ++row) text += "1,\"x\n\"\n";
  const auto error = [&](const std::string& last, const std::string& target) {
    const std::string path = folder.write("t.csv", text + last);
    return error_of<DataError>([&] {
      CsvDataset({.path = path, .target = target, .target_is_class = true, .classes = {"x\n"}, .max_in_memory = {0}});
    });
  };
  EXPECT_TRUE(holds(error("y,z\n", ""), {"t.csv:2:3:", "expected a number in column \"b\""}));
  EXPECT_TRUE(holds(error("2,z\n", "b"), {"t.csv:82:3:", "unknown class \"z\"", "Known: x"}));
  EXPECT_TRUE(holds(error("y,\"x\n\"\n", "b"), {"t.csv:82:1:", "expected a number in column \"a\", saw \"y\""}));
  EXPECT_TRUE(holds(error("1\n", "b"), {"t.csv:82:1:", "expected 2 fields as in line 1, saw 1"}));
  EXPECT_TRUE(holds(error("1,\"x\n", "b"), {"t.csv:82:3:", "never closed"}));
}

TEST(CsvData, TrainsFromAMappedFileInTheSameOrder) {
  const TemporaryFolder folder;
  std::mt19937 random(2);
  const auto batches = [&](int64_t bytes) {
    CsvData data({.path = folder / "t.csv",
                  .features = {"c"},
                  .target = "kind",
                  .target_is_class = true,
                  .num_workers = 2,
                  .stratified_split = true,
                  .batching = {.weights = SampleWeights::balanced},
                  .max_in_memory = {bytes}});
    data.setup(Stage::fit);
    std::vector<Batch> all = batches_of(data.train_dataloader());
    for (const Batch& batch : batches_of(data.val_dataloader()[0])) all.push_back(batch);
    return all;
  };
  folder.write("t.csv", random_table(300, random));
  const auto mapped = batches(0), in_memory = batches(1 << 20);
  ASSERT_EQ(mapped.size(), in_memory.size());
  for (size_t i = 0; i < mapped.size(); ++i) {
    EXPECT_TRUE(at::equal(mapped[i][0], in_memory[i][0]));
    EXPECT_TRUE(at::equal(mapped[i][1], in_memory[i][1]));
    EXPECT_EQ(*mapped[i].ids(), *in_memory[i].ids());
  }
}

}  // namespace
}  // namespace levin::csv_test
