// Every class that a user can derive from, with every virtual function overridden to throw when a test asks for it: the
// user's side of the matrix of faults (docs/reliability.md).
//
//   FaultPoints::instance().arm("Callback::on_train_start", /*call=*/1, Thrown::levin_error);
#pragma once

#include <c10/util/Exception.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/dataset.h"
#include "levin/loggers/logger.h"
#include "levin/metrics/metric.h"
#include "levin/optim/lr_scheduler.h"
#include "levin/optim/optimizer.h"
#include "levin/precision/precision.h"
#include "levin/profilers/profiler.h"
#include "levin/strategies/strategy.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/changes_batches.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"

namespace levin::test {

/// What user code throws.
enum class Thrown { runtime_error, levin_error, libtorch_error, own_exception, bad_alloc, number };

/// An exception class of the user's own.
struct OwnException : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "the planted fault"; }
};

[[noreturn]] inline void throw_fault(Thrown what) {
  switch (what) {
    case Thrown::levin_error: throw Error("the planted fault");
    case Thrown::libtorch_error: TORCH_CHECK(false, "the planted fault");
    case Thrown::own_exception: throw OwnException();
    case Thrown::bad_alloc: throw std::bad_alloc();
    case Thrown::number: throw 42;
    case Thrown::runtime_error: break;
  }
  throw std::runtime_error("the planted fault");
}

/// Counts the calls of the faulty parts' functions, and throws in the call that a test has chosen. Thread-safe.
class FaultPoints {
 public:
  static FaultPoints& instance() {
    static FaultPoints points;
    return points;
  }

  /// Forgets the counted calls and disarms.
  void clear() {
    const std::lock_guard lock(mutex_);
    calls_.clear();
    armed_.clear();
    thrown_ = 0;
  }
  /// Throws in the `call`-th call (from 1) of `point` from here on.
  void arm(const std::string& point, int64_t call, Thrown what) {
    const std::lock_guard lock(mutex_);
    armed_[point] = {calls_[point] + call, what};
  }
  /// Lets every function succeed from here on.
  void disarm() {
    const std::lock_guard lock(mutex_);
    armed_.clear();
  }
  void reach(const std::string& point) {
    Thrown what = Thrown::runtime_error;
    {
      const std::lock_guard lock(mutex_);
      const int64_t call = ++calls_[point];
      const auto found = armed_.find(point);
      if (found == armed_.end() || found->second.call != call) return;
      what = found->second.what;
      ++thrown_;
    }
    throw_fault(what);
  }
  [[nodiscard]] std::map<std::string, int64_t> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  [[nodiscard]] int64_t calls_of(const std::string& point) const {
    const auto all = calls();
    const auto found = all.find(point);
    return found == all.end() ? 0 : found->second;
  }
  /// Returns how many of the armed calls have thrown.
  [[nodiscard]] int64_t thrown() const {
    const std::lock_guard lock(mutex_);
    return thrown_;
  }

 private:
  struct Armed {
    int64_t call;
    Thrown what;
  };
  mutable std::mutex mutex_;
  std::map<std::string, int64_t> calls_;
  std::map<std::string, Armed> armed_;
  int64_t thrown_ = 0;
};

inline void reach(const std::string& point) {
  FaultPoints::instance().reach(point);
}

inline State counted_state(int64_t count) {
  State state;
  state.set<int64_t>("count", count);
  return state;
}

