// What Levin's headers cost to compile, with this build's compiler and -O3: user and system time, and the compiler's
// peak of resident memory. levin/levin.h is compared with torch/torch.h, as source files of one include. A first
// program is compared with a loop on LibTorch that has the same layer, loss and optimizer: with these headers
// precompiled, as for an edit, and with only the headers that each needs.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "rounds.h"

namespace bench::compile {

namespace {

constexpr const char* kFirstProgram = R"(
#include <levin/train.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

class Classifier : public levin::LightningModule {
  torch::nn::Linear layer_{register_module("layer", torch::nn::Linear(784, 10))};
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    auto [x, y] = batch.unpack<2>();
    auto loss = torch::nn::functional::cross_entropy(layer_->forward(x), y);
    log("train_loss", loss);
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::AdamW(parameters(), {.lr = 1e-3}); }
};

int main() {
  return levin::main_guard([] {
    levin::seed_everything(1);
    Classifier model;
    levin::Trainer trainer({.max_epochs = 2, .callbacks = {levin::EarlyStopping({.monitor = "train_loss"})}});
    trainer.fit(model, levin::FashionMnist({.batch_size = 64, .flatten = true}));
  });
}
)";

constexpr const char* kFirstLoop = R"(
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

struct Classifier : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(784, 10))};
};

int main() {
  torch::manual_seed(1);
  Classifier model;
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-3));
  const auto x = torch::randn({64, 784});
  const auto y = torch::zeros({64}, torch::kLong);
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(model.layer->forward(x), y).backward();
    optimizer.step();
  }
}
)";

/// A folder for the sources, deleted at the end.
class Folder {
 public:
  Folder() { std::filesystem::create_directories(path_); }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("levin_bench_compile." + std::to_string(::getpid()));
};

struct Cost {
  double seconds = 0;  // user and system, of the driver and of the processes that it started
  double mib = 0;
};

/// `quick`: only the preprocessor runs.
Cost compile(const std::vector<std::string>& arguments, bool quick) {
  std::vector<std::string> command = {LEVIN_BENCH_COMPILER, "-std=gnu++20", "-O3", "-DNDEBUG", "-w"};
  std::istringstream folders(LEVIN_BENCH_INCLUDES);
  for (std::string folder; std::getline(folders, folder, ':');) command.push_back("-I" + folder);
  if (quick) command.push_back("-E");
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  rusage used{};
  if (pid < 0 || ::wait4(pid, &status, 0, &used) != pid || status != 0)
    throw std::runtime_error(command[0] + " failed on " + arguments.back());
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return {seconds(used.ru_utime) + seconds(used.ru_stime), static_cast<double>(used.ru_maxrss) / 1024};
}

int run(const Options& options) {
  pin_to_one_core();
  const Folder folder;
  const auto object = folder.write("out.o", "");
  std::vector<std::pair<std::string, std::vector<std::string>>> sources;
  for (const std::string library : {"torch", "levin"}) {
    const std::string include = "#include <" + library + "/" + library + ".h>\n";
    sources.push_back({library + ".h", {folder.write(library + ".cpp", include)}});
  }
  const auto loop = folder.write("loop.cpp", kFirstLoop), program = folder.write("first.cpp", kFirstProgram);
  for (const std::string library : {"torch", "levin"}) {
    const auto header = folder.write(library + "_pch.h", "#include <" + library + "/" + library + ".h>\n");
    (void)compile({"-x", "c++-header", "-o", header + ".gch", header}, options.quick);
    sources.push_back({"precompiled " + library + ".h", {"-include", header, library == "torch" ? loop : program}});
  }
  sources.push_back({"a loop", {loop}});
  sources.push_back({"train.h", {program}});

  std::vector<std::vector<double>> peaks(sources.size());
  std::vector<Candidate> candidates;
  for (size_t k = 0; k < sources.size(); ++k) {
    std::vector<std::string> arguments = {"-o", object, "-c"};
    arguments.insert(arguments.end(), sources[k].second.begin(), sources[k].second.end());
    candidates.push_back({sources[k].first, [arguments, quick = options.quick, &peak = peaks[k]] {
                            const Cost cost = compile(arguments, quick);
                            peak.push_back(cost.mib);
                            return cost.seconds;
                          }});
  }
  const auto times = interleave(candidates, options);
  std::vector<Measurement> memory;
  for (size_t k = 0; k < sources.size(); ++k) {
    peaks[k].erase(peaks[k].begin(), peaks[k].end() - options.rounds);  // the unmeasured round's
    memory.push_back(measurement_of(sources[k].first, peaks[k]));
  }
  Report report("compile");
  report.table("user and system time of the compiler", "s", times);
  report.table("peak of resident memory", "MiB", memory);
  report.at_most("levin_to_torch", ratio(times, "levin.h", "torch.h"), 1.15);
  report.at_most("levin_to_torch_memory", ratio(memory, "levin.h", "torch.h"), 1.15);
  report.at_most("precompiled", ratio(times, "precompiled levin.h", "precompiled torch.h"), 1.15);
  report.at_most("precompiled_memory", ratio(memory, "precompiled levin.h", "precompiled torch.h"), 1.15);
  report.number("train_to_loop", ratio(times, "train.h", "a loop"));
  report.number("train_to_loop_memory", ratio(memory, "train.h", "a loop"));
  report.at_most("train_seconds", times.back().median, 12);
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 5);
  return guarded([&] { return run(options); });
}

}  // namespace bench::compile
