// record_steps: a step replayed from its recording beside the same step run as it is, by hand and by the Trainer, by
// PyTorch, by torch.compile and by Lightning with it, and by the Trainer with the step compiled ahead (CompiledModule).
// One thread, one core, fixed batches in memory.
//
//   bench_recorded [--rounds N] [mlp16] [mlp784] [gru] [lstm] [cnn] [gpt]      without names: all
//   bench_recorded memory plain|recorded NAME STEPS                            [resident memory at the end in MiB]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>

#include "levin/core/console.h"
#include "levin/core/process_memory.h"
#include "levin/levin.h"
#include "peer.h"
#include "programs.h"
#include "rounds.h"
#ifdef LEVIN_BENCH_GPT
#include "gpt_runs.h"
#endif

namespace bench::recorded {

namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using Clock = std::chrono::steady_clock;

struct RnnNetImpl : nn::Module {
  explicit RnnNetImpl(bool is_lstm) : lstm(is_lstm) {
    if (lstm) long_memory = register_module("rnn", nn::LSTM(nn::LSTMOptions(64, 64).batch_first(true)));
    if (!lstm) gated = register_module("rnn", nn::GRU(nn::GRUOptions(64, 64).batch_first(true)));
    head = register_module("head", nn::Linear(64, 10));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor out = lstm ? std::get<0>(long_memory->forward(x)) : std::get<0>(gated->forward(x));
    return head->forward(out.select(1, -1));
  }
  bool lstm;
  nn::LSTM long_memory = nullptr;
  nn::GRU gated = nullptr;
  nn::Linear head = nullptr;
};
TORCH_MODULE(RnnNet);

struct Net {
  std::shared_ptr<nn::Module> module;
  std::function<at::Tensor(const at::Tensor&)> forward;
};

template <class Holder>
Net net_of(Holder holder) {
  return {holder.ptr(), [holder](const at::Tensor& x) mutable { return holder->forward(x); }};
}

/// A model, its batch and the bound on the replayed step's share of the hand-written loop's.
struct Shape {
  std::string name;
  std::string title;
  std::vector<int64_t> input;
  int64_t classes;
  int64_t steps;
  double bound;
  bool beats_compiled;
  std::function<Net()> make;
};

std::vector<Shape> shapes() {
  return {{"mlp16",
           "MLP 16-64-64-4, batch 32",
           {32, 16},
           4,
           3000,
           0.40,
           true,
           [] {
             return net_of(
                 nn::Sequential(nn::Linear(16, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 4)));
           }},
          {"mlp784",
           "MLP 784-64-10, batch 64",
           {64, 784},
           10,
           1500,
           0.80,
           true,
           [] { return net_of(nn::Sequential(nn::Linear(784, 64), nn::ReLU(), nn::Linear(64, 10))); }},
          {"gru",
           "GRU of 64 over 16 steps, batch 32",
           {32, 16, 64},
           10,
           300,
           0.60,
           true,
           [] { return net_of(RnnNet(false)); }},
          {"lstm",
           "LSTM of 64 over 16 steps, batch 32",
           {32, 16, 64},
           10,
           300,
           0.60,
           true,
           [] { return net_of(RnnNet(true)); }},
          {"cnn", "CNN of two convolutions, batch 16", {16, 1, 28, 28}, 10, 300, 0.90, false, [] {
             return net_of(nn::Sequential(nn::Conv2d(1, 8, 3), nn::ReLU(), nn::MaxPool2d(2), nn::Conv2d(8, 16, 3),
                                          nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(400, 10)));
           }}};
}

struct Data {
  std::vector<levin::Batch> batches;
};

Data make_data(const Shape& shape) {
  torch::manual_seed(1);
  Data data;
  for (int k = 0; k < 16; ++k) {
    data.batches.push_back(levin::Batch({torch::randn(shape.input), torch::randint(shape.classes, {shape.input[0]})}));
  }
  return data;
}

class Fixed final : public levin::Loader {
 public:
  explicit Fixed(const Data& data) : data_(data) {}
  void start(int64_t, int64_t) override {}
  bool next(levin::Batch& batch) override {
    batch = data_.batches[next_++ % data_.batches.size()];
    return true;
  }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return std::nullopt; }

 private:
  const Data& data_;
  size_t next_ = 0;
};

class Module final : public levin::LightningModule {
 public:
  explicit Module(const Shape& shape) : net_(shape.make()) { register_module("net", net_.module); }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    return F::cross_entropy(net_.forward(batch[0]), batch[1]);
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    log("val_loss", F::cross_entropy(net_.forward(batch[0]), batch[1]));
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = 0.01}); }

 private:
  Net net_;
};