// clang-format off
#define LEVIN_POINT(kind, name, parameters) \
  void name parameters override { reach(#kind "::" #name); }

/// Every hook of a callback except the three that a step with recordings cannot have.
class FaultyCallback : public Callback, public ChangesBatches {
 public:
  using T = Trainer;
  using M = LightningModule;
  LEVIN_POINT(Callback, setup, (T&, M&, Stage))
  LEVIN_POINT(Callback, teardown, (T&, M&, Stage))
  LEVIN_POINT(Callback, adapt_model, (T&, M&))
  LEVIN_POINT(Callback, on_fit_start, (T&, M&))
  LEVIN_POINT(Callback, on_fit_end, (T&, M&))
  LEVIN_POINT(Callback, on_sanity_check_start, (T&, M&))
  LEVIN_POINT(Callback, on_sanity_check_end, (T&, M&))
  LEVIN_POINT(Callback, on_train_start, (T&, M&))
  LEVIN_POINT(Callback, on_train_end, (T&, M&))
  LEVIN_POINT(Callback, on_train_epoch_start, (T&, M&))
  LEVIN_POINT(Callback, on_train_epoch_end, (T&, M&))
  LEVIN_POINT(Callback, on_train_batch_start, (T&, M&, const Batch&, int64_t))
  LEVIN_POINT(Callback, on_train_batch_end, (T&, M&, const at::Tensor&, const Batch&, int64_t))
  LEVIN_POINT(Callback, on_before_optimizer_step, (T&, M&, Optimizer&))
  LEVIN_POINT(Callback, on_validation_start, (T&, M&))
  LEVIN_POINT(Callback, on_validation_end, (T&, M&))
  LEVIN_POINT(Callback, on_validation_epoch_start, (T&, M&))
  LEVIN_POINT(Callback, on_validation_epoch_end, (T&, M&))
  LEVIN_POINT(Callback, on_validation_batch_start, (T&, M&, const Batch&, int64_t, int64_t))
  LEVIN_POINT(Callback, on_validation_batch_end, (T&, M&, const Batch&, int64_t, int64_t))
  LEVIN_POINT(Callback, on_test_start, (T&, M&))
  LEVIN_POINT(Callback, on_test_end, (T&, M&))
  LEVIN_POINT(Callback, on_test_epoch_start, (T&, M&))
  LEVIN_POINT(Callback, on_test_epoch_end, (T&, M&))
  LEVIN_POINT(Callback, on_test_batch_start, (T&, M&, const Batch&, int64_t, int64_t))
  LEVIN_POINT(Callback, on_test_batch_end, (T&, M&, const Batch&, int64_t, int64_t))
  LEVIN_POINT(Callback, on_predict_start, (T&, M&))
  LEVIN_POINT(Callback, on_predict_end, (T&, M&))
  LEVIN_POINT(Callback, on_predict_epoch_start, (T&, M&))
  LEVIN_POINT(Callback, on_predict_epoch_end, (T&, M&))
  LEVIN_POINT(Callback, on_predict_batch_start, (T&, M&, const Batch&, int64_t, int64_t))
  LEVIN_POINT(Callback, on_predict_batch_end, (T&, M&, const at::Tensor&, const Batch&, int64_t, int64_t))
  LEVIN_POINT(Callback, on_exception, (T&, M&, const std::exception&))
  LEVIN_POINT(Callback, load_state_dict, (const State&))
  LEVIN_POINT(Callback, on_save_checkpoint, (T&, M&, State&))
  LEVIN_POINT(Callback, on_load_checkpoint, (T&, M&, const State&))
  // clang-format on
  [[nodiscard]] State state_dict() const override {
    reach("Callback::state_dict");
    return counted_state(1);
  }
  [[nodiscard]] std::string state_key() const override {
    reach("Callback::state_key");
    return "FaultyCallback";
  }
  [[nodiscard]] State weights_to_save(const LightningModule&) const override {
    reach("Callback::weights_to_save");
    return {};
  }
  [[nodiscard]] bool is_monitoring() const override {
    reach("Callback::is_monitoring");
    return false;
  }
  [[nodiscard]] Batch change_batch(Batch batch) override {
    reach("ChangesBatches::change_batch");
    return batch;
  }
};

/// The other hooks of a callback: a step that is recorded cannot have them.
class FaultyStepCallback final : public FaultyCallback {
 public:
  void on_before_zero_grad(Trainer&, LightningModule&, Optimizer&) override { reach("Callback::on_before_zero_grad"); }
  void on_before_backward(Trainer&, LightningModule&, const at::Tensor&) override {
    reach("Callback::on_before_backward");
  }
  void on_after_backward(Trainer&, LightningModule&) override { reach("Callback::on_after_backward"); }
};

/// Plain SGD.
class FaultyOptimizer final : public Optimizer {
 public:
  FaultyOptimizer(const std::vector<at::Tensor>& params, double lr, bool needs_closure = false)
      : Optimizer(Group{.lr = lr, .has_weight_decay = false}), needs_closure_(needs_closure) {
    add_param_group({.params = params});
  }
  [[nodiscard]] std::string name() const override {
    reach("Optimizer::name");
    return "FaultyOptimizer";
  }
  [[nodiscard]] ConfigNode written_options() const override {
    reach("Optimizer::written_options");
    return {};
  }
  [[nodiscard]] bool needs_closure() const override {
    reach("Optimizer::needs_closure");
    return needs_closure_;
  }
  [[nodiscard]] bool updates_whole_tensors() const override {
    reach("Optimizer::updates_whole_tensors");
    return false;
  }
  [[nodiscard]] bool is_recordable() const override {
    reach("Optimizer::is_recordable");
    return false;
  }
  [[nodiscard]] State state_dict() const override {
    reach("Optimizer::state_dict");
    State state;
    save_groups(state);
    return state;
  }
  void load_state_dict(const State& saved) override {
    reach("Optimizer::load_state_dict");
    groups_ = saved_groups(saved);
  }

 protected:
  at::Tensor do_step(const Closure* closure) override {
    reach("Optimizer::do_step");
    const at::Tensor loss = closure == nullptr ? at::Tensor() : (*closure)();
    const at::NoGradGuard no_grad;
    for (const Group& group : groups_) {
      for (const at::Tensor& param : group.params) {
        if (param.grad().defined()) param.sub_(param.grad(), group.lr);
      }
    }
    return loss;
  }
  void group_added() override { reach("Optimizer::group_added"); }

 private:
  bool needs_closure_;
};

/// Multiplies the learning rate by 0.9 each time.
class FaultyScheduler final : public LRScheduler {
 public:
  [[nodiscard]] std::string name() const override {
    reach("LRScheduler::name");
    return "FaultyScheduler";
  }
  [[nodiscard]] ConfigNode written_options() const override {
    reach("LRScheduler::written_options");
    return {};
  }
  [[nodiscard]] bool wants_metric() const override {
    reach("LRScheduler::wants_metric");
    return false;
  }
  [[nodiscard]] bool counts_steps() const override {
    reach("LRScheduler::counts_steps");
    return true;
  }
  [[nodiscard]] bool wants_total_steps() const override {
    reach("LRScheduler::wants_total_steps");
    return true;
  }
  void fill_total_steps(int64_t) override { reach("LRScheduler::fill_total_steps"); }
  [[nodiscard]] State state_dict() const override {
    reach("LRScheduler::state_dict");
    return LRScheduler::state_dict();
  }
  void load_state_dict(const State& saved) override {
    reach("LRScheduler::load_state_dict");
    LRScheduler::load_state_dict(saved);
  }

 protected:
  [[nodiscard]] std::vector<double> next_lr() override {
    reach("LRScheduler::next_lr");
    return scaled(last_epoch == 0 ? 1.0 : 0.9);
  }
  void prepare() override { reach("LRScheduler::prepare"); }
  void advance(std::optional<double> metric) override {
    reach("LRScheduler::advance");
    LRScheduler::advance(metric);
  }
};

/// The mean of what it is given.
class FaultyMetric final : public metrics::TensorMetric {
 public:
  FaultyMetric() {
    add_state("sum", metrics::StateReduce::sum, torch::zeros({}));
    add_state("count", metrics::StateReduce::sum, torch::zeros({}));
  }
  void update(const at::Tensor& preds, const at::Tensor& target) override {
    reach("Metric::update");
    begin_update(preds.device());
    state(0).add_((preds - target).abs().sum());
    state(1).add_(preds.numel());
  }
  [[nodiscard]] at::Tensor compute() const override {
    reach("Metric::compute");
    return state(0) / state(1);
  }
  void reset() override {
    reach("Metric::reset");
    TensorMetric::reset();
  }
  [[nodiscard]] metrics::MetricStates states() const override {
    reach("Metric::states");
    return TensorMetric::states();
  }
  void set_states(const metrics::MetricStates& states, int64_t updates) override {
    reach("Metric::set_states");
    TensorMetric::set_states(states, updates);
  }
  [[nodiscard]] const std::vector<metrics::StateReduce>& reductions() const override {
    reach("Metric::reductions");
    return TensorMetric::reductions();
  }
  [[nodiscard]] std::string name() const override {
    reach("Metric::name");
    return "FaultyMetric";
  }
};

/// Linear(4, 1) with fixed weights: see TinyModule.
class FaultyModule : public LightningModule {
 public:
  explicit FaultyModule(bool needs_closure = false) : needs_closure_(needs_closure) {
    const torch::NoGradGuard no_grad;
    layer->weight.copy_(torch::tensor({{0.01F, 0.02F, 0.03F, 0.04F}}));
    layer->bias.zero_();
    ConfigNode hparams = ConfigNode::map();
    hparams.set("width", ConfigNode::scalar("4"));
    save_hyperparameters(hparams);
  }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    reach("LightningModule::clone");
    return std::make_shared<FaultyModule>(needs_closure_);
  }

  at::Tensor training_step(const Batch& batch, int64_t) override {
    reach("LightningModule::training_step");
    const at::Tensor loss = torch::mse_loss(forward(batch[0]), batch[1]);
    log("train_loss", loss, {.on_step = true, .on_epoch = true});
    return loss;
  }
  void validation_step(const Batch& batch, int64_t) override {
    reach("LightningModule::validation_step");
    const at::Tensor predicted = forward(batch[0]);
    log("val_loss", torch::mse_loss(predicted, batch[1]));
    metric(predicted, batch[1]);
    log("val_error", metric);
  }
  void test_step(const Batch& batch, int64_t) override {
    reach("LightningModule::test_step");
    log("test_loss", torch::mse_loss(forward(batch[0]), batch[1]));
  }
  at::Tensor predict_step(const Batch& batch, int64_t) override {
    reach("LightningModule::predict_step");
    return forward(batch[0]);
  }
  at::Tensor forward(const at::Tensor& x) override {
    reach("LightningModule::forward");
    return layer->forward(x);
  }
  OptimizerConfig configure_optimizers() override {
    reach("LightningModule::configure_optimizers");
    return {FaultyOptimizer(parameters(), 0.1, needs_closure_), FaultyScheduler()};
  }
  Callbacks configure_callbacks() override {
    reach("LightningModule::configure_callbacks");
    return {};
  }
  // clang-format off
  LEVIN_POINT(LightningModule, configure_model, ())
  LEVIN_POINT(LightningModule, prepare_data, ())
  LEVIN_POINT(LightningModule, setup, (Stage))
  LEVIN_POINT(LightningModule, teardown, (Stage))
  LEVIN_POINT(LightningModule, on_fit_start, ())
  LEVIN_POINT(LightningModule, on_fit_end, ())
  LEVIN_POINT(LightningModule, on_train_start, ())
  LEVIN_POINT(LightningModule, on_train_end, ())
  LEVIN_POINT(LightningModule, on_train_epoch_start, ())
  LEVIN_POINT(LightningModule, on_train_epoch_end, ())
  LEVIN_POINT(LightningModule, on_train_batch_start, (const Batch&, int64_t))
  LEVIN_POINT(LightningModule, on_before_optimizer_step, (Optimizer&))
  LEVIN_POINT(LightningModule, on_validation_model_train, ())
  LEVIN_POINT(LightningModule, on_test_model_train, ())
  LEVIN_POINT(LightningModule, on_predict_model_train, ())
  LEVIN_POINT(LightningModule, on_validation_start, ())
  LEVIN_POINT(LightningModule, on_validation_end, ())
  LEVIN_POINT(LightningModule, on_validation_epoch_start, ())
  LEVIN_POINT(LightningModule, on_validation_epoch_end, ())
  LEVIN_POINT(LightningModule, on_validation_batch_start, (const Batch&, int64_t, int64_t))
  LEVIN_POINT(LightningModule, on_validation_batch_end, (const Batch&, int64_t, int64_t))
  LEVIN_POINT(LightningModule, on_test_start, ())
  LEVIN_POINT(LightningModule, on_test_end, ())
  LEVIN_POINT(LightningModule, on_test_epoch_start, ())
  LEVIN_POINT(LightningModule, on_test_epoch_end, ())
  LEVIN_POINT(LightningModule, on_test_batch_start, (const Batch&, int64_t, int64_t))
  LEVIN_POINT(LightningModule, on_test_batch_end, (const Batch&, int64_t, int64_t))
  LEVIN_POINT(LightningModule, on_predict_start, ())
  LEVIN_POINT(LightningModule, on_predict_end, ())
  LEVIN_POINT(LightningModule, on_predict_epoch_start, ())
  LEVIN_POINT(LightningModule, on_predict_epoch_end, ())
  LEVIN_POINT(LightningModule, on_predict_batch_start, (const Batch&, int64_t, int64_t))
  LEVIN_POINT(LightningModule, on_predict_batch_end, (const at::Tensor&, const Batch&, int64_t, int64_t))
  LEVIN_POINT(LightningModule, on_exception, (const std::exception&))
  LEVIN_POINT(LightningModule, on_save_checkpoint, (State&))
  LEVIN_POINT(LightningModule, on_load_checkpoint, (const State&))
  // clang-format on
  /// Logs a value of every other kind.
  void on_train_batch_end(const at::Tensor&, const Batch& batch, int64_t batch_idx) override {
    reach("LightningModule::on_train_batch_end");
    if (batch_idx != 0) return;
    log_histogram("inputs", batch[0]);
    log_image("image", torch::zeros({1, 2, 2}));
    log_text("text", "a text");
    log_table("table", {.columns = {"a"}, .rows = {{"1"}}});
    if (!artifact.empty()) log_artifact(artifact);
    trainer().log_system({{"load", 1.0}}, global_step());
  }
  void on_validation_model_zero_grad() override {
    reach("LightningModule::on_validation_model_zero_grad");
    LightningModule::on_validation_model_zero_grad();
  }
  void on_validation_model_eval() override {
    reach("LightningModule::on_validation_model_eval");
    eval();
  }
  void on_test_model_eval() override {
    reach("LightningModule::on_test_model_eval");
    eval();
  }
  void on_predict_model_eval() override {
    reach("LightningModule::on_predict_model_eval");
    eval();
  }
  Batch on_before_batch_transfer(Batch batch, int64_t) override {
    reach("LightningModule::on_before_batch_transfer");
    return batch;
  }
  Batch transfer_batch_to_device(Batch batch, at::Device device, int64_t dataloader_idx) override {
    reach("LightningModule::transfer_batch_to_device");
    return LightningModule::transfer_batch_to_device(std::move(batch), device, dataloader_idx);
  }
  Batch on_after_batch_transfer(Batch batch, int64_t) override {
    reach("LightningModule::on_after_batch_transfer");
    return batch;
  }
  void configure_gradient_clipping(Optimizer& optimizer, double clip_val, ClipAlgorithm algorithm) override {
    reach("LightningModule::configure_gradient_clipping");
    LightningModule::configure_gradient_clipping(optimizer, clip_val, algorithm);
  }
  void optimizer_step(int64_t epoch, int64_t batch_idx, Optimizer& optimizer) override {
    reach("LightningModule::optimizer_step");
    LightningModule::optimizer_step(epoch, batch_idx, optimizer);
  }
  void lr_scheduler_step(LRScheduler& scheduler, std::optional<double> value) override {
    reach("LightningModule::lr_scheduler_step");
    LightningModule::lr_scheduler_step(scheduler, value);
  }
  std::shared_ptr<Loader> train_dataloader() override {
    reach("LightningModule::train_dataloader");
    return loaders == nullptr ? nullptr : loaders->train_dataloader();
  }
  Loaders val_dataloader() override {
    reach("LightningModule::val_dataloader");
    return loaders == nullptr ? Loaders() : loaders->val_dataloader();
  }
  Loaders test_dataloader() override {
    reach("LightningModule::test_dataloader");
    return loaders == nullptr ? Loaders() : loaders->test_dataloader();
  }
  Loaders predict_dataloader() override {
    reach("LightningModule::predict_dataloader");
    return loaders == nullptr ? Loaders() : loaders->predict_dataloader();
  }

  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(4, 1))};
  FaultyMetric metric = {};
  std::string artifact = "";
  DataModule* loaders = nullptr;  // of the module's own

 private:
  bool needs_closure_;
};

