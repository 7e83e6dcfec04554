// Models that are difficult for ranks, each trained in float64 on the same eight-column data; model_test.py runs it,
// alone with a whole batch and on several ranks with its shards. Each rank leaves rank<k>.json in the folder `out`.
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "levin/levin.h"
#include "ranks/gan.h"
#include "ranks/run_arguments.h"
#include "support/forked_runs.h"

namespace model_program {
namespace {

using levin::test::Gan;
using levin::test::RunArguments;
namespace F = torch::nn::functional;
namespace nn = torch::nn;

// A normalization of 4 channels of 2 values between two layers.
class Normalized : public levin::LightningModule {
 public:
  explicit Normalized(const std::string& kind) : kind_(kind) {
    const bool affine = kind.find("plain") == std::string::npos;
    const bool tracked = kind.find("untracked") == std::string::npos;
    if (kind.starts_with("batch")) {
      batch_ = register_module("norm",
                               nn::BatchNorm1d(nn::BatchNorm1dOptions(4).affine(affine).track_running_stats(tracked)));
    } else if (kind.starts_with("instance")) {
      instance_ = register_module(
          "norm", nn::InstanceNorm1d(nn::InstanceNorm1dOptions(4).affine(affine).track_running_stats(tracked)));
    }
    register_module("in", in_);
    register_module("out", out_);
  }
  torch::Tensor training_step(const levin::Batch& batch, int64_t) override {
    return F::cross_entropy(forward(batch[0]), batch[1]);
  }
  void validation_step(const levin::Batch& batch, int64_t) override { (void)forward(batch[0]); }
  // One rank alone uses the model, in eval mode.
  void on_train_epoch_end() override {
    if (global_rank() != 0) return;
    eval();
    {
      const torch::NoGradGuard no_grad;
      (void)forward(torch::ones({2, 8}));
    }
    train();
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::SGD(parameters(), {.lr = 0.1, .momentum = 0.9});
  }

 private:
  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor hidden = in_->forward(x).reshape({-1, 4, 2});
    if (batch_) hidden = batch_->forward(hidden);
    if (instance_) hidden = instance_->forward(hidden);
    if (kind_ == "both") {
      hidden = torch::instance_norm(hidden, {}, {}, {}, {}, true, 0.1, 1e-5, false);
      hidden = torch::batch_norm(hidden, {}, {}, {}, {}, true, 0.1, 1e-5, false);
    }
    return out_->forward(torch::tanh(hidden.flatten(1)));
  }

  std::string kind_;
  nn::Linear in_ = nn::Linear(8, 8);
  nn::Linear out_ = nn::Linear(8, 3);
  nn::BatchNorm1d batch_ = nullptr;
  nn::InstanceNorm1d instance_ = nullptr;
};

// Two layers side by side, of which one rank reads the second first from some step on: `early` is "rank:step", or
// "all:step", where every rank does so in every other step.
class Crossed : public levin::LightningModule {
 public:
  Crossed(const std::string& early, int64_t second) : early_(early), second_(nn::Linear(8, second)) {
    register_module("first", first_);
    register_module("second", second_);
    out_ = register_module("out", nn::Linear(8 + second, 3));
  }
  torch::Tensor training_step(const levin::Batch& batch, int64_t) override {
    const int64_t step = trainer().global_step();
    const bool all = early_.starts_with("all");
    const bool crosses = step >= std::stoll(early_.substr(early_.find(':') + 1)) &&
                         (all ? step % 2 == 1 : trainer().global_rank() == std::stoll(early_));
    at::Tensor second;
    if (crosses) second = second_->forward(batch[0]);
    const at::Tensor first = first_->forward(batch[0]);
    if (!crosses) second = second_->forward(batch[0]);
    return F::cross_entropy(out_->forward(torch::tanh(torch::cat({first, second}, 1))), batch[1]);
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = 0.1}); }

 private:
  std::string early_;
  nn::Linear first_ = nn::Linear(8, 8);
  nn::Linear second_;
  nn::Linear out_ = nullptr;
};

class Embedded : public levin::LightningModule {
 public:
  explicit Embedded(bool sparse) {
    embedding_ = register_module("embedding", nn::Embedding(nn::EmbeddingOptions(3, 3).sparse(sparse)));
  }
  torch::Tensor training_step(const levin::Batch& batch, int64_t) override {
    return F::cross_entropy(embedding_->forward(batch[1]), batch[1]);
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = 0.1}); }

 private:
  nn::Embedding embedding_ = nullptr;
};

// 50 MB of weights, six layers of 8 MB.
class Wide : public levin::LightningModule {
 public:
  Wide() {
    for (int k = 0; k < 6; ++k) layers_->push_back(nn::Linear(nn::LinearOptions(1024, 1024).bias(false)));
    register_module("layers", layers_);
  }
  torch::Tensor training_step(const levin::Batch& batch, int64_t) override {
    return layers_->forward(batch[0].repeat({1, 128})).square().mean();
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::AdamW(parameters(), {.lr = 1e-4}); }