// Times the steps after the first `skipped`, in which steps are recorded and checked.
class StepClock final : public levin::Callback {
 public:
  explicit StepClock(int64_t skipped) : skipped_(skipped) {}
  void on_train_batch_start(levin::Trainer&, levin::LightningModule&, const levin::Batch&, int64_t batch_idx) override {
    if (batch_idx == skipped_) start_ = Clock::now();
  }
  void on_train_batch_end(levin::Trainer&, levin::LightningModule&, const at::Tensor&, const levin::Batch&,
                          int64_t batch_idx) override {
    steps_ = batch_idx + 1 - skipped_;
    end_ = Clock::now();
  }
  void on_validation_batch_start(levin::Trainer& trainer, levin::LightningModule& module, const levin::Batch& batch,
                                 int64_t batch_idx, int64_t) override {
    on_train_batch_start(trainer, module, batch, batch_idx);
  }
  void on_validation_batch_end(levin::Trainer& trainer, levin::LightningModule& module, const levin::Batch& batch,
                               int64_t batch_idx, int64_t) override {
    on_train_batch_end(trainer, module, {}, batch, batch_idx);
  }
  [[nodiscard]] double microseconds() const {
    return std::chrono::duration<double, std::micro>(end_ - start_).count() / static_cast<double>(steps_);
  }

 private:
  int64_t skipped_;
  int64_t steps_ = 0;
  Clock::time_point start_, end_;
};

constexpr int64_t kSkipped = 8;

double by_hand(const Shape& shape, const Data& data, int64_t steps) {
  torch::manual_seed(0);
  Net net = shape.make();
  torch::optim::SGD optimizer(net.module->parameters(), 0.01);
  auto start = Clock::now();
  for (int64_t k = 0; k < steps + kSkipped; ++k) {
    if (k == kSkipped) start = Clock::now();
    const levin::Batch& batch = data.batches[static_cast<size_t>(k) % data.batches.size()];
    optimizer.zero_grad();
    const at::Tensor loss = F::cross_entropy(net.forward(batch[0]), batch[1]);
    loss.backward();
    optimizer.step();
  }
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / static_cast<double>(steps);
}

double timed_fit(levin::LightningModule& module, const Data& data, int64_t steps, bool recorded) {
  const auto clock = std::make_shared<StepClock>(kSkipped);
  levin::TrainerOptions options;
  options.barebones = true;
  options.max_steps = steps + kSkipped;
  options.record_steps = recorded;
  options.num_threads = int64_t{1};
  options.callbacks.push_back(clock);
  levin::Trainer(std::move(options)).fit(module, std::make_shared<Fixed>(data));
  return clock->microseconds();
}

double by_levin(const Shape& shape, const Data& data, int64_t steps, bool recorded) {
  torch::manual_seed(0);
  Module module(shape);
  return timed_fit(module, data, steps, recorded);
}

/// `file`: the peer's module, compiled by tools/compile_step.py.
double by_compiled_step(const std::string& file, const Data& data, int64_t steps) {
  levin::CompiledModule module({.path = file, .trust = true});
  module.set_optimizer_override(
      [](levin::LightningModule& m) -> levin::OptimizerConfig { return levin::SGD(m.parameters(), {.lr = 0.01}); });
  return timed_fit(module, data, steps, /*recorded=*/false);
}

double evaluated_by_hand(const Shape& shape, const Data& data, int64_t steps) {
  torch::manual_seed(0);
  const Net net = shape.make();
  net.module->eval();
  const c10::InferenceMode no_graphs;
  double sum = 0;
  auto start = Clock::now();
  for (int64_t k = 0; k < steps + kSkipped; ++k) {
    if (k == kSkipped) start = Clock::now();
    const levin::Batch& batch = data.batches[static_cast<size_t>(k) % data.batches.size()];
    sum += F::cross_entropy(net.forward(batch[0]), batch[1]).item<double>();
  }
  const Clock::duration took = Clock::now() - start;
  if (!(sum > 0)) throw std::runtime_error("the loss of " + shape.name + " is " + std::to_string(sum));
  return std::chrono::duration<double, std::micro>(took).count() / static_cast<double>(steps);
}

double evaluated_by_levin(const Shape& shape, const Data& data, int64_t steps, bool recorded) {
  torch::manual_seed(0);
  Module module(shape);
  const auto clock = std::make_shared<StepClock>(kSkipped);
  levin::TrainerOptions options;
  options.logger = false;
  options.enable_checkpointing = options.enable_progress_bar = options.enable_model_summary = std::optional(false);
  options.limit_val_batches = levin::BatchLimit(steps + kSkipped);
  options.record_steps = recorded;
  options.num_threads = int64_t{1};
  options.callbacks.push_back(clock);
  levin::Trainer(std::move(options)).validate(module, {std::make_shared<Fixed>(data)});
  return clock->microseconds();
}

