// The searchers: which trials start, which continue, and that a decision depends on the trials alone.
#include "levin/cli/sweep/searcher.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace levin::searcher_test {

namespace {

struct SobolRow {
  uint32_t index;
  std::array<int, kSobolDimensions> parts;  // of 1024
};

// torch.quasirandom.SobolEngine(21).draw(1001, dtype=torch.float64) of PyTorch 2.11.
constexpr std::array<SobolRow, 5> kRecorded{{
    {5, {{896, 896, 128, 384, 896, 640, 896, 384, 384, 128, 384, 896, 896, 128, 896, 384, 896, 384, 384, 640, 640}}},
    {10, {{960, 64, 704, 192, 320, 576, 192, 192, 192, 576, 448, 832, 704, 704, 64, 704, 64, 576, 192, 64, 448}}},
    {33, {{560, 784, 208, 48, 656, 432, 304, 176, 496, 560, 912, 464, 976, 496, 496, 624, 688, 560, 944, 16, 848}}},
    {63, {{16, 816, 368, 464, 880, 144, 592, 144, 848, 592, 432, 688, 560, 784, 336, 784, 80, 400, 976, 240, 240}}},
    {1000, {{225, 99, 531, 693, 287, 929, 47, 921, 513, 71, 87, 261, 165, 393, 147, 379, 737, 353, 1015, 743, 535}}},
}};

Space lr_and_hidden() {
  Range lr;
  lr.path = "optimizer.lr";
  lr.kind = Range::Kind::log_uniform;
  lr.low = 1e-4;
  lr.high = 1e-1;
  Range hidden;
  hidden.path = "model.hidden";
  hidden.choices = {"8", "16", "32"};
  return {lr, hidden};
}

SweepOptions options_of(SearchMethod method, int64_t trials) {
  SweepOptions options;
  options.search.method = method;
  options.max_trials = trials;
  return options;
}

// Runs a search with one slot; value(trial, resource) is the metric. Returns the trials.
template <class Value>
std::vector<Trial> search(const Searcher& searcher, const std::vector<int64_t>& rungs, Value value) {
  std::vector<Trial> trials;
  for (int steps = 0; steps < 10'000; ++steps) {
    const SearchStep step = searcher.next(trials);
    if (step.kind == SearchStep::Kind::finished) return trials;
    if (step.kind == SearchStep::Kind::wait) break;
    if (step.kind == SearchStep::Kind::begin) {
      trials.push_back({.id = std::ssize(trials), .parameters = step.parameters, .bracket = step.bracket});
    }
    const int64_t id = step.kind == SearchStep::Kind::begin ? std::ssize(trials) - 1 : step.trial;
    Trial& trial = trials[static_cast<size_t>(id)];
    trial.target = step.target;
    trial.rungs.push_back({step.target, value(id, step.target)});
    trial.state = step.target < rungs.back() ? TrialState::paused : TrialState::completed;
  }
  ADD_FAILURE() << "the search does not end";
  return trials;
}

}  // namespace

TEST(SweepSobol, HasThePointsOfPyTorch) {
  for (const auto& row : kRecorded) {
    for (int dimension = 0; dimension < kSobolDimensions; ++dimension) {
      EXPECT_EQ(sobol(row.index, dimension), row.parts[static_cast<size_t>(dimension)] / 1024.0)
          << "point " << row.index << ", dimension " << dimension;
    }
  }
}

TEST(SweepSobol, KeepsThePointsEvenWhenItIsShifted) {
  // 64 points: one in each sixty-fourth, in every dimension and after every shift.
  for (int dimension = 0; dimension < kSobolDimensions; ++dimension) {
    std::set<int> cells;
    for (uint32_t k = 0; k < 64; ++k) cells.insert(static_cast<int>(sobol(k, dimension, 0xdeadbeef) * 64));
    EXPECT_EQ(cells.size(), 64U) << dimension;
  }
}

