// The sweep's file: ranges, and every message about a mistake in it.
#include "levin/cli/sweep/sweep_options.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "levin/cli/sweep/sweep_report.h"
#include "levin/cli/sweep/sweep_store.h"
#include "levin/cli/sweep/sweep_tables.h"
#include "levin/cli/sweep/trial_result.h"
#include "levin/core/files/files.h"
#include "levin/core/files/sqlite.h"
#include "levin/yaml/yaml_file.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::sweep_options_test {

using test::error_of;
using test::holds;
using test::TemporaryFolder;

namespace {

constexpr const char* kHead = "run: run.yaml\nmetric: val_loss\nmax_trials: 4\n";

std::string mistakes_in(const std::string& text) {
  Problems problems;
  (void)read_sweep_text(text, "s", problems);
  std::string all;
  for (const auto& line : problems.lines()) all += line + "\n";
  return all;
}

std::optional<int64_t> add_trial(SweepStore& store, const Parameters& parameters, int64_t target = 0) {
  return store.add([&](int64_t) { return std::optional(SweepStore::NewTrial{parameters, target}); });
}

Range range_of(const std::string& text) {
  Problems problems;
  const SweepFile file = read_sweep_text(kHead + ("space: {model.x: " + text + "}"), "s", problems);
  EXPECT_TRUE(problems.empty()) << problems.lines()[0];
  return file.space.empty() ? Range() : file.space[0];
}

std::string wrong_range(const std::string& text) {
  return mistakes_in(kHead + ("space: {model.x: " + text + "}"));
}

}  // namespace

TEST(SweepRange, TakesBothEnds) {
  EXPECT_EQ(range_of("{uniform: [0, 0.5]}").values_to_check()[0], "0.0");
  EXPECT_EQ(range_of("{uniform: [0, 0.5]}").value_at(0.5), "0.25");
  EXPECT_EQ(range_of("{int: [1, 3]}").all_values(), (std::vector<std::string>{"1", "2", "3"}));
  EXPECT_EQ(range_of("{int: [2, 9], step: 3}").all_values(), (std::vector<std::string>{"2", "5", "8"}));
  const Range log = range_of("{log_uniform: [1e-4, 1e-2]}");
  EXPECT_NEAR(std::stod(log.value_at(0.5)), 1e-3, 1e-15);
  EXPECT_EQ(log.values_to_check(), (std::vector<std::string>{"1e-04", "0.01"}));
}

TEST(SweepRange, HoldsItsValuesAlsoBetweenTheLargestNumbers) {
  const Range wide = range_of("{uniform: [-1.7e308, 1.7e308]}");
  for (const double u : {0.0, 0.25, 0.5, 0.999}) EXPECT_TRUE(wide.contains(wide.value_at(u))) << wide.value_at(u);
  EXPECT_NEAR(std::stod(wide.value_at(0.25)), -0.85e308, 1e302);
  EXPECT_EQ(range_of("{int: [5, 9], step: 9223372036854775807}").all_values(), std::vector<std::string>{"5"});
  EXPECT_EQ(range_of("{int: [-9007199254740992, 9007199254740992], step: 9007199254740992}").all_values(),
            (std::vector<std::string>{"-9007199254740992", "0", "9007199254740992"}));
  EXPECT_TRUE(
      holds(wrong_range("{int: [0, 9223372036854775807]}"), {"must be from -2^53 to 2^53", "9223372036854775807"}));
}

TEST(SweepRange, ALogarithmicIntegerHasEqualMassForEqualFactors) {
  const Range range = range_of("{int: [1, 7], log: true}");
  // [1, 8) in three doublings: 1; 2 and 3; 4 to 7.
  std::array<int, 3> counts = {};
  for (int k = 0; k < 300; ++k) {
    const auto value = std::stoi(range.value_at((k + 0.5) / 300));
    ++counts[value == 1 ? 0 : value < 4 ? 1 : 2];
  }
  for (const int count : counts) EXPECT_EQ(count, 100);
}

