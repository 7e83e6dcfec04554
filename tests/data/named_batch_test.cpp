// Batches with fields: names, lists, ragged fields, strings and values of user-defined types; split and collated.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "levin/core/options/error.h"
#include "levin/data/batch.h"
#include "levin/data/batch_rows.h"
#include "levin/data/loading/combined_loader.h"
#include "levin/data/loading/dataloader.h"
#include "support/error_text.h"
#include "support/tensor_loader.h"

namespace levin::named_batch_test {

// Returns as many numbers per sample as `counts` says, one sample after another.
struct Boxes {
  at::Tensor corners;
  std::vector<int64_t> counts;
};
struct Opaque {
  int number = 0;
};
struct Vocabulary {
  int words = 0;
};

}  // namespace levin::named_batch_test

namespace levin {

template <>
struct BatchTraits<named_batch_test::Boxes> {
  using Boxes = named_batch_test::Boxes;
  static int64_t rows(const Boxes& boxes) { return std::ssize(boxes.counts); }
  static Boxes slice(const Boxes& boxes, int64_t from, int64_t count) {
    int64_t begin = 0, size = 0;
    for (int64_t i = 0; i < from; ++i) begin += boxes.counts[static_cast<size_t>(i)];
    for (int64_t i = from; i < from + count; ++i) size += boxes.counts[static_cast<size_t>(i)];
    const auto first = boxes.counts.begin() + from;
    return {boxes.corners.narrow(0, begin, size), {first, first + count}};
  }
  static Boxes concat(const std::vector<Boxes>& parts) {
    Boxes all;
    std::vector<at::Tensor> corners;
    for (const Boxes& part : parts) {
      corners.push_back(part.corners);
      all.counts.insert(all.counts.end(), part.counts.begin(), part.counts.end());
    }
    all.corners = at::cat(corners);
    return all;
  }
  static void tensors(Boxes& boxes, const TensorVisitor& visit) { visit(boxes.corners); }
};

template <>
struct BatchTraits<named_batch_test::Vocabulary> {
  static constexpr bool whole = true;
};

}  // namespace levin

namespace levin::named_batch_test {
namespace {

using test::error_of;
using test::holds;
using test::TensorLoader;
using Strings = std::vector<std::string>;

at::Tensor row(int64_t size, int64_t value) {
  return at::full({size}, value, at::kLong);
}

Batch everything() {
  return {{"x", at::arange(3).reshape({3, 1}).expand({3, 2})}, {"views", {at::arange(3), at::arange(3) + 10}},
          {"ids", Ragged{row(1, 0), row(4, 1), row(2, 2)}},    {"words", {"no", "one", "two"}},
          {"boxes", Boxes{at::arange(6), {1, 3, 2}}},          {"vocabulary", Vocabulary{7}}};
}

TEST(NamedBatch, FindsTensorsByNameAndByPlace) {
  const at::Tensor x = at::zeros({5, 2}), y = at::zeros({5});
  Batch batch{{"x", x}, {"y", y}};
  EXPECT_TRUE(batch["x"].is_same(x) && batch["y"].is_same(y) && batch[1].is_same(y));
  const auto [a, b] = batch.unpack<2>();
  EXPECT_TRUE(a.is_same(x) && b.is_same(y));
  const auto [c, d] = batch.unpack("y", "x");
  EXPECT_TRUE(c.is_same(y) && d.is_same(x));
  EXPECT_EQ(batch.names(), (Strings{"x", "y"}));
  EXPECT_TRUE(batch.has("y") && !batch.has("z") && !batch.empty());
  EXPECT_EQ(batch.size(), 5);
  batch["y"] = x;
  EXPECT_TRUE(batch[1].is_same(x)) << "a field can be replaced";
  batch.add({"z", y});
  EXPECT_TRUE(batch["z"].is_same(y));
}

TEST(NamedBatch, HoldsListsStringsAndValuesNextToTensors) {
  const Batch batch = everything();
  EXPECT_EQ(batch.count(), 1U + 2 + 3);
  EXPECT_EQ(batch.list("views").size(), 2U);
  EXPECT_EQ(batch.list("ids")[1].numel(), 4);
  EXPECT_EQ(batch.texts("words"), (Strings{"no", "one", "two"}));
  EXPECT_EQ(batch.value<Boxes>("boxes").counts, (std::vector<int64_t>{1, 3, 2}));
  EXPECT_EQ(batch.kind("ids"), FieldKind::ragged);
  EXPECT_EQ((Batch{{"words", {"a", "b"}}}).size(), 2);
  EXPECT_EQ((Batch{{"ids", Ragged{row(1, 0), row(4, 1)}}}).size(), 2) << "not the first one's dimension";
  EXPECT_EQ((Batch{{"boxes", Boxes{at::arange(6), {1, 3, 2}}}}).size(), 3);
}

TEST(NamedBatch, HoldsBatches) {
  const Batch batch{{"question", Batch{{"ids", at::zeros({2, 3})}, {"text", {"a", "b"}}}}, {"pair", Batch{row(2, 5)}}};
  EXPECT_EQ(batch.names(), (Strings{"question.ids", "question.text", "pair.0"}));
  const Batch question = batch.group("question");
  EXPECT_TRUE(question["ids"].is_same(batch["question.ids"]));
  EXPECT_EQ(question.texts("text"), (Strings{"a", "b"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)batch.group("answer"); }), {"no group \"answer\"", "pair.0"}));
}

