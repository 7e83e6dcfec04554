#include "levin/data/sets/text_csv.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "levin/core/options/error.h"
#include "levin/data/text/text_reader.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::text_csv_test {
namespace {

using test::error_of;
using test::holds;
using test::TemporaryFolder;

std::vector<Batch> all_of(const std::shared_ptr<Loader>& loader) {
  std::vector<Batch> batches;
  Batch batch;
  loader->start(0);
  while (loader->next(batch)) batches.push_back(batch);
  return batches;
}

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

constexpr const char* kReviews = "stars,review\n5,\"Good, \"\"very\"\"\"\n1,no\n5,abcdefgh\n";

TEST(TextCsv, FramesCutsAndPadsText) {
  const TemporaryFolder folder;
  TextCsv data({.path = folder.write("r.csv", kReviews),
                .text = "review",
                .label = "stars",
                .max_length = 6,
                .batch_size = 3,
                .val_fraction = 0,
                .shuffle = false});
  data.setup(Stage::fit);
  EXPECT_EQ(data.classes(), (std::vector<std::string>{"1", "5"}));
  const auto batches = all_of(data.train_dataloader());
  ASSERT_EQ(batches.size(), 1U);
  const auto [x, y] = batches[0].unpack<2>();
  EXPECT_EQ(x.sizes(), (std::vector<int64_t>{3, 6}));
  // Rows come in the order of the split; their text identifies them. The token of a byte is its value + 4.
  const auto row = [](const std::string& text, size_t padding) {
    std::vector<int64_t> ids = {0};
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c) + 4);
    ids.push_back(2);
    ids.insert(ids.end(), padding, 1);
    return ids;
  };
  const std::set<std::pair<std::vector<int64_t>, int64_t>> expected = {
      {row("Good", 0), 1}, {row("no", 2), 0}, {row("abcd", 0), 1}};
  std::set<std::pair<std::vector<int64_t>, int64_t>> found;
  for (int64_t b = 0; b < 3; ++b) found.emplace(numbers(x[b]), numbers(y[b])[0]);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(data.prediction_text(at::tensor({1, 0}, at::kLong)), (std::vector<std::string>{"5", "1"}));
}

TEST(TextCsv, SplitsRowsOnceAndShufflesTheTrainingOnes) {
  const TemporaryFolder folder;
  std::string text = "text,label\n";
  for (char c = 'a'; c < 'a' + 20; ++c) text += std::string(1, c) + (c % 2 == 0 ? ",even\n" : ",odd\n");
  const TextCsvOptions options{
      .path = folder.write("t.csv", text), .max_length = 3, .batch_size = 4, .val_fraction = 0.25};
  const auto letters = [](const std::shared_ptr<Loader>& loader) {
    std::vector<int64_t> all;
    for (const Batch& batch : all_of(loader)) {
      const auto x = numbers(batch[0].select(1, 1)), y = numbers(batch[1]);
      for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], (x[i] - 4) % 2);  // "even" is 0
      all.insert(all.end(), x.begin(), x.end());
    }
    return all;
  };
  TextCsv first(options), second(options);
  first.setup(Stage::fit);
  second.setup(Stage::fit);
  auto train = letters(first.train_dataloader());
  const auto val = letters(first.val_dataloader()[0]);
  EXPECT_EQ(val, letters(second.val_dataloader()[0]));
  EXPECT_EQ(train.size(), 15U);
  EXPECT_EQ(val.size(), 5U);
  EXPECT_FALSE(std::is_sorted(train.begin(), train.end()));
  std::set<int64_t> both(train.begin(), train.end());
  both.insert(val.begin(), val.end());
  EXPECT_EQ(both.size(), 20U);
}

TEST(TextCsv, KeepsClassNumbersForTests) {
  const TemporaryFolder folder;
  const std::string path = folder.write("t.csv", "text,label\na,x\nb,y\nc,z\n");
  const std::string test = folder.write("test.csv", "text,label\nq,z\n");
  TextCsv data({.path = path, .test_path = test});
  data.setup(Stage::test);
  EXPECT_EQ(numbers(all_of(data.test_dataloader()[0]).at(0)[1]), (std::vector<int64_t>{2}));
  TextCsv named({.path = folder / "not read", .test_path = test, .classes = {"z", "y"}});
  named.setup(Stage::predict);
  EXPECT_EQ(numbers(all_of(named.predict_dataloader()[0]).at(0)[1]), (std::vector<int64_t>{0}));
}

