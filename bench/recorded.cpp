// record_steps: a step replayed from its recording, compared with the same step run eagerly (in a hand-written loop and
// by the Trainer), by PyTorch, by torch.compile, by Lightning with torch.compile, and with a step compiled ahead of
// time (CompiledModule). One thread, one core, fixed batches in memory.
//
// Each candidate runs in a separate process: what the Trainer decides for its process (memory that it keeps for the
// next step) must not affect the hand-written loop.
//
//   bench_recorded [--rounds N] [mlp16] [mlp784] [gru] [lstm] [cnn] [gpt]      without names: all
//   bench_recorded alone loop|trainer|recorded NAME STEPS                      [microseconds a step; gpt: a token]
//   bench_recorded alone evaluated_loop|evaluated|evaluated_recorded NAME STEPS
//   bench_recorded alone memory|memory_recorded NAME STEPS                     [resident memory at the end in MiB]
//   bench_recorded alone compiled NAME STEPS FILE                              [microseconds a step]
#include <algorithm>
#include <filesystem>

#include "levin/core/process/console.h"
#include "peer.h"
#include "programs.h"
#include "recorded_runs.h"
#include "rounds.h"

namespace bench::recorded {

namespace {

Candidate alone(const std::string& title, const std::string& what, const std::string& model, int64_t steps,
                const std::string& file = "") {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").replace_filename("bench_recorded").string();
  std::vector<std::string> command = {program, "alone", what, model, std::to_string(steps)};
  if (!file.empty()) command.push_back(file);
  return {title, [command] { return Process(command, peer_log("recorded")).answer()[0].get<double>(); }};
}

void measure_evaluation(const Shape& shape, const Options& options, Report& report) {
  const int64_t steps = options.quick ? 12 : shape.steps * 2;
  const auto measurements = interleave({alone("hand-written loop", "evaluated_loop", shape.name, steps),
                                        alone("Trainer", "evaluated", shape.name, steps),
                                        alone("Trainer, recorded", "evaluated_recorded", shape.name, steps)},
                                       options);
  report.table(shape.title + ": evaluation", "us a step", measurements);
  report.number(shape.name + "_evaluation_to_loop", ratio(measurements, "Trainer, recorded", "hand-written loop"));
}

void measure_memory(const Shape& shape, const Options& options, Report& report) {
  const int64_t steps = options.quick ? 12 : shape.steps;
  const auto measurements = interleave(
      {alone("Trainer", "memory", shape.name, steps), alone("Trainer, recorded", "memory_recorded", shape.name, steps)},
      options);
  report.table(shape.title + ": resident memory", "MiB", measurements);
  report.number(shape.name + "_memory", ratio(measurements, "Trainer, recorded", "Trainer"));
}

void measure(const Shape& shape, const Options& options, const std::shared_ptr<Peer>& peer, Report& report) {
  const int64_t steps = options.quick ? 12 : shape.steps;
  std::vector<Candidate> candidates = {alone("hand-written loop", "loop", shape.name, steps),
                                       alone("Trainer", "trainer", shape.name, steps),
                                       alone("Trainer, recorded", "recorded", shape.name, steps)};
  if (peer != nullptr) {
    const std::string words = " " + shape.name + " " + std::to_string(options.quick ? 12 : steps / 3);
    candidates.push_back({"raw PyTorch", [=] { return peer->round("raw" + words); }});
    candidates.push_back({"PyTorch, compiled", [=] { return peer->round("compiled" + words); }});
    candidates.push_back({"Lightning, compiled", [=] { return peer->round("lightning" + words); }});
    const auto file = std::filesystem::temp_directory_path() / ("bench-" + shape.name + ".pt2");
    (void)peer->round("ahead " + shape.name + " " + file.string());
    candidates.push_back(alone("Trainer, compiled ahead", "compiled", shape.name, steps, file));
  }
  const auto measurements = interleave(candidates, options);
  report.table(shape.title, "us a step", measurements);
  report.at_most(shape.name + "_to_loop", ratio(measurements, "Trainer, recorded", "hand-written loop"), shape.limit);
  if (peer != nullptr && shape.beats_compiled) {
    report.at_least(shape.name + "_compiled_to_recorded", ratio(measurements, "PyTorch, compiled", "Trainer, recorded"),
                    1.0);
  }
  if (peer != nullptr) {
    report.number(shape.name + "_compiled_ahead_to_loop",
                  ratio(measurements, "Trainer, compiled ahead", "hand-written loop"));
  }
}

#ifdef LEVIN_BENCH_GPT
void measure_gpt(const Options& options, Report& report) {
  const int64_t steps = options.quick ? 12 : 60;
  const auto measurements =
      interleave({alone("hand-written loop", "loop", "gpt", steps), alone("Trainer", "trainer", "gpt", steps),
                  alone("Trainer, recorded", "recorded", "gpt", steps)},
                 options);
  report.table("the GPT of bench gpt", "us a token", measurements);
  report.at_most("gpt_to_loop", ratio(measurements, "Trainer, recorded", "hand-written loop"), 0.97);
}
#endif

int run(const Options& options) {
  pin_to_one_core();
  levin::Console::instance().capture([](const std::string&) {});
  if (!options.words.empty() && options.words[0] == "alone") return run_alone(options.words);
  Report report("recorded");
  const auto asked = [&](const std::string& name) {
    return options.words.empty() || std::find(options.words.begin(), options.words.end(), name) != options.words.end();
  };
  const std::shared_ptr<Peer> peer = Peer::start("recorded");
  if (peer != nullptr) report.peers(peer->versions());
  for (const Shape& shape : shapes()) {
    if (!asked(shape.name)) continue;
    measure(shape, options, peer, report);
    measure_evaluation(shape, options, report);
    measure_memory(shape, options, report);
  }
#ifdef LEVIN_BENCH_GPT
  if (asked("gpt")) measure_gpt(options, report);
#endif
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 11);
  return guarded([&] { return run(options); });
}

}  // namespace bench::recorded
