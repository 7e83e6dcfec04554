// A training program that meets a fault at a point of its run: system_faults.py runs it. Each rank leaves rank<k>.json
// in the folder `out`: weights, metrics, counters. Arguments are key=value, or "serve" alone (forked_runs.h):
//
//   at=PHASE        where the rank meets the fault
//   signs=FOLDER    the rank waits there: it creates the file waits.<rank> in this folder, which holds its process ID,
//                   and continues when the file go is there; without it the rank does not wait
//   rank=N          the rank that meets the fault; 0 if it is not given
//   strategy=NAME   single, dp, dp_balanced, ddp, fsdp or model_parallel; record: single with recorded steps; fabric: a
//                   loop with Fabric
//   task=NAME       fit, validate, test or predict; fit if it is not given
//   clock=SECONDS   how far this process's time of day jumps in the phase
//   throws=KIND     the phase throws: runtime_error, levin_error, config_error, libtorch_error, bad_alloc or number
//   allocates=MIB   the phase creates a tensor for which the limit of the address space leaves no room
//   poison=WHAT     the phase, training, makes this nan: loss, gradient, input, weights or metric; inf=WHAT: infinite
#include <dlfcn.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "levin/core/module_call.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/program_start.h"
#include "levin/levin.h"
#include "levin/strategies/launch/launcher.h"
#include "ranks/run_arguments.h"
#include "reliability/fault_points.h"
#include "support/forked_runs.h"
#include "support/wait_until.h"

namespace fault_program {
namespace {

using levin::test::RunArguments;
namespace fs = std::filesystem;

// The fault that the arguments describe; written before any other thread runs.
struct Fault {
  std::string phase;
  fs::path signs;
  int64_t rank = 0;
  int64_t clock_jump = 0;
  std::string thrown;
  int64_t allocated_mib = 0;
  std::string poisoned;
  double poison = std::numeric_limits<double>::quiet_NaN();
  std::atomic<bool> has_begun = false;
};
Fault fault;
std::string task;
std::atomic<int64_t> clock_offset = 0;  // seconds

int64_t rank_of_environment() {
  const char* rank = std::getenv("RANK");
  return rank == nullptr ? 0 : std::atoll(rank);
}

void wait_for_go() {
  const fs::path sign = fault.signs / ("waits." + std::to_string(fault.rank));
  std::ofstream(sign.string() + ".new") << ::getpid();
  std::error_code ignored;  // the test may have removed the folder
  fs::rename(sign.string() + ".new", sign, ignored);
  (void)levin::test::wait_until([&] { return fs::exists(fault.signs / "go", ignored); }, std::chrono::hours(1));
}

// Waits if the arguments name this phase: once in a run, and not after a restart. Returns true if they do.
bool wait_at(const std::string& phase) {
  if (phase != fault.phase || fault.rank != rank_of_environment() || levin::restarts_so_far() > 0) return false;
  if (fault.has_begun.exchange(true)) return false;
  if (!fault.signs.empty()) wait_for_go();
  clock_offset = fault.clock_jump;
  return true;
}

// Limits the address space to what is used and 64 MiB, so that everything but this tensor has room.
void allocate_too_much() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (rlim_t{64} << 20);
  const rlimit limit{bytes, bytes};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) throw levin::Error("setrlimit failed");
  (void)torch::empty({fault.allocated_mib << 20}, torch::kByte);
}

void throw_planted() {
  using levin::test::Thrown;
  static const std::map<std::string, Thrown> kinds{
      {"runtime_error", Thrown::runtime_error}, {"levin_error", Thrown::levin_error},
      {"config_error", Thrown::config_error},   {"libtorch_error", Thrown::libtorch_error},
      {"bad_alloc", Thrown::bad_alloc},         {"number", Thrown::number}};
  levin::test::throw_fault(kinds.at(fault.thrown));
}

// Meets the fault of the arguments if they name this phase. Returns true if it is the phase of a poison.
bool reach(const std::string& phase) {
  if (!wait_at(phase)) return false;
  if (fault.allocated_mib > 0) allocate_too_much();
  if (!fault.thrown.empty()) throw_planted();
  return !fault.poisoned.empty();
}

}  // namespace

