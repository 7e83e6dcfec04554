// A run that is interrupted by an exception and resumed must end like an uninterrupted one: the module, the optimizer
// and the callback's state bitwise identical.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "callbacks/quiet_trainer.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/optim/adam.h"
#include "levin/optim/step_schedulers.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::test {

/// Linear(4, 6), BatchNorm1d(6), tanh as "backbone", then Linear(6, 1) as "head". The same weights every time.
class TwoPartModule : public TinyModule {
 public:
  TwoPartModule() {
    torch::manual_seed(7);
    unregister_module("layer");
    linear = torch::nn::Linear(4, 6);
    norm = torch::nn::BatchNorm1d(6);
    backbone->push_back("linear", linear);
    backbone->push_back("norm", norm);
    backbone->push_back("tanh", torch::nn::Tanh());
    register_module("backbone", backbone);
    head = register_module("head", torch::nn::Linear(6, 1));
  }
  at::Tensor forward(const at::Tensor& x) override { return head->forward(backbone->forward(x)); }
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    if (on_training_step) on_training_step(batch_idx);
    const at::Tensor result = torch::mse_loss(forward(batch[0]), batch[1]);
    log("train_loss", result);
    return result;
  }
  void validation_step(const Batch& batch, int64_t) override {
    log("val_loss", torch::mse_loss(forward(batch[0]), batch[1]));
  }

  torch::nn::Sequential backbone;
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear head{nullptr};
};

/// The module's tensors by name, as copies.
inline State module_tensors(const LightningModule& module) {
  State state;
  for (const auto& item : module.named_parameters()) state.tensors[item.key()] = item.value().detach().clone();
  for (const auto& item : module.named_buffers()) state.tensors[item.key()] = item.value().clone();
  return state;
}

inline void expect_same_bits(const State& one, const State& other, const std::string& what) {
  EXPECT_TRUE(one.values.same_as(other.values)) << what << ":\n" << to_yaml(one.values) << to_yaml(other.values);
  ASSERT_EQ(one.tensors.size(), other.tensors.size()) << what;
  for (const auto& [name, tensor] : one.tensors) {
    ASSERT_TRUE(other.tensors.contains(name)) << what << ": " << name;
    EXPECT_TRUE(tensor.equal(other.tensors.at(name))) << what << ": " << name;
  }
}

/// Saves a checkpoint after optimizer step `step` and lets the run fail there.
class SaveThenFail final : public Callback {
 public:
  SaveThenFail(std::string path, int64_t step) : path_(std::move(path)), step_(step) {}
  void on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t) override {
    if (trainer.global_step() == step_ && !trainer.is_last_batch()) cut(trainer);
  }
  void on_train_epoch_end(Trainer& trainer, LightningModule&) override {
    if (trainer.global_step() == step_) cut(trainer);
  }

 private:
  void cut(Trainer& trainer) {
    trainer.save_checkpoint(path_);
    throw Error("the power is gone");
  }
  std::string path_;
  int64_t step_;
};

struct ResumeTest {
  std::function<std::shared_ptr<Callback>()> callback;
  std::function<OptimizerConfig(TinyModule&)> optimizers;
  int64_t epochs = 6;  // of 6 batches
  std::function<void(TrainerOptions&)> change = [](TrainerOptions&) {};

  /// Cut after `step`: within an epoch, or at the end of one if it is a multiple of the steps of an epoch.
  void cut_after(int64_t step) const {
    SCOPED_TRACE("cut after step " + std::to_string(step));
    const TemporaryFolder folder;
    const std::string path = folder / "cut.ckpt";
    const auto [whole, whole_module] = run({}, "", "");
    static_cast<void>(run(std::make_shared<SaveThenFail>(path, step), "", "the power is gone"));
    ASSERT_TRUE(std::filesystem::exists(path));
    const auto [rest, rest_module] = run({}, path, "");
    EXPECT_EQ(rest->global_step(), whole->global_step());
    expect_same_bits(module_tensors(*rest_module), module_tensors(*whole_module), "module");
    ASSERT_EQ(rest->optimizers().size(), whole->optimizers().size());
    for (size_t i = 0; i < rest->optimizers().size(); ++i) {
      expect_same_bits(rest->optimizers()[i].optimizer().state_dict(), whole->optimizers()[i].optimizer().state_dict(),
                       "optimizer");
    }
    expect_same_bits(rest->callbacks()[0]->state_dict(), whole->callbacks()[0]->state_dict(), "callback");
  }

 private:
  using Outcome = std::pair<std::unique_ptr<Trainer>, std::shared_ptr<TwoPartModule>>;

  [[nodiscard]] Outcome run(const std::shared_ptr<Callback>& extra, const std::string& ckpt_path,
                            const std::string& error) const {
    auto module = std::make_shared<TwoPartModule>();
    module->make_optimizers = optimizers;
    Callbacks callbacks{callback()};
    if (extra) callbacks.push_back(extra);
    TrainerOptions options = quiet(epochs, std::move(callbacks));
    change(options);
    auto trainer = std::make_unique<Trainer>(options);
    const std::string seen = error_of([&] { trainer->fit(*module, tiny_loader(24), tiny_loader(16), ckpt_path); });
    EXPECT_TRUE(error.empty() ? seen.empty() : seen.ends_with(": " + error)) << seen;
    return {std::move(trainer), std::move(module)};
  }
};

inline void expect_near(const State& one, const State& other, double tolerance, const std::string& what) {
  ASSERT_EQ(one.tensors.size(), other.tensors.size()) << what;
  for (const auto& [name, tensor] : one.tensors) {
    EXPECT_LE((tensor - other.tensors.at(name)).abs().max().item<double>(), tolerance) << what << ": " << name;
  }
}

}  // namespace levin::test
