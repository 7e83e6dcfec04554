// Tokens a second of training a small GPT (examples/models/gpt.h) on the bytes of the King James Bible, on one core: a
// hand-written LibTorch loop with stock torch::optim, the Trainer with its defaults on the data module BibleText, a raw
// PyTorch loop with fused AdamW and Lightning (peers/gpt.py).
//
//   bench_gpt [--rounds N] [--quick]
//   bench_gpt gpu …     on a GPU, see gpt_gpu.cpp
#include <algorithm>

#include "gpt_gpu.h"
#include "gpt_runs.h"
#include "levin/core/process/console.h"
#include "peer.h"
#include "rounds.h"

namespace bench::gpt {

namespace {

int run(const Options& options) {
  if (std::find(options.words.begin(), options.words.end(), "gpu") != options.words.end()) return run_on_gpu(options);
  pin_to_one_core();
  levin::Console::instance().capture([](const std::string&) {});
  const int64_t steps = options.quick ? 2 : 25;
  const auto bytes = load_bytes();
  const auto peer = Peer::start("gpt");
  Report report("gpt");
  if (peer != nullptr) report.peers(peer->versions());

  std::vector<Candidate> candidates = {
      {"hand-written LibTorch loop", [&] { return hand_written_loop({}, bytes, steps); }},
      {"Trainer", [=] { return trained_by_levin({}, steps); }}};
  if (peer != nullptr) {
    const std::string count = std::to_string(steps);
    candidates.push_back({"raw PyTorch loop", [=] { return peer->round("raw " + count); }});
    candidates.push_back({"Lightning", [=] { return peer->round("lightning " + count); }});
  }
  const auto measurements = interleave(candidates, options);
  report.table("GPT of 4 layers, 128 wide, batches of 12 x 64 bytes, one thread", "tokens/s", measurements);
  report.at_least("to_libtorch_loop", ratio(measurements, "Trainer", "hand-written LibTorch loop"), 1);
  report.at_least("to_raw_pytorch", ratio(measurements, "Trainer", "raw PyTorch loop"), 1);
  report.at_least("to_lightning", ratio(measurements, "Trainer", "Lightning"), 1);
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 7);
  return guarded([&] { return run(options); });
}

}  // namespace bench::gpt