TEST(SweepRange, KeepsChoicesUnchangedOnACommandLine) {
  const Range range = range_of("{choice: [16-mixed, \"5\", 5, null, [1, 2], {class_path: SGD}]}");
  EXPECT_EQ(range.choices,
            (std::vector<std::string>{"16-mixed", "\"5\"", "5", "null", "[1, 2]", "{\"class_path\": SGD}"}));
  for (const auto& choice : range.choices) {
    Problems problems;
    const ConfigNode read = read_yaml_value(choice, {}, problems);
    EXPECT_TRUE(problems.empty());
    EXPECT_EQ(override_text(read), choice);
  }
}

TEST(SweepRange, ReportsWhatIsWrongWithIt) {
  EXPECT_TRUE(holds(wrong_range("3"), {"s.yaml:4:", "space.model.x: expected a range, got 3", "uniform"}));
  EXPECT_TRUE(holds(wrong_range("{}"), {"space.model.x: the range is empty"}));
  EXPECT_TRUE(holds(wrong_range("{uniform: [1]}"), {"space.model.x.uniform: expected two numbers, [LOWEST, HIGHEST]"}));
  EXPECT_TRUE(holds(wrong_range("{uniform: [2, 1]}"), {"must be below the highest, got [2, 1]"}));
  EXPECT_TRUE(holds(wrong_range("{uniform: [a, 1]}"), {"space.model.x.uniform[0]", "a"}));
  EXPECT_TRUE(holds(wrong_range("{log_uniform: [0, 1]}"), {"must begin above 0, got 0. Use uniform"}));
  EXPECT_TRUE(holds(wrong_range("{int: [0, 4], log: true}"), {"must begin above 0, got 0. Use log: false"}));
  EXPECT_TRUE(holds(wrong_range("{int: [1.5, 4]}"), {"space.model.x.int[0]", "1.5"}));
  EXPECT_TRUE(holds(wrong_range("{int: [1, 4], step: 0}"), {"space.model.x.step: must be >= 1, got 0"}));
  EXPECT_TRUE(holds(wrong_range("{int: [1, 4], step: 2, log: true}"), {"step and log exclude each other"}));
  EXPECT_TRUE(holds(wrong_range("{uniform: [0, 1], step: 1}"), {"space.model.x.step: belongs to int ranges only"}));
  EXPECT_TRUE(holds(wrong_range("{uniform: [0, 1], int: [0, 1]}"), {"uniform and int are both given"}));
  EXPECT_TRUE(holds(wrong_range("{choice: []}"), {"expected a list of values", "an empty list"}));
  EXPECT_TRUE(holds(wrong_range("{choice: [1, 1]}"), {"1 is a duplicate"}));
  EXPECT_TRUE(holds(wrong_range("{normal: [0, 1]}"), {"space.model.x.normal: unknown key", "log_uniform"}));
}

TEST(SweepFile, ReportsWhatIsWrongWithIt) {
  const std::string space = "space: {model.x: {uniform: [0, 1]}}\n";
  EXPECT_TRUE(holds(mistakes_in("metric: a\nmax_trials: 1\n" + space), {"run: expected the name of a run file"}));
  EXPECT_TRUE(holds(mistakes_in("run: r\nmax_trials: 1\n" + space), {"metric: must be set"}));
  EXPECT_TRUE(holds(mistakes_in("run: r\nmetric: a\n" + space), {"max_trials: is not set, and random has no end"}));
  EXPECT_TRUE(holds(mistakes_in("run: r\nmetric: a\nmax_trials: 0\n" + space), {"max_trials: must be >= 1, got 0"}));
  EXPECT_TRUE(holds(mistakes_in(std::string(kHead) + "space: {}"), {"space: expected a map", "an empty map"}));
  EXPECT_TRUE(holds(mistakes_in(kHead + space + "search: {method: tpe}"), {"search.method", "tpe", "hyperband"}));
  EXPECT_TRUE(holds(mistakes_in(kHead + space + "search: {method: grid}"),
                    {"space.model.x: a grid needs single values, and this is uniform [0, 1]"}));
  EXPECT_TRUE(holds(mistakes_in(kHead + space + "search: {method: asha, min_resource: 9, max_resource: 3}"),
                    {"search.max_resource: must be at least min_resource (9), got 3"}));
  EXPECT_TRUE(holds(mistakes_in(kHead + space + "slots: 0"), {"slots: must be >= 1, got 0"}));
  EXPECT_TRUE(holds(mistakes_in(kHead + space + "sloots: 1"), {"sloots", "slots"}));
  std::string wide = std::string(kHead) + "search: {method: sobol}\nspace:\n";
  for (int k = 0; k < 22; ++k) wide += "  model.x" + std::to_string(k) + ": {uniform: [0, 1]}\n";
  EXPECT_TRUE(holds(mistakes_in(wide), {"sobol takes up to 21 keys, and space has 22. Use random."}));
}