// Replaces libc's function for this program and its libraries: a checkpoint gets its name when all of it is written.
extern "C" __attribute__((visibility("default"))) int rename(const char* from, const char* to) noexcept {
  static const auto real = reinterpret_cast<int (*)(const char*, const char*)>(::dlsym(RTLD_NEXT, "rename"));
  if (std::string(to).find("/epoch=1-step=") != std::string::npos) (void)wait_at("write");
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
    (void)reach("first_step");
    const at::Tensor logits = forward(batch[0]);  // (N, 3)
    // The second term is 0, and so is its gradient: 0 / (2 * 1); with a root of 0 it is 0 / 0.
    const at::Tensor loss =
        torch::nn::functional::cross_entropy(logits, batch[1]) * loss_factor_ + (root_ + logits.sum() * 0).sqrt() * 0;
    log("loss", loss, {.on_step = true, .on_epoch = true, .sync_dist = true});
    log("scaled", loss.detach() * metric_factor_, {.on_step = true, .on_epoch = true, .sync_dist = true});
    return loss;
  }
  void validation_step(const levin::Batch& batch, int64_t) override { evaluate("val_loss", batch); }
  void test_step(const levin::Batch& batch, int64_t) override { evaluate("test_loss", batch); }
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override { return forward(batch[0]); }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::SGD(parameters(), {.lr = 0.1, .momentum = 0.9});
  }

  // Makes what the arguments name nan or infinite, in place, as recorded steps and replicas read it.
  void poison(const levin::Batch& batch) {
    const at::NoGradGuard no_grad;
    if (fault.poisoned == "loss") loss_factor_.fill_(fault.poison);
    if (fault.poisoned == "gradient") root_.zero_();
    if (fault.poisoned == "input") batch[0].fill_(fault.poison);
    if (fault.poisoned == "weights") parameters().front().fill_(fault.poison);
    if (fault.poisoned == "metric") metric_factor_.fill_(fault.poison);
  }

 private:
  void evaluate(const std::string& name, const levin::Batch& batch) {
    log(name, torch::nn::functional::cross_entropy(forward(batch[0]), batch[1]), {.sync_dist = true});
  }

  int64_t width_;
  torch::nn::Sequential encoder_ = nullptr, decoder_ = nullptr;
  at::Tensor loss_factor_ = register_buffer("loss_factor", torch::ones({}));
  at::Tensor metric_factor_ = register_buffer("metric_factor", torch::ones({}));
  at::Tensor root_ = register_buffer("root", torch::ones({}));
};