TEST(TextCsv, RefusesARowWithFileAndLine) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& text, TextCsvOptions options = {}) {
    options.path = folder.write("bad.csv", text);
    return error_of<DataError>([&] { TextCsv(options).setup(Stage::fit); });
  };
  EXPECT_TRUE(holds(error("text,label\na,b\nc\n"), {"bad.csv:3:1:", "expected 2 fields", "saw 1"}));
  EXPECT_TRUE(holds(error("text,label\n\"a,b\n"), {"bad.csv:2:1:", "never closed"}));
  EXPECT_TRUE(holds(error("text,label\na,b\n\"\n\",c\n"), {"bad.csv:3:1:", "column \"text\" is empty"}));
  EXPECT_TRUE(holds(error("text,label\na,b\nx, \n"), {"bad.csv:3:3:", "column \"label\" is empty", "Fill it in"}));
  EXPECT_TRUE(holds(error("text,label\n"), {"bad.csv: it holds no rows"}));
  EXPECT_TRUE(holds(error("text,lable\na,b\n"), {"no column \"label\"", "Did you mean \"lable\""}));
  EXPECT_TRUE(
      holds(error("text,label\na,b\n", {.classes = {"c"}}), {"bad.csv:2:3:", "unknown class \"b\"", "Known: c"}));
  TextCsv test(
      {.path = folder.write("a.csv", "text,label\na,b\n"), .test_path = folder.write("b.csv", "text,label\na,c\n")});
  EXPECT_TRUE(holds(error_of<DataError>([&] { test.setup(Stage::test); }), {"b.csv:2:3:", "unknown class \"c\""}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { TextCsv().setup(Stage::fit); }), {"TextCsvOptions.path"}));
}

std::string texts_of_unequal_length() {
  std::string text = "text,label\n";
  for (int64_t i = 0; i < 200; ++i) {
    text += std::string(static_cast<size_t>(1 + i * i % 60), 'x') + (i % 10 == 0 ? ",rare\n" : ",usual\n");
  }
  return text;
}

TEST(TextCsv, MakesBatchesOfSoManyTokensPaddedToTheirLongest) {
  const TemporaryFolder folder;
  TextCsv data({.path = folder.write("t.csv", texts_of_unequal_length()),
                .max_length = 50,
                .val_fraction = 0.2,
                .batching = {.bucket_by_length = true, .max_tokens = 200}});
  data.setup(Stage::fit);
  int64_t numbers_in_all = 0, padding = 0, samples = 0;
  std::set<int64_t> widths;
  const auto loader = data.train_dataloader();
  const auto batches = all_of(loader);
  for (const Batch& batch : batches) {
    EXPECT_LE(batch[0].numel(), 200);
    EXPECT_FALSE((batch[0].select(1, batch[0].size(1) - 1) == 1).all().item<bool>());  // some text is that long
    widths.insert(batch[0].size(1));
    numbers_in_all += batch[0].numel();
    padding += (batch[0] == 1).sum().item<int64_t>();
    samples += batch.size();
  }
  EXPECT_EQ(samples, 160);
  EXPECT_EQ(loader->num_batches(), static_cast<int64_t>(batches.size()));
  EXPECT_GT(widths.size(), 5U);
  EXPECT_LT(padding * 4, numbers_in_all);
  samples = 0;
  for (const Batch& batch : all_of(data.val_dataloader()[0])) {
    EXPECT_LE(batch[0].numel(), 200);
    samples += batch.size();
  }
  EXPECT_EQ(samples, 40);
}

TEST(TextCsv, KeepsTheOrderOfTestsWithBatchesByTokens) {
  const TemporaryFolder folder;
  const std::string path = folder.write("t.csv", texts_of_unequal_length());
  TextCsv data({.path = path, .test_path = path, .batching = {.max_tokens = 300}});
  data.setup(Stage::test);
  const auto loader = data.test_dataloader()[0];
  int64_t row = 0;
  for (const Batch& batch : all_of(loader)) {
    EXPECT_LE(batch[0].numel(), 300);
    for (int64_t b = 0; b < batch.size(); ++b, ++row) {
      EXPECT_EQ((batch[0][b] != 1).sum().item<int64_t>(), 3 + row * row % 60);  // <s>, the letters, </s>
    }
  }
  EXPECT_EQ(row, 200);
  EXPECT_TRUE(loader->num_batches().has_value());
}

TEST(TextCsv, BalancesAndStratifiesItsClasses) {
  const TemporaryFolder folder;
  TextCsvOptions options{.path = folder.write("t.csv", texts_of_unequal_length()),
                         .batch_size = 20,
                         .val_fraction = 0.2,
                         .stratified_split = true};
  const auto rare = [](const std::vector<Batch>& batches) {
    int64_t count = 0;
    for (const Batch& batch : batches) count += (batch[1] == 0).sum().item<int64_t>();
    return count;
  };
  options.batching.stratified = true;
  TextCsv stratified(options);
  stratified.setup(Stage::fit);
  const auto batches = all_of(stratified.train_dataloader());
  EXPECT_EQ(batches.size(), 8U);
  for (const Batch& batch : batches) EXPECT_EQ(rare({batch}), 2);
  EXPECT_EQ(rare(all_of(stratified.val_dataloader()[0])), 4);  // a tenth of 40
  options.batching = {.weights = SampleWeights::balanced};
  TextCsv balanced(options);
  balanced.setup(Stage::fit);
  EXPECT_NEAR(static_cast<double>(rare(all_of(balanced.train_dataloader()))), 80, 25);  // of 160, 4 deviations
  EXPECT_EQ(rare(all_of(balanced.val_dataloader()[0])), 4);
  options.batching.stratified = true;
  EXPECT_TRUE(
      holds(error_of<ConfigError>([&] { TextCsv{options}; }), {"TextCsvOptions.batching.weights", "stratified"}));
}