TEST(SweepParameters, OfAnotherProgramAreChecked) {
  Problems problems;
  const Space space{range_of("{int: [1, 8]}")};
  EXPECT_EQ(parameters_text(read_parameters("{\"model.x\": 4.0}", space, problems)), "model.x=4");
  EXPECT_TRUE(problems.empty());
  const auto wrong = [&](const std::string& text) {
    Problems found;
    (void)read_parameters(text, space, found);
    return found.empty() ? std::string() : found.lines()[0];
  };
  EXPECT_TRUE(holds(wrong("4"), {"--params: expected a JSON object", "got 4"}));
  EXPECT_TRUE(holds(wrong("{}"), {"\"model.x\" is missing. It takes int [1, 8]"}));
  EXPECT_TRUE(holds(wrong("{\"model.x\": 9}"), {"model.x: 9 is not in int [1, 8]"}));
  EXPECT_TRUE(holds(wrong("{\"model.y\": 9}"), {"\"model.y\" is not a key of the space. Known: model.x"}));
}

TEST(SweepStore, HoldsTrialsWithTheirRungsAndStates) {
  const TemporaryFolder folder;
  const std::string place = folder / "sweep";
  const std::string text = std::string(kHead) + "space: {model.x: {uniform: [0, 1]}}\n";
  {
    SweepStore store = SweepStore::create(place, {"s", text, "/", 9});
    EXPECT_EQ(add_trial(store, {{"model.x", "0.5"}}, 1), 0);
    EXPECT_EQ(add_trial(store, {{"model.x", "0.25"}}), 1);
    EXPECT_TRUE(store.take(0, 1, 10.0));
    EXPECT_FALSE(store.take(0, 0, 10.0)) << "it runs already";
    store.set_process(0, 4711, "1@boot");
    store.record_result(0, {1, 0.75}, false, true, 12.0);
    store.go_on(0, 3);
    EXPECT_TRUE(store.tell(1, 0.5, 13.0));
    EXPECT_FALSE(store.tell(1, 0.5, 13.0)) << "it has a value";
  }
  SweepStore store(place);
  EXPECT_EQ(store.plan().max_resource, 9);
  const auto trials = store.trials();
  ASSERT_EQ(trials.size(), 2U);
  EXPECT_EQ(trials[0].state, TrialState::waiting);
  EXPECT_EQ(trials[0].target, 3);
  EXPECT_EQ(trials[0].launches, 1);
  EXPECT_EQ(trials[0].value(), 0.75);
  EXPECT_EQ(trials[1].state, TrialState::completed);
  EXPECT_EQ(parameters_text(trials[1].parameters), "model.x=0.25");
  EXPECT_TRUE(holds(error_of([&] { (void)store.trial(7); }), {"no trial 7", "0 to 1"}));
  EXPECT_TRUE(holds(error_of([&] { SweepStore other(folder / "none"); }), {"no sweep in", "sweep.sqlite"}));
}

