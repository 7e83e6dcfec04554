// A training program that waits at a point of its run until a test has made a fault: system_faults.py runs it. Each
// rank leaves rank<k>.json in the folder `out`: weights, metrics, counters. Arguments are key=value:
//
//   at=PHASE        where the rank waits: it creates the file waits.<rank> in the folder `signs`, which holds its
//   process
//                   ID, and continues when the file go is there
//   rank=N          the rank that waits; 0 if it is not given
//   strategy=NAME   single, dp, ddp, fsdp or model_parallel; record: single with recorded steps
//   task=NAME       fit, validate, test or predict; fit if it is not given
//   clock=SECONDS   how far this process's time of day jumps when the wait is over
#include <dlfcn.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "levin/core/module_call.h"
#include "levin/core/process/program_start.h"
#include "levin/levin.h"
#include "levin/strategies/launch/launcher.h"
#include "ranks/run_arguments.h"
#include "support/wait_until.h"

namespace fault_program {
namespace {

using levin::test::RunArguments;
namespace fs = std::filesystem;

// What the run waits for; written before any other thread runs.
struct Wait {
  std::string phase;
  fs::path signs;
  int64_t rank = 0;
  std::atomic<bool> has_begun = false;
  int64_t clock_jump = 0;
};
Wait wait;
std::atomic<int64_t> clock_offset = 0;  // seconds

int64_t rank_of_environment() {
  const char* rank = std::getenv("RANK");
  return rank == nullptr ? 0 : std::atoll(rank);
}

// Waits if this is the phase that the arguments name: once in a run, and not after a restart.
void wait_at(const std::string& phase) {
  if (phase != wait.phase || wait.rank != rank_of_environment() || levin::restarts_so_far() > 0) return;
  if (wait.has_begun.exchange(true)) return;
  const fs::path sign = wait.signs / ("waits." + std::to_string(wait.rank));
  std::ofstream(sign.string() + ".new") << ::getpid();
  std::error_code ignored;  // the test may have removed the folder
  fs::rename(sign.string() + ".new", sign, ignored);
  (void)levin::test::wait_until([&] { return fs::exists(wait.signs / "go", ignored); }, std::chrono::hours(1));
  clock_offset = wait.clock_jump;
}

}  // namespace

// Replaces libc's function for this program and its libraries: a checkpoint gets its name when all of it is written.
extern "C" __attribute__((visibility("default"))) int rename(const char* from, const char* to) noexcept {
  static const auto real = reinterpret_cast<int (*)(const char*, const char*)>(::dlsym(RTLD_NEXT, "rename"));
  if (std::string(to).find("/epoch=1-step=") != std::string::npos) wait_at("write");
  return real(from, to);
}

// Likewise: the time of day, which std::chrono::system_clock and the loggers read. The kernel's own clock, by which
// files are dated and sleeps are timed, is the whole machine's.
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static const auto real = reinterpret_cast<int (*)(clockid_t, timespec*)>(::dlsym(RTLD_NEXT, "clock_gettime"));
  const int status = real(clock, time);
  if (status == 0 && clock == CLOCK_REALTIME) time->tv_sec += clock_offset;
  return status;
}

namespace {

class Net : public levin::LightningModule {
 public:
  explicit Net(int64_t width) : width_(width) {
    torch::manual_seed(1);
    encoder_ = register_module(
        "encoder", torch::nn::Sequential(torch::nn::Linear(8, width), torch::nn::Dropout(0.2), torch::nn::Tanh()));
    decoder_ = register_module("decoder", torch::nn::Sequential(torch::nn::Linear(width, 3)));
  }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<Net>(width_);
  }
  at::Tensor forward(const at::Tensor& x) override { return levin::call(decoder_, levin::call(encoder_, x)); }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    wait_at("first_step");
    const at::Tensor loss = torch::nn::functional::cross_entropy(forward(batch[0]), batch[1]);
    log("loss", loss, {.on_step = true, .on_epoch = true, .sync_dist = true});
    return loss;
  }
  void validation_step(const levin::Batch& batch, int64_t) override { evaluate("val_loss", batch); }
  void test_step(const levin::Batch& batch, int64_t) override { evaluate("test_loss", batch); }
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override { return forward(batch[0]); }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::SGD(parameters(), {.lr = 0.1, .momentum = 0.9});
  }

 private:
  void evaluate(const std::string& name, const levin::Batch& batch) {
    log(name, torch::nn::functional::cross_entropy(forward(batch[0]), batch[1]), {.sync_dist = true});
  }

  int64_t width_;
  torch::nn::Sequential encoder_ = nullptr, decoder_ = nullptr;
};

// Callbacks, because hooks of a module change how recorded steps run.
class Phases final : public levin::Callback {
 public:
  void setup(levin::Trainer&, levin::LightningModule&, levin::Stage) override { wait_at("setup"); }
  void on_validation_batch_start(levin::Trainer& trainer, levin::LightningModule&, const levin::Batch&,
                                 int64_t batch_idx, int64_t) override {
    if (trainer.sanity_checking()) return wait_at("sanity_check");
    if (batch_idx == 1 && trainer.current_epoch() == 1) wait_at("validation");
  }
  void on_train_batch_start(levin::Trainer& trainer, levin::LightningModule&, const levin::Batch&,
                            int64_t batch_idx) override {
    if (trainer.current_epoch() == 1 && batch_idx == 3) wait_at("training");
  }
  void on_train_epoch_end(levin::Trainer& trainer, levin::LightningModule&) override {
    if (trainer.current_epoch() == 1) wait_at("epoch_end");
  }
  void on_save_checkpoint(levin::Trainer& trainer, levin::LightningModule&, levin::State&) override {
    if (trainer.current_epoch() == 1) wait_at("save");
  }
  void on_test_batch_start(levin::Trainer&, levin::LightningModule&, const levin::Batch&, int64_t batch_idx,
                           int64_t) override {
    if (batch_idx == 1) wait_at("test");
  }
  void on_predict_batch_start(levin::Trainer&, levin::LightningModule&, const levin::Batch&, int64_t batch_idx,
                              int64_t) override {
    if (batch_idx == 1) wait_at("predict");
  }
  void teardown(levin::Trainer&, levin::LightningModule&, levin::Stage) override { wait_at("teardown"); }
};

