// A callback made of functions, for C++ only.
//
//   .callbacks = {levin::LambdaCallback({.on_train_epoch_end = [](levin::Trainer& trainer, levin::LightningModule&) { …
//   }})}
#pragma once

#include <functional>
#include <utility>

#include "levin/trainer/callback.h"

namespace levin {

/// One function per hook of Callback, in its order; unset ones do nothing.
struct LambdaHooks {
  std::function<void(Trainer&, LightningModule&, Stage)> setup = nullptr;
  std::function<void(Trainer&, LightningModule&, Stage)> teardown = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_fit_start = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_fit_end = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_sanity_check_start = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_sanity_check_end = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_train_start = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_train_end = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_train_epoch_start = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_train_epoch_end = nullptr;
  std::function<void(Trainer&, LightningModule&, const Batch&, int64_t)> on_train_batch_start = nullptr;
  std::function<void(Trainer&, LightningModule&, const at::Tensor&, const Batch&, int64_t)> on_train_batch_end =
      nullptr;
  std::function<void(Trainer&, LightningModule&, Optimizer&)> on_before_zero_grad = nullptr;
  std::function<void(Trainer&, LightningModule&, const at::Tensor&)> on_before_backward = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_after_backward = nullptr;
  std::function<void(Trainer&, LightningModule&, Optimizer&)> on_before_optimizer_step = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_validation_start = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_validation_end = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_validation_epoch_start = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_validation_epoch_end = nullptr;
  std::function<void(Trainer&, LightningModule&, const Batch&, int64_t, int64_t)> on_validation_batch_start = nullptr;
  std::function<void(Trainer&, LightningModule&, const Batch&, int64_t, int64_t)> on_validation_batch_end = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_test_start = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_test_end = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_test_epoch_start = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_test_epoch_end = nullptr;
  std::function<void(Trainer&, LightningModule&, const Batch&, int64_t, int64_t)> on_test_batch_start = nullptr;
  std::function<void(Trainer&, LightningModule&, const Batch&, int64_t, int64_t)> on_test_batch_end = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_predict_start = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_predict_end = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_predict_epoch_start = nullptr;
  std::function<void(Trainer&, LightningModule&)> on_predict_epoch_end = nullptr;
  std::function<void(Trainer&, LightningModule&, const Batch&, int64_t, int64_t)> on_predict_batch_start = nullptr;
  std::function<void(Trainer&, LightningModule&, const at::Tensor&, const Batch&, int64_t, int64_t)>
      on_predict_batch_end = nullptr;
  std::function<void(Trainer&, LightningModule&, const std::exception&)> on_exception = nullptr;
  std::function<void(Trainer&, LightningModule&, State&)> on_save_checkpoint = nullptr;
  std::function<void(Trainer&, LightningModule&, const State&)> on_load_checkpoint = nullptr;
};

class LambdaCallback final : public Callback {
 public:
  explicit LambdaCallback(LambdaHooks hooks) : hooks_(std::move(hooks)) {}