TEST(NamedBatch, ErrorsListTheFieldsAndSuggestANearOne) {
  const Batch batch = everything();
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)batch["view"]; }),
                    {"no field \"view\"", "Did you mean \"views\"?", "x, views, ids, words, boxes, vocabulary"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)batch["ids"]; }), {"ragged", "batch.list(\"ids\")"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)batch["views"]; }), {"a list of tensors", "batch.list"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)batch.list("x"); }), {"a tensor", "batch[\"x\"]"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)batch["words"]; }), {"texts", "batch.texts(\"words\")"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)batch.texts("boxes"); }), {"batch.value<T>(\"boxes\")"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)batch.value<Opaque>("boxes"); }), {"type Boxes, not Opaque"}));
  const Batch list{at::zeros({2})};
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)list["x"]; }), {"list of 1 tensor", "Batch{{\"x\", x}, …}"}));
  const auto twice = [] { return Batch{{"x", at::zeros({2})}, {"x", at::zeros({2})}}; };
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)twice(); }), {"two fields \"x\""}));
  EXPECT_TRUE(holds(error_of<Error>([] {
                      (void)Batch({at::zeros({2})}, BatchNames{"x", "y"});
                    }),
                    {"2 names (x, y) for 1 tensor"}));
  EXPECT_TRUE(holds(error_of<Error>([] { (void)BatchNames{""}; }), {"name is empty"}));
  Batch shrunk{{"x", at::zeros({2})}};
  shrunk.tensors.clear();
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)shrunk["x"]; }), {"\"x\" has no tensor", "holds 0"}));
}

TEST(NamedBatch, IsCutBySamples) {
  const Batch part = rows_of(everything(), 1, 2);
  EXPECT_EQ(part.names(), everything().names());
  EXPECT_TRUE(part["x"].equal(at::arange(1, 3).reshape({2, 1}).expand({2, 2})));
  EXPECT_TRUE(part.list("views")[1].equal(at::arange(11, 13)));
  ASSERT_EQ(part.list("ids").size(), 2U);
  EXPECT_TRUE(part.list("ids")[0].equal(row(4, 1)) && part.list("ids")[1].equal(row(2, 2)));
  EXPECT_EQ(part.texts("words"), (Strings{"one", "two"}));
  EXPECT_TRUE(part.value<Boxes>("boxes").corners.equal(at::arange(1, 6)));
  EXPECT_EQ(part.value<Vocabulary>("vocabulary").words, 7) << "every part has all of it";
  EXPECT_EQ(rows_of(everything(), 3, 0).list("ids").size(), 0U);
}

TEST(NamedBatch, RefusesToCutWhatHasOtherSamplesOrNoTraits) {
  const at::Tensor x = at::zeros({3, 2});
  const auto cut = [](const Batch& batch) { return error_of<Error>([&] { (void)rows_of(batch, 0, 1); }); };
  EXPECT_TRUE(holds(cut({{"x", x}, {"words", {"a", "b"}}}), {"\"words\" holds 2 texts", "a batch of 3 samples"}));
  EXPECT_TRUE(holds(cut({{"x", x}, {"ids", Ragged{row(1, 0)}}}), {"\"ids\" holds 1 tensor", "3 samples"}));
  EXPECT_TRUE(holds(cut({{"x", x}, {"boxes", Boxes{at::arange(1), {1}}}}), {"\"boxes\" holds 1 sample", "concat()"}));
  EXPECT_TRUE(
      holds(cut({{"x", x}, {"odd", Opaque{1}}}), {"\"odd\"", "type Opaque", "cannot be split by samples",
                                                  "specialize levin::BatchTraits<Opaque>", "slice()", "whole"}));
  const Batch odd{{"x", x}, {"odd", Opaque{1}}};
  check_can_move(odd, at::kCPU);
  EXPECT_TRUE(
      holds(error_of<Error>([&] { check_can_move(odd, at::kMeta); }), {"\"odd\"", "moved to meta", "tensors()"}));
}