/// The hooks inside a step, and the parts of it: a step that is recorded cannot have them.
class FaultyStepModule final : public FaultyModule {
 public:
  using FaultyModule::FaultyModule;
  void on_before_zero_grad(Optimizer&) override { reach("LightningModule::on_before_zero_grad"); }
  void on_before_backward(const at::Tensor&) override { reach("LightningModule::on_before_backward"); }
  void on_after_backward() override { reach("LightningModule::on_after_backward"); }
  void optimizer_zero_grad(Optimizer& optimizer) override {
    reach("LightningModule::optimizer_zero_grad");
    LightningModule::optimizer_zero_grad(optimizer);
  }
  void backward(const at::Tensor& loss) override {
    reach("LightningModule::backward");
    LightningModule::backward(loss);
  }
};

/// The rows of tiny_loader(), one at a time.
class FaultyDataset final : public Dataset {
 public:
  explicit FaultyDataset(int64_t samples) : samples_(samples) {}
  [[nodiscard]] int64_t size() const override {
    reach("Dataset::size");
    return samples_;
  }
  [[nodiscard]] Batch get(int64_t i) const override {
    reach("Dataset::get");
    const at::Tensor x = (i * 7 + torch::arange(4) * 3).remainder(17).to(at::kFloat) / 17 - 0.5;  // (4)
    return {x, torch::full({1}, static_cast<double>(i % 5) / 5)};
  }
  [[nodiscard]] std::string sample_id(int64_t index) const override {
    reach("Dataset::sample_id");
    return std::to_string(index);
  }

