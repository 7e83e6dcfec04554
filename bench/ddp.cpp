// Measures training with two ranks on this machine's cores, one thread each: a hand-written c10d loop over Gloo and
// over Levin's shared memory, the Trainer with its defaults and Lightning's DDP; and how much of a second core a GPT
// makes use of, with reductions during backward and after it. Each round starts its ranks as new processes; starting is
// not measured.
//
//   bench_ddp [--rounds N] [--quick]
//   bench_ddp loop mlp|gpt STEPS RANKS gloo|shm                 one run alone: microseconds a step on rank 0
//   bench_ddp trainer mlp|gpt STEPS RANKS [BUCKET_MB]           the same
//   bench_ddp recorded mlp STEPS RANKS                          the same with record_steps
//   bench_ddp all_reduce BYTES RANKS gloo|shm                   one message: microseconds
//   bench_ddp memory ddp|1|2|3                                  MiB that a rank of two keeps; 1 to 3: stages of fsdp
#include "levin/strategies/process/ddp.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "ddp_loop.h"
#include "gpt_runs.h"
#include "levin/cli/commands/step_model.h"
#include "levin/core/process/console.h"
#include "levin/strategies/process/fsdp.h"
#include "levin/trainer/held_memory.h"
#include "overhead_runs.h"
#include "peer.h"
#include "rounds.h"

