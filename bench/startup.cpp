// From the start of a process to the end of its first training step, and the process's peak of resident memory: MLP
// 784-64-10, ten batches of 64 random samples, SGD, one thread, one core; by a hand-written LibTorch loop, by the
// Trainer with its defaults, by a raw PyTorch loop and by Lightning. Each round starts each of them as a new process.
#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "levin/core/process/console.h"
#include "levin/levin.h"
#include "peer.h"
#include "rounds.h"

namespace bench::startup {

namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr int64_t kBatch = 64;
constexpr int64_t kSteps = 10;

// Seconds of the clock that all processes of the machine share.
double now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Peak memory of this process since its program started; getrusage would include the process that started it.
double peak_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  }
  throw std::runtime_error("/proc/self/status has no VmHWM");
}

nn::Sequential make_net() {
  return nn::Sequential(nn::Linear(784, 64), nn::ReLU(), nn::Linear(64, 10));
}

std::vector<at::Tensor> make_data() {
  return {torch::rand({kBatch * kSteps, 784}), torch::randint(0, 10, {kBatch * kSteps}, torch::kLong)};
}

double hand_written() {
  const auto data = make_data();
  auto net = make_net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  double first_step = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    F::cross_entropy(net->forward(data[0].narrow(0, step * kBatch, kBatch)), data[1].narrow(0, step * kBatch, kBatch))
        .backward();
    optimizer.step();
    if (step == 0) first_step = now();
  }
  return first_step;
}

class Mlp : public levin::LightningModule {
 public:
  Mlp() { register_module("net", net_); }
  torch::Tensor training_step(const levin::Batch& batch, int64_t) override {
    auto loss = F::cross_entropy(net_->forward(batch[0]), batch[1]);
    log("train_loss", loss);
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = 0.1}); }

 private:
  nn::Sequential net_ = make_net();
};

class FirstStep : public levin::Callback {
 public:
  void on_train_batch_end(levin::Trainer&, levin::LightningModule&, const at::Tensor&, const levin::Batch&,
                          int64_t batch_idx) override {
    if (batch_idx == 0) moment = now();
  }
  double moment = 0;
};

double by_trainer() {
  levin::Console::instance().capture([](const std::string&) {});
  const auto folder = std::filesystem::temp_directory_path() / ("levin_bench_startup." + std::to_string(::getpid()));
  auto first_step = std::make_shared<FirstStep>();
  Mlp model;
  levin::Trainer trainer(
      levin::TrainerOptions{.max_epochs = 1, .callbacks = {first_step}, .default_root_dir = folder.string()});
  trainer.fit(model,
              std::make_shared<levin::DataLoader>(std::make_shared<levin::TensorDataset>(make_data()),
                                                  levin::DataLoaderOptions{.batch_size = kBatch, .shuffle = true}));
  std::filesystem::remove_all(folder);
  return first_step->moment;
}

int child(const std::string& which) {
  at::set_num_threads(1);
  const double first_step = which == "loop" ? hand_written() : by_trainer();
  const double peak = peak_mib();
  std::printf("{\"first_step\": %.9f, \"peak_mib\": %.3f}\n", first_step, peak);
  return 0;
}

// Milliseconds to the first step; the peak is noted in `peaks`, a peer's versions in `versions`.
Candidate starter(std::string name, const std::vector<std::string>& command, std::vector<double>& peaks,
                  nlohmann::json& versions) {
  return {std::move(name), [command, &peaks, &versions] {
            const double start = now();
            Process process(command, peer_log("startup"));
            const auto answer = process.answer();
            peaks.push_back(answer.at("peak_mib").get<double>());
            if (answer.contains("versions")) versions.update(answer["versions"]);
            return (answer.at("first_step").get<double>() - start) * 1e3;
          }};
}

int run(const Options& options) {
  if (!options.words.empty()) return child(options.words[0]);
  pin_to_one_core();
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").replace_filename("bench_startup").string();
  std::vector<std::pair<std::string, std::vector<std::string>>> commands = {
      {"hand-written LibTorch loop", {self, "loop"}}, {"Trainer", {self, "trainer"}}};
  for (const auto& [name, word] : {std::pair("raw PyTorch loop", "raw"), std::pair("Lightning", "lightning")}) {
    if (auto command = peer_command("startup", {word}); !command.empty())
      commands.emplace_back(name, std::move(command));
  }
  std::vector<std::vector<double>> peaks(commands.size());
  nlohmann::json versions = nlohmann::json::object();
  std::vector<Candidate> candidates;
  for (size_t k = 0; k < commands.size(); ++k)
    candidates.push_back(starter(commands[k].first, commands[k].second, peaks[k], versions));
  const auto times = interleave(candidates, options);
  std::vector<Measurement> memory;
  for (size_t k = 0; k < commands.size(); ++k) {
    peaks[k].erase(peaks[k].begin(), peaks[k].end() - options.rounds);  // the unmeasured round's
    memory.push_back(measurement_of(commands[k].first, peaks[k]));
  }
  Report report("startup");
  if (!versions.empty()) report.peers(versions);
  report.table("process start to the end of the first step", "ms", times);
  report.table("peak of resident memory", "MiB", memory);
  report.number("trainer_to_loop", ratio(times, "Trainer", "hand-written LibTorch loop"));
  report.at_least("lightning_to_trainer", ratio(times, "Lightning", "Trainer"), 5);
  report.at_most("memory_to_lightning", ratio(memory, "Trainer", "Lightning"), 0.3);
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 9);
  return guarded([&] { return run(options); });
}

}  // namespace bench::startup