 private:
  int64_t samples_;
};

class FaultySampler final : public Sampler {
 public:
  explicit FaultySampler(int64_t samples) : samples_(samples) {}
  [[nodiscard]] int64_t size() const override {
    reach("Sampler::size");
    return samples_;
  }
  [[nodiscard]] at::Tensor order(uint64_t, int64_t epoch) const override {
    reach("Sampler::order");
    return (torch::arange(samples_) + epoch).remainder(samples_);
  }
  [[nodiscard]] bool is_sequential() const override {
    reach("Sampler::is_sequential");
    return false;
  }

 private:
  int64_t samples_;
};

class FaultyBatchSampler final : public BatchSampler {
 public:
  explicit FaultyBatchSampler(int64_t samples) : samples_(samples) {}
  [[nodiscard]] std::optional<int64_t> num_batches() const override {
    reach("BatchSampler::num_batches");
    return samples_ / 4;
  }
  [[nodiscard]] IndexBatches batches(uint64_t, int64_t) const override {
    reach("BatchSampler::batches");
    IndexBatches all(static_cast<size_t>(samples_ / 4));
    for (int64_t i = 0; i < samples_; ++i) all[static_cast<size_t>(i / 4)].push_back(i);
    return all;
  }
  [[nodiscard]] bool may_split() const override {
    reach("BatchSampler::may_split");
    return false;
  }
  [[nodiscard]] std::optional<int64_t> batch_size() const override {
    reach("BatchSampler::batch_size");
    return 4;
  }