TEST(NamedBatch, ValuesShowTheirTensors) {
  Batch batch = everything();
  const Batch before = batch;
  visit_values(batch, [](at::Tensor& tensor) { tensor = tensor + 100; });
  EXPECT_TRUE(batch.value<Boxes>("boxes").corners.equal(at::arange(100, 106)));
  EXPECT_TRUE(before.value<Boxes>("boxes").corners.equal(at::arange(6))) << "a copy is left alone";
}

// ---- collating ----------------------------------------------------------------------------------------------------

Batch sample(int64_t i, int64_t width = 2) {
  return {{"x", at::full({width}, i, at::kLong)},
          {"ids", Ragged{row(i + 1, i)}},
          {"word", std::to_string(i)},
          {"boxes", Boxes{row(i, i), {i}}}};
}

TEST(Collate, StacksListsAndJoinsFieldByField) {
  const Batch batch = stack_samples({sample(0), sample(1), sample(2)});
  EXPECT_EQ(batch.names(), sample(0).names());
  EXPECT_TRUE(batch["x"].equal(at::arange(3).reshape({3, 1}).expand({3, 2})));
  ASSERT_EQ(batch.list("ids").size(), 3U);
  EXPECT_TRUE(batch.list("ids")[2].equal(row(3, 2)));
  EXPECT_EQ(batch.texts("word"), (Strings{"0", "1", "2"}));
  EXPECT_EQ(batch.value<Boxes>("boxes").counts, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(batch.value<Boxes>("boxes").corners.numel(), 3);
}

TEST(Collate, ListsAreStackedTensorByTensor) {
  const auto views = [](int64_t i) { return Batch{{"views", {row(2, i), row(3, -i)}}}; };
  const Batch batch = stack_samples({views(1), views(2)});
  EXPECT_EQ(batch.list("views")[0].sizes(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(batch.list("views")[1].sizes(), (std::vector<int64_t>{2, 3}));
}

TEST(Collate, GoesByNamesWhereTheirOrderDiffers) {
  const Batch one{{"x", row(2, 1)}, {"y", row(2, 2)}}, two{{"y", row(2, 4)}, {"x", row(2, 3)}};
  const Batch batch = stack_samples({one, two});
  EXPECT_EQ(batch["x"][1][0].item().toLong(), 3);
  EXPECT_EQ(batch["y"][1][0].item().toLong(), 4);
}

TEST(Collate, NamesTheFieldTheSampleAndBothShapes) {
  const auto error = [](const std::vector<Batch>& samples) {
    const std::vector<int64_t> indices = {70, 71};
    return error_of<DataError>([&] { (void)stack_samples(samples, indices.data()); });
  };
  EXPECT_TRUE(holds(error({sample(0), sample(1, 3)}),
                    {"field \"x\": sample 71 has [3]", "sample 70 has [2]", "levin::Ragged", "collate function"}));
  EXPECT_TRUE(holds(error({{{"x", row(2, 0)}, {"y", row(2, 0)}}, {{"x", row(2, 0)}, {"y", row(4, 0)}}}),
                    {"field \"y\": sample 71 has [4]"}));
  EXPECT_TRUE(
      holds(error({sample(0), {{"x", row(2, 0)}}}), {"\"ids\": sample 71 has no such field", "1 ragged tensor"}));
  EXPECT_TRUE(holds(error({{{"x", row(2, 0)}}, {{"x", {"a"}}}}), {"\"x\": sample 71 has 1 text", "has a tensor"}));
  EXPECT_TRUE(holds(error({{{"words", {"a", "b"}}}}), {"\"words\": sample 70 has 2 texts", "a sample has one"}));
  EXPECT_TRUE(holds(error({{{"odd", Opaque{1}}}, {{"odd", Vocabulary{1}}}}), {"type Vocabulary", "type Opaque"}));
  EXPECT_TRUE(holds(error({{{"v", {row(1, 0), row(2, 0)}}}, {{"v", {row(1, 0), row(3, 0)}}}}),
                    {"tensor 1 of field \"v\": sample 71 has [3]"}));
  const std::vector<Batch> odd = {{{"odd", Opaque{1}}}};
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)stack_samples(odd); }), {"cannot be collated", "concat()"}));
}

class Sentences final : public Dataset {
 public:
  [[nodiscard]] int64_t size() const override { return 10; }
  [[nodiscard]] Batch get(int64_t index) const override { return sample(index); }
};

