// levin::fit: training in one call.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/data/loading/dataloader.h"
#include "levin/optim/adam.h"
#include "levin/optim/step_schedulers.h"
#include "levin/trainer/fit.h"
#include "levin/trainer/random_state.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::one_call_fit_test {
namespace {

using namespace test;

torch::nn::Sequential make_net() {
  seed_everything(7);
  return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 3));
}

TensorDataset classes(int64_t samples) {
  const at::Tensor x = torch::arange(4 * samples).remainder(17).to(at::kFloat).reshape({samples, 4}) / 17;
  return {x, torch::arange(samples).remainder(3)};
}

DataLoader shuffled(int64_t samples) {
  return DataLoader(classes(samples), {.batch_size = 8, .shuffle = true, .num_workers = 0});
}

bool same_weights(const torch::nn::Module& one, const torch::nn::Module& other) {
  const auto a = one.parameters(), b = other.parameters();
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return x.equal(y); });
}

/// What levin::fit stands for.
struct Classifier : LightningModule {
  at::Tensor training_step(const Batch& batch) override {
    const at::Tensor result = loss(net->forward(batch[0]), batch[1]);
    log("train_loss", result);
    return result;
  }
  void validation_step(const Batch& batch) override { log("val_loss", loss(net->forward(batch[0]), batch[1])); }
  OptimizerConfig configure_optimizers() override { return AdamW(parameters(), {.lr = 0.01}); }

  torch::nn::Sequential net{register_module("net", make_net())};
  torch::nn::CrossEntropyLoss loss{register_module("loss", torch::nn::CrossEntropyLoss())};
};

/// A module of a user, without a holder.
struct Line : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x.matmul(weight); }
  at::Tensor weight = register_parameter("weight", torch::zeros({4, 1}));
};

at::Tensor squared_error(const at::Tensor& output, const at::Tensor& target) {
  return torch::mse_loss(output, target);
}

struct TinyData : DataModule {
  std::shared_ptr<Loader> train_dataloader() override { return tiny_loader(24); }
  Loaders val_dataloader() override { return tiny_loader(8); }
};

TEST(OneCallFit, TrainsBitwiseLikeTheEqualModuleAndTrainer) {
  Classifier module;
  Trainer trainer(quiet(3, {}));
  trainer.fit(module, shuffled(40), shuffled(16));

  auto net = make_net();
  const Metrics metrics =
      fit(net, torch::nn::CrossEntropyLoss(), shuffled(40), {.lr = 0.01, .val = shuffled(16), .trainer = quiet(3, {})});
  EXPECT_TRUE(same_weights(*net, *module.net));
  EXPECT_FALSE(same_weights(*net, *make_net()));
  EXPECT_EQ(metrics.at("val_loss"), trainer.callback_metrics().at("val_loss"));
  EXPECT_EQ(metrics.at("train_loss"), trainer.callback_metrics().at("train_loss"));
}

TEST(OneCallFit, TakesAPointerAFunctionAnOptimizerAndADataModule) {
  auto line = std::make_shared<Line>(), same = std::make_shared<Line>();
  const auto sgd = [](auto params) { return OptimizerConfig(SGD(params, {.lr = 0.1}), StepLR({.step_size = 1})); };
  const Metrics metrics = fit(line, squared_error, TinyData(), {.optimizer = sgd, .trainer = quiet(2, {})});
  EXPECT_TRUE(metrics.contains("val_loss"));
  EXPECT_NE(line->weight.abs().sum().item<double>(), 0);

  // The same update, written out.
  const auto x_and_y = tiny_loader(24);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    x_and_y->start(epoch, 0);
    for (Batch batch; x_and_y->next(batch);) {
      const at::Tensor loss = squared_error(same->forward(batch[0]), batch[1]);
      const at::Tensor gradient = torch::autograd::grad({loss}, {same->weight})[0];
      const torch::NoGradGuard no_grad;
      same->weight.sub_(gradient, epoch == 0 ? 0.1 : 0.01);
    }
  }
  EXPECT_TRUE(torch::allclose(line->weight, same->weight, 1e-5, 1e-7));
}

TEST(OneCallFit, TrainsTheParametersOfTheLoss) {
  struct ScaledError : torch::nn::Module {
    at::Tensor forward(const at::Tensor& output, const at::Tensor& target) {
      return (scale * (output - target)).square().mean();
    }
    at::Tensor scale = register_parameter("scale", torch::ones({}));
  };
  auto loss = std::make_shared<ScaledError>();
  fit(std::make_shared<Line>(), loss, tiny_loader(8), {.trainer = quiet(1, {})});
  EXPECT_NE(loss->scale.item<float>(), 1);
}

