// Tokens a second of training a GPT on a GPU in bf16-mixed: a hand-written LibTorch loop, the Trainer without and with
// record_steps, and in Python a raw loop, the same with torch.compile(mode="reduce-overhead"), and Lightning
// (peers/gpt_gpu.py). What a peer lacks (Lightning, a compiler for torch.compile) is left out with the reason.
//
//   bench_gpt gpu [BATCH…]      4 layers, 128 wide, batches of BATCH x 128 bytes; default: 1 2 4 8
//   bench_gpt gpu 124m          GPT-2 small, batches of 12 x 1024, with the fraction of the GPU's peak that is used
//   bench_gpt gpu … dry         the same on the CPU with next to no work: shows that the program runs
#include "gpt_gpu.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <stdexcept>

#include "gpt_runs.h"
#include "levin/callbacks/nvml.h"
#include "levin/core/gpu.h"
#include "levin/core/process/console.h"
#include "levin/profilers/peak_flops.h"
#include "peer.h"
#include "steady_stopwatch.h"
#include "survivors.h"

namespace bench::gpt {

namespace {

using Measurements = std::vector<Measurement>;

bool has_word(const Options& options, const std::string& word) {
  return std::find(options.words.begin(), options.words.end(), word) != options.words.end();
}

std::vector<int64_t> batches_of(const Options& options) {
  std::vector<int64_t> batches;
  for (const std::string& word : options.words) {
    if (word == "gpu" || word == "dry" || word == "124m") continue;
    const bool number = std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    if (!number || word.size() > 4 || std::stol(word) == 0) {
      throw std::runtime_error("bench_gpt gpu takes sizes of batches, 124m and dry, not \"" + word + "\"");
    }
    batches.push_back(std::stol(word));
  }
  return batches.empty() ? std::vector<int64_t>{1, 2, 4, 8} : batches;
}

Work with_recording(Work work) {
  work.record_steps = true;
  return work;
}

// "128 4 4 128 256": block, layers, heads, width and vocabulary, for the peer.
std::vector<std::string> peer_arguments(const Work& work) {
  std::vector<std::string> words = {work.gpu ? "cuda" : "cpu"};
  for (const int64_t number : {work.block, work.layers, work.heads, work.width, work.vocab}) {
    words.push_back(std::to_string(number));
  }
  return words;
}

struct PeerWay {
  const char* word;
  const char* name;
};
constexpr PeerWay kRaw{"raw", "raw PyTorch loop"};
constexpr PeerWay kCompiled{"compiled", "torch.compile, reduce-overhead"};
constexpr PeerWay kLightning{"lightning", "Lightning"};

// Returns the `ways` that work here.
std::vector<PeerWay> working(const std::shared_ptr<Peer>& peer, const std::vector<PeerWay>& ways) {
  std::vector<PeerWay> all;
  if (peer == nullptr) return all;
  for (const PeerWay& way : ways) {
    const std::string why = peer->why_not(way.word);
    if (why.empty()) all.push_back(way);
    if (!why.empty()) std::printf("%s is left out: %s\n", way.name, why.c_str());
  }
  return all;
}

void add_peers(std::vector<Candidate>& candidates, const std::shared_ptr<Peer>& peer, const std::vector<PeerWay>& ways,
               const Work& work, int64_t steps) {
  const std::string words = " " + std::to_string(work.batch) + " " + std::to_string(steps);
  for (const PeerWay& way : ways) {
    candidates.push_back({way.name, [=] { return peer->round(way.word + words); }});
  }
}

Candidate trainer(const std::string& name, const Work& work, int64_t steps) {
  return {name, [=] { return trained_by_levin(work, steps, {.devices = int64_t{1}}); }};
}

void measure_batches(const Options& options, bool gpu) {
  const auto bytes = load_bytes();
  const int64_t steps = gpu ? (options.quick ? 16 : 100) : 2;
  const int64_t replays = gpu ? 4 * steps : steps;  // each takes much less time
  Report report("gpt_gpu");
  const auto peer = Peer::start("gpt_gpu", peer_arguments({.block = 128, .gpu = gpu}));
  if (peer != nullptr) report.peers(peer->versions());
  const auto ways = working(peer, {kRaw, kCompiled, kLightning});
  Failures failures;
  for (const int64_t batch : batches_of(options)) {
    const Work work{.batch = batch, .block = 128, .gpu = gpu};
    std::vector<Candidate> candidates = {
        {"hand-written LibTorch loop", [&] { return hand_written_loop(work, bytes, steps); }},
        trainer("Trainer", work, steps),
        trainer("Trainer, recorded", with_recording(work), replays)};
    add_peers(candidates, peer, ways, work, steps);
    const Measurements measurements = failures.interleave_rest(candidates, options);
    const std::string size = std::to_string(batch);
    report.table("GPT of 4 layers, 128 wide, batches of " + size + " x 128 bytes, bf16-mixed, one GPU", "tokens/s",
                 measurements);
    const auto to = [&](const char* name, const char* other) { return ratio(measurements, name, other); };
    report.at_least("to_libtorch_loop_" + size, to("Trainer", "hand-written LibTorch loop"), 1);
    report.at_least("graph_to_libtorch_loop_" + size, to("Trainer, recorded", "hand-written LibTorch loop"), 1.5);
    report.at_least("to_raw_pytorch_" + size, to("Trainer", kRaw.name), 1);
    report.number("graph_to_raw_pytorch_" + size, to("Trainer, recorded", kRaw.name));
    report.number("graph_to_compiled_" + size, to("Trainer, recorded", kCompiled.name));
    report.at_least("to_lightning_" + size, to("Trainer", kLightning.name), 1);
  }
  report.write();
  failures.check();
}

// FLOPs of training one token (Chowdhery et al. 2022, appendix B): 6 for each weight that is multiplied, 12 for each
// layer, column and token of attention. The position embedding is looked up, not multiplied.
double flops_a_token(const Work& work) {
  const int64_t weights = count_parameters(work) - work.block * work.width;
  return static_cast<double>(6 * weights + 12 * work.layers * work.width * work.block);
}

void report_shares_of_peak(Report& report, const Measurements& measurements, double flops) {
  const std::string name = levin::Nvml(0).name();
  const auto peak = levin::peak_flops(name, levin::MatmulType::bfloat16);
  if (!peak) std::printf("The peak of %s is not in Levin's table: no shares of it.\n", name.c_str());
  for (const Measurement& measurement : measurements) {
    if (peak) report.number("mfu of " + measurement.name, measurement.median * flops / *peak);
  }
}

void measure_124m(const Options& options, bool gpu) {
  Work work{.batch = 12, .block = 1024, .gpu = gpu, .layers = 12, .heads = 12, .width = 768, .vocab = 50304};
  if (!gpu) work = {.batch = 1, .block = 16, .layers = 2, .heads = 2, .width = 16, .vocab = 512};
  const int64_t steps = gpu ? (options.quick ? 4 : 24) : 2;
  Report report("gpt_124m_gpu");
  const auto peer = Peer::start("gpt_gpu", peer_arguments(work));
  if (peer != nullptr) report.peers(peer->versions());
  std::vector<Candidate> candidates = {trainer("Trainer", work, steps),
                                       trainer("Trainer, recorded", with_recording(work), steps)};
  add_peers(candidates, peer, working(peer, {kRaw, kCompiled}), work, steps);
  Failures failures;
  const Measurements measurements = failures.interleave_rest(candidates, options);
  report.table("GPT-2 small, batches of 12 x 1024 tokens, bf16-mixed, one GPU", "tokens/s", measurements);
  report.at_least("to_raw_pytorch", ratio(measurements, "Trainer", kRaw.name), 1);
  report.number("graph_to_raw_pytorch", ratio(measurements, "Trainer, recorded", kRaw.name));
  report.number("graph_to_compiled", ratio(measurements, "Trainer, recorded", kCompiled.name));
  report.number("gflops_a_token", flops_a_token(work) / 1e9);
  if (gpu) report_shares_of_peak(report, measurements, flops_a_token(work));
  report.write();
  failures.check();
}

}  // namespace

int run_on_gpu(const Options& options) {
  const bool gpu = !has_word(options, "dry");
  const bool large = has_word(options, "124m");
  (void)batches_of(options);         // a wrong word is refused at once
  if (gpu) (void)levin::open_gpu();  // before LibTorch is asked for anything
  if (!gpu) pin_to_one_core();
  levin::Console::instance().capture([](const std::string&) {});
  if (large) measure_124m(options, gpu);
  if (!large) measure_batches(options, gpu);
  return 0;
}

}  // namespace bench::gpt
