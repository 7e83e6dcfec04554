// Measures what recomputation costs and saves: a step (forward, loss, backward) of a GPT, plain and with each block
// computed again in backward, here and in Python with torch.utils.checkpoint (peers/recompute.py); on a GPU also with
// the blocks' inputs in the host's memory. Time in milliseconds; memory at the peak of a step, above what was held
// before it, by the allocator's own records on both sides.
//
//   bench_recompute [--rounds N] [--quick]
//   bench_recompute gpu          on a GPU: 12 layers, 768 wide, batches of 8 x 512 tokens, in float32
//   bench_recompute gpu dry      the same program on the CPU with a tiny model: shows that it runs
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>

#include "levin/core/gpu.h"
#include "levin/recompute/memory_meter.h"
#include "levin/recompute/recomputation.h"
#include "models/gpt.h"
#include "peak_memory.h"
#include "peer.h"
#include "rounds.h"
#include "steady_stopwatch.h"
#include "survivors.h"

namespace bench::recompute {

namespace {

constexpr int64_t kVocab = 256;

struct Shape {
  int64_t batch = 8, block = 128, layers = 8, heads = 4, width = 128;
  bool gpu = false;

  [[nodiscard]] std::string text() const {
    return "GPT of " + std::to_string(layers) + " layers, " + std::to_string(width) + " wide, batches of " +
           std::to_string(batch) + " x " + std::to_string(block) + " tokens";
  }
  // Returns the arguments of the peer.
  [[nodiscard]] std::vector<std::string> words() const {
    std::vector<std::string> all = {gpu ? "cuda" : "cpu"};
    for (const int64_t number : {batch, block, layers, heads, width}) all.push_back(std::to_string(number));
    return all;
  }
};

class Work {
 public:
  explicit Work(const Shape& shape) : shape_(shape), model_(model_options(shape)) {
    torch::manual_seed(0);
    tokens_ = torch::randint(kVocab, {shape.batch, shape.block + 1}, torch::kLong);
    if (!shape.gpu) return;
    model_.to(at::Device(at::kCUDA, 0));
    tokens_ = tokens_.to(at::Device(at::kCUDA, 0));
  }

  void step() {
    model_.zero_grad();
    const auto logits = model_.forward(tokens_.narrow(1, 0, shape_.block));
    // Not a single expression: the targets would live as long as backward.
    const auto loss =
        torch::nn::functional::cross_entropy(logits.flatten(0, 1), tokens_.narrow(1, 1, shape_.block).flatten());
    loss.backward();
  }

  double milliseconds(const std::optional<levin::RecomputeOptions>& again, int64_t steps) {
    const auto acting = act(again);
    if (shape_.gpu) step();  // the allocator takes its memory
    const auto start = time_when_done(shape_.gpu);
    for (int64_t k = 0; k < steps; ++k) step();
    const std::chrono::duration<double, std::milli> took = time_when_done(shape_.gpu) - start;
    return took.count() / static_cast<double>(steps);
  }

  double peak_mib(const std::optional<levin::RecomputeOptions>& again) {
    const auto acting = act(again);
    step();
    model_.zero_grad();
    if (shape_.gpu) return peak_of_gpu_mib();
    const PeakMemory memory;
    step();
    return memory.mib();
  }

 private:
  static GPTOptions model_options(const Shape& shape) {
    GPTOptions options;
    options.vocab_size = kVocab;
    options.block_size = shape.block;
    options.n_layer = shape.layers;
    options.n_head = shape.heads;
    options.n_embd = shape.width;
    return options;
  }

  double peak_of_gpu_mib() {
    const auto meter = levin::MemoryMeter::make(at::Device(at::kCUDA, 0));
    meter->wait();
    meter->mark();
    const int64_t before = meter->held();
    step();
    meter->wait();
    return static_cast<double>(meter->peak() - before) / (1 << 20);
  }

  std::unique_ptr<levin::Recomputation> act(const std::optional<levin::RecomputeOptions>& again) {
    return again ? std::make_unique<levin::Recomputation>(model_, *again) : nullptr;
  }