void measure_evaluation(const Shape& shape, const Options& options, Report& report) {
  const Data data = make_data(shape);
  const int64_t steps = options.quick ? 12 : shape.steps * 2;
  const auto figures = interleave({{"hand-written loop", [&] { return evaluated_by_hand(shape, data, steps); }},
                                   {"Trainer", [&] { return evaluated_by_levin(shape, data, steps, false); }},
                                   {"Trainer, recorded", [&] { return evaluated_by_levin(shape, data, steps, true); }}},
                                  options);
  report.table(shape.title + ": evaluation", "us a step", figures);
  report.number(shape.name + "_evaluation_to_loop", ratio(figures, "Trainer, recorded", "hand-written loop"));
}

// In processes of their own, because a process keeps what was allocated before.
void measure_memory(const Shape& shape, const Options& options, Report& report) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").replace_filename("bench_recorded").string();
  const std::string steps = std::to_string(options.quick ? 12 : shape.steps);
  const auto peak = [&](const std::string& how) {
    return Process({program, "memory", how, shape.name, steps}, peer_log("recorded")).answer()[0].get<double>();
  };
  const auto figures = interleave(
      {{"Trainer", [&] { return peak("plain"); }}, {"Trainer, recorded", [&] { return peak("recorded"); }}}, options);
  report.table(shape.title + ": resident memory", "MiB", figures);
  report.number(shape.name + "_memory", ratio(figures, "Trainer, recorded", "Trainer"));
}

int print_memory(const std::vector<std::string>& words) {
  if (words.size() != 4) throw std::runtime_error("memory takes plain or recorded, a model and a number of steps");
  for (const Shape& shape : shapes()) {
    if (shape.name == words[2]) (void)by_levin(shape, make_data(shape), std::stol(words[3]), words[1] == "recorded");
  }
  std::printf("[%.3f]\n", static_cast<double>(levin::process_memory().resident) / (1 << 20));
  return 0;
}

void measure(const Shape& shape, const Options& options, const std::shared_ptr<Peer>& peer, Report& report) {
  const Data data = make_data(shape);
  const int64_t steps = options.quick ? 12 : shape.steps;
  std::vector<Contender> contenders = {{"hand-written loop", [&] { return by_hand(shape, data, steps); }},
                                       {"Trainer", [&] { return by_levin(shape, data, steps, false); }},
                                       {"Trainer, recorded", [&] { return by_levin(shape, data, steps, true); }}};
  if (peer != nullptr) {
    const std::string words = " " + shape.name + " " + std::to_string(options.quick ? 12 : steps / 3);
    contenders.push_back({"raw PyTorch", [=] { return peer->round("raw" + words); }});
    contenders.push_back({"PyTorch, compiled", [=] { return peer->round("compiled" + words); }});
    contenders.push_back({"Lightning, compiled", [=] { return peer->round("lightning" + words); }});
    const auto file = std::filesystem::temp_directory_path() / ("bench-" + shape.name + ".pt2");
    (void)peer->round("ahead " + shape.name + " " + file.string());
    contenders.push_back({"Trainer, compiled ahead", [=, &data] { return by_compiled_step(file, data, steps); }});
  }
  const auto figures = interleave(contenders, options);
  report.table(shape.title, "us a step", figures);
  report.at_most(shape.name + "_to_loop", ratio(figures, "Trainer, recorded", "hand-written loop"), shape.bound);
  if (peer != nullptr && shape.beats_compiled) {
    report.at_least(shape.name + "_compiled_to_recorded", ratio(figures, "PyTorch, compiled", "Trainer, recorded"),
                    1.0);
  }
  if (peer != nullptr) {
    report.number(shape.name + "_compiled_ahead_to_loop",
                  ratio(figures, "Trainer, compiled ahead", "hand-written loop"));
  }
}

#ifdef LEVIN_BENCH_GPT
void measure_gpt(const Options& options, Report& report) {
  const at::Tensor bytes = gpt::load_bytes();
  const gpt::Work plain, recorded{.record_steps = true};
  const int64_t steps = options.quick ? 12 : 60;
  const auto figures =
      interleave({{"hand-written loop", [&] { return 1e6 / gpt::hand_written_loop(plain, bytes, steps); }},
                  {"Trainer", [&] { return 1e6 / gpt::trained_by_levin(plain, steps); }},
                  {"Trainer, recorded", [&] { return 1e6 / gpt::trained_by_levin(recorded, steps); }}},
                 options);
  report.table("the GPT of bench gpt", "us a token", figures);
  report.at_most("gpt_to_loop", ratio(figures, "Trainer, recorded", "hand-written loop"), 0.97);
}
#endif

int run(const Options& options) {
  pin_to_one_core();
  levin::Console::instance().capture([](const std::string&) {});
  if (!options.words.empty() && options.words[0] == "memory") return print_memory(options.words);
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
