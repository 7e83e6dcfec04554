// A training program with several ranks, as a user writes one; ranks_test.py runs it. Each rank leaves rank<k>.json in
// the folder `out`: weights, metrics, counters. Arguments are key=value; after "--" come the arguments of another run,
// which follows in the same processes. The single word "serve": runs are read from standard input
// (support/forked_runs.h).
#include <dlfcn.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "levin/levin.h"
#include "levin/strategies/launch/launcher.h"
#include "ranks/count_reductions.h"
#include "ranks/fabric_loop.h"
#include "ranks/freezes_replay.h"
#include "ranks/loaders.h"
#include "ranks/named_optimizer.h"
#include "ranks/run_arguments.h"
#include "ranks/samples.h"
#include "ranks/use_strategy.h"
#include "support/forked_runs.h"
#include "support/limited_allocator.h"

namespace rank_program {
namespace {

using namespace levin::test;
namespace F = torch::nn::functional;

// `when`: "rank:step", the rank and the training batch (over all epochs) in which something is to happen.
bool is_time(const RunArguments& arguments, const std::string& key, const levin::LightningModule& module) {
  const std::string when = arguments.text(key, "");
  if (when.empty()) return false;
  const auto& trainer = module.trainer();
  return trainer.global_rank() == std::stoll(when) &&
         trainer.seen_batches() == std::stoll(when.substr(when.find(':') + 1)) && levin::restarts_so_far() == 0;
}

// How often the commit record of a sharded checkpoint may still be renamed before this process is killed.
std::atomic<int64_t> records_left = -1;
// Milliseconds that renaming the checkpoint of a stop takes.
std::atomic<int64_t> slow_save = 0;
// How often this process has written mid.ckpt or on_exception.ckpt.
std::atomic<int64_t> immediate_saves = 0;
// What this rank drew in on_train_start.
double drawn_at_start = 0;

}  // namespace

// Replaces libc's function for this program and its libraries.
extern "C" __attribute__((visibility("default"))) int rename(const char* from, const char* to) noexcept {
  static const auto real = reinterpret_cast<int (*)(const char*, const char*)>(::dlsym(RTLD_NEXT, "rename"));
  if (std::string(to).ends_with("commit.safetensors") && records_left >= 0 && records_left-- == 0) std::raise(SIGKILL);
  if (std::string(to).ends_with("mid.ckpt") || std::string(to).ends_with("on_exception.ckpt")) ++immediate_saves;
  if (std::string(to).ends_with("interrupted.ckpt")) std::this_thread::sleep_for(std::chrono::milliseconds(slow_save));
  return real(from, to);
}

namespace {

class Net : public levin::LightningModule {
 public:
  explicit Net(const RunArguments& arguments) : arguments_(arguments), kind_(arguments.text("model", "mlp")) {
    if (kind_ == "article") {
      article_ = register_parameter("weight", torch::ones({8}));
      return;
    }
    torch::manual_seed(arguments.number("seed", 1) +
                       (arguments.has("seed_by_rank") ? std::atoi(std::getenv("RANK")) : 0));
    wide_ = arguments.number("wide", 8);
    if (arguments.has("shape_by_rank")) wide_ = 8 + std::atoi(std::getenv("RANK"));
    if (kind_ == "norms") net_->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
    net_->push_back(torch::nn::Linear(8, wide_));
    net_->push_back(torch::nn::Tanh());
    if (kind_ == "batchnorm" || kind_ == "norms") net_->push_back(torch::nn::BatchNorm1d(wide_));
    if (kind_ == "dropout") net_->push_back(torch::nn::Dropout(0.5));
    for (int k = 0; k < (kind_ == "deep" ? 4 : 0); ++k) {
      net_->push_back(torch::nn::Linear(wide_, wide_));
      net_->push_back(torch::nn::Tanh());
    }
    net_->push_back(torch::nn::Linear(wide_, 3));
    register_module("net", net_);
    if (kind_ == "tied") register_module("again", net_);
    set_automatic_optimization(kind_ != "manual");
    if (arguments.has("hparam")) {
      levin::ConfigNode hparams = levin::ConfigNode::map();
      hparams.set("temperature", levin::ConfigNode::scalar(arguments.text("hparam", "")));
      save_hyperparameters(hparams);
    }
    if (kind_ == "sometimes") sometimes_ = register_module("sometimes", torch::nn::Linear(8, 1));
    if (arguments.has("rank_buffer")) {
      offset_ = register_buffer("offset", torch::zeros({1}, torch::kLong));
      register_buffer("never", torch::zeros({0}));
    }
    if (arguments.has("forgotten")) forgotten_ = torch::nn::Linear(3, 3);
    if (kind_ == "unused") unused_ = register_module("spare", torch::nn::Linear(2, 2));
  }