  Shape shape_;
  GPT model_;
  torch::Tensor tokens_;
};

struct Way {
  const char* name;
  std::optional<levin::RecomputeOptions> again = std::nullopt;
};

const std::vector<Way>& ways(bool gpu) {
  static const std::vector<std::string> blocks = {"h.*"};
  static const std::vector<Way> everywhere = {
      {"Levin"},
      {"Levin, blocks again", levin::RecomputeOptions{.modules = blocks}},
      {"Levin, keep: matmul", levin::RecomputeOptions{.modules = blocks, .keep = levin::Keep::matmul}}};
  static const std::vector<Way> on_gpu = [] {
    std::vector<Way> all = everywhere;
    all.push_back({"Levin, offload", levin::RecomputeOptions{.modules = blocks, .offload = true}});
    return all;
  }();
  return gpu ? on_gpu : everywhere;
}

// The GPU's, or the CPU's of "dry".
Shape large_shape(const Options& options) {
  const bool dry = options.words.size() == 2 && options.words[1] == "dry";
  if (options.words[0] != "gpu" || (options.words.size() > 1 && !dry)) {
    throw std::runtime_error("usage: bench_recompute [gpu [dry]]");
  }
  if (dry) return {.batch = 2, .block = 16, .layers = 2, .heads = 2, .width = 16};
  (void)levin::open_gpu();  // before LibTorch is asked for anything
  return {.batch = 8, .block = 512, .layers = 12, .heads = 12, .width = 768, .gpu = true};
}

int run(const Options& options) {
  const bool large = !options.words.empty();
  const Shape size = large ? large_shape(options) : Shape();
  if (!size.gpu) pin_to_one_core();
  const int64_t steps = options.quick ? 1 : 12;
  const auto work = std::make_shared<Work>(size);
  const auto peer = Peer::start("recompute", size.words());
  Report report(large ? "recompute_gpu" : "recompute");
  if (peer != nullptr) report.peers(peer->versions());

  std::vector<Candidate> times, memory;
  for (const Way& way : ways(large)) {
    times.push_back({way.name, [=, &way] { return work->milliseconds(way.again, steps); }});
    memory.push_back({way.name, [=, &way] { return work->peak_mib(way.again); }});
  }
  if (peer != nullptr) {
    const std::string count = " " + std::to_string(steps);
    times.push_back({"PyTorch", [=] { return peer->round("time plain" + count); }});
    times.push_back({"PyTorch, checkpoint", [=] { return peer->round("time again" + count); }});
    memory.push_back({"PyTorch", [=] { return peer->round("memory plain"); }});
    memory.push_back({"PyTorch, checkpoint", [=] { return peer->round("memory again"); }});
  }
  const std::string shape = size.text();
  Failures failures;
  const auto step_times = failures.interleave_rest(times, options);
  report.table((size.gpu ? "A step, one GPU: " : "A step, one thread: ") + shape, "ms", step_times);
  Options once = options;
  once.rounds = std::min(options.rounds, 3);  // always the same
  const auto peaks = failures.interleave_rest(memory, once);
  report.table("Peak of a step: " + shape, "MiB", peaks);

  const auto extra = ratio(step_times, "Levin, blocks again", "Levin");
  const auto extra_of_python = ratio(step_times, "PyTorch, checkpoint", "PyTorch");
  report.at_most("time_to_plain", extra, 1.33);
  report.number("time_to_plain_of_python", extra_of_python);
  // Like the times: the slowdowns, 1 and the extra time.
  report.at_most("slowdown_to_python",
                 extra && extra_of_python ? std::optional(*extra / *extra_of_python) : std::nullopt, 1);
  report.at_most("time_to_python", ratio(step_times, "Levin, blocks again", "PyTorch, checkpoint"), 1);
  report.at_most("memory_to_python", ratio(peaks, "Levin, blocks again", "PyTorch, checkpoint"), 1);
  report.number("memory_to_plain", ratio(peaks, "Levin, blocks again", "Levin"));
  report.number("selective_time_to_plain", ratio(step_times, "Levin, keep: matmul", "Levin"));
  report.number("selective_memory_to_plain", ratio(peaks, "Levin, keep: matmul", "Levin"));
  report.number("offload_time_to_plain", ratio(step_times, "Levin, offload", "Levin"));
  report.number("offload_memory_to_plain", ratio(peaks, "Levin, offload", "Levin"));
  report.write();
  failures.check();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 7);
  return guarded([&] { return run(options); });
}

}  // namespace bench::recompute