template <class Strategy, class Options>
Strategy ranks_strategy(const RunArguments& arguments, Options options) {
  options.timeout = levin::Seconds(arguments.number("timeout", 60));
  options.startup_timeout = levin::Seconds(arguments.number("timeout", 60));
  options.process_group_backend = arguments.text("backend", "auto");
  return Strategy(options);
}

levin::TrainerOptions trainer_options(const RunArguments& arguments) {
  levin::TrainerOptions options;
  const std::string strategy = arguments.text("strategy", "single");
  options.max_epochs = arguments.number("epochs", 3);
  options.accelerator = "cpu";
  options.devices = strategy == "single" || strategy == "record" ? 1 : 2;
  options.num_nodes = arguments.number("nodes", 1);
  if (options.num_nodes > 1) options.devices = 1;
  options.oversubscribe = true;
  options.max_restarts = arguments.number("restarts", 0);
  options.auto_resume = arguments.has("auto_resume");
  options.default_root_dir = arguments.text("out", ".");
  options.enable_progress_bar = options.enable_model_summary = false;
  options.num_sanity_val_steps = 2;
  options.log_every_n_steps = 1;
  options.record_steps = strategy == "record";
  options.stop_grace = levin::Seconds(arguments.number("stop_grace", 25));
  if (arguments.has("precision")) options.precision = arguments.text("precision", "");
  options.callbacks = {levin::ModelCheckpoint({.save_last = true, .save_top_k = -1, .every_n_train_steps = 2}),
                       Phases()};
  if (strategy == "dp") options.strategy = "dp";
  if (strategy == "ddp") options.strategy = ranks_strategy<levin::DDP>(arguments, levin::DDPOptions());
  if (strategy == "fsdp") {
    levin::FSDPOptions fsdp;
    fsdp.unit_mb = 0.0001;
    options.strategy = ranks_strategy<levin::FSDP>(arguments, fsdp);
  }
  if (strategy == "model_parallel")
    options.strategy = levin::ModelParallel({.placement = levin::Placement{{"encoder", 0}, {"decoder", 1}}});
  return options;
}

std::shared_ptr<levin::DataLoader> make_loader(int64_t samples) {
  torch::manual_seed(0);
  const at::Tensor x = torch::rand({samples, 8});
  const std::vector<at::Tensor> tensors{x, torch::arange(samples).remainder(3)};
  return std::make_shared<levin::DataLoader>(std::make_shared<levin::TensorDataset>(tensors),
                                             levin::DataLoaderOptions{.batch_size = 4});
}

void write_report(const RunArguments& arguments, const levin::Trainer& trainer, const Net& net) {
  nlohmann::json report;
  std::vector<double> weights;
  for (const auto& parameter : net.parameters()) {
    const at::Tensor flat = parameter.detach().to(torch::kCPU, torch::kDouble).flatten().contiguous();
    weights.insert(weights.end(), flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
  }
  report["weights"] = weights;
  report["global_step"] = trainer.global_step();
  report["world_size"] = trainer.world_size();
  for (const auto& [name, value] : trainer.callback_metrics()) report["metrics"][name] = value;
  std::ofstream(arguments.text("out", ".") + "/rank" + std::to_string(trainer.global_rank()) + ".json")
      << report.dump();
}

void train(const RunArguments& arguments) {
  wait.phase = arguments.text("at", "");
  wait.signs = arguments.text("signs", arguments.text("out", "."));
  wait.rank = arguments.number("rank", 0);
  wait.clock_jump = arguments.number("clock", 0);
  const std::string strategy = arguments.text("strategy", "single");
  const bool starts_ranks = (strategy == "ddp" || strategy == "fsdp") && std::getenv("RANK") == nullptr;
  if (!starts_ranks) wait_at("start");
  levin::Trainer trainer(trainer_options(arguments));
  Net net(arguments.number("width", 8));
  levin::seed_everything(1);
  const std::string task = arguments.text("task", "fit");
  const std::string checkpoint = arguments.text("ckpt", "");
  if (task == "fit") trainer.fit(net, make_loader(48), make_loader(16), checkpoint);
  if (task == "validate") (void)trainer.validate(net, make_loader(16), checkpoint);
  if (task == "test") (void)trainer.test(net, make_loader(16), checkpoint);
  if (task == "predict") (void)trainer.predict(net, make_loader(16), checkpoint);
  write_report(arguments, trainer, net);
}

int run(const std::vector<std::string>& arguments) {
  try {
    train(RunArguments(levin::take_init_method(arguments)));
  } catch (const levin::Interrupted& stop) {
    std::fprintf(stderr, "%s\n", stop.what());
    return 128 + stop.signal_number();  // as levin does
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace fault_program

int main(int argc, char** argv) {
  levin::leave_static_objects();
  return fault_program::run({argv + 1, argv + argc});
}
