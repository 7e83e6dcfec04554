// A registered model for tests of inference: layers that behave differently in training and evaluation.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/inference/load_for_inference.h"
#include "levin/levin.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::test {

struct ServedNetOptions {
  int64_t width = 8;
  double dropout = 0.5;

  static auto fields() {
    return levin::fields(field("width", &ServedNetOptions::width, "of the hidden layer").min(1),
                         field("dropout", &ServedNetOptions::dropout, "share dropped").min(0.0).below(1.0));
  }
};

/// (batch, 4) to (batch, 3) logits.
class ServedNet : public LightningModule {
 public:
  using Options = ServedNetOptions;
  explicit ServedNet(ServedNetOptions options = {}) : options_(options) {
    net->push_back(torch::nn::Linear(4, options.width));
    net->push_back(torch::nn::BatchNorm1d(options.width));
    net->push_back(torch::nn::Tanh());
    net->push_back(torch::nn::Dropout(options.dropout));
    net->push_back(torch::nn::Linear(options.width, 3));
    register_module("net", net);
    save_hyperparameters(options);
  }

  at::Tensor forward(const at::Tensor& x) override { return net->forward(x); }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor loss = loss_of(batch);
    log("train_loss", loss);
    return loss;
  }
  at::Tensor predict_step(const Batch& batch, int64_t) override {
    return forward(batch[0]) + torch::full({3}, 1.0 / 3);  // of the default dtype, which 64-true and its like change
  }
  OptimizerConfig configure_optimizers() override { return AdamW(parameters(), {.lr = 0.01}); }

  [[nodiscard]] const ServedNetOptions& options() const { return options_; }
  torch::nn::Sequential net;

 private:
  at::Tensor loss_of(const Batch& batch) {
    return torch::mse_loss(forward(batch[0]).sum(1, /*keepdim=*/true), batch[1]);
  }

  ServedNetOptions options_;
};

/// Registers ServedNet, once, and Levin's own classes.
inline void register_served_net() {
  add_builtins();
  auto& registry = Registry<LightningModule>::instance();
  if (registry.find("ServedNet") == nullptr) registry.add<ServedNet>("ServedNet", "a model of tests");
}

inline TrainerOptions quiet_run(const TemporaryFolder& folder, int64_t epochs = 2) {
  TrainerOptions options;
  options.max_epochs = epochs;
  options.num_threads = at::get_num_threads();
  options.enable_progress_bar = options.enable_model_summary = false;
  options.default_root_dir = folder.path();
  return options;
}

/// (samples, 4), the same each time.
inline at::Tensor some_rows(int64_t samples, uint64_t seed = 3) {
  const RandomState outer;
  torch::manual_seed(seed);
  return torch::randn({samples, 4});
}

/// Made by its registered name.
inline std::shared_ptr<LightningModule> make_net(int64_t width = 8) {
  test::register_served_net();
  ConfigNode args = ConfigNode::map();
  args.set("width", ConfigNode::scalar(std::to_string(width)));
  return Registry<LightningModule>::instance().make({"ServedNet", args, {}}, "model");
}

/// Calls the module directly: evaluation mode, no gradients.
inline at::Tensor by_hand(LightningModule& module, const at::Tensor& x) {
  module.eval();
  const torch::NoGradGuard no_grad;
  return module.predict_step(Batch{x}, 0);
}

/// The error that loading ends with.
inline std::string load_error(const std::string& path, const InferenceOptions& options = {}) {
  return error_of<Error>([&] { (void)load_for_inference(path, options); });
}

/// A checkpoint of the net after a short training, with `edit` applied to its state.
inline std::string write_net(const TemporaryFolder& folder, LightningModule& net,
                             const std::function<void(State&)>& edit = {}) {
  Trainer trainer(quiet_run(folder, 1));
  trainer.fit(net, tiny_loader(8));
  trainer.save_checkpoint(folder / "whole.ckpt");
  State state = read_checkpoint(folder / "whole.ckpt");
  if (edit) edit(state);
  (void)write_checkpoint(folder / "a.ckpt", state);
  return folder / "a.ckpt";
}

}  // namespace levin::test