TEST(SweepGrid, VisitsEveryPointOnceTheLastKeyFastest) {
  Space space = lr_and_hidden();
  space[0] = space[1];
  space[0].path = "model.layers";
  space[0].choices = {"1", "2"};
  const auto options = options_of(SearchMethod::grid, 100);
  std::vector<std::string> seen;
  for (int64_t k = 0; k < 6; ++k) seen.push_back(parameters_text(parameters_of(options, space, k)));
  EXPECT_EQ(seen[0], "model.layers=1 model.hidden=8");
  EXPECT_EQ(seen[1], "model.layers=1 model.hidden=16");
  EXPECT_EQ(seen[3], "model.layers=2 model.hidden=8");
  EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()).size(), 6U);
  EXPECT_EQ(make_searcher(options, space, 0)->total(), 6);
}

TEST(SweepRandom, DependsOnSeedAndTrialAlone) {
  auto options = options_of(SearchMethod::random, 10);
  const Space space = lr_and_hidden();
  EXPECT_EQ(parameters_of(options, space, 3), parameters_of(options, space, 3));
  EXPECT_NE(parameters_of(options, space, 3), parameters_of(options, space, 4));
  const auto before = parameters_of(options, space, 3);
  options.seed = 1;
  EXPECT_NE(parameters_of(options, space, 3), before);
}

TEST(SweepRandom, DrawsEvenlyFromChoicesAndLogarithms) {
  const auto options = options_of(SearchMethod::random, 10);
  std::map<std::string, int> counts;
  std::array<int, 3> decades = {};
  constexpr int kDraws = 3000;
  for (int64_t k = 0; k < kDraws; ++k) {
    const auto parameters = parameters_of(options, lr_and_hidden(), k);
    ++decades[static_cast<size_t>(std::floor(std::log10(std::stod(parameters[0].second)) + 4))];
    ++counts[parameters[1].second];
  }
  ASSERT_EQ(counts.size(), 3U);
  // 1000 are expected of each; 5 standard deviations of a binomial count are 129.
  for (const auto& [value, count] : counts) EXPECT_NEAR(count, 1000, 129) << value;
  for (const int count : decades) EXPECT_NEAR(count, 1000, 129);
}

TEST(SweepAsha, PromotesTheBestThirdOfARungAndTheHighestRungFirst) {
  // By hand, with rungs 1, 3 and 9 and a value that is the same at every rung. A third of three results is one: trial 1
  // (3) continues after trials 0, 1, 2, and trial 3 (1) once it is the best of four. Of six results the best two
  // are trials 5 (0) and 3, so 5 continues; it is then the best of three at rung 3, and gets all. Trial 7 (2) continues
  // when nine results make it one of the best three.
  const std::array<double, 9> values{5, 3, 8, 1, 7, 0, 6, 2, 4};
  const Asha asha(options_of(SearchMethod::asha, 9), lr_and_hidden(), 9);
  std::vector<std::pair<int64_t, int64_t>> order;
  const auto trials = search(asha, {1, 3, 9}, [&](int64_t id, int64_t resource) {
    order.emplace_back(id, resource);
    return values[static_cast<size_t>(id)];
  });
  const std::vector<std::pair<int64_t, int64_t>> expected{{0, 1}, {1, 1}, {2, 1}, {1, 3}, {3, 1}, {3, 3}, {4, 1},
                                                          {5, 1}, {5, 3}, {5, 9}, {6, 1}, {7, 1}, {8, 1}, {7, 3}};
  EXPECT_EQ(order, expected);
  EXPECT_EQ(best_trial(trials, false)->id, 5);
}

TEST(SweepAsha, WaitsForARunningTrialWhenAllHaveBegun) {
  const Asha asha(options_of(SearchMethod::asha, 1), lr_and_hidden(), 9);
  std::vector<Trial> trials{{.id = 0, .state = TrialState::running}};
  EXPECT_EQ(asha.next(trials).kind, SearchStep::Kind::wait);
  trials[0].state = TrialState::failed;
  EXPECT_EQ(asha.next(trials).kind, SearchStep::Kind::finished);
}

