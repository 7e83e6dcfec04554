// Measures what LoRA costs and saves: an optimizer step of a GPT-2 of 44 million parameters (forward, loss, backward,
// AdamW) with all weights trained, with adapters of rank 8 in every linear layer, and with those over weights in 8 and
// 4 bits; and PEFT's in Python (peers/lora.py). Time in milliseconds; memory of tensors: what is held between steps
// (weights, buffers, the optimizer's state) plus the peak of a step above it.
//
//   bench_lora [--rounds N] [--quick]
#include "levin/adapters/lora.h"

#include <torch/torch.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "levin/models/huggingface/auto_model.h"
#include "levin/optim/adam.h"
#include "peak_memory.h"
#include "peer.h"
#include "rounds.h"

namespace bench::lora {

namespace {

constexpr int64_t kBatch = 2, kTokens = 128, kVocab = 8192;
constexpr const char* kConfig = R"({"model_type": "gpt2", "vocab_size": 8192, "n_positions": 128, "n_embd": 640,
  "n_layer": 8, "n_head": 10, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})";

enum class Way { full, lora, int8, nf4 };

levin::LoRAOptions adapters(Way way) {
  levin::LoRAOptions options{.target_modules = {"c_attn", "c_proj", "c_fc"}, .r = 8, .lora_alpha = 16.0};
  if (way == Way::int8) options.quantize = levin::Quantize::int8;
  if (way == Way::nf4) options.quantize = levin::Quantize::nf4;
  return options;
}

class Work {
 public:
  explicit Work(Way way) {
    torch::manual_seed(0);
    model_ = levin::AutoModelForCausalLM::from_config(levin::PretrainedConfig::parse(kConfig, "bench_lora"));
    model_->train();
    if (way != Way::full) levin::apply_lora(*model_, adapters(way));
    optimizer_.emplace(model_->parameters(), levin::AdamWOptions{.lr = 1e-4});
    tokens_ = torch::randint(kVocab, {kBatch, kTokens + 1}, torch::kLong);
    step();  // the optimizer's state is made
    optimizer_->zero_grad();
  }

  double milliseconds(int64_t steps) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    for (int64_t k = 0; k < steps; ++k) step();
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count() / static_cast<double>(steps);
  }

  double mib() {
    optimizer_->zero_grad();
    const double held = held_mib();
    const PeakMemory memory;
    step();
    return held + memory.mib();
  }

  [[nodiscard]] double optimizer_mib() const { return mib_of(state()); }

 private:
  void step() {
    optimizer_->zero_grad();
    const auto logits = model_->forward({.input_ids = tokens_.narrow(1, 0, kTokens)}).logits;
    const auto loss =
        torch::nn::functional::cross_entropy(logits.flatten(0, 1), tokens_.narrow(1, 1, kTokens).flatten());
    loss.backward();
    optimizer_->step();
  }

  [[nodiscard]] std::vector<at::Tensor> state() const {
    std::vector<at::Tensor> tensors;
    for (const auto& item : optimizer_->state_dict().tensors) tensors.push_back(item.second);
    return tensors;
  }

  [[nodiscard]] double held_mib() const {
    return mib_of(model_->parameters()) + mib_of(model_->buffers()) + mib_of(state());
  }

  static double mib_of(const std::vector<at::Tensor>& tensors) {
    std::set<const c10::StorageImpl*> seen;
    double bytes = 0;
    for (const at::Tensor& tensor : tensors) {
      if (seen.insert(tensor.storage().unsafeGetStorageImpl()).second) {
        bytes += static_cast<double>(tensor.storage().nbytes());
      }
    }
    return bytes / (1 << 20);
  }

  std::shared_ptr<levin::PretrainedModel> model_;
  std::optional<levin::AdamW> optimizer_;
  at::Tensor tokens_;
};

// Null if the Python packages of `./dev check --peers` are missing.
std::shared_ptr<Peer> start_peft() {
  const char* peers = std::getenv("LEVIN_PEERS");
  const bool has_peft = peers != nullptr && std::filesystem::is_directory(std::filesystem::path(peers).parent_path() /
                                                                          "models-python" / "peft");
  return has_peft ? Peer::start("lora") : nullptr;
}

int run(const Options& options) {
  pin_to_one_core();
  const int64_t steps = options.quick ? 1 : 3;
  const std::vector<std::pair<std::string, Way>> ways = {
      {"all weights", Way::full}, {"LoRA", Way::lora}, {"LoRA, int8", Way::int8}, {"LoRA, nf4", Way::nf4}};
  const auto peer = start_peft();
  Report report("lora");
  if (peer != nullptr) report.peers(peer->versions());
  std::vector<Candidate> times, memory, states;
  for (const auto& [name, way] : ways) {
    const auto work = std::make_shared<Work>(way);
    times.push_back({name, [=] { return work->milliseconds(steps); }});
    memory.push_back({name, [=] { return work->mib(); }});
    states.push_back({name, [=] { return work->optimizer_mib(); }});
  }
  if (peer != nullptr) {
    for (const char* way : {"full", "lora"}) {
      const std::string name = std::string(way) == "full" ? "PyTorch, all weights" : "PEFT, LoRA";
      times.push_back({name, [=] { return peer->round("time " + std::string(way) + " " + std::to_string(steps)); }});
      memory.push_back({name, [=] { return peer->round("memory " + std::string(way)); }});
    }
  }
  const std::string shape = "GPT-2 of 8 layers, 640 wide, 44 million parameters, batches of 2 x 128 tokens";
  const auto step_times = interleave(times, options);
  report.table("A step, one thread: " + shape, "ms", step_times);
  Options once = options;
  once.rounds = 1;  // always the same
  const auto peaks = interleave(memory, once);
  report.table("Tensors at the peak of a step: " + shape, "MiB", peaks);
  report.table("The optimizer's state", "MiB", interleave(states, once));

  report.at_most("lora_time", ratio(step_times, "LoRA", "all weights"), 1);
  report.at_most("lora_memory", ratio(peaks, "LoRA", "all weights"), 0.6);
  report.number("int8_time", ratio(step_times, "LoRA, int8", "all weights"));
  report.at_most("int8_memory", ratio(peaks, "LoRA, int8", "LoRA"), 0.8);
  report.number("nf4_time", ratio(step_times, "LoRA, nf4", "all weights"));
  report.at_most("nf4_memory", ratio(peaks, "LoRA, nf4", "LoRA, int8"), 1);
  report.at_most("time_to_peft", ratio(step_times, "LoRA", "PEFT, LoRA"), 1);
  report.number("memory_to_peft", ratio(peaks, "LoRA", "PEFT, LoRA"));
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 5);
  return guarded([&] { return run(options); });
}

}  // namespace bench::lora
