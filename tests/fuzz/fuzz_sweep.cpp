// libFuzzer target: what `levin sweep` reads. The first byte of an input selects the kind of the rest:
//
//   d sweep.sqlite, the state of a sweep     f the sweep's file, as YAML     r the result of a trial, as JSON
//
// For any bytes, the sweep is listed, ranked, reported as a page and continued, or Error says what is wrong.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fuzz_support.h"
#include "levin/cli/sweep/searcher.h"
#include "levin/cli/sweep/sweep_report.h"
#include "levin/cli/sweep/sweep_store.h"
#include "levin/cli/sweep/sweep_tables.h"
#include "levin/cli/sweep/trial_process.h"
#include "levin/cli/sweep/trial_result.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "support/temporary_folder.h"

namespace levin::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSweep =
    "run: run.yaml\nmetric: val_loss\nmax_trials: 9\nsearch: {method: asha, max_resource: 9}\nspace:\n  optimizer.lr: "
    "{log_uniform: "
    "[1e-4, 1e-1]}\n  model.hidden: {choice: [64, 128, '256']}\n";

const std::string& folder() {
  static const test::TemporaryFolder made;
  return made.path();
}

void remove_sweep() {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder())) fs::remove_all(entry.path(), ignored);
}

void write(const std::string& path, std::string_view bytes) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void check_text(const std::string& text) {
  expect(text.size() < (size_t{8} << 20), "a text is not endless");
}

void decide(const SweepStore& store, const std::vector<Trial>& trials) {
  if (store.options().search.method == SearchMethod::ask) return;
  const auto searcher = make_searcher(store.options(), store.space(), store.plan().max_resource);
  const SearchStep step = searcher->next(trials);
  (void)searcher->total();
  if (step.kind != SearchStep::Kind::continue_) return;
  expect(step.trial >= 0 && step.trial < std::ssize(trials), "a trial that continues is one of the sweep");
}

void show(SweepStore& store) {
  const std::vector<Trial> trials = store.trials();
  (void)any_has_value(trials);
  check_text(status_text(store, trials, 9));
  check_text(status_json(store, trials, 9).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  check_text(best_text(store, trials));
  check_text(progress_text(store, trials, 9, store.elapsed()));
  const std::string page = sweep_html(store, trials);
  check_text(page);
  expect(page.find("<script") == std::string::npos && page.find("<img") == std::string::npos,
         "no tag of a file is in the page", page);
  (void)importances(store.space(), trials);
  decide(store, trials);
  for (const Trial& trial : trials) {
    (void)is_alive(trial.pid, trial.process);
    (void)read_outcome(store, trial, false);
  }
}

void go_on(SweepStore& store) {
  const auto id = store.add([](int64_t) { return SweepStore::NewTrial{.parameters = {{"optimizer.lr", "0.01"}}}; });
  expect(id.has_value(), "a trial is added");
  if (!store.take(*id, 0, 1.8e9)) return;
  (void)trial_command(store, "levin", store.trial(*id), false);
  store.set_process(*id, 4711, "a process");
  store.record_result(*id, {.resource = 1, .value = 0.5, .checkpoint = "a.ckpt"}, false, true, 1.8e9);
  store.set_elapsed(7);
  const Trial trial = store.trial(*id);
  expect(trial.value() == 0.5 && trial.state == TrialState::paused, "a result can be read back");
}

void read_database(std::string_view bytes) {
  remove_sweep();
  write(folder() + "/sweep.sqlite", bytes);
  SweepStore store(folder());
  show(store);
  go_on(store);
  show(store);
  ++Counts::instance().whole;
}

SweepStore new_sweep(const std::string& text) {
  remove_sweep();
  SweepStore store = SweepStore::create(folder(), {.name = "fuzz", .sweep = text, .max_resource = 9});
  for (int64_t k = 0; k < 4; ++k) {
    const auto id = store.add([&](int64_t trial) {
      return SweepStore::NewTrial{.parameters = parameters_of(store.options(), store.space(), trial), .target = 1};
    });
    if (id && store.take(*id, 0, 1.8e9) && k < 3) {
      store.record_result(*id, {.resource = 1, .value = 1.0 / static_cast<double>(k + 1)}, false, true, 1.8e9);
    }
  }
  return store;
}

void read_sweep(const std::string& text) {
  Problems problems;
  const SweepFile file = read_sweep_text(text, "fuzz", problems);
  for (const auto& line : problems.lines()) expect_good_message(line, 10'000);
  if (!problems.empty()) return;
  for (const Range& range : file.space) {
    (void)range.str();
    for (const double u : {0.0, 0.5, 0.999999999}) {
      const std::string value = range.value_at(u);
      expect(range.contains(value), "a value is within its range", range.str() + ": " + value);
    }
  }
  SweepStore store = new_sweep(text);
  show(store);
  ++Counts::instance().whole;
}

void read_result(std::string_view bytes) {
  static SweepStore store = new_sweep(kSweep);
  static const Trial trial = store.trial(3);
  write(result_file(store, trial), bytes);
  for (const bool ends : {true, false}) {
    const TrialOutcome outcome = read_outcome(store, trial, ends);
    if (outcome.kind == TrialOutcome::Kind::value) ++Counts::instance().whole;
    const bool has_error = outcome.kind == TrialOutcome::Kind::failed || outcome.kind == TrialOutcome::Kind::unlogged;
    expect(has_error != outcome.error.empty(), "a trial without a value says why", outcome.error);
  }
}

}  // namespace

void run_one(std::string_view input) {
  ++Counts::instance().inputs;
  if (input.empty()) return;
  const std::string rest(input.substr(1));
  try {
    switch (input[0]) {
      case 'd': return read_database(rest);
      case 'f': return read_sweep(rest);
      case 'r': return read_result(rest);
      default: return;
    }
  } catch (const Error& error) {
    std::string message = error.what();
    std::replace(message.begin(), message.end(), '\n', ' ');  // a list of problems has a line for each
    expect_good_message(message, 10'000);
    check_planted(message, "is damaged");
  }
}

void begin() {
  Counts::print_at_exit();
  Console::instance().capture([](const std::string&) {});
}

}  // namespace levin::fuzz