TEST(TextCsv, PredictsTextWithoutAClass) {
  const TemporaryFolder folder;
  const std::string path = folder.write("t.csv", "text,label,key\na,x,1\nb,y,2\n");
  const auto predicted = [&](const std::string& text, TextCsvOptions options = {}) {
    options.path = options.path.empty() ? path : options.path;
    options.test_path = folder.write("new.csv", text);
    TextCsv data(options);
    data.setup(Stage::predict);
    const auto loader = data.predict_dataloader()[0];
    loader->identify_samples(true);
    return all_of(loader).at(0);
  };
  const Batch plain = predicted("text\nhm\n\"so, so\"\n", {.max_length = 4});
  EXPECT_EQ(plain.names(), std::vector<std::string>{"input_ids"});
  EXPECT_EQ(numbers(plain[0][0]), (std::vector<int64_t>{0, 'h' + 4, 'm' + 4, 2}));
  EXPECT_EQ(*plain.ids(), (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(*predicted("key,text\nk7,hm\nk8,so\n", {.id = "key"}).ids(), (std::vector<std::string>{"k7", "k8"}));
  EXPECT_EQ(numbers(predicted("text,label\nhm,y\n")[1]), std::vector<int64_t>{1});  // there as before
  EXPECT_EQ(predicted("text,label\nhm,y\nso,\n").count(), 1U);
  EXPECT_EQ(predicted("text,label\nhm,unknown\n").count(), 1U);
  const TextCsvOptions by_number{
      .path = folder.write("n.csv", "x,a\ny,b\n"), .header = false, .text = "1", .label = "0"};
  EXPECT_EQ(numbers(predicted("hm\n", by_number)[0][0].narrow(0, 1, 2)), (std::vector<int64_t>{'h' + 4, 'm' + 4}));
}

// The training file may be on another machine.
TEST(TextCsv, PredictsWithoutTheTrainingFile) {
  const TemporaryFolder folder;
  const TextCsvOptions options{.path = folder.write("t.csv", "text,label\na,x\nb,y\n"),
                               .test_path = folder.write("n.csv", "text,label\nhm,y\n")};
  TextCsv trained(options);
  trained.setup(Stage::fit);
  const State state = trained.state_dict();
  ASSERT_TRUE(std::filesystem::remove(options.path));
  TextCsv restored(options);
  restored.setup(Stage::predict);
  EXPECT_TRUE(restored.label_names().empty());
  restored.load_state_dict(state);
  EXPECT_EQ(restored.label_names(), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(numbers(all_of(restored.predict_dataloader()[0]).at(0)[1]), std::vector<int64_t>{1});
  TextCsv unknown(options);
  unknown.setup(Stage::predict);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(all_of(unknown.predict_dataloader()[0]).at(0).count(), 1U);
  EXPECT_TRUE(holds(::testing::internal::GetCapturedStderr(), {"names of the classes are unknown", "t.csv"}));
}

TEST(TextCsv, LeavesOutAnIncompleteLastBatchAndKeepsTheOrderOfTheFile) {
  const TemporaryFolder folder;
  std::string text = "text,label\n";
  for (char c = 'a'; c < 'a' + 10; ++c) text += std::string(1, c) + ",one\n";
  TextCsvOptions options{
      .path = folder.write("t.csv", text), .max_length = 3, .batch_size = 4, .val_fraction = 0, .shuffle = false};
  options.drop_last = true;
  TextCsv data(options);
  data.setup(Stage::fit);
  std::vector<int64_t> letters;
  for (const Batch& batch : all_of(data.train_dataloader())) {
    const auto x = numbers(batch[0].select(1, 1));
    letters.insert(letters.end(), x.begin(), x.end());
  }
  std::vector<int64_t> wanted;
  for (int64_t c = 'a'; c < 'a' + 8; ++c) wanted.push_back(c + 4);
  EXPECT_EQ(letters, wanted);
  options.batching.bucket_by_length = true;
  EXPECT_TRUE(holds(error_of<ConfigError>([&] { TextCsv{options}; }),
                    {"TextCsvOptions.batching.bucket_by_length: must be unset with drop_last"}));
}

}  // namespace
}  // namespace levin::text_csv_test