 private:
  int64_t samples_;
};

inline Batch faulty_collate(std::vector<Batch> samples) {
  reach("collate");
  std::vector<at::Tensor> x, y;
  for (const Batch& sample : samples) {
    x.push_back(sample[0]);
    y.push_back(sample[1]);
  }
  return {torch::stack(x), torch::stack(y)};
}

/// A loader around a DataLoader.
class FaultyLoader final : public Loader {
 public:
  explicit FaultyLoader(DataLoader inner) : inner_(std::move(inner)) {}
  void start(int64_t epoch, int64_t first_batch) override {
    reach("Loader::start");
    inner_.start(epoch, first_batch);
  }
  bool next(Batch& batch) override {
    reach("Loader::next");
    return inner_.next(batch);
  }
  [[nodiscard]] bool may_be_read_ahead() const override {
    reach("Loader::may_be_read_ahead");
    return true;
  }
  [[nodiscard]] State state_dict() const override {
    reach("Loader::state_dict");
    return counted_state(0);
  }
  void load_state_dict(const State&) override { reach("Loader::load_state_dict"); }
  void add_to_checkpoint(State&) const override { reach("Loader::add_to_checkpoint"); }
  void stop() override {
    reach("Loader::stop");
    inner_.stop();
  }
  [[nodiscard]] std::optional<int64_t> num_batches() const override {
    reach("Loader::num_batches");
    return inner_.num_batches();
  }
  [[nodiscard]] std::optional<int64_t> batch_size() const override {
    reach("Loader::batch_size");
    return inner_.batch_size();
  }
  bool set_batch_size(int64_t samples) override {
    reach("Loader::set_batch_size");
    return inner_.set_batch_size(samples);
  }
  void use_sequential_order() override {
    reach("Loader::use_sequential_order");
    inner_.use_sequential_order();
  }
  bool shard(int64_t rank, int64_t world_size, bool padded) override {
    reach("Loader::shard");
    return inner_.shard(rank, world_size, padded);
  }
  void pin_memory(bool) override { reach("Loader::pin_memory"); }
  void identify_samples(bool identifies) override {
    reach("Loader::identify_samples");
    inner_.identify_samples(identifies);
  }
  [[nodiscard]] ConfigNode written_options() const override {
    reach("Loader::written_options");
    return {};
  }
  [[nodiscard]] int64_t num_workers() const override {
    reach("Loader::num_workers");
    return inner_.num_workers();
  }

