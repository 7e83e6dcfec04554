// What recomputation costs and saves: a step (forward, loss, backward) of a GPT, plain and with each block computed
// again in backward, here and in Python with torch.utils.checkpoint (peers/recompute.py). Time in milliseconds; memory
// at the peak of a step, above what was held before it, by the allocator's own records on both sides.
//
//   bench_recompute [--rounds N] [--quick]
#include <algorithm>
#include <chrono>
#include <memory>

#include "levin/recompute/recomputation.h"
#include "models/gpt.h"
#include "peak_memory.h"
#include "peer.h"
#include "rounds.h"

namespace bench::recompute {

namespace {

constexpr int64_t kBatch = 8, kBlock = 128, kVocab = 256;

class Work {
 public:
  Work() : model_(model_options()) {
    torch::manual_seed(0);
    tokens_ = torch::randint(kVocab, {kBatch, kBlock + 1}, torch::kLong);
  }

  void step() {
    model_.zero_grad();
    const auto logits = model_.forward(tokens_.narrow(1, 0, kBlock));
    // Not all in one line: the targets would live as long as backward.
    const auto loss =
        torch::nn::functional::cross_entropy(logits.flatten(0, 1), tokens_.narrow(1, 1, kBlock).flatten());
    loss.backward();
  }

  double milliseconds(const levin::RecomputeOptions* again, int64_t steps) {
    using Clock = std::chrono::steady_clock;
    const auto acting = act(again);
    const auto start = Clock::now();
    for (int64_t k = 0; k < steps; ++k) step();
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count() / static_cast<double>(steps);
  }

  double peak_mib(const levin::RecomputeOptions* again) {
    const auto acting = act(again);
    step();
    model_.zero_grad();
    const PeakMemory memory;
    step();
    return memory.mib();
  }

 private:
  static GPTOptions model_options() {
    GPTOptions options;
    options.vocab_size = kVocab;
    options.block_size = kBlock;
    options.n_layer = 8;
    options.n_head = 4;
    options.n_embd = 128;
    return options;
  }

  std::unique_ptr<levin::Recomputation> act(const levin::RecomputeOptions* again) {
    return again == nullptr ? nullptr : std::make_unique<levin::Recomputation>(model_, *again);
  }

  GPT model_;
  torch::Tensor tokens_;
};

int run(const Options& options) {
  pin_to_one_core();
  const int64_t steps = options.quick ? 1 : 12;
  const auto work = std::make_shared<Work>();
  static const levin::RecomputeOptions each{.modules = {"h.*"}};
  static const levin::RecomputeOptions selective{.modules = {"h.*"}, .keep = levin::Keep::matmul};
  const auto peer = Peer::start("recompute");
  Report report("recompute");
  if (peer != nullptr) report.peers(peer->versions());

  std::vector<Contender> times = {{"Levin", [=] { return work->milliseconds(nullptr, steps); }},
                                  {"Levin, blocks again", [=] { return work->milliseconds(&each, steps); }},
                                  {"Levin, keep: matmul", [=] { return work->milliseconds(&selective, steps); }}};
  std::vector<Contender> memory = {{"Levin", [=] { return work->peak_mib(nullptr); }},
                                   {"Levin, blocks again", [=] { return work->peak_mib(&each); }},
                                   {"Levin, keep: matmul", [=] { return work->peak_mib(&selective); }}};
  if (peer != nullptr) {
    const std::string count = " " + std::to_string(steps);
    times.push_back({"PyTorch", [=] { return peer->round("time plain" + count); }});
    times.push_back({"PyTorch, checkpoint", [=] { return peer->round("time again" + count); }});
    memory.push_back({"PyTorch", [=] { return peer->round("memory plain"); }});
    memory.push_back({"PyTorch, checkpoint", [=] { return peer->round("memory again"); }});
  }
  const std::string shape = "GPT of 8 layers, 128 wide, batches of 8 x 128 tokens";
  const auto step_times = interleave(times, options);
  report.table("A step, one thread: " + shape, "ms", step_times);
  Options once = options;
  once.rounds = std::min(options.rounds, 3);  // always the same
  const auto peaks = interleave(memory, once);
  report.table("Peak of a step: " + shape, "MiB", peaks);

  const auto extra = ratio(step_times, "Levin, blocks again", "Levin");
  const auto extra_of_python = ratio(step_times, "PyTorch, checkpoint", "PyTorch");
  report.at_most("time_to_plain", extra, 1.33);
  report.number("time_to_plain_of_python", extra_of_python);
  // As the times: the slowdowns, 1 and the extra time.
  report.at_most("slowdown_to_python",
                 extra && extra_of_python ? std::optional(*extra / *extra_of_python) : std::nullopt, 1);
  report.at_most("time_to_python", ratio(step_times, "Levin, blocks again", "PyTorch, checkpoint"), 1);
  report.at_most("memory_to_python", ratio(peaks, "Levin, blocks again", "PyTorch, checkpoint"), 1);
  report.number("memory_to_plain", ratio(peaks, "Levin, blocks again", "Levin"));
  report.number("selective_time_to_plain", ratio(step_times, "Levin, keep: matmul", "Levin"));
  report.number("selective_memory_to_plain", ratio(peaks, "Levin, keep: matmul", "Levin"));
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 7);
  return guarded([&] { return run(options); });
}

}  // namespace bench::recompute