 private:
  nn::Sequential layers_;
};

// How many files of the folder this process has mapped.
int64_t mapped_files(const std::string& folder) {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(folder + "/") != std::string::npos ? 1 : 0;
  return count;
}

// Makes its layers in configure_model: weights, a buffer, and a tensor that only it knows of.
class Late : public levin::LightningModule {
 public:
  explicit Late(const RunArguments& arguments)
      : layers_(arguments.number("layers", 3)),
        width_(arguments.number("width", 128)),
        channels_(arguments.has("conv")),
        single_(arguments.has("precision")),
        plain_(arguments.has("plain")),
        folder_(arguments.text("out", ".")) {}
  void configure_model() override {
    if (!net_->is_empty()) return;
    for (int64_t k = 0; k < layers_; ++k) net_->push_back(nn::Linear(nn::LinearOptions(width_, width_).bias(false)));
    register_module("net", net_);
    apply([this](nn::Module& module) {
      if (plain_) return;
      if (auto* layer = module.as<nn::Linear>()) nn::init::orthogonal_(layer->weight);
    });
    tied_ = net_[0]->as<nn::Linear>()->weight;
    empty_ = register_parameter("empty", torch::empty({0, 4}));
    buffer_ = register_buffer("scale", torch::rand({width_, width_}));
    own_ = torch::rand({width_, width_});
    if (channels_) conv_ = register_module("conv", nn::Conv2d(64, 64, 3));
    if (single_) to(torch::kFloat);  // for the precision to convert
    spilled = mapped_files(folder_);
  }
  torch::Tensor training_step(const levin::Batch& batch, int64_t) override {
    most_while_training = std::max(most_while_training, mapped_files(folder_));
    at::Tensor x = net_->forward(batch[0].repeat({1, width_ / 8})).matmul(buffer_ / width_).matmul(own_ / width_);
    if (conv_)
      x = x + conv_->forward(x.reshape({-1, 1, 1, width_}).expand({-1, 64, 3, -1})).mean({1, 2, 3}).view({-1, 1});
    const at::Tensor loss = F::linear(x, tied_).square().mean() + empty_.sum();
    losses.push_back(loss.item<double>());
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::AdamW(parameters(), {.lr = 1e-3}); }

  int64_t spilled = 0;  // files that it has mapped when it is made
  int64_t most_while_training = 0;
  std::vector<double> losses;

 private:
  int64_t layers_;
  int64_t width_;
  bool channels_;
  bool single_;
  bool plain_;  // weights as LibTorch makes them, which is quick
  std::string folder_;
  nn::Sequential net_;
  nn::Conv2d conv_ = nullptr;
  at::Tensor tied_;  // the first layer's weight
  at::Tensor empty_;
  at::Tensor buffer_;
  at::Tensor own_;
};

// Returns this process's memory in bytes, without the files that it has mapped.
int64_t resident_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "RssAnon:" && status >> kib) return kib * 1024;
  }
  return 0;
}

// Of the time until a fit's first step: how long it is, and the most resident memory in it.
class SetUp : public levin::Callback {
 public:
  void setup(levin::Trainer&, levin::LightningModule&, levin::Stage) override {
    const int64_t before = resident_memory();
    began_ = std::chrono::steady_clock::now();
    watch_ = std::jthread([this, before](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        most = std::max(most, resident_memory() - before);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  void on_train_start(levin::Trainer&, levin::LightningModule&) override {
    watch_ = {};
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }
  void on_train_batch_start(levin::Trainer&, levin::LightningModule&, const levin::Batch&, int64_t) override {
    step_began_ = std::chrono::steady_clock::now();
  }
  void on_train_batch_end(levin::Trainer&, levin::LightningModule&, const at::Tensor&, const levin::Batch&,
                          int64_t) override {
    steps.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - step_began_).count());
  }
  int64_t most = 0;
  double seconds = 0;
  std::vector<double> steps;

 private:
  std::chrono::steady_clock::time_point began_, step_began_;
  std::jthread watch_;
};

class ResidentMemory : public levin::Callback {
 public:
  void on_train_batch_end(levin::Trainer& trainer, levin::LightningModule&, const at::Tensor&, const levin::Batch&,
                          int64_t) override {
    const levin::HeldMemory now = levin::held_memory(trainer);
    held = now.parameters + now.gradients + now.optimizer_state;
    resident = resident_memory() - before_;
  }
  int64_t held = 0;
  int64_t resident = 0;

 private:
  int64_t before_ = resident_memory();
};

// Messages of this process by their kind, as LibTorch's own records tell them.
std::mutex counting;
std::map<std::string, int64_t> messages;

void count_messages() {
  at::addGlobalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
        const std::lock_guard lock(counting);
        if (std::string(call.name()).starts_with("gloo:")) ++messages[call.name()];
        return nullptr;
      }).scopes({at::RecordScope::USER_SCOPE}));
}