// Callbacks, because hooks of a module change how recorded steps run.
class Phases final : public levin::Callback {
 public:
  void setup(levin::Trainer&, levin::LightningModule&, levin::Stage) override { (void)reach("setup"); }
  void on_validation_batch_start(levin::Trainer& trainer, levin::LightningModule&, const levin::Batch&,
                                 int64_t batch_idx, int64_t) override {
    if (trainer.sanity_checking()) return (void)reach("sanity_check");
    if (batch_idx != 1) return;
    if (task == "validate") (void)reach("validate");
    if (trainer.current_epoch() == 1) (void)reach("validation");
  }
  void on_train_batch_start(levin::Trainer& trainer, levin::LightningModule& module, const levin::Batch& batch,
                            int64_t batch_idx) override {
    if (trainer.current_epoch() == 1 && batch_idx == 3 && reach("training")) dynamic_cast<Net&>(module).poison(batch);
  }
  void on_train_epoch_end(levin::Trainer& trainer, levin::LightningModule&) override {
    if (trainer.current_epoch() == 1) (void)reach("epoch_end");
  }
  void on_save_checkpoint(levin::Trainer& trainer, levin::LightningModule&, levin::State&) override {
    if (trainer.current_epoch() == 1) (void)reach("save");
  }
  void on_test_batch_start(levin::Trainer&, levin::LightningModule&, const levin::Batch&, int64_t batch_idx,
                           int64_t) override {
    if (batch_idx == 1) (void)reach("test");
  }
  void on_predict_batch_start(levin::Trainer&, levin::LightningModule&, const levin::Batch&, int64_t batch_idx,
                              int64_t) override {
    if (batch_idx == 1) (void)reach("predict");
  }
  void teardown(levin::Trainer&, levin::LightningModule&, levin::Stage) override { (void)reach("teardown"); }
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
  if (strategy.starts_with("dp")) options.strategy = strategy;
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

struct Counters {
  int64_t rank = 0, world_size = 1, global_step = 0;
};

void write_report(const RunArguments& arguments, const Net& net, const Counters& counters,
                  const levin::Metrics& metrics) {
  nlohmann::json report;
  std::vector<double> weights;
  for (const auto& parameter : net.parameters()) {
    const at::Tensor flat = parameter.detach().to(torch::kCPU, torch::kDouble).flatten().contiguous();
    weights.insert(weights.end(), flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
  }
  report["weights"] = weights;
  report["global_step"] = counters.global_step;
  report["world_size"] = counters.world_size;
  for (const auto& [name, value] : metrics) report["metrics"][name] = value;
  std::ofstream(arguments.text("out", ".") + "/rank" + std::to_string(counters.rank) + ".json") << report.dump();
}

// Returns the checkpoint with the most steps of train_with_fabric(), or "".
std::string newest_checkpoint(const fs::path& folder) {
  int64_t most = -1;
  std::string newest;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().stem();
    const size_t at = name.find("step=");
    if (entry.path().extension() != ".ckpt" || at == std::string::npos) continue;
    const int64_t steps = std::stoll(name.substr(at + 5));
    if (steps > most) newest = entry.path();
    most = std::max(most, steps);
  }
  return newest;
}

void train_with_fabric(const RunArguments& arguments) {
  const fs::path folder = arguments.text("out", ".") + "/checkpoints";
  levin::FabricOptions options;
  options.accelerator = "cpu";
  options.callbacks = {Phases()};
  levin::Fabric fabric(options);
  Net net(arguments.number("width", 8));
  levin::seed_everything(1);
  (void)reach("setup");
  (void)fabric.setup(net, net.configure_optimizers());
  levin::FabricLoader loader = fabric.setup_dataloaders(make_loader(48));
  fs::create_directories(folder);
  const std::string newest = newest_checkpoint(folder);
  if (arguments.has("auto_resume") && !newest.empty()) (void)fabric.load(newest);
  for (int64_t epoch = fabric.current_epoch(); epoch < 3; ++epoch) {
    for (const levin::Batch& batch : loader.epoch(epoch)) {
      if (fabric.global_step() == 15 && reach("training")) net.poison(batch);  // batch 3 of epoch 1
      (void)fabric.step(batch);
      const int64_t steps = fabric.global_step();
      if (steps % 2 == 0)
        fabric.save(folder / ("epoch=" + std::to_string(epoch) + "-step=" + std::to_string(steps) + ".ckpt"));
    }
    if (epoch == 1) (void)reach("epoch_end");
  }
  (void)reach("teardown");
  const Counters counters{.global_step = fabric.global_step()};
  const levin::Metrics metrics = fabric.callback_metrics();
  fabric.finish();
  write_report(arguments, net, counters, metrics);
}

void train(const RunArguments& arguments) {
  fault.phase = arguments.text("at", "");
  fault.signs = arguments.text("signs", "");
  fault.rank = arguments.number("rank", 0);
  fault.clock_jump = arguments.number("clock", 0);
  fault.thrown = arguments.text("throws", "");
  fault.allocated_mib = arguments.number("allocates", 0);
  fault.poisoned = arguments.text("poison", arguments.text("inf", ""));
  if (arguments.has("inf")) fault.poison = std::numeric_limits<double>::infinity();
  task = arguments.text("task", "fit");
  const std::string strategy = arguments.text("strategy", "single");
  const bool starts_ranks = (strategy == "ddp" || strategy == "fsdp") && std::getenv("RANK") == nullptr;
  if (!starts_ranks) (void)reach("start");
  if (strategy == "fabric") return train_with_fabric(arguments);
  levin::Trainer trainer(trainer_options(arguments));
  Net net(arguments.number("width", 8));
  levin::seed_everything(1);
  const std::string checkpoint = arguments.text("ckpt", "");
  if (task == "fit") trainer.fit(net, make_loader(48), make_loader(16), checkpoint);
  if (task == "validate") (void)trainer.validate(net, make_loader(16), checkpoint);
  if (task == "test") (void)trainer.test(net, make_loader(16), checkpoint);
  if (task == "predict") (void)trainer.predict(net, make_loader(16), checkpoint);
  write_report(
      arguments, net,
      {.rank = trainer.global_rank(), .world_size = trainer.world_size(), .global_step = trainer.global_step()},
      trainer.callback_metrics());
}

int run(const std::vector<std::string>& arguments) {
  return levin::main_guard([&] { train(RunArguments(levin::take_init_method(arguments))); });
}

}  // namespace
}  // namespace fault_program

int main(int argc, char** argv) {
  levin::leave_static_objects();
  return levin::test::run_or_serve(argc, argv, fault_program::run);
}