TEST(OneCallFit, TrainsReplicasOfANetworkThatCanBeCloned) {
  auto net = make_net(), same = make_net();
  TrainerOptions two = quiet(1, {});
  two.strategy = "dp";
  two.accelerator = "cpu";
  two.devices = 2;
  fit(net, torch::nn::CrossEntropyLoss(), shuffled(40), {.trainer = two});
  fit(same, torch::nn::CrossEntropyLoss(), shuffled(40), {.trainer = quiet(1, {})});
  for (size_t i = 0; i < net->parameters().size(); ++i) {
    EXPECT_TRUE(torch::allclose(net->parameters()[i], same->parameters()[i], 1e-4, 1e-5)) << i;
  }
}

TEST(OneCallFit, TakesTheNumberOfEpochsFromItsOwnOption) {
  auto net = make_net(), same = make_net();
  fit(net, torch::nn::CrossEntropyLoss(), shuffled(40), {.max_epochs = 2, .trainer = quiet(1, {})});
  fit(same, torch::nn::CrossEntropyLoss(), shuffled(40), {.trainer = quiet(2, {})});
  EXPECT_TRUE(same_weights(*net, *same));
}

TEST(OneCallFit, RefusesALossThatIsNull) {
  const auto refused = [](auto loss) {
    EXPECT_EQ(error_of<Error>([&] { fit(make_net(), loss, shuffled(40)); }),
              "levin::fit: the loss is null. Create it before it is used.");
  };
  refused(std::shared_ptr<torch::nn::CrossEntropyLossImpl>());
  refused(std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>());
  refused(static_cast<at::Tensor (*)(const at::Tensor&, const at::Tensor&)>(nullptr));
}

TEST(OneCallFit, ContinuesFromACheckpoint) {
  const TemporaryFolder folder;
  auto straight = make_net(), stopped = make_net();
  fit(straight, torch::nn::CrossEntropyLoss(), shuffled(40), {.trainer = quiet(2, {})});

  const auto saver = [&] { return ModelCheckpoint({.dirpath = folder / "saved", .filename = "a"}); };
  fit(stopped, torch::nn::CrossEntropyLoss(), shuffled(40), {.trainer = quiet(1, {saver()}, folder / "")});
  auto resumed = make_net();
  fit(resumed, torch::nn::CrossEntropyLoss(), shuffled(40),
      {.ckpt_path = folder / "saved/a.ckpt", .trainer = quiet(2, {})});
  EXPECT_TRUE(same_weights(*resumed, *straight));
  EXPECT_FALSE(same_weights(*resumed, *stopped));
}

// ---- mistakes -------------------------------------------------------------------------------------------------------

template <class Net, class Loss, class Data>
std::string error_of_fit(const Net& net, Loss loss, Data data, FitOptions options = {}) {
  options.trainer = quiet(1, {});
  return error_of([&] { fit(net, loss, std::move(data), std::move(options)); });
}

TEST(OneCallFit, NamesTheTensorsOfABatch) {
  const TensorDataset three{torch::zeros({4, 4}), torch::zeros({4, 1}), torch::ones(4)};
  const std::string error =
      error_of_fit(std::make_shared<Line>(), squared_error, DataLoader(three, {.batch_size = 2, .num_workers = 0}));
  EXPECT_TRUE(holds(error, {"levin::fit: a batch must be (input, target), got 3 tensors", "write a LightningModule"}));
}

TEST(OneCallFit, NamesTheShapeOfALossThatIsNotANumber) {
  const auto each = [](const at::Tensor& output, const at::Tensor& target) { return (output - target).abs(); };
  const std::string error = error_of_fit(std::make_shared<Line>(), each, tiny_loader(8));
  EXPECT_TRUE(holds(error, {"levin::fit: the loss must be a tensor of one element, got the shape (4, 1)", ".mean()"}));
  const auto nothing = [](const at::Tensor&, const at::Tensor&) { return at::Tensor(); };
  EXPECT_TRUE(holds(error_of_fit(std::make_shared<Line>(), nothing, tiny_loader(8)), {"got an undefined tensor"}));
}

TEST(OneCallFit, RefusesOptionsThatExcludeEachOther) {
  const auto line = std::make_shared<Line>();
  const auto sgd = [](auto params) { return SGD(params, {.lr = 0.1}); };
  EXPECT_TRUE(holds(error_of_fit(line, squared_error, tiny_loader(8), {.lr = 0.1, .optimizer = sgd}),
                    {"FitOptions.lr: it is AdamW's", "Give the learning rate to that optimizer"}));
  EXPECT_TRUE(holds(error_of_fit(line, squared_error, TinyData(), {.val = tiny_loader(8)}),
                    {"FitOptions.val: the data module has its own", "Leave it empty"}));
  EXPECT_TRUE(holds(error_of_fit(std::shared_ptr<Line>(), squared_error, tiny_loader(8)),
                    {"levin::fit: the network is null", "Create it"}));
}

}  // namespace
}  // namespace levin::one_call_fit_test
