// Every class that a user can derive from, with every virtual function overridden to throw when a test asks for it: the
// user's side of the matrix of faults (docs/reliability.md). Those of data are in faulty_data.h.
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

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
#include "reliability/fault_points.h"
#include "reliability/faulty_data.h"

namespace levin::test {

// clang-format off
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

}  // namespace levin::test