TEST(SweepStore, ReportsWhatIsDamaged) {
  const TemporaryFolder folder;
  const std::string place = folder / "sweep";
  {
    SweepStore store =
        SweepStore::create(place, {"s", std::string(kHead) + "space: {model.x: {choice: [1, 2]}}\n", "/", 9});
    EXPECT_EQ(add_trial(store, {{"model.x", "1"}}), 0);
  }
  const auto change = [&](const std::string& sql) { SqliteFile(place + "/sweep.sqlite", Seconds{1}).execute(sql); };
  const auto message = [&] {
    return error_of([&] {
      SweepStore store(place);
      (void)store.elapsed();
      (void)store.trials();
    });
  };
  EXPECT_EQ(message(), "");
  change("UPDATE sweep SET value = 'many' WHERE key = 'max_resource'");
  EXPECT_TRUE(holds(message(), {"sweep.sqlite is damaged", "max_resource is \"many\""}));
  change("UPDATE sweep SET value = '9' WHERE key = 'max_resource'; DELETE FROM sweep WHERE key = 'elapsed'");
  EXPECT_TRUE(holds(message(), {"sweep.sqlite is damaged", "elapsed is \"\""}));
  change(
      "INSERT INTO sweep VALUES ('elapsed', '1.5'); INSERT INTO rungs (trial, rung, resource, value, ended) VALUES "
      "(-1, 0, 1, 0.5, 1)");
  EXPECT_TRUE(holds(message(), {"sweep.sqlite is damaged", "values of a trial -1, and 1 trials"}));
  change("DELETE FROM rungs; UPDATE trials SET id = 3; UPDATE parameters SET trial = 3");
  EXPECT_TRUE(holds(message(), {"sweep.sqlite is damaged", "it has no trial 0"}));
}

TEST(TrialResult, IsTakenOnlyWhereItsPartsHaveTheirTypes) {
  const TemporaryFolder folder;
  const std::string place = folder / "sweep";
  for (const std::string rank_by : {"last", "best"}) {
    SweepStore store = SweepStore::create(
        place + rank_by,
        {"s", std::string(kHead) + "rank_by: " + rank_by + "\nspace: {model.x: {choice: [1, 2]}}\n", "/", 9});
    EXPECT_EQ(add_trial(store, {{"model.x", "1"}}), 0);
    const std::string path = result_file(store, store.trial(0));
    make_folder(store.trial_folder(0));
    const auto kind_of = [&](const std::string& text) {
      write_file_durably(path, text);
      return read_outcome(store, store.trial(0), /*ends=*/true).kind;
    };
    using Kind = TrialOutcome::Kind;
    const std::string metric = store.options().metric;
    EXPECT_EQ(kind_of(R"({"status": "success", "metrics": {")" + metric + R"(": 0.5}, "best": [{"monitor": ")" +
                      metric + R"(", "mode": "min", "value": 0.5}]})"),
              Kind::value);
    for (const char* damaged : {R"({"status": 3})", R"({"best": 3, "metrics": [1]})", R"({"best": [3, null, "a"]})",
                                R"({"best": [{"monitor": 3, "mode": []}], "measured_at": 1, "checkpoints": []})"}) {
      EXPECT_EQ(kind_of(damaged), Kind::unlogged) << damaged;
    }
    const std::string with_checkpoint =
        R"({"metrics": {")" + metric + R"(": 0.5}, "measured_at": {")" + metric +
        R"(": 4}, "checkpoints": {"a": {"batches": 4, "step": "x"}}, "best": [{"monitor": ")" + metric +
        R"(", "mode": "min", "value": 1, "checkpoint": []}]})";
    write_file_durably(path, with_checkpoint);
    EXPECT_EQ(read_outcome(store, store.trial(0), true).checkpoint_step, -1);
    EXPECT_EQ(kind_of(std::string(1'000'000, '[')), Kind::lost);
  }
}

TEST(SweepImportance, IsSpearmansRankCorrelation) {
  // By hand: ranks 1 2 3 4 5 and 2 1 4 3 5, so that the sum of d^2 is 4, and 1 - 6 * 4 / (5 * 24) = 0.8.
  EXPECT_NEAR(spearman({10, 20, 30, 40, 50}, {2, 1, 40, 3, 1000}), 0.8, 1e-12);
  EXPECT_NEAR(spearman({1, 2, 3}, {9, 4, 1}), -1, 1e-12);
  EXPECT_EQ(spearman({1, 1, 1}, {1, 2, 3}), 0);
  EXPECT_EQ(ranks_of({3, 1, 3}), (std::vector<double>{2.5, 1, 2.5}));
}

}  // namespace levin::sweep_options_test