 private:
  DataLoader inner_;
};

/// 12 training samples in batches of 4; 8 to evaluate on.
class FaultyData final : public DataModule {
 public:
  explicit FaultyData(int64_t num_workers = 0) : num_workers_(num_workers) {}
  // clang-format off
  LEVIN_POINT(DataModule, prepare_data, ())
  LEVIN_POINT(DataModule, setup, (Stage))
  LEVIN_POINT(DataModule, teardown, (Stage))
  LEVIN_POINT(DataModule, on_exception, (const std::exception&))
  LEVIN_POINT(DataModule, load_state_dict, (const State&))
  // clang-format on
  [[nodiscard]] State state_dict() const override {
    reach("DataModule::state_dict");
    return counted_state(2);
  }
  std::shared_ptr<Loader> train_dataloader() override {
    reach("DataModule::train_dataloader");
    return std::make_shared<FaultyLoader>(DataLoader(std::make_shared<FaultyDataset>(12), options(),
                                                     std::make_shared<FaultySampler>(12), faulty_collate));
  }
  Loaders val_dataloader() override {
    reach("DataModule::val_dataloader");
    return DataLoader(std::make_shared<FaultyDataset>(8), {.num_workers = num_workers_},
                      std::make_shared<FaultyBatchSampler>(8));
  }
  Loaders test_dataloader() override {
    reach("DataModule::test_dataloader");
    return DataLoader(std::make_shared<FaultyDataset>(8), options());
  }
  Loaders predict_dataloader() override {
    reach("DataModule::predict_dataloader");
    return DataLoader(std::make_shared<FaultyDataset>(8), options());
  }
  Batch on_before_batch_transfer(Batch batch, int64_t) override {
    reach("DataModule::on_before_batch_transfer");
    return batch;
  }
  Batch on_after_batch_transfer(Batch batch, int64_t) override {
    reach("DataModule::on_after_batch_transfer");
    return batch;
  }
  [[nodiscard]] std::string about_dtypes() const override {
    reach("DataModule::about_dtypes");
    return "";
  }