namespace bench::ddp {

namespace {

using Words = std::vector<std::string>;

// Reduces all gradients in one bucket after backward.
constexpr const char* kOneBucket = "1000";
constexpr const char* kSmallBuckets = "1";

double mlp_by_trainer(int64_t steps, int64_t ranks, bool record) {
  levin::Console::instance().capture([](const std::string&) {});
  at::set_num_threads(1);
  return trained_by_levin(load_fashion_mnist(), Kind::sgd, 1, {1, steps}, false, ranks, record);
}

double by_trainer(const std::string& model, int64_t steps, int64_t ranks, const std::string& bucket_mb) {
  if (model == "mlp") return mlp_by_trainer(steps, ranks, /*record=*/false);
  levin::Console::instance().capture([](const std::string&) {});
  at::set_num_threads(1);
  levin::TrainerOptions options;
  options.devices = ranks;
  options.oversubscribe = true;  // the cost of ranks that share cores is measured, not hidden
  if (ranks > 1) options.strategy = levin::DDP({.bucket_cap_mb = std::stod(bucket_mb)});
  return static_cast<double>(gpt::Work().tokens()) * 1e6 / gpt::trained_by_levin({}, steps, std::move(options));
}

bool is_rank_zero() {
  const char* rank = std::getenv("RANK");
  return rank == nullptr || rank == std::string("0");
}

// The memory that a rank keeps for training after an update.
class HeldWatch : public levin::Callback {
 public:
  void on_train_batch_end(levin::Trainer& trainer, levin::LightningModule&, const at::Tensor&, const levin::Batch&,
                          int64_t) override {
    const levin::HeldMemory held = levin::held_memory(trainer);
    mib = static_cast<double>(held.parameters + held.gradients + held.optimizer_state) / (1 << 20);
  }
  double mib = 0;
};

// `strategy`: ddp, or a stage of fsdp.
double held_mib(const std::string& strategy) {
  levin::Console::instance().capture([](const std::string&) {});
  const auto watch = std::make_shared<HeldWatch>();
  levin::TrainerOptions options;
  options.devices = int64_t{2};
  options.oversubscribe = true;
  options.callbacks = {watch};
  if (strategy == "ddp") options.strategy = "ddp";
  if (strategy != "ddp") options.strategy = levin::FSDP({.stage = std::stol(strategy)});
  (void)gpt::trained_by_levin({}, 2, std::move(options));
  return watch->mib;
}

int print(std::optional<double> measurement) {
  if (measurement && is_rank_zero()) std::printf("%.3f\n", *measurement);
  return 0;
}

int run_alone(const Words& words) {
  if (words.size() == 2 && words[0] == "memory") return print(held_mib(words[1]));
  if (words.size() == 4 && words[0] == "all_reduce") {
    return print(all_reduce(std::stol(words[1]), std::stoi(words[2]), words[3]));
  }
  if (words.size() < 4)
    throw std::runtime_error("usage: bench_ddp loop|trainer|recorded mlp|gpt STEPS RANKS [BACKEND|BUCKET_MB]");
  const int64_t steps = std::stol(words[2]);
  const int ranks = std::stoi(words[3]);
  if (words[0] == "loop") {
    return print(hand_written_loop(words[1], steps, ranks, words.size() > 4 ? words[4] : "gloo"));
  }
  if (words[0] == "recorded") return print(mlp_by_trainer(steps, ranks, /*record=*/true));
  return print(by_trainer(words[1], steps, ranks, words.size() > 4 ? words[4] : kSmallBuckets));
}

Words own_command(Words words) {
  words.insert(words.begin(), std::filesystem::read_symlink("/proc/self/exe").replace_filename("bench_ddp").string());
  return words;
}

Candidate own(std::string name, Words words) {
  const Words command = own_command(std::move(words));
  return {std::move(name), [command] { return Process(command, peer_log("ddp")).answer().get<double>(); }};
}

void measure_mlp(const Options& options, const std::shared_ptr<Peer>& peer, Report& report) {
  const std::string steps = options.quick ? "3" : "400";
  std::vector<Candidate> candidates = {own("hand-written c10d loop", {"loop", "mlp", steps, "2", "gloo"}),
                                       own("the same over shm", {"loop", "mlp", steps, "2", "shm"}),
                                       own("Trainer", {"trainer", "mlp", steps, "2"}),
                                       own("Trainer, recorded", {"recorded", "mlp", steps, "2"}),
                                       own("Trainer, one rank", {"trainer", "mlp", steps, "1"})};
  if (peer != nullptr) {
    candidates.push_back({"Lightning", [=] { return peer->round("mlp " + std::string(options.quick ? "3" : "150")); }});
  }
  const auto measurements = interleave(candidates, options);
  report.table("MLP 784-64-10, batches of 64 on each of two ranks, SGD", "us a step", measurements);
  report.at_most("trainer_to_loop", ratio(measurements, "Trainer", "the same over shm"), 1.05);
  report.at_most("trainer_to_gloo_loop", ratio(measurements, "Trainer", "hand-written c10d loop"), 0.30);
  report.number("recorded_to_shm_loop", ratio(measurements, "Trainer, recorded", "the same over shm"));
  report.at_least("lightning_to_trainer", ratio(measurements, "Lightning", "Trainer"), 8);
}

// The step time of one of two ranks that do not communicate: they share caches, memory and cores.
Candidate side_by_side(const std::string& name, const Words& words) {
  const Words command = own_command(words);
  return {name, [command] {
            Process one(command, peer_log("ddp"));
            Process other(command, peer_log("ddp"));
            return std::max(one.answer().get<double>(), other.answer().get<double>());
          }};
}

void measure_messages(const Options& options, Report& report) {
  const auto measurements = interleave({own("4 kB over shm", {"all_reduce", "4096", "2", "shm"}),
                                        own("4 kB over Gloo", {"all_reduce", "4096", "2", "gloo"}),
                                        own("64 MB over shm", {"all_reduce", "64000000", "2", "shm"}),
                                        own("64 MB over Gloo", {"all_reduce", "64000000", "2", "gloo"})},
                                       options);
  report.table("all_reduce between two ranks", "us", measurements);
  report.at_most("all_reduce_4_kb_us", measurements[0].median, 40);
  report.at_least("all_reduce_64_mb_gloo_to_shm", ratio(measurements, "64 MB over Gloo", "64 MB over shm"), 2);
}

void measure_gpt(const Options& options, Report& report) {
  const std::string steps = options.quick ? "2" : "25";
  const auto measurements = interleave({own("hand-written c10d loop", {"loop", "gpt", steps, "2", "gloo"}),
                                        own("Trainer", {"trainer", "gpt", steps, "2", kSmallBuckets}),
                                        own("Trainer, no overlap", {"trainer", "gpt", steps, "2", kOneBucket}),
                                        own("Trainer, one rank", {"trainer", "gpt", steps, "1"}),
                                        side_by_side("two of one rank", {"trainer", "gpt", steps, "1"})},
                                       options);
  report.table("GPT of 4 layers, 128 wide, batches of 12 x 64 bytes on each of two ranks, AdamW", "us a step",
               measurements);
  report.at_most("gpt_trainer_to_loop", ratio(measurements, "Trainer", "hand-written c10d loop"), 1.05);
  // Relative to the speed of two ranks that do not communicate.
  const auto unhindered = ratio(measurements, "Trainer, one rank", "two of one rank");
  report.number("gpt_side_by_side_efficiency", unhindered);
  report.at_least("gpt_scaling_efficiency", ratio(measurements, "Trainer, one rank", "Trainer"),
                  std::min(0.92, unhindered.value_or(1)));
  report.number("gpt_scaling_efficiency_no_overlap", ratio(measurements, "Trainer, one rank", "Trainer, no overlap"));
}

void measure_memory(Report& report) {
  std::vector<Measurement> measurements;
  for (const char* kind : {"ddp", "1", "2", "3"}) {
    const std::string name = kind == std::string("ddp") ? "ddp" : std::string("fsdp, stage ") + kind;
    measurements.push_back(measurement_of(name, {own(name, {"memory", kind}).run()}));
  }
  report.table("weights, gradients and AdamW's state of the GPT, on each of two ranks", "MiB", measurements);
  report.number("fsdp_memory_to_ddp", measurements[3].median / measurements[0].median);
}

// Compares the step times that `levin plan cluster` predicts for two and four ranks, from one rank's step and two
// message sizes between two ranks, with measured step times. Ranks share the cores.
void check_predictions(const Options& options, Report& report) {
  constexpr double kSmall = 4e3, kLarge = 8e6;
  const std::string steps = options.quick ? "2" : "25";
  const auto measurements = interleave({own("all-reduce of 4 kB", {"all_reduce", "4000", "2", "shm"}),
                                        own("all-reduce of 8 MB", {"all_reduce", "8000000", "2", "shm"}),
                                        own("GPT, 1 rank", {"trainer", "gpt", steps, "1"}),
                                        own("GPT, 2 ranks", {"trainer", "gpt", steps, "2", kOneBucket}),
                                        own("GPT, 4 ranks", {"trainer", "gpt", steps, "4", kOneBucket})},
                                       options);
  report.table("what step times are predicted from, and compared with", "us", measurements);
  levin::Link link;
  link.bandwidth = (kLarge - kSmall) / ((measurements[1].median - measurements[0].median) * 1e-6);
  link.latency = measurements[0].median * 1e-6 / 2 - kSmall / 2 / link.bandwidth;
  const auto cores = static_cast<double>(std::thread::hardware_concurrency());
  for (const int64_t ranks : {1, 2, 4}) {
    levin::StepCost cost;
    cost.bytes = static_cast<double>(gpt::count_parameters() * 4);
    cost.bucket_bytes = 1e12;
    cost.backward = measurements[2].median * 1e-6 * std::max(1.0, static_cast<double>(ranks) / cores);
    const double predicted = levin::predict_ddp(cost, {1, ranks, link, {}}).step;
    const double measured = measurements[ranks == 1 ? 2 : ranks == 2 ? 3 : 4].median * 1e-6;
    report.number("predicted_to_measured_" + std::to_string(ranks), predicted / measured);
  }
}

int run(const Options& options) {
  if (!options.words.empty()) return run_alone(options.words);
  const auto peer = Peer::start("ddp");
  Report report("ddp");
  if (peer != nullptr) report.peers(peer->versions());
  measure_messages(options, report);
  measure_mlp(options, peer, report);
  measure_gpt(options, report);
  measure_memory(report);
  check_predictions(options, report);
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 9);
  return guarded([&] { return run(options); });
}

}  // namespace bench::ddp
