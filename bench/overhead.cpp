// Measures what a Trainer costs: the time of one training step by a hand-written LibTorch loop with stock torch::optim,
// by the Trainer with logging, progress and checkpointing at their defaults, by a loop over Fabric, by a raw PyTorch
// loop and by Lightning. One thread, one core; the work of a step is in overhead_runs.h and peers/overhead.py.
//
//   bench_overhead [--rounds N]                                    the tables
//   bench_overhead loop|trainer|fabric BATCHES [sgd|adamw] [LOGS]  one run alone, for
//       `valgrind --tool=callgrind`, which counts instructions and is the same however busy the machine is; the
//       difference of two numbers of batches leaves out the start. tiny_loop and tiny_trainer: the step of next to no
//       work.
//   bench_overhead gpu                                             on a GPU, see overhead_gpu.cpp
#include <cstdio>
#include <stdexcept>

#include "levin/core/process/console.h"
#include "overhead_gpu.h"
#include "overhead_runs.h"
#include "peer.h"
#include "rounds.h"

namespace bench::overhead {

namespace {

constexpr int64_t kBatches = 300;
constexpr int64_t kBatchesOfPeers = 150;  // their steps take ten times as long

int run_alone(const std::vector<std::string>& words) {
  if (words.size() < 2)
    throw std::runtime_error("usage: bench_overhead loop|trainer|fabric BATCHES [sgd|adamw] [LOGS]");
  const std::string& which = words[0];
  const Length length{.epochs = 1, .batches = std::stol(words[1])};
  const Kind kind = words.size() > 2 && words[2] == "adamw" ? Kind::adamw : Kind::sgd;
  const int logs = words.size() > 3 ? std::stoi(words[3]) : 1;
  double measurement = 0;
  if (which == "tiny_loop") {
    measurement = tiny_loop(length.batches);
  } else if (which == "tiny_trainer") {
    measurement = tiny_trainer(length.batches, words.size() > 3 ? logs : 0);
  } else {
    const auto data = load_fashion_mnist();
    measurement = which == "loop"     ? hand_written_loop(data, kind, length)
                  : which == "fabric" ? fabric_loop(data, kind, length)
                                      : trained_by_levin(data, kind, logs, length);
  }
  std::printf("%s: %.2f us a step\n", which.c_str(), measurement);
  return 0;
}

// `peer` is null where peers are not installed.
std::vector<Candidate> candidates_of(Kind kind, const Data& data, const std::shared_ptr<Peer>& peer, bool quick) {
  const Length length = quick ? Length{1, 3} : Length{1, kBatches};
  std::vector<Candidate> candidates = {
      {"hand-written LibTorch loop", [=, &data] { return hand_written_loop(data, kind, length); }},
      {"Fabric", [=, &data] { return fabric_loop(data, kind, length); }},
      {"Trainer, no log", [=, &data] { return trained_by_levin(data, kind, 0, length); }},
      {"Trainer, 1 log", [=, &data] { return trained_by_levin(data, kind, 1, length); }},
      {"Trainer, 10 logs", [=, &data] { return trained_by_levin(data, kind, 10, length); }}};
  if (kind == Kind::sgd) {
    candidates.push_back({"Trainer, barebones", [=, &data] { return trained_by_levin(data, kind, 0, length, true); }});
  }
  if (peer == nullptr) return candidates;
  const std::string words =
      std::string(kind == Kind::sgd ? "sgd " : "adamw ") + std::to_string(quick ? 3 : kBatchesOfPeers);
  candidates.push_back({"raw PyTorch loop", [=] { return peer->round("raw " + words); }});
  for (const char* logs : {"0", "1", "10"}) {
    const std::string text = logs == std::string("0") ? "no log" : logs == std::string("1") ? "1 log" : "10 logs";
    candidates.push_back({"Lightning, " + text, [=] { return peer->round("lightning " + words + " " + logs); }});
  }
  return candidates;
}

// Measures the microseconds that the Trainer adds, with a step of ten microseconds instead of hundreds.
void measure_fixed_cost(const Options& options, Report& report) {
  const int64_t steps = options.quick ? 10 : 30'000;
  const auto measurements = interleave({{"loop", [=] { return tiny_loop(steps); }},
                                        {"Trainer, no log", [=] { return tiny_trainer(steps, 0); }},
                                        {"Trainer, 10 logs", [=] { return tiny_trainer(steps, 10); }}},
                                       options);
  report.table("a model of one weight, Levin's SGD", "us a step", measurements);
  const auto less = [](double a, double b) { return a - b; };
  const auto logged = [](double a, double b) { return (a - b) / 10; };
  report.at_most("us_fixed", compare(measurements, "Trainer, no log", "loop", less), 3);
  report.at_most("us_per_logged_value", compare(measurements, "Trainer, 10 logs", "Trainer, no log", logged), 0.5);
}

int run(const Options& options) {
  if (!options.words.empty() && options.words[0] == "gpu") return run_on_gpu(options);
  pin_to_one_core();
  levin::Console::instance().capture([](const std::string&) {});
  if (!options.words.empty()) return run_alone(options.words);
  const auto peer = Peer::start("overhead");
  const auto data = load_fashion_mnist();
  Report report("overhead");
  if (peer != nullptr) report.peers(peer->versions());

  const auto sgd = interleave(candidates_of(Kind::sgd, data, peer, options.quick), options);
  report.table("MLP 784-64-10, batch 64, SGD, one thread", "us a step", sgd);
  const auto adamw = interleave(candidates_of(Kind::adamw, data, peer, options.quick), options);
  report.table("MLP 784-64-10, batch 64, AdamW, one thread", "us a step", adamw);
  const auto call = interleave({{"log", [&] { return log_call(data, options.quick ? 3 : 200); }}}, options);
  report.table("one log call in a training_step", "us", call);
  measure_fixed_cost(options, report);

  report.number("us_per_log", call[0].median);
  report.at_most("trainer_to_loop", ratio(sgd, "Trainer, 1 log", "hand-written LibTorch loop"), 1.0);
  report.at_most("trainer_to_loop_no_log", ratio(sgd, "Trainer, no log", "hand-written LibTorch loop"), 1.0);
  report.at_most("trainer_to_loop_adamw", ratio(adamw, "Trainer, 1 log", "hand-written LibTorch loop"), 0.75);
  report.at_most("fabric_to_trainer", ratio(sgd, "Fabric", "Trainer, no log"), 1.01);
  report.at_most("fabric_to_trainer_adamw", ratio(adamw, "Fabric", "Trainer, no log"), 1.01);
  report.number("raw_pytorch_to_trainer", ratio(sgd, "raw PyTorch loop", "Trainer, 1 log"));
  report.at_least("lightning_to_trainer_1_log", ratio(sgd, "Lightning, 1 log", "Trainer, 1 log"), 5);
  report.at_least("lightning_to_trainer_10_logs", ratio(sgd, "Lightning, 10 logs", "Trainer, 10 logs"), 10);
  report.at_least("lightning_to_trainer_1_log_adamw", ratio(adamw, "Lightning, 1 log", "Trainer, 1 log"), 5);
  report.at_least("lightning_to_trainer_10_logs_adamw", ratio(adamw, "Lightning, 10 logs", "Trainer, 10 logs"), 10);
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 61);
  return guarded([&] { return run(options); });
}

}  // namespace bench::overhead
