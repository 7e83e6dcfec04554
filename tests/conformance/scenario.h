// A recorded run of PyTorch Lightning, read from JSON and built from Levin's parts: README.md explains each key.
#pragma once

#include <torch/nn/modules/linear.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "levin/core/options/registry.h"
#include "levin/data/data_module.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"

namespace conformance {

using Json = nlohmann::json;

/// What a phase did, in the words of the recorded files.
struct Trace {
  std::vector<std::string> hooks;
  std::vector<double> losses, lrs;
  std::vector<int64_t> global_step_after_batch;
  Json validations_at = Json::array();
};

/// JSON as the tree that options are read from.
[[nodiscard]] levin::ConfigNode to_config(const Json& json);

/// Six digits, as the recorded numbers have.
[[nodiscard]] double rounded(double value);

/// The recorded files write Infinity and NaN as Python's json does; nlohmann/json knows neither, so they are strings
/// inside, and quotes come off again on the way out.
[[nodiscard]] Json parse_python_json(const std::string& text);
[[nodiscard]] std::string python_json_text(const Json& json);
[[nodiscard]] Json number(double value);
[[nodiscard]] double to_double(const Json& value);

/// Linear(in_features, 1) with the scenario's optimizer, scheduler and log calls.
class ScenarioModule : public levin::LightningModule {
 public:
  ScenarioModule(const Json& scenario, Trace& trace);

  torch::nn::Linear linear{nullptr};

  at::Tensor training_step(const levin::Batch& batch, int64_t batch_idx) override;
  void validation_step(const levin::Batch& batch, int64_t batch_idx) override;
  void test_step(const levin::Batch& batch, int64_t batch_idx) override;
  at::Tensor predict_step(const levin::Batch& batch, int64_t batch_idx) override;
  levin::OptimizerConfig configure_optimizers() override;

  levin::Callbacks configure_callbacks() override;
  void configure_model() override;
  void prepare_data() override;
  void setup(levin::Stage) override;
  void teardown(levin::Stage) override;
  void on_fit_start() override;
  void on_fit_end() override;
  void on_train_start() override;
  void on_train_end() override;
  void on_train_epoch_start() override;
  void on_train_epoch_end() override;
  void on_train_batch_start(const levin::Batch&, int64_t) override;
  void on_train_batch_end(const at::Tensor&, const levin::Batch&, int64_t) override;
  void on_before_zero_grad(levin::Optimizer&) override;
  void on_before_backward(const at::Tensor&) override;
  void on_after_backward() override;
  void on_before_optimizer_step(levin::Optimizer&) override;
  void on_validation_start() override;
  void on_validation_end() override;
  void on_validation_epoch_start() override;
  void on_validation_epoch_end() override;
  void on_validation_batch_start(const levin::Batch&, int64_t, int64_t) override;
  void on_validation_batch_end(const levin::Batch&, int64_t, int64_t) override;
  void on_test_start() override;
  void on_test_end() override;
  void on_test_epoch_start() override;
  void on_test_epoch_end() override;
  void on_test_batch_start(const levin::Batch&, int64_t, int64_t) override;
  void on_test_batch_end(const levin::Batch&, int64_t, int64_t) override;
  void on_predict_start() override;
  void on_predict_end() override;
  void on_predict_epoch_start() override;
  void on_predict_epoch_end() override;
  void on_predict_batch_start(const levin::Batch&, int64_t, int64_t) override;
  void on_predict_batch_end(const at::Tensor&, const levin::Batch&, int64_t, int64_t) override;
  void on_save_checkpoint(levin::State&) override;
  void on_load_checkpoint(const levin::State&) override;

 private:
  at::Tensor loss_of(const levin::Batch& batch);
  void log_all(const std::string& stage, const at::Tensor& loss, int64_t batch_idx);
  void note(const std::string& hook);
  void note_and_act(const std::string& hook);
  void stop_in(const std::string& hook);
  void step_by_hand();

  Json options_;
  Trace& trace_;
};

/// The recorded callback: notes every hook.
class TracingCallback final : public levin::Callback {
 public:
  explicit TracingCallback(Trace& trace) : trace_(trace) {}