 private:
  [[nodiscard]] DataLoaderOptions options() const { return {.batch_size = 4, .num_workers = num_workers_}; }
  int64_t num_workers_;
};

/// Takes everything and keeps nothing.
class FaultyLogger final : public Logger {
 public:
  explicit FaultyLogger(std::string folder) : folder_(std::move(folder)) {}
  // clang-format off
  LEVIN_POINT(Logger, start, (const std::string&, bool))
  LEVIN_POINT(Logger, start_again, (const std::string&, bool))
  LEVIN_POINT(Logger, own_folder, ())
  LEVIN_POINT(Logger, log_metrics, (const MetricList&, const LogPoint&))
  LEVIN_POINT(Logger, log_histogram, (const std::string&, const Histogram&, const LogPoint&))
  LEVIN_POINT(Logger, log_image, (const std::string&, const LogImage&, const LogPoint&))
  LEVIN_POINT(Logger, log_text, (const std::string&, const std::string&, const LogPoint&))
  LEVIN_POINT(Logger, log_table, (const std::string&, const LogTable&, const LogPoint&))
  LEVIN_POINT(Logger, log_artifact, (const std::string&, const std::string&, const LogPoint&))
  LEVIN_POINT(Logger, log_system, (const MetricList&, const LogPoint&))
  LEVIN_POINT(Logger, log_status, (const MetricList&, const LogPoint&))
  LEVIN_POINT(Logger, log_hyperparams, (const ConfigNode&))
  LEVIN_POINT(Logger, log_final_metrics, (const MetricList&, const LogPoint&))
  LEVIN_POINT(Logger, load_state_dict, (const State&))
  LEVIN_POINT(Logger, save, ())
  // clang-format on
  void finalize(const std::string& status) override {
    finalized.push_back(status);
    reach("Logger::finalize");
  }
  [[nodiscard]] uint32_t takes() const override {
    reach("Logger::takes");
    return 511;
  }
  [[nodiscard]] std::string log_dir() const override {
    reach("Logger::log_dir");
    return folder_;
  }
  [[nodiscard]] std::vector<std::string> earlier_log_dirs() const override {
    reach("Logger::earlier_log_dirs");
    return {};
  }
  [[nodiscard]] State state_dict() const override {
    reach("Logger::state_dict");
    return {};
  }
  [[nodiscard]] std::vector<std::string> files() const override {
    reach("Logger::files");
    return {};
  }

