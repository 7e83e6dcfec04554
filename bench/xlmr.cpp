// Measures how much of XLM-R's memory mixed precision and recomputation save, and how much time they cost: the six
// columns of an article's table (docs/articles/xlmr.md). On a GPU, complete models on sequences of 512 tokens, with the
// attention of the article's library and with LibTorch's fused attention. On a CPU, two layers of each model, full
// width and vocabulary, on sequences of 64 tokens, and predictions for the complete models. Each round of a column runs
// in a separate process.
//
//   bench_xlmr [--rounds N] [--quick]
//   bench_xlmr gpu [--rounds N] [--quick]
//   bench_xlmr train NAME LAYERS TOKENS VOCABULARY STEPS [gpu] [unfused]
//                                                      one column alone, as JSON; LAYERS, VOCABULARY 0: all
//   bench_xlmr predict NAME LAYERS TOKENS VOCABULARY   the complete model, predicted from LAYERS layers
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include "levin/core/gpu.h"
#include "levin/core/process/console.h"
#include "peer.h"
#include "rounds.h"
#include "survivors.h"
#include "xlmr_full_size.h"
#include "xlmr_runs.h"

namespace bench::xlmr {

namespace {

using Words = std::vector<std::string>;

int run_alone(const Words& words) {
  const bool trains = words[0] == "train";
  if (words.size() < (trains ? 6U : 5U)) {
    throw std::runtime_error("usage: bench_xlmr train|predict NAME LAYERS TOKENS VOCABULARY [STEPS] [gpu] [unfused]");
  }
  levin::Console::instance().capture([](const std::string&) {});
  const auto is_said = [&](const char* word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  const Size size{std::stol(words[2]), std::stol(words[3]), std::stol(words[4]), is_said("gpu"), !is_said("unfused")};
  if (!size.gpu) pin_to_one_core();
  const Column& column = column_called(words[1]);
  const Cost cost = trains ? train(column, size, std::stol(words[5])) : predict_full_size(column, size);
  std::printf(
      "%s\n",
      nlohmann::json{{"ms", cost.ms_a_step}, {"without", cost.ms_without}, {"mib", cost.peak_mib}}.dump().c_str());
  return 0;
}

// `steps`: 0 predicts.
Cost in_own_process(const Column& column, const Size& size, int64_t steps) {
  Words words = {std::filesystem::read_symlink("/proc/self/exe").replace_filename("bench_xlmr").string(),
                 steps > 0 ? "train" : "predict",
                 column.name,
                 std::to_string(size.layers),
                 std::to_string(size.tokens),
                 std::to_string(size.vocabulary)};
  if (steps > 0) words.push_back(std::to_string(steps));
  if (size.gpu) words.emplace_back("gpu");
  if (!size.fused) words.emplace_back("unfused");
  const auto answer = Process(words, peer_log("xlmr")).answer();
  return {.ms_a_step = answer.at("ms"), .ms_without = answer.at("without"), .peak_mib = answer.at("mib")};
}

struct Table {
  std::vector<Measurement> memory, times;
  std::optional<double> recomputation = std::nullopt;  // predicted: a step with it to the same measurement's without

  void print(Report& report, const std::string& what) const {
    report.table("peak memory of a step of XLM-R, " + what, "MiB", memory);
    report.table("time of a step of XLM-R, " + what, "ms", times);
  }
};

Table measure(const Options& options, const Size& size, int64_t steps, Failures& failures) {
  const std::vector<Column>& wanted = columns();
  std::vector<std::vector<double>> peaks(wanted.size());
  std::vector<Candidate> candidates;
  for (size_t k = 0; k < wanted.size(); ++k) {
    candidates.push_back({wanted[k].name, [&, k, steps] {
                            const Cost cost = in_own_process(wanted[k], size, steps);
                            peaks[k].push_back(cost.peak_mib);
                            return cost.ms_a_step;
                          }});
  }
  Table table;
  table.times = failures.interleave_rest(candidates, options);
  for (size_t k = 0; k < peaks.size(); ++k) {
    if (!peaks[k].empty()) table.memory.push_back(measurement_of(wanted[k].name, peaks[k]));
  }
  return table;
}

Table predict(const Size& size, Failures& failures) {
  Table table;
  for (const Column& column : columns()) {
    Cost cost;
    const auto run = [&] { return (cost = in_own_process(column, size, 0)).ms_a_step; };
    if (!failures.attempt({"predicted " + column.name, run})) continue;
    table.memory.push_back(measurement_of(column.name, {cost.peak_mib}));
    table.times.push_back(measurement_of(column.name, {cost.ms_a_step}));
    // Two measurements of one model, minutes apart, may differ by more than what recomputation takes.
    if (column.recompute) table.recomputation = cost.ms_a_step / cost.ms_without;
  }
  return table;
}

// A column's memory or time as a fraction of the column without recomputation.
std::optional<double> of_recomputation(const std::vector<Measurement>& measurements) {
  return ratio(measurements, "large-8-mixed-recompute", "large-8-mixed");
}

int run_on_gpu(const Options& options) {
  if (const std::string why = levin::why_no_gpu(); !why.empty()) throw std::runtime_error("gpu: " + why);
  Report report("xlmr_gpu");
  Options once = options;
  once.quick = true;  // no round before the measured ones: each is a process with steps of its own to warm up
  Failures failures;
  for (const bool fused : {false, true}) {
    const Size size{.tokens = 512, .gpu = true, .fused = fused};
    const Table table = measure(once, size, options.quick ? 1 : 10, failures);
    table.print(report, fused ? "fused attention, one GPU" : "attention as in the article, one GPU");
    const std::string name = fused ? "of_recomputation_fused" : "of_recomputation";
    report.number("memory_" + name, of_recomputation(table.memory));
    report.number("time_" + name, of_recomputation(table.times));
  }
  report.write();
  failures.check();
  return 0;
}

int run(const Options& options) {
  if (!options.words.empty() && options.words[0] != "gpu") return run_alone(options.words);
  if (!options.words.empty()) return run_on_gpu(options);
  // --quick: little of everything, to check that it runs
  const Size measured =
      options.quick ? Size{.layers = 1, .tokens = 4, .vocabulary = 260} : Size{.layers = 2, .tokens = 64};
  const Size predicted = options.quick ? measured : Size{.layers = 2};
  Report report("xlmr");
  Failures failures;
  const Table small = measure(options, measured, options.quick ? 1 : 4, failures);
  small.print(report, std::to_string(measured.layers) + " layers, sequences of " + std::to_string(measured.tokens) +
                          " tokens, one thread");
  const Table whole = predict(predicted, failures);
  whole.print(report, "complete, sequences of " + std::to_string(predicted.tokens) + " tokens: predicted from " +
                          std::to_string(predicted.layers) + " layers");
  report.number("memory_of_recomputation", of_recomputation(small.memory));
  report.number("time_of_recomputation", of_recomputation(small.times));
  report.number("predicted_memory_of_recomputation", of_recomputation(whole.memory));
  report.number("predicted_time_of_recomputation", whole.recomputation);
  report.write();
  failures.check();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 3);
  return guarded([&] { return run(options); });
}

}  // namespace bench::xlmr
