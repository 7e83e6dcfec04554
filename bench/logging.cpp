// Measures what writing ten scalars adds to a step: by the Trainer to CSV, TensorBoard's event files, SQLite and JSON
// lines at once, and by Lightning to its TensorBoardLogger. The step itself is next to nothing, so that the difference
// shows; it logs the same ten values without loggers. Loggers' threads may use the other core, as in real runs.
//
//   bench_logging [--rounds N]
#include <cstdio>

#include "levin/core/process/console.h"
#include "overhead_runs.h"
#include "peer.h"
#include "rounds.h"

namespace bench::logging {

namespace {

constexpr int64_t kSteps = 2'000;
constexpr int64_t kStepsOfPeers = 60;
constexpr int kLogs = 10;

int run(const Options& options) {
  at::set_num_threads(1);
  levin::Console::instance().capture([](const std::string&) {});
  const auto peer = Peer::start("log_metrics");
  Report report("logging");
  if (peer != nullptr) report.peers(peer->versions());
  const int64_t steps = options.quick ? 10 : kSteps;
  const auto trainer = [=](std::vector<std::string> loggers) {
    return [=] { return tiny_logging(steps, kLogs, loggers); };
  };
  std::vector<Candidate> candidates = {
      {"Trainer, no logger", trainer({})},
      {"Trainer, values dropped", trainer({"dropping"})},
      {"Trainer, CSV", trainer({"CSVLogger"})},
      {"Trainer, TensorBoard", trainer({"TensorBoardLogger"})},
      {"Trainer, all four", trainer({"CSVLogger", "TensorBoardLogger", "SQLiteLogger", "JSONLinesLogger"})}};
  if (peer != nullptr) {
    const std::string words = std::to_string(options.quick ? 3 : kStepsOfPeers) + " " + std::to_string(kLogs);
    candidates.push_back({"Lightning, no logger", [=] { return peer->round("none " + words); }});
    candidates.push_back({"Lightning, TensorBoard", [=] { return peer->round("tensorboard " + words); }});
  }
  const auto measurements = interleave(candidates, options);
  report.table("ten scalars in every step", "us a step", measurements);
  const auto less = [](double a, double b) { return a - b; };
  report.at_most("us_all_four", compare(measurements, "Trainer, all four", "Trainer, no logger", less), 2);
  const auto ours = compare(measurements, "Trainer, all four", "Trainer, no logger", less);
  const auto theirs = compare(measurements, "Lightning, TensorBoard", "Lightning, no logger", less);
  if (ours && theirs) report.at_least("lightning_to_trainer", *theirs / std::max(*ours, 0.01), 30);
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 51);
  return guarded([&] { return run(options); });
}

}  // namespace bench::logging