TEST(Collate, WorksInTheLoadersThreads) {
  DataLoader loader(std::make_shared<Sentences>(), {.batch_size = 4, .num_workers = 2});
  loader.start(0);
  std::string words;
  for (Batch batch; loader.next(batch);) {
    for (const std::string& word : batch.texts("word")) words += word;
    EXPECT_EQ(std::ssize(batch.list("ids")), batch.size());
  }
  EXPECT_EQ(words, "0123456789");
}

// ---- several loaders ----------------------------------------------------------------------------------------------

std::shared_ptr<DataLoader> sentences(int64_t batch_size) {
  return std::make_shared<DataLoader>(std::make_shared<Sentences>(), DataLoaderOptions{.batch_size = batch_size});
}

TEST(Collate, NamesASampleWithAnUndefinedTensor) {
  const auto stacking = [](const std::vector<Batch>& samples) {
    return error_of<DataError>([&] { (void)stack_samples(samples); });
  };
  const Batch whole{at::zeros({2}), at::zeros({1})}, part{at::zeros({2}), at::Tensor()};
  EXPECT_EQ(stacking({part, part}),
            "cannot stack tensor 1: sample 0 has an undefined tensor. Make get() return tensors that are defined, or "
            "give the loader a collate function.");
  EXPECT_TRUE(holds(stacking({whole, part}), {"sample 1 has an undefined tensor but sample 0 has [1]"}));
}

TEST(Collate, ALoaderNamesADataSetOfANegativeSize) {
  struct Negative : Dataset {
    int64_t size() const override { return -1; }
    Batch get(int64_t) const override { return {}; }
  };
  const auto data = std::make_shared<Negative>();
  for (const auto& options : {DataLoaderOptions{}, DataLoaderOptions{.shuffle = true}}) {
    EXPECT_TRUE(holds(error_of<DataError>([&] { DataLoader(data, options); }),
                      {"size() of the data set", "Negative is -1. Return the number of samples"}));
  }
}

TEST(CombinedLoader, NamesTheFieldsOfEachLoader) {
  const auto plain = std::make_shared<TensorLoader>(std::vector<at::Tensor>{at::arange(10)}, 5);
  CombinedLoader loader(Loaders{sentences(5), sentences(2), plain},
                        {.mode = CombinedMode::min_size, .names = {"a", "b", "c"}});
  loader.start(0);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.texts("a.word").size(), 5U);
  EXPECT_EQ(batch.group("b").list("ids").size(), 2U);
  EXPECT_EQ(batch["c.0"].numel(), 5);
  EXPECT_EQ(batch.size(), 5);
}

TEST(CombinedLoader, KeepsNamesThatDoNotClash) {
  const auto plain = std::make_shared<TensorLoader>(std::vector<at::Tensor>{at::arange(10)}, 5);
  CombinedLoader loader(Loaders{sentences(5), plain}, {.mode = CombinedMode::min_size});
  loader.start(0);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.texts("word").size(), 5U);
  EXPECT_TRUE(batch.tensors.back().equal(at::arange(5)));
  CombinedLoader clash(Loaders{sentences(5), sentences(5)}, {.mode = CombinedMode::min_size});
  clash.start(0);
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)clash.next(batch); }), {"loader 1", "\"x\"", "names"}));
  const auto pair = [] {
    auto data = std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(4)}, std::vector<std::string>{"x"});
    return std::make_shared<DataLoader>(std::move(data), DataLoaderOptions{.batch_size = 4});
  };
  CombinedLoader twice(Loaders{pair(), pair()});
  twice.start(0);
  ASSERT_TRUE(twice.next(batch));
  EXPECT_TRUE(batch["x"].is_same(batch[0]));
  EXPECT_TRUE(batch[1].equal(at::arange(4))) << "tensors of the second are found by their places";
  EXPECT_TRUE(holds(error_of<ConfigError>([&] {
                      CombinedLoader(Loaders{plain}, {.names = {"a", "b"}});
                    }),
                    {"2 names for 1 loader"}));
}

TEST(CombinedLoader, FieldsWithoutRowsStandForALoaderThatHasEnded) {
  CombinedLoader loader(Loaders{sentences(2), sentences(5)}, {.mode = CombinedMode::max_size, .names = {"a", "b"}});
  loader.start(0);
  Batch batch;
  for (int k = 0; k < 3; ++k) ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch["a.x"].size(0), 2);
  EXPECT_EQ(batch["b.x"].size(0), 0);
  EXPECT_TRUE(batch.texts("b.word").empty() && batch.list("b.ids").empty());
}

}  // namespace
}  // namespace levin::named_batch_test
