#include "recorded_runs.h"

#include <chrono>
#include <cstdio>
#include <stdexcept>

#include "levin/core/process/process_memory.h"
#include "levin/levin.h"
#include "levin/trainer/module_access.h"
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

template <class Holder>
Net net_of(Holder holder) {
  return {holder.ptr(), [holder](const at::Tensor& x) mutable { return holder->forward(x); }};
}

}  // namespace

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

namespace {

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
  levin::ModuleAccess::set_optimizer_override(module, [](levin::LightningModule& m) -> levin::OptimizerConfig {
    return levin::SGD(m.parameters(), {.lr = 0.01});
  });
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

double resident_mib(const Shape& shape, const Data& data, int64_t steps, bool recorded) {
  (void)by_levin(shape, data, steps, recorded);
  return static_cast<double>(levin::process_memory().resident) / (1 << 20);
}

using Words = std::vector<std::string>;

double time_of_shape(const Words& words) {
  for (const Shape& shape : shapes()) {
    if (shape.name != words[2]) continue;
    const std::string& what = words[1];
    const bool recorded = what.ends_with("recorded");
    const Data data = make_data(shape);
    const int64_t steps = std::stol(words[3]);
    if (what == "loop") return by_hand(shape, data, steps);
    if (what == "evaluated_loop") return evaluated_by_hand(shape, data, steps);
    if (what.starts_with("evaluated")) return evaluated_by_levin(shape, data, steps, recorded);
    if (what.starts_with("memory")) return resident_mib(shape, data, steps, recorded);
    if (what == "compiled") return by_compiled_step(words.at(4), data, steps);
    return by_levin(shape, data, steps, recorded);
  }
  throw std::runtime_error("unknown model " + words[2]);
}

#ifdef LEVIN_BENCH_GPT
double time_of_gpt(const Words& words) {
  const int64_t steps = std::stol(words[3]);
  const gpt::Work work{.record_steps = words[1] == "recorded"};
  const double rate =
      words[1] == "loop" ? gpt::hand_written_loop(work, gpt::load_bytes(), steps) : gpt::trained_by_levin(work, steps);
  return 1e6 / rate;
}
#endif

}  // namespace

int run_alone(const Words& words) {
  if (words.size() < 4) throw std::runtime_error("alone takes what to measure, a model and a number of steps");
#ifdef LEVIN_BENCH_GPT
  const double measurement = words[2] == "gpt" ? time_of_gpt(words) : time_of_shape(words);
#else
  const double measurement = time_of_shape(words);
#endif
  std::printf("[%.3f]\n", measurement);
  return 0;
}

}  // namespace bench::recorded