  torch::Tensor training_step(const levin::Batch& batch, int64_t) override {
    misbehave("train");
    seen_.push_back(batch[0].size(0));
    if (is_time(arguments_, "no_forward", *this)) return {};
    if (kind_ == "article") return (batch[0] * article_).sum();
    if (arguments_.text("freeze_layer", "") == "step") freeze_layer();
    auto loss = arguments_.has("weighted") ? token_mean(batch) : F::cross_entropy(net_->forward(batch[0]), batch[1]);
    if (forgotten_) loss = loss + forgotten_->forward(net_->forward(batch[0])).square().mean();
    if (is_time(arguments_, "nan", *this)) loss = loss * std::numeric_limits<float>::quiet_NaN();
    // The root of a sample of zeros is 0, and its gradient 0 / 0.
    if (arguments_.has("nan_gradient_sample"))
      loss = loss + (batch[0].sum(1) * net_->parameters()[1].square().sum()).sqrt().mean();
    if (kind_ == "manual") {  // two losses, each with a forward of its own, for one update
      manual_backward(loss);
      manual_backward(net_->forward(batch[0]).square().mean());
      optimizer().step();
      optimizer().zero_grad();
      return {};
    }
    if (kind_ == "sometimes" && trainer().global_rank() == 0) loss = loss + sometimes_->forward(batch[0]).mean();
    log("loss", loss, {.on_step = true, .on_epoch = true, .sync_dist = true});
    log("samples", batch[0].sum(),
        {.on_step = false, .on_epoch = true, .reduce_fx = levin::ReduceFx::sum, .sync_dist = true});
    log("largest", batch[0].max(),
        {.on_step = false, .on_epoch = true, .reduce_fx = levin::ReduceFx::max, .sync_dist = true});
    log("own", batch[0].sum(), {.on_step = false, .on_epoch = true});
    log("own_step", batch[0].sum(), {.on_step = true});
    if (is_time(arguments_, "odd_metric", *this))
      log("odd", 1.0, {.on_step = false, .on_epoch = true, .sync_dist = true});
    if (arguments_.has("memory")) watch_memory();
    if (arguments_.has("metrics")) {
      train_accuracy_(net_->forward(batch[0]), batch[1]);
      log("train_accuracy", train_accuracy_, {.on_step = false, .on_epoch = true});
    }
    if (arguments_.has("no_loss") || is_time(arguments_, "skip", *this)) return {};
    return loss;
  }
  // A mean over tokens, of which a sample has as many as its label says: none, one or two.
  at::Tensor token_mean(const levin::Batch& batch) {
    const at::Tensor tokens = batch[1].to(at::kFloat);
    if (arguments_.text("weighted", "") != "by_one" || trainer().global_rank() == 0) set_loss_weight(tokens.sum());
    const auto each =
        F::cross_entropy(net_->forward(batch[0]), batch[1], F::CrossEntropyFuncOptions().reduction(torch::kNone));
    return (each * tokens).sum() / tokens.sum();
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    misbehave("validate");
    if (arguments_.has("val_mark") && ++validated_ == 5) std::ofstream(arguments_.text("out", ".") + "/validates");
    if (arguments_.has("val_talks")) trainer().strategy().ranks().barrier();
    if (arguments_.has("val_draws")) torch::rand({trainer().global_rank() + 3});
    log("val_loss", F::cross_entropy(net_->forward(batch[0]), batch[1]), {.sync_dist = true});
    log("val_samples", static_cast<double>(batch.size()), {.reduce_fx = levin::ReduceFx::sum, .sync_dist = true});
    if (offset_.defined()) log("val_offset", offset_.sum(), {.reduce_fx = levin::ReduceFx::max, .sync_dist = true});
    if (arguments_.has("val_own")) log("val_own", batch[0].sum(), {.reduce_fx = levin::ReduceFx::max});
    if (is_time(arguments_, "odd_val", *this)) log("odd", 1.0);
    if (!arguments_.has("metrics")) return;
    const auto logits = net_->forward(batch[0]);
    accuracy_(logits, batch[1]);
    auroc_(logits, batch[1]);
    log("val_accuracy", accuracy_);
    log("val_auroc", auroc_);
    at_end_(logits.select(1, 0), batch[1].to(at::kFloat));
    if (!arguments_.has("per_class")) return;
    per_class_(logits, batch[1]);
    log("val_per_class", per_class_);
  }
  void on_train_epoch_start() override {
    if (arguments_.text("freeze_layer", "") == "epoch") freeze_layer();
  }
  void on_validation_epoch_end() override {
    if (arguments_.has("metrics")) log("val_at_end", at_end_);
  }
  void on_train_batch_start(const levin::Batch&, int64_t) override {
    reductions_before_ = reductions;
    if (is_time(arguments_, "skip_batch", *this)) trainer().skip_batch();
  }
  void on_train_batch_end(const at::Tensor&, const levin::Batch&, int64_t batch_idx) override {
    reductions_.push_back(reductions - reductions_before_);
    if (offset_.defined()) offset_.fill_(trainer().global_rank());
    if (batch_idx == arguments_.number("save_at", -1) && trainer().current_epoch() == 0) {
      trainer().save_checkpoint(arguments_.text("out", ".") + "/mid.ckpt");
    }
    if (is_time(arguments_, "signal_at", *this) && !std::exchange(signalled_, true)) std::raise(SIGTERM);
    if (is_time(arguments_, "stop_after", *this)) trainer().request_stop("asked by one rank");
  }
  void on_exception(const std::exception&) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(arguments_.number("slow_end", 0)));
  }
  void look_at_memory() { held_ = levin::held_memory(trainer()); }
  void optimizer_zero_grad(levin::Optimizer& optimizer) override {
    optimizer.zero_grad(!arguments_.has("zero_in_place"));
  }
  levin::OptimizerConfig configure_optimizers() override {
    const std::string optimizer = arguments_.text("optimizer", "sgd");
    if (auto named = levin::test::named_optimizer(*this, optimizer)) return *named;
    if (optimizer == "adamw_groups") {
      return levin::AdamW(
          levin::param_groups(*this, {{.params = {"*.weight"}, .weight_decay = 0.5}}, /*no_decay=*/true), {.lr = 0.01});
    }
    const double momentum = std::stod(arguments_.text("momentum", "0.9"));
    if (optimizer == "torch") {
      return torch::optim::SGD(parameters(), torch::optim::SGDOptions(0.1).dampening(1 - momentum));
    }
    if (arguments_.has("gamma")) {
      return {levin::SGD(parameters(), {.lr = 0.1}),
              levin::StepLR({.step_size = 1, .gamma = std::stod(arguments_.text("gamma", ""))})};
    }
    if (kind_ == "article") return levin::SGD(parameters(), {.lr = 0.01, .momentum = 0.9});
    return levin::SGD(parameters(), {.lr = 0.1, .momentum = momentum});
  }
  [[nodiscard]] const std::vector<int64_t>& seen() const { return seen_; }
  /// What this rank held in its second update, and the most weights in any forward pass.
  [[nodiscard]] const levin::HeldMemory& held() const { return held_; }
  [[nodiscard]] int64_t most_parameters() const { return most_parameters_; }
  /// Per training batch.
  [[nodiscard]] const std::vector<int64_t>& reductions_seen() const { return reductions_; }