  void setup(Trainer& a, LightningModule& b, Stage c) override {
    if (hooks_.setup) hooks_.setup(a, b, c);
  }
  void teardown(Trainer& a, LightningModule& b, Stage c) override {
    if (hooks_.teardown) hooks_.teardown(a, b, c);
  }
  void on_fit_start(Trainer& a, LightningModule& b) override {
    if (hooks_.on_fit_start) hooks_.on_fit_start(a, b);
  }
  void on_fit_end(Trainer& a, LightningModule& b) override {
    if (hooks_.on_fit_end) hooks_.on_fit_end(a, b);
  }
  void on_sanity_check_start(Trainer& a, LightningModule& b) override {
    if (hooks_.on_sanity_check_start) hooks_.on_sanity_check_start(a, b);
  }
  void on_sanity_check_end(Trainer& a, LightningModule& b) override {
    if (hooks_.on_sanity_check_end) hooks_.on_sanity_check_end(a, b);
  }
  void on_train_start(Trainer& a, LightningModule& b) override {
    if (hooks_.on_train_start) hooks_.on_train_start(a, b);
  }
  void on_train_end(Trainer& a, LightningModule& b) override {
    if (hooks_.on_train_end) hooks_.on_train_end(a, b);
  }
  void on_train_epoch_start(Trainer& a, LightningModule& b) override {
    if (hooks_.on_train_epoch_start) hooks_.on_train_epoch_start(a, b);
  }
  void on_train_epoch_end(Trainer& a, LightningModule& b) override {
    if (hooks_.on_train_epoch_end) hooks_.on_train_epoch_end(a, b);
  }
  void on_train_batch_start(Trainer& a, LightningModule& b, const Batch& c, int64_t d) override {
    if (hooks_.on_train_batch_start) hooks_.on_train_batch_start(a, b, c, d);
  }
  void on_train_batch_end(Trainer& a, LightningModule& b, const at::Tensor& c, const Batch& d, int64_t e) override {
    if (hooks_.on_train_batch_end) hooks_.on_train_batch_end(a, b, c, d, e);
  }
  void on_before_zero_grad(Trainer& a, LightningModule& b, Optimizer& c) override {
    if (hooks_.on_before_zero_grad) hooks_.on_before_zero_grad(a, b, c);
  }
  void on_before_backward(Trainer& a, LightningModule& b, const at::Tensor& c) override {
    if (hooks_.on_before_backward) hooks_.on_before_backward(a, b, c);
  }
  void on_after_backward(Trainer& a, LightningModule& b) override {
    if (hooks_.on_after_backward) hooks_.on_after_backward(a, b);
  }
  void on_before_optimizer_step(Trainer& a, LightningModule& b, Optimizer& c) override {
    if (hooks_.on_before_optimizer_step) hooks_.on_before_optimizer_step(a, b, c);
  }
  void on_validation_start(Trainer& a, LightningModule& b) override {
    if (hooks_.on_validation_start) hooks_.on_validation_start(a, b);
  }
  void on_validation_end(Trainer& a, LightningModule& b) override {
    if (hooks_.on_validation_end) hooks_.on_validation_end(a, b);
  }
  void on_validation_epoch_start(Trainer& a, LightningModule& b) override {
    if (hooks_.on_validation_epoch_start) hooks_.on_validation_epoch_start(a, b);
  }
  void on_validation_epoch_end(Trainer& a, LightningModule& b) override {
    if (hooks_.on_validation_epoch_end) hooks_.on_validation_epoch_end(a, b);
  }
  void on_validation_batch_start(Trainer& a, LightningModule& b, const Batch& c, int64_t d, int64_t e) override {
    if (hooks_.on_validation_batch_start) hooks_.on_validation_batch_start(a, b, c, d, e);
  }
  void on_validation_batch_end(Trainer& a, LightningModule& b, const Batch& c, int64_t d, int64_t e) override {
    if (hooks_.on_validation_batch_end) hooks_.on_validation_batch_end(a, b, c, d, e);
  }
  void on_test_start(Trainer& a, LightningModule& b) override {
    if (hooks_.on_test_start) hooks_.on_test_start(a, b);
  }
  void on_test_end(Trainer& a, LightningModule& b) override {
    if (hooks_.on_test_end) hooks_.on_test_end(a, b);
  }
  void on_test_epoch_start(Trainer& a, LightningModule& b) override {
    if (hooks_.on_test_epoch_start) hooks_.on_test_epoch_start(a, b);
  }
  void on_test_epoch_end(Trainer& a, LightningModule& b) override {
    if (hooks_.on_test_epoch_end) hooks_.on_test_epoch_end(a, b);
  }
  void on_test_batch_start(Trainer& a, LightningModule& b, const Batch& c, int64_t d, int64_t e) override {
    if (hooks_.on_test_batch_start) hooks_.on_test_batch_start(a, b, c, d, e);
  }
  void on_test_batch_end(Trainer& a, LightningModule& b, const Batch& c, int64_t d, int64_t e) override {
    if (hooks_.on_test_batch_end) hooks_.on_test_batch_end(a, b, c, d, e);
  }
  void on_predict_start(Trainer& a, LightningModule& b) override {
    if (hooks_.on_predict_start) hooks_.on_predict_start(a, b);
  }
  void on_predict_end(Trainer& a, LightningModule& b) override {
    if (hooks_.on_predict_end) hooks_.on_predict_end(a, b);
  }
  void on_predict_epoch_start(Trainer& a, LightningModule& b) override {
    if (hooks_.on_predict_epoch_start) hooks_.on_predict_epoch_start(a, b);
  }
  void on_predict_epoch_end(Trainer& a, LightningModule& b) override {
    if (hooks_.on_predict_epoch_end) hooks_.on_predict_epoch_end(a, b);
  }
  void on_predict_batch_start(Trainer& a, LightningModule& b, const Batch& c, int64_t d, int64_t e) override {
    if (hooks_.on_predict_batch_start) hooks_.on_predict_batch_start(a, b, c, d, e);
  }
  void on_predict_batch_end(Trainer& a, LightningModule& b, const at::Tensor& c, const Batch& d, int64_t e,
                            int64_t f) override {
    if (hooks_.on_predict_batch_end) hooks_.on_predict_batch_end(a, b, c, d, e, f);
  }
  void on_exception(Trainer& a, LightningModule& b, const std::exception& c) override {
    if (hooks_.on_exception) hooks_.on_exception(a, b, c);
  }
  void on_save_checkpoint(Trainer& a, LightningModule& b, State& c) override {
    if (hooks_.on_save_checkpoint) hooks_.on_save_checkpoint(a, b, c);
  }
  void on_load_checkpoint(Trainer& a, LightningModule& b, const State& c) override {
    if (hooks_.on_load_checkpoint) hooks_.on_load_checkpoint(a, b, c);
  }

 private:
  LambdaHooks hooks_;
};

}  // namespace levin