  std::vector<std::string> finalized = {};

 private:
  std::string folder_;
};

class FaultyPrecision final : public Precision {
 public:
  [[nodiscard]] std::string name() const override {
    reach("Precision::name");
    return "faulty";
  }
  [[nodiscard]] std::optional<at::ScalarType> dtype() const override {
    reach("Precision::dtype");
    return std::nullopt;
  }
  [[nodiscard]] std::shared_ptr<void> enter_forward(at::DeviceType) override {
    reach("Precision::enter_forward");
    return nullptr;
  }
  [[nodiscard]] GradScaler* scaler() override {
    reach("Precision::scaler");
    return nullptr;
  }
  [[nodiscard]] State state_dict() const override {
    reach("Precision::state_dict");
    return counted_state(3);
  }
  void load_state_dict(const State&) override { reach("Precision::load_state_dict"); }
};

class FaultyStrategy final : public Strategy {
 public:
  [[nodiscard]] std::string name() const override {
    reach("Strategy::name");
    return "faulty";
  }
  void use_sync_batchnorm() override { reach("Strategy::use_sync_batchnorm"); }
  void set_up(const ModuleTensors& module, bool training) override {
    reach("Strategy::set_up");
    Strategy::set_up(module, training);
  }
  void begin_evaluation() override { reach("Strategy::begin_evaluation"); }
  void end_evaluation() override { reach("Strategy::end_evaluation"); }
  void leave() override { reach("Strategy::leave"); }
  void tear_down() override {
    reach("Strategy::tear_down");
    Strategy::tear_down();
  }
};

class FaultyProfiler final : public Profiler {
 public:
  void begin(const ProfiledRun&) override { reach("Profiler::begin"); }
  void end() override { reach("Profiler::end"); }
  void start(const char*) override { reach("Profiler::start"); }
  void stop(const char*) override { reach("Profiler::stop"); }
  [[nodiscard]] std::string summary() const override {
    reach("Profiler::summary");
    return "";
  }
};

#undef LEVIN_POINT

}  // namespace levin::test