 private:
  // From the second epoch on.
  void freeze_layer() {
    if (trainer().current_epoch() == 1) net_[0]->as<torch::nn::Linear>()->weight.set_requires_grad(false);
  }
  void watch_memory() { most_parameters_ = std::max(most_parameters_, levin::held_memory(trainer()).parameters); }
  void misbehave(const std::string& phase) {
    if (arguments_.text("in", "train") != phase) return;
    if (is_time(arguments_, "kill", *this)) std::raise(SIGKILL);
    if (is_time(arguments_, "freeze", *this)) std::raise(SIGSTOP);
    if (is_time(arguments_, "throw", *this)) throw std::runtime_error("a fault in the model");
    if (trainer().seen_batches() == arguments_.number("throw_everywhere", -1))
      throw std::runtime_error("a fault in all");
    if (arguments_.has("slow")) std::this_thread::sleep_for(std::chrono::milliseconds(arguments_.number("slow", 0)));
  }

  RunArguments arguments_;
  std::string kind_;
  int64_t wide_ = 8;
  torch::Tensor article_;
  levin::metrics::Accuracy train_accuracy_{{.num_classes = 3}}, accuracy_{{.num_classes = 3}};
  levin::metrics::AUROC auroc_{{.num_classes = 3}};
  levin::metrics::PearsonCorrCoef at_end_;
  levin::metrics::Accuracy per_class_{{.num_classes = 3, .average = levin::metrics::Average::none}};
  torch::nn::Sequential net_;
  torch::nn::Linear unused_ = nullptr;
  torch::nn::Linear forgotten_ = nullptr;  // not registered
  torch::Tensor offset_;                   // of each rank its own number
  torch::nn::Linear sometimes_ = nullptr;  // rank 0's batches alone use it
  bool signalled_ = false;
  std::vector<int64_t> seen_, reductions_;
  int64_t reductions_before_ = 0;
  int64_t validated_ = 0;  // batches
  levin::HeldMemory held_;
  int64_t most_parameters_ = 0;
};