TEST(SweepHyperband, HasTheBracketsOfThePaper) {
  // Li et al., table 1, for R = 81 and eta = 3: (n, r) of each rung of each bracket.
  const Hyperband hyperband(options_of(SearchMethod::hyperband, 1000), lr_and_hidden(), 81);
  const auto& brackets = hyperband.brackets();
  ASSERT_EQ(brackets.size(), 5U);
  EXPECT_EQ(brackets[0].trials, (std::vector<int64_t>{81, 27, 9, 3, 1}));
  EXPECT_EQ(brackets[0].resources, (std::vector<int64_t>{1, 3, 9, 27, 81}));
  EXPECT_EQ(brackets[1].trials, (std::vector<int64_t>{34, 11, 3, 1}));
  EXPECT_EQ(brackets[2].trials, (std::vector<int64_t>{15, 5, 1}));
  EXPECT_EQ(brackets[3].trials, (std::vector<int64_t>{8, 2}));
  EXPECT_EQ(brackets[4].trials, (std::vector<int64_t>{5}));
  EXPECT_EQ(hyperband.total(), 81 + 34 + 15 + 8 + 5);
}

TEST(SweepHyperband, CountsTrialsUpToTheLargestResource) {
  SweepOptions options;
  options.search.method = SearchMethod::hyperband;
  options.search.reduction_factor = 2;
  const Hyperband searcher(options, lr_and_hidden(), std::numeric_limits<int64_t>::max());
  int64_t before = 0;
  for (const Hyperband::Bracket& bracket : searcher.brackets()) {
    EXPECT_EQ(bracket.first, before);
    for (const int64_t trials : bracket.trials) EXPECT_GT(trials, 0);
    before += bracket.trials[0];
  }
  EXPECT_EQ(searcher.total(), before);
  EXPECT_EQ(searcher.next({}).target, 1);
}

TEST(SweepHyperband, GivesTheBestOfEachRungMore) {
  const Hyperband hyperband(options_of(SearchMethod::hyperband, 1000), lr_and_hidden(), 9);
  std::map<int64_t, int> with_resource;
  const auto trials = search(hyperband, {1, 3, 9}, [&](int64_t id, int64_t resource) {
    ++with_resource[resource];
    return static_cast<double>((id * 7) % 17);
  });
  EXPECT_EQ(trials.size(), 17U);  // brackets of 9, 5 and 3
  EXPECT_EQ(with_resource[1], 9);
  EXPECT_EQ(with_resource[3], 3 + 5);
  EXPECT_EQ(with_resource[9], 1 + 1 + 3);
}

TEST(SweepHyperband, PromotesSeveralTrialsAtTheSameTime) {
  const Hyperband hyperband(options_of(SearchMethod::hyperband, 9), lr_and_hidden(), 9);
  std::vector<Trial> trials;
  for (int64_t id = 0; id < 9; ++id) {
    trials.push_back({.id = id, .state = TrialState::paused, .target = 1, .rungs = {{1, static_cast<double>(id)}}});
  }
  const SearchStep first = hyperband.next(trials);
  EXPECT_EQ(first.kind, SearchStep::Kind::continue_);
  EXPECT_EQ(first.trial, 0);
  trials[0].state = TrialState::running;
  EXPECT_EQ(hyperband.next(trials).trial, 1);
  trials[1].state = trials[2].state = TrialState::running;
  EXPECT_EQ(hyperband.next(trials).kind, SearchStep::Kind::wait);
}

TEST(SweepTrial, NanIsNeverTheBest) {
  const std::vector<Trial> trials{{.id = 0, .state = TrialState::completed, .rungs = {{0, std::nan("")}}},
                                  {.id = 1, .state = TrialState::completed, .rungs = {{0, 3.0}}},
                                  {.id = 2, .state = TrialState::completed, .rungs = {{0, 3.0}}}};
  EXPECT_EQ(best_trial(trials, false)->id, 1);
  EXPECT_EQ(best_trial(trials, true)->id, 1);
  EXPECT_EQ(best_trial({}, true), nullptr);
}

}  // namespace levin::searcher_test
