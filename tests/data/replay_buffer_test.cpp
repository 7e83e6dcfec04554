// Replay buffers: uniform and prioritised draws against closed forms.
#include "levin/data/loading/replay_buffer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <thread>

#include "levin/core/options/error.h"
#include "levin/core/random.h"
#include "levin/data/loading/combined_loader.h"
#include "levin/data/loading/replay_loader.h"
#include "support/error_text.h"
#include "support/field_count.h"

namespace levin::replay_buffer_test {
namespace {

using test::error_of;
using test::expect_parts;

// Row k: x is (2) float32 of k, a is () int64 of 10 k.
Batch row_of(int64_t k) {
  return {{"x", at::full({2}, static_cast<double>(k), at::kFloat)}, {"a", at::full({}, 10 * k, at::kLong)}};
}

Batch rows_of(int64_t first, int64_t count) {
  const at::Tensor k = at::arange(first, first + count, at::kLong);
  return {{"x", k.to(at::kFloat).unsqueeze(1).expand({count, 2})}, {"a", 10 * k}};
}

at::Tensor int64s(const std::vector<int64_t>& numbers) {
  return at::tensor(numbers, at::TensorOptions().dtype(at::kLong));
}

at::Tensor doubles(const std::vector<double>& numbers) {
  return at::tensor(numbers, at::TensorOptions().dtype(at::kDouble));
}

// How often each id below `ids` is drawn in `batches` batches of `batch_size`.
std::vector<double> frequencies(ReplayBuffer& buffer, int64_t ids, int64_t batches, int64_t batch_size) {
  at::Tensor seen = at::zeros({ids}, at::kLong);
  for (int64_t k = 0; k < batches; ++k) seen += at::bincount(buffer.sample(batch_size)["ids"], {}, ids);
  std::vector<double> all;
  for (int64_t k = 0; k < ids; ++k) all.push_back(seen[k].item<double>());
  return all;
}

double chi_square(const std::vector<double>& seen, const std::vector<double>& expected) {
  double sum = 0;
  for (size_t k = 0; k < seen.size(); ++k) sum += std::pow(seen[k] - expected[k], 2) / expected[k];
  return sum;
}

void expect_equal_batches(const Batch& one, const Batch& other) {
  ASSERT_EQ(one.names(), other.names());
  ASSERT_EQ(one.count(), other.count());
  for (size_t k = 0; k < one.count(); ++k) EXPECT_TRUE(at::equal(one[k], other[k])) << "tensor " << k;
}

// ---- rows ----------------------------------------------------------------------------------------------------------

TEST(ReplayBuffer, BatchesHoldTheRowsOfTheirIds) {
  ReplayBuffer buffer({.capacity = 10, .seed = 1});
  for (int64_t k = 0; k < 4; ++k) EXPECT_EQ(buffer.add(row_of(k)), k);
  EXPECT_EQ(buffer.add_many(rows_of(4, 3)), 4);
  EXPECT_EQ(buffer.size(), 7);
  const Batch batch = buffer.sample(64);
  EXPECT_EQ(batch.names(), (std::vector<std::string>{"x", "a", "ids"}));
  EXPECT_EQ(batch["x"].sizes(), (std::vector<int64_t>{64, 2}));
  EXPECT_EQ(batch["x"].scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(batch["a"], batch["ids"] * 10));
  EXPECT_TRUE(at::equal(batch["x"].select(1, 1), batch["ids"].to(at::kFloat)));
}

TEST(ReplayBuffer, ReplacesTheOldestRows) {
  for (const bool at_once : {false, true}) {
    ReplayBuffer buffer({.capacity = 3, .seed = 1});
    if (at_once) {
      EXPECT_EQ(buffer.add_many(rows_of(0, 8)), 0);
    } else {
      for (int64_t k = 0; k < 8; ++k) EXPECT_EQ(buffer.add(row_of(k)), k);
    }
    EXPECT_EQ(buffer.size(), 3);
    EXPECT_EQ(buffer.added(), 8);
    const Batch batch = buffer.sample(100);
    EXPECT_TRUE(at::equal(batch["a"], batch["ids"] * 10));
    std::set<int64_t> ids;
    for (int64_t k = 0; k < 100; ++k) ids.insert(batch["ids"][k].item<int64_t>());
    EXPECT_EQ(ids, (std::set<int64_t>{5, 6, 7}));
  }
}

TEST(ReplayBuffer, TakesRowsWithoutNamesAndFieldsInAnyOrder) {
  ReplayBuffer plain({.capacity = 4, .seed = 1});
  plain.add({at::full({2}, 3.0), at::full({}, 4.0)});
  const Batch batch = plain.sample(2);
  EXPECT_EQ(batch.count(), 3);
  EXPECT_EQ(batch[0].sizes(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(batch[1][0].item<double>(), 4.0);
  EXPECT_TRUE(at::equal(batch["ids"], int64s({0, 0})));

  ReplayBuffer named({.capacity = 4, .seed = 1});
  named.add(row_of(0));
  named.add({{"a", at::full({}, int64_t{10}, at::kLong)}, {"x", at::full({2}, 1.0, at::kFloat)}});
  const Batch both = named.sample(50);
  EXPECT_TRUE(at::equal(both["a"], both["ids"] * 10));
}

TEST(ReplayBuffer, IsFilledInInferenceModeForTraining) {
  ReplayBuffer buffer({.capacity = 4, .seed = 1});
  {
    const c10::InferenceMode acting;
    buffer.add({{"x", at::full({2}, 1.0)}});
  }
  buffer.add({{"x", at::full({2}, 1.0).requires_grad_()}});
  const at::Tensor x = buffer.sample(4)["x"];
  EXPECT_FALSE(x.is_inference());
  EXPECT_FALSE(x.requires_grad());
}

// ---- uniform draws -------------------------------------------------------------------------------------------------

TEST(ReplayBuffer, DrawsEveryRowEquallyOften) {
  ReplayBuffer buffer({.capacity = 50, .seed = 3});
  buffer.add_many(rows_of(0, 50));
  const std::vector<double> seen = frequencies(buffer, 50, 500, 100);
  // 49 degrees of freedom: 94.8 is exceeded for one seed of 10,000.
  EXPECT_LT(chi_square(seen, std::vector<double>(50, 1000.0)), 94.8);
}

TEST(ReplayBuffer, DrawsAreAFunctionOfTheSeed) {
  const auto ids = [](int64_t seed, uint64_t run_seed) {
    const uint64_t before = default_seed();
    set_default_seed(run_seed);
    ReplayBuffer buffer({.capacity = 100, .seed = seed});
    buffer.add_many(rows_of(0, 100));
    at::Tensor drawn = buffer.sample(20)["ids"];
    set_default_seed(before);
    return drawn;
  };
  EXPECT_TRUE(at::equal(ids(5, 0), ids(5, 1)));
  EXPECT_FALSE(at::equal(ids(5, 0), ids(6, 0)));
  EXPECT_TRUE(at::equal(ids(-1, 5), ids(5, 0)));  // the run's seed
}

// ---- prioritised draws ---------------------------------------------------------------------------------------------

ReplayBufferOptions prioritized(double alpha, double beta) {
  return {.capacity = 10, .prioritized = true, .alpha = alpha, .beta = beta, .epsilon = 0.01, .seed = 3};
}

// P(i) of the values 0, -1, 2, -3, …
std::vector<double> probabilities(int64_t rows, double alpha) {
  std::vector<double> all;
  double sum = 0;
  for (int64_t k = 0; k < rows; ++k) sum += all.emplace_back(std::pow(static_cast<double>(k) + 0.01, alpha));
  for (double& one : all) one /= sum;
  return all;
}

void set_alternating_values(ReplayBuffer& buffer, int64_t rows) {
  std::vector<double> values;
  for (int64_t k = 0; k < rows; ++k) values.push_back(static_cast<double>(k % 2 == 0 ? k : -k));
  buffer.update_priorities(at::arange(rows, at::kLong), doubles(values));
}

TEST(ReplayBuffer, DrawsRowsInProportionToTheirPriorities) {
  for (const double alpha : {0.0, 0.7, 1.0}) {
    ReplayBuffer buffer(prioritized(alpha, 0.4));
    buffer.add_many(rows_of(0, 10));
    set_alternating_values(buffer, 10);
    std::vector<double> expected = probabilities(10, alpha);
    for (double& one : expected) one *= 50000;
    // 9 degrees of freedom: 34.1 is exceeded for one seed of 10,000, and for fewer because batches are stratified.
    EXPECT_LT(chi_square(frequencies(buffer, 10, 1000, 50), expected), 34.1) << alpha;
  }
}

TEST(ReplayBuffer, WeightsAreThoseOfTheFormula) {
  for (const double beta : {0.0, 0.5, 1.0}) {
    ReplayBuffer buffer(prioritized(0.6, 0.3));
    buffer.add_many(rows_of(0, 8));
    set_alternating_values(buffer, 8);
    buffer.set_beta(beta);
    const std::vector<double> probability = probabilities(8, 0.6);
    const Batch batch = buffer.sample(32);
    std::vector<double> wanted;
    for (int64_t k = 0; k < 32; ++k) {
      wanted.push_back(std::pow(8 * probability[static_cast<size_t>(batch["ids"][k].item<int64_t>())], -beta));
    }
    const double largest = *std::max_element(wanted.begin(), wanted.end());
    EXPECT_EQ(batch["weights"].scalar_type(), at::kFloat);
    for (int64_t k = 0; k < 32; ++k) {
      EXPECT_NEAR(batch["weights"][k].item<double>(), wanted[static_cast<size_t>(k)] / largest, 1e-6);
    }
  }
}

TEST(ReplayBuffer, ANewRowHasTheHighestPriority) {
  ReplayBuffer buffer(prioritized(1.0, 0.4));
  buffer.add_many(rows_of(0, 2));
  buffer.update_priorities(int64s({1}), doubles({5}));
  buffer.update_priorities(int64s({1}), doubles({0.5}));
  buffer.add(row_of(2));
  EXPECT_TRUE(at::equal(buffer.state_dict().tensor("priorities"), doubles({1, 0.5 + 0.01, 5 + 0.01})));
}

TEST(ReplayBuffer, SkipsPrioritiesOfRowsThatWereReplaced) {
  ReplayBuffer buffer({.capacity = 2, .prioritized = true, .alpha = 1, .epsilon = 0.01, .seed = 3});
  buffer.add_many(rows_of(0, 3));
  buffer.update_priorities(int64s({0, 1}), doubles({7, 0.25}));
  EXPECT_TRUE(at::equal(buffer.state_dict().tensor("priorities"), doubles({1, 0.25 + 0.01})));
}

// ---- mistakes ------------------------------------------------------------------------------------------------------

TEST(ReplayBuffer, NamesTheFieldThatDiffersFromTheFirstRow) {
  ReplayBuffer buffer({.capacity = 4});
  buffer.add(row_of(0));
  const auto error = [&](const Batch& row) { return error_of<DataError>([&] { (void)buffer.add(row); }); };
  const at::Tensor a = at::full({}, int64_t{0}, at::kLong), x = at::zeros({2}, at::kFloat);
  expect_parts(error({{"x", at::zeros({3}, at::kFloat)}, {"a", a}}),
               {"ReplayBuffer.add: field \"x\"", "[3] Float", "[2] Float"});
  expect_parts(error({{"x", x.to(at::kDouble)}, {"a", a}}), {"field \"x\"", "Double", "Float"});
  expect_parts(error({{"x", x}}), {"field \"a\" of the first row is missing"});
  expect_parts(error({{"x", x}, {"a", a}, {"b", a}}), {"3 tensors (x, a, b)", "2"});
  expect_parts(error({{"x", at::Tensor()}, {"a", a}}), {"field \"x\" is an undefined tensor"});
  expect_parts(error_of<DataError>([&] {
                 (void)buffer.add_many({{"x", at::zeros({3, 2}, at::kFloat)}, {"a", a}});
               }),
               {"ReplayBuffer.add_many: field \"a\" has no batch dimension"});
  expect_parts(error_of<DataError>([&] {
                 (void)buffer.add_many({{"x", at::zeros({3, 2}, at::kFloat)}, {"a", at::zeros({2}, at::kLong)}});
               }),
               {"field \"a\" has 2 rows", "3"});
  EXPECT_EQ(buffer.added(), 1);
}

TEST(ReplayBuffer, RefusesRowsThatAreNotTensors) {
  ReplayBuffer buffer({.capacity = 4});
  const auto error = [&](const Batch& row) { return error_of<DataError>([&] { (void)buffer.add(row); }); };
  const at::Tensor x = at::zeros({2});
  expect_parts(error({}), {"the row has no tensors"});
  expect_parts(error({{"x", x}, {"text", "hello"}}), {"field \"text\" is not a tensor"});
  expect_parts(error({{"x", Ragged{x}}}), {"field \"x\" is not a tensor"});
  expect_parts(error({{"ids", x}}), {"field \"ids\" is reserved"});
  expect_parts(error({{"weights", x}}), {"field \"weights\" is reserved"});
  expect_parts(error(Batch({x, x}, BatchNames{"x"})), {"2 tensors and 1 name"});
}

TEST(ReplayBuffer, ExplainsDrawsAndPrioritiesThatArePossibleOnlyOtherwise) {
  ReplayBuffer uniform({.capacity = 4});
  expect_parts(error_of<DataError>([&] { (void)uniform.sample(1); }), {"ReplayBuffer.sample: the buffer is empty"});
  expect_parts(error_of<ConfigError>([&] { (void)uniform.sample(0); }), {"batch_size must be >= 1, got 0"});
  expect_parts(error_of<ConfigError>([&] { uniform.update_priorities(int64s({0}), doubles({1})); }),
               {"ReplayBufferOptions.prioritized"});
  ReplayBuffer buffer(prioritized(1, 1));
  buffer.add_many(rows_of(0, 2));
  const State before = buffer.state_dict();
  const auto error = [&](const at::Tensor& ids, const at::Tensor& values) {
    return error_of<DataError>([&] { buffer.update_priorities(ids, values); });
  };
  expect_parts(error(int64s({0, 2}), doubles({5, 1})), {"no row with id 2", "2 rows were added"});
  expect_parts(error(int64s({-1}), doubles({1})), {"no row with id -1"});
  expect_parts(error(int64s({0, 1}), doubles({5, std::nan("")})), {"row 1 is nan"});
  expect_parts(error(int64s({0}), doubles({1, 2})), {"values must be a floating-point tensor (1)"});
  expect_parts(error(doubles({0}), doubles({1})), {"ids must be a tensor (n) of int64"});
  EXPECT_TRUE(at::equal(buffer.state_dict().tensor("priorities"), before.tensor("priorities")));
  expect_parts(error_of<ConfigError>([&] { buffer.set_beta(1.5); }), {"from 0 to 1, got 1.5"});
}

TEST(ReplayBuffer, ChecksItsOptions) {
  expect_parts(error_of<ConfigError>([] { ReplayBuffer({.capacity = 0, .alpha = -1, .epsilon = 0}); }),
               {"ReplayBufferOptions.capacity", "ReplayBufferOptions.alpha", "ReplayBufferOptions.epsilon"});
  EXPECT_EQ(levin::testing::field_count<ReplayBufferOptions>(), field_names<ReplayBufferOptions>().size());
  EXPECT_EQ(levin::testing::field_count<ReplayLoaderOptions>(), field_names<ReplayLoaderOptions>().size());
}

// ---- state ---------------------------------------------------------------------------------------------------------

// Draws, adds and sets priorities, as a learner and its actors would.
std::vector<Batch> use(ReplayBuffer& buffer, int64_t first, int64_t rounds) {
  std::vector<Batch> drawn;
  for (int64_t k = first; k < first + rounds; ++k) {
    buffer.add_many(rows_of(buffer.added(), 1 + k % 3));
    drawn.push_back(buffer.sample(8));
    if (!buffer.options().prioritized) continue;
    buffer.update_priorities(drawn.back()["ids"], drawn.back()["x"].select(1, 0).sin());
    buffer.set_beta(0.4 + 0.01 * static_cast<double>(k));
  }
  return drawn;
}

TEST(ReplayBuffer, ContinuesFromItsStateBitwise) {
  for (const bool by_priority : {false, true}) {
    const ReplayBufferOptions options{.capacity = 20, .prioritized = by_priority, .seed = 4};
    ReplayBuffer buffer(options);
    for (const int64_t rounds : {3, 20}) {  // before and after the buffer is full
      (void)use(buffer, 0, rounds);
      const State saved = buffer.state_dict();
      const std::vector<Batch> wanted = use(buffer, 20, 10);
      ReplayBufferOptions other = options;
      other.seed = 99;
      ReplayBuffer resumed(other);
      (void)use(resumed, 0, 2);
      resumed.load_state_dict(saved);
      const std::vector<Batch> drawn = use(resumed, 20, 10);
      for (size_t k = 0; k < wanted.size(); ++k) expect_equal_batches(drawn[k], wanted[k]);
    }
  }
}

TEST(ReplayBuffer, AStateDoesNotChangeAfterwards) {
  ReplayBuffer buffer(prioritized(1, 1));
  buffer.add_many(rows_of(0, 10));
  const State saved = buffer.state_dict();
  const at::Tensor rows = saved.tensor("rows.0").clone(), priorities = saved.tensor("priorities").clone();
  (void)use(buffer, 10, 10);
  EXPECT_TRUE(at::equal(saved.tensor("rows.0"), rows));
  EXPECT_TRUE(at::equal(saved.tensor("priorities"), priorities));
  ReplayBuffer other(prioritized(1, 1));
  other.load_state_dict(saved);
  (void)use(other, 10, 10);
  EXPECT_TRUE(at::equal(saved.tensor("rows.0"), rows));
}

TEST(ReplayBuffer, AnEmptyBufferHasAStateToo) {
  ReplayBuffer buffer({.capacity = 4, .seed = 1}), resumed({.capacity = 4, .seed = 1});
  resumed.add({at::zeros({7})});
  resumed.load_state_dict(buffer.state_dict());
  EXPECT_EQ(resumed.size(), 0);
  resumed.add(row_of(0));
}

TEST(ReplayBuffer, RefusesADamagedState) {
  ReplayBuffer buffer(prioritized(1, 1));
  buffer.add_many(rows_of(0, 4));
  const State good = buffer.state_dict();
  const auto error = [&](const std::function<void(State&)>& damage) {
    State saved = good;
    damage(saved);
    const std::string message = error_of<CheckpointError>([&] { buffer.load_state_dict(saved); });
    EXPECT_TRUE(message.starts_with("ReplayBuffer: ")) << message;
    return message;
  };
  expect_parts(error([](State& s) { s = {}; }), {"saved state has no \"draws\""});
  expect_parts(error([](State& s) { s.set("capacity", int64_t{11}); }), {"capacity of 11", "capacity of 10"});
  expect_parts(error([](State& s) { s.set("prioritized", false); }), {"no priorities"});
  expect_parts(error([](State& s) { s.set("added", int64_t{-1}); }), {"damaged", "-1 rows"});
  expect_parts(error([](State& s) { s.set("added", int64_t{5}); }), {"field \"x\"", "5 rows"});
  expect_parts(error([](State& s) { s.set("names", std::vector<std::string>()); }), {"damaged", "0 columns"});
  expect_parts(error([](State& s) { s.set("names", std::vector<std::string>{"x", "x"}); }), {"field \"x\""});
  expect_parts(error([](State& s) { s.set("names", std::vector<std::string>{"x", ""}); }), {"tensor 1"});
  expect_parts(error([](State& s) { s.set("beta", 2.0); }), {"beta 2"});
  expect_parts(error([](State& s) { s.set("max_priority", 0.0); }), {"max_priority is 0"});
  expect_parts(error([](State& s) { s.tensors.erase("rows.1"); }), {"\"rows.1\""});
  expect_parts(error([](State& s) { s.tensors["rows.1"] = at::zeros({3}, at::kLong); }), {"field \"a\"", "4 rows"});
  expect_parts(error([](State& s) { s.tensors["priorities"] = at::zeros({4}, at::kDouble); }), {"priority 0 is 0"});
  expect_parts(error([](State& s) { s.tensors["priorities"] = at::zeros({5}); }), {"\"priorities\"", "(4)"});
  EXPECT_TRUE(at::equal(buffer.state_dict().tensor("rows.0"), good.tensor("rows.0")));  // nothing was changed
}

// ---- threads -------------------------------------------------------------------------------------------------------

TEST(ReplayBuffer, ActorsAddWhileALearnerDraws) {
  ReplayBuffer buffer({.capacity = 64, .prioritized = true, .seed = 3});
  buffer.add(row_of(0));
  std::vector<std::jthread> actors;
  for (int64_t t = 0; t < 3; ++t) {
    actors.emplace_back([&buffer] {
      for (int64_t k = 0; k < 300; ++k) buffer.add_many(rows_of(k, 2));
    });
  }
  for (int64_t k = 0; k < 200; ++k) {
    const Batch batch = buffer.sample(16);
    EXPECT_TRUE(at::equal(batch["x"].select(1, 0) * 10, batch["a"].to(at::kFloat)));
    buffer.update_priorities(batch["ids"], batch["x"].select(1, 0));
    if (k % 50 != 0) continue;
    const State saved = buffer.state_dict();
    EXPECT_EQ(saved.tensor("rows.0").size(0), std::min<int64_t>(saved.get<int64_t>("added"), 64));
  }
  actors.clear();
  EXPECT_EQ(buffer.added(), 1 + 3 * 300 * 2);
}

// ---- as a loader ---------------------------------------------------------------------------------------------------

TEST(ReplayLoader, GivesAsManyBatchesAsItIsTold) {
  const auto buffer = std::make_shared<ReplayBuffer>(ReplayBufferOptions{.capacity = 8, .seed = 3});
  buffer->add_many(rows_of(0, 8));
  ReplayLoader loader(buffer, {.batch_size = 5, .batches_per_epoch = 3});
  EXPECT_FALSE(loader.may_be_read_ahead());
  EXPECT_EQ(loader.num_batches(), 3);
  EXPECT_EQ(loader.batch_size(), 5);
  Batch batch;
  loader.start(0, 1);
  int64_t batches = 0;
  for (; loader.next(batch); ++batches) EXPECT_EQ(batch.size(), 5);
  EXPECT_EQ(batches, 2);
  EXPECT_TRUE(loader.set_batch_size(2));
  loader.start(1);
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.size(), 2);
  expect_parts(error_of<DataError>([&] { loader.start(0, 4); }), {"batch 4", "3 batches", "batches_per_epoch"});
  expect_parts(error_of<DataError>([&] { ReplayLoader(nullptr, {}); }), {"no buffer"});
}

TEST(ReplayLoader, ItsCheckpointHoldsTheBufferAndItsStateTheDraws) {
  const auto make = [](int64_t rows) {
    auto buffer = std::make_shared<ReplayBuffer>(ReplayBufferOptions{.capacity = 8, .seed = 3});
    buffer->add_many(rows_of(0, rows));
    return buffer;
  };
  const ReplayLoaderOptions options{.batch_size = 4, .batches_per_epoch = 3};
  const auto buffer = make(8);
  CombinedLoader loader(Loaders{std::make_shared<ReplayLoader>(buffer, options)}, {.mode = CombinedMode::min_size});
  Batch first, second, again;
  loader.start(0);
  ASSERT_TRUE(loader.next(first));
  const State light = loader.state_dict();
  EXPECT_TRUE(light.tensors.empty());
  State checkpoint = light;
  loader.add_to_checkpoint(checkpoint);
  ASSERT_TRUE(loader.next(second));

  loader.load_state_dict(light);  // the same buffer draws again
  loader.start(0, 1);
  ASSERT_TRUE(loader.next(again));
  expect_equal_batches(again, second);

  const auto restored = make(1);
  CombinedLoader resumed(Loaders{std::make_shared<ReplayLoader>(restored, options)}, {.mode = CombinedMode::min_size});
  resumed.load_state_dict(checkpoint);
  resumed.start(0, 1);
  ASSERT_TRUE(resumed.next(again));
  expect_equal_batches(again, second);
  EXPECT_EQ(restored->size(), 8);
}

}  // namespace
}  // namespace levin::replay_buffer_test