levin::TrainerOptions trainer_options(const RunArguments& arguments) {
  levin::TrainerOptions options;
  options.max_epochs = arguments.number("epochs", 2);
  if (on_gpus()) options.accelerator = "gpu";
  if (arguments.has("devices") || is_alone_on_gpus()) options.devices = arguments.number("devices", 1);
  options.accumulate_grad_batches = arguments.number("accumulate", 1);
  if (arguments.has("effective"))
    options.accumulate_grad_batches = levin::EffectiveBatchSize{arguments.number("effective", 1)};
  if (arguments.text("micro", "") == "auto") options.micro_batch_size = "auto";
  if (arguments.has("micro") && arguments.text("micro", "") != "auto")
    options.micro_batch_size = arguments.number("micro", 1);
  options.num_nodes = arguments.number("nodes", 1);
  options.max_restarts = arguments.number("restarts", 0);
  if (arguments.has("stop_grace")) options.stop_grace = levin::Seconds(std::stod(arguments.text("stop_grace", "")));
  options.oversubscribe = !arguments.has("within_cores");
  options.default_root_dir = arguments.text("root", arguments.text("out", "."));
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.num_sanity_val_steps = 0;
  options.log_every_n_steps = 1;
  options.record_steps = record_steps_of(arguments);
  if (arguments.has("freeze_replay")) options.profiler = FreezesReplay(arguments.text("freeze_replay", ""));
  if (arguments.has("clip")) options.gradient_clip_val = 0.1;
  if (arguments.has("clip_value")) {
    options.gradient_clip_val = 0.01;
    options.gradient_clip_algorithm = levin::ClipAlgorithm::value;
  }
  options.auto_resume = arguments.has("auto_resume");
  if (arguments.has("precision")) options.precision = arguments.text("precision", "");
  options.sync_batchnorm = arguments.has("sync_batchnorm");
  if (arguments.has("recompute")) {
    options.recompute =
        levin::RecomputeOptions{.modules = {arguments.text("recompute", "")},
                                .keep = arguments.has("keep_matmul") ? levin::Keep::matmul : levin::Keep::nothing};
  }
  if (arguments.has("budget")) {
    options.recompute = levin::RecomputeOptions{.budget = levin::parse_byte_size(arguments.text("budget", ""))};
  }
  options.nonfinite_loss = nonfinite_loss_of(arguments);
  options.enable_checkpointing = arguments.has("checkpoint");
  if (arguments.has("checkpoint")) {
    options.callbacks = {levin::ModelCheckpoint({.save_last = true, .every_n_train_steps = 1})};
  }
  if (arguments.has("best_of")) {
    options.enable_checkpointing = true;
    options.callbacks = {levin::ModelCheckpoint({.filename = "{step}-{" + arguments.text("best_of", "") + ":.6f}",
                                                 .monitor = arguments.text("best_of", ""),
                                                 .save_top_k = 2,
                                                 .every_n_train_steps = 1})};
  }
  if (arguments.has("scaled")) {  // so large that the first steps are skipped
    options.precision = levin::MixedPrecision(
        {.dtype = levin::MixedDtype::float16, .scaler = levin::GradScalerOptions{.init_scale = 1e9}});
  }
  if (arguments.has("checkpoint_epochs")) {
    options.enable_checkpointing = true;
    options.callbacks = {levin::ModelCheckpoint({.save_top_k = -1})};
  }
  if (arguments.has("monitor")) {
    const std::string name = arguments.text("monitor", "");
    options.enable_checkpointing = true;
    options.callbacks = {levin::EarlyStopping({.monitor = name, .min_delta = 10, .patience = 1}),
                         levin::ModelCheckpoint({.filename = "best-{" + name + ":.4f}", .monitor = name})};
  }
  if (arguments.has("memory")) {  // not a hook of the module, which would make all runs' recorded updates the host's
    options.callbacks.push_back(levin::LambdaCallback({.on_before_optimizer_step = [](auto& trainer, auto& m, auto&) {
      if (trainer.global_step() == 1) dynamic_cast<Net&>(m).look_at_memory();
    }}));
  }
  if (arguments.has("on_exception")) {
    options.enable_checkpointing = true;
    options.callbacks.push_back(levin::OnExceptionCheckpoint({.dirpath = arguments.text("out", ".")}));
  }
  if (arguments.has("draw")) {
    options.callbacks.push_back(levin::LambdaCallback(
        {.on_train_start = [](auto&, auto&) { drawn_at_start = torch::rand({1}).item<double>(); }}));
  }
  if (arguments.has("batch_size_finder")) options.callbacks.push_back(levin::BatchSizeFinder({.max_val = 8}));
  if (arguments.has("learning_rate_finder")) options.callbacks.push_back(levin::LearningRateFinder({.min_lr = 1e-4}));
  if (arguments.has("ema")) options.callbacks.push_back(levin::EMAWeightAveraging({.decay = 0.5}));
  if (arguments.has("swa")) options.callbacks.push_back(levin::StochasticWeightAveraging({.swa_lrs = 0.05}));
  use_strategy(arguments, options);
  return options;
}