  using M = levin::LightningModule;
  using T = levin::Trainer;
  using B = levin::Batch;
  void setup(T&, M&, levin::Stage) override { note("setup"); }
  void teardown(T&, M&, levin::Stage) override { note("teardown"); }
  void on_fit_start(T&, M&) override { note("on_fit_start"); }
  void on_fit_end(T&, M&) override { note("on_fit_end"); }
  void on_sanity_check_start(T&, M&) override { note("on_sanity_check_start"); }
  void on_sanity_check_end(T&, M&) override { note("on_sanity_check_end"); }
  void on_train_start(T&, M&) override { note("on_train_start"); }
  void on_train_end(T&, M&) override { note("on_train_end"); }
  void on_train_epoch_start(T&, M&) override { note("on_train_epoch_start"); }
  void on_train_epoch_end(T&, M&) override { note("on_train_epoch_end"); }
  void on_train_batch_start(T&, M&, const B&, int64_t) override { note("on_train_batch_start"); }
  void on_train_batch_end(T&, M&, const at::Tensor&, const B&, int64_t) override { note("on_train_batch_end"); }
  void on_before_zero_grad(T&, M&, levin::Optimizer&) override { note("on_before_zero_grad"); }
  void on_before_backward(T&, M&, const at::Tensor&) override { note("on_before_backward"); }
  void on_after_backward(T&, M&) override { note("on_after_backward"); }
  void on_before_optimizer_step(T&, M&, levin::Optimizer&) override { note("on_before_optimizer_step"); }
  void on_validation_start(T&, M&) override { note("on_validation_start"); }
  void on_validation_end(T&, M&) override { note("on_validation_end"); }
  void on_validation_epoch_start(T&, M&) override { note("on_validation_epoch_start"); }
  void on_validation_epoch_end(T&, M&) override { note("on_validation_epoch_end"); }
  void on_validation_batch_start(T&, M&, const B&, int64_t, int64_t) override { note("on_validation_batch_start"); }
  void on_validation_batch_end(T&, M&, const B&, int64_t, int64_t) override { note("on_validation_batch_end"); }
  void on_test_start(T&, M&) override { note("on_test_start"); }
  void on_test_end(T&, M&) override { note("on_test_end"); }
  void on_test_epoch_start(T&, M&) override { note("on_test_epoch_start"); }
  void on_test_epoch_end(T&, M&) override { note("on_test_epoch_end"); }
  void on_test_batch_start(T&, M&, const B&, int64_t, int64_t) override { note("on_test_batch_start"); }
  void on_test_batch_end(T&, M&, const B&, int64_t, int64_t) override { note("on_test_batch_end"); }
  void on_predict_start(T&, M&) override { note("on_predict_start"); }
  void on_predict_end(T&, M&) override { note("on_predict_end"); }
  void on_predict_epoch_start(T&, M&) override { note("on_predict_epoch_start"); }
  void on_predict_epoch_end(T&, M&) override { note("on_predict_epoch_end"); }
  void on_predict_batch_start(T&, M&, const B&, int64_t, int64_t) override { note("on_predict_batch_start"); }
  void on_predict_batch_end(T&, M&, const at::Tensor&, const B&, int64_t, int64_t) override {
    note("on_predict_batch_end");
  }
  void on_exception(T&, M&, const std::exception&) override { note("on_exception"); }
  void on_save_checkpoint(T&, M&, levin::State&) override { note("on_save_checkpoint"); }
  void on_load_checkpoint(T&, M&, const levin::State&) override { note("on_load_checkpoint"); }

 private:
  void note(const std::string& hook) { trace_.hooks.push_back("callback." + hook); }
  Trace& trace_;
};

/// The scenario's data: x[i][j] = ((7i + 3j) % 17) / 17 - 0.5, y[i] = (i % 5) / 5, never shuffled. Several training
/// loaders are one CombinedLoader, whose batches hold x and y of each.
[[nodiscard]] std::unique_ptr<levin::DataModule> make_data_module(const Json& scenario, Trace& trace);

}  // namespace conformance