std::shared_ptr<levin::LightningModule> make_model(const RunArguments& arguments) {
  torch::manual_seed(1);
  const std::string kind = arguments.text("model", "");
  if (kind == "gan") return std::make_shared<Gan>(arguments.has("toggle"));
  if (kind == "norm") return std::make_shared<Normalized>(arguments.text("norm", ""));
  if (kind == "crossed")
    return std::make_shared<Crossed>(arguments.text("early", "-1:0"), arguments.number("second", 8));
  if (kind == "late") return std::make_shared<Late>(arguments);
  if (kind == "wide") return std::make_shared<Wide>();
  if (kind == "embedding") return std::make_shared<Embedded>(arguments.has("sparse"));
  throw levin::Error("model=" + kind + ": unknown model.");
}

levin::TrainerOptions trainer_options(const RunArguments& arguments) {
  levin::TrainerOptions options;
  options.max_epochs = arguments.number("epochs", 2);
  if (arguments.has("devices")) options.devices = arguments.number("devices", 1);
  options.default_root_dir = arguments.text("out", ".");
  options.oversubscribe = true;
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.accumulate_grad_batches = arguments.number("accumulate", 1);
  options.enable_checkpointing = arguments.has("checkpoint");
  options.logger = false;
  options.num_sanity_val_steps = 0;
  options.sync_batchnorm = arguments.has("sync_batchnorm");
  options.channels_last = arguments.has("conv");
  if (arguments.has("precision")) options.precision = arguments.text("precision", "");
  if (arguments.text("strategy", "") == "fsdp") {
    options.strategy = levin::FSDP({.stage = arguments.number("stage", 3),
                                    .unit_mb = 1e-4,
                                    .spill_dir = arguments.text("spill", arguments.text("out", ".")),
                                    .timeout = levin::Seconds(static_cast<double>(arguments.number("timeout", 300)))});
  } else if (arguments.number("devices", 1) > 1) {
    options.strategy = levin::DDP(
        {.find_unused_parameters = arguments.has("find_unused"), .static_graph = arguments.has("static_graph")});
  }
  return options;
}

void write_report(const RunArguments& arguments, const levin::Trainer& trainer, const levin::LightningModule& module,
                  const ResidentMemory& memory, const SetUp& set_up) {
  nlohmann::json report;
  report["set_up"] = {{"resident", set_up.most}, {"seconds", set_up.seconds}, {"steps", set_up.steps}};
  if (const auto* late = dynamic_cast<const Late*>(&module)) {
    report["losses"] = late->losses;
    report["files"] = {{"made", late->spilled}, {"training", late->most_while_training}};
  }
  report["held"] = memory.held;
  report["resident"] = memory.resident;
  for (const auto& item : module.named_parameters()) {
    if (arguments.has("memory")) break;  // they are too many
    const at::Tensor flat = item.value().detach().to(torch::kDouble).flatten().contiguous();
    for (int64_t k = 0; k < flat.numel(); ++k) report["weights"].push_back(flat.data_ptr<double>()[k]);
  }
  for (const auto& item : module.named_buffers()) {
    const at::Tensor flat = item.value().to(torch::kDouble).flatten().contiguous();
    for (int64_t k = 0; k < flat.numel(); ++k) report["buffers"][item.key()].push_back(flat.data_ptr<double>()[k]);
  }
  {
    const std::lock_guard lock(counting);
    report["messages"] = messages;
  }
  report["world_size"] = trainer.world_size();
  std::ofstream(arguments.text("out", ".") + "/rank" + std::to_string(trainer.global_rank()) + ".json")
      << report.dump();
}

void train(const RunArguments& arguments) {
  count_messages();
  levin::TrainerOptions options = trainer_options(arguments);
  const auto memory = std::make_shared<ResidentMemory>();
  const auto set_up = std::make_shared<SetUp>();
  if (arguments.has("memory")) options.callbacks.push_back(memory);
  options.callbacks.push_back(set_up);
  levin::Trainer trainer(options);
  const auto module = make_model(arguments);
  const int64_t samples = arguments.number("samples", 48);
  torch::manual_seed(0);
  const std::vector<at::Tensor> data = {torch::rand({samples, 8}), torch::arange(samples).remainder(3)};
  const auto loader = [&](int64_t count, int64_t batch) {
    return std::make_shared<levin::DataLoader>(std::make_shared<levin::TensorDataset>(std::vector<at::Tensor>{
                                                   data[0].slice(0, 0, count), data[1].slice(0, 0, count)}),
                                               levin::DataLoaderOptions{.batch_size = batch});
  };
  levin::Loaders val;
  if (arguments.has("val")) val.push_back(loader(arguments.number("val", 5), 2));
  trainer.fit(*module, loader(samples, arguments.number("batch", 8)), val);
  write_report(arguments, trainer, *module, *memory, *set_up);
}

int run(const std::vector<std::string>& arguments) {
  return levin::test::status_of([&] {
    torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
    train(RunArguments(arguments));
  });
}

}  // namespace

int run_program(int argc, char** argv) {
  return levin::test::run_or_serve(argc, argv, run);
}

}  // namespace model_program