void write_report(const RunArguments& arguments, const levin::Trainer& trainer, Net& net, int64_t steps_before) {
  nlohmann::json report;
  std::vector<double> weights;
  for (const auto& item : net.named_parameters()) {
    const auto flat = item.value().detach().to(torch::kCPU, torch::kDouble).flatten().contiguous();
    weights.insert(weights.end(), flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
  }
  report["dtype"] = std::string(net.parameters()[0].dtype().name());
  report["memory"] = {{"parameters", net.held().parameters},
                      {"gradients", net.held().gradients},
                      {"optimizer_state", net.held().optimizer_state},
                      {"most_parameters", net.most_parameters()}};
  for (const auto& item : net.named_buffers()) report["buffers"][item.key()] = item.value().sum().item<double>();
  report["weights"] = weights;
  report["global_step"] = trainer.global_step();
  report["steps_before"] = steps_before;  // of a fit that was stopped
  report["epoch"] = trainer.current_epoch();
  report["seen"] = net.seen();
  report["reductions"] = net.reductions_seen();
  report["micro_batch_size"] = trainer.micro_batch_size();
  report["accumulate"] = trainer.accumulate_grad_batches();
  report["world_size"] = trainer.world_size();
  report["local_rank"] = trainer.local_rank();
  report["random"] = torch::rand({1}).item<double>();
  report["drawn_at_start"] = drawn_at_start;
  report["immediate_saves"] = static_cast<int64_t>(immediate_saves);
  for (const auto& [name, value] : trainer.callback_metrics()) report["metrics"][name] = value;
  std::ofstream(arguments.text("out", ".") + "/rank" + std::to_string(trainer.global_rank()) + ".json")
      << report.dump();
}

void train(const RunArguments& arguments) {
  if (arguments.has("fabric")) return train_as_fabric(arguments, trainer_options(arguments));
  if (arguments.has("count")) count_reductions();
  records_left = arguments.number("kill_at_record", 0) - 1;
  slow_save = arguments.number("slow_save", 0);
  levin::Trainer trainer(trainer_options(arguments));
  Net net(arguments);
  const auto data = make_data(arguments);
  const levin::Loaders val = make_val_loaders(arguments, data);
  levin::seed_everything(static_cast<uint64_t>(arguments.number("seed", 1)));
  std::optional<levin::test::MemoryLimit> memory;
  const std::string limit = arguments.text("limit", "-1:0");  // "rank:bytes"
  if (trainer.global_rank() == std::stoll(limit)) memory.emplace().set(std::stoull(limit.substr(limit.find(':') + 1)));
  int64_t steps_before = 0;
  if (arguments.has("validate")) (void)trainer.validate(net, val);
  try {
    if (!arguments.has("validate")) trainer.fit(net, make_loader(arguments, data), val, arguments.text("ckpt", ""));
  } catch (const levin::Interrupted&) {
    if (!arguments.has("again")) throw;
    steps_before = trainer.global_step();
    trainer.fit(net, make_loader(arguments, data), val);
  }
  memory.reset();
  if (arguments.has("best_of")) trainer.validate(net, val, "best");
  write_report(arguments, trainer, net, steps_before);
}

int run(const std::vector<std::string>& arguments) {
  return levin::test::status_of([&] {
    std::vector<std::vector<std::string>> runs(1);
    for (const std::string& word : levin::take_init_method(arguments)) {
      if (word == "--") {
        runs.emplace_back();
      } else {
        runs.back().push_back(word);
      }
    }
    for (const auto& each : runs) train(RunArguments(each));
  });
}

}  // namespace

int run_program(int argc, char** argv) {
  return run_or_serve(argc, argv, run);
}

}  // namespace rank_program
