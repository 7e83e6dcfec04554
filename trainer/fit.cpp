#include "levin/trainer/fit.h"

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/optim/adam.h"
#include "levin/trainer/trainer.h"

namespace levin::detail {

namespace {

using MakeOptimizer = std::function<OptimizerConfig(const std::vector<at::Tensor>& params)>;

/// The module of levin::fit. With dp each replica has a copy of the network and of a loss that is a module.
class FitModule final : public LightningModule {
 public:
  FitModule(FitNet net, FitLoss loss, MakeOptimizer make_optimizer)
      : net_(std::move(net)), loss_(std::move(loss)), make_optimizer_(std::move(make_optimizer)) {
    register_module("net", net_.module);
    if (loss_.module != nullptr) register_module("loss", loss_.module);
  }

  at::Tensor forward(const at::Tensor& input) override { return net_.forward(*net_.module, input); }

  at::Tensor training_step(const Batch& batch) override {
    at::Tensor loss = loss_of(batch);
    log("train_loss", loss, {.prog_bar = true});
    return loss;
  }
  void validation_step(const Batch& batch) override {
    log("val_loss", loss_of(batch), {.prog_bar = true, .sync_dist = true});
  }
  OptimizerConfig configure_optimizers() override { return make_optimizer_(parameters()); }

  [[nodiscard]] std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& device) const override {
    const auto loss = loss_.module == nullptr ? nullptr : loss_.module->clone(device);
    return std::make_shared<FitModule>(FitNet{net_.module->clone(device), net_.forward}, FitLoss{loss, loss_.forward},
                                       make_optimizer_);
  }

 private:
  at::Tensor loss_of(const Batch& batch) {
    if (batch.count() != 2) {
      throw Error("levin::fit: a batch must be (input, target), got " + count_of(batch.count(), "tensor") +
                  ". Use a data set of two tensors, or write a LightningModule for these batches.");
    }
    at::Tensor loss = loss_.forward(loss_.module.get(), forward(batch[0]), batch[1]);
    if (!loss.defined() || loss.numel() != 1) {
      throw Error("levin::fit: the loss must be a tensor of one element, got " +
                  (loss.defined() ? "the shape " + shape_text(loss.sizes()) : std::string("an undefined tensor")) +
                  ". Reduce it, e.g. with .mean().");
    }
    return loss;
  }

  FitNet net_;
  FitLoss loss_;
  MakeOptimizer make_optimizer_;
};

FitModule make_module(FitNet net, FitLoss loss, const FitOptions& options) {
  if (net.module == nullptr) throw Error("levin::fit: the network is null. Create it before it is trained.");
  if (options.lr && options.optimizer) {
    throw ConfigError(
        "FitOptions.lr: it is AdamW's, which FitOptions.optimizer replaces. Give the learning rate to that optimizer.");
  }
  const auto adamw = [lr = options.lr.value_or(1e-3)](const std::vector<at::Tensor>& params) {
    return OptimizerConfig(AdamW(params, {.lr = lr}));
  };
  return {std::move(net), std::move(loss), options.optimizer ? options.optimizer : adamw};
}

TrainerOptions trainer_options(FitOptions& options) {
  if (options.max_epochs) options.trainer.max_epochs = options.max_epochs;
  return std::move(options.trainer);
}

}  // namespace

void throw_null_loss() {
  throw Error("levin::fit: the loss is null. Create it before it is used.");
}

Metrics fit(FitNet net, FitLoss loss, Loaders train, FitOptions options) {
  FitModule module = make_module(std::move(net), std::move(loss), options);
  Trainer trainer(trainer_options(options));
  trainer.fit(module, std::move(train), std::move(options.val), options.ckpt_path);
  return trainer.callback_metrics();
}

Metrics fit(FitNet net, FitLoss loss, DataModule& data, FitOptions options) {
  if (!options.val.empty()) {
    throw ConfigError(
        "FitOptions.val: the data module has its own validation loaders (val_dataloader). Leave it empty.");
  }
  FitModule module = make_module(std::move(net), std::move(loss), options);
  Trainer trainer(trainer_options(options));
  trainer.fit(module, data, options.ckpt_path);
  return trainer.callback_metrics();
}

}  // namespace levin::detail
