// Levin's optimizers against torch::optim, and torch::optim through Levin's interface.
#include "levin/optim/torch_optimizer.h"

#include <torch/torch.h>

#include "levin/optim/step_schedulers.h"
#include "optim/support.h"

namespace levin::torch_optimizer_test {
namespace {

using testing::expect_error;
using testing::make_params;
using testing::train_step;

template <class Ours, class Theirs>
void expect_equal(Ours make_ours, Theirs make_theirs) {
  auto params = make_params();
  auto torch_params = make_params();
  auto ours = make_ours(params);
  TorchOptimizer theirs(make_theirs(torch_params));
  for (int i = 0; i < 10; ++i) {
    train_step(ours, params);
    train_step(theirs, torch_params);
    for (size_t k = 0; k < params.size(); ++k) {
      ASSERT_TRUE(at::allclose(params[k], torch_params[k], 1e-11, 1e-13)) << ours.name() << " step " << i;
    }
  }
}

using Params = std::vector<at::Tensor>;
namespace optim = torch::optim;

// By itself LibTorch updates a tensor twice that is listed twice; PyTorch's parameters() lists it once.
TEST(TorchOptimizer, UpdatesATensorThatIsListedTwiceOnce) {
  const at::Tensor weight = torch::zeros({1});
  weight.mutable_grad() = torch::ones({1});
  TorchOptimizer optimizer(optim::SGD(std::vector<at::Tensor>{weight, weight}, 0.1));
  optimizer.step();
  EXPECT_NEAR(weight.item<double>(), -0.1, 1e-7);
  EXPECT_EQ(optimizer.parameters().size(), 1U);
  std::vector<optim::OptimizerParamGroup> groups;
  for (int k = 0; k < 2; ++k) groups.emplace_back(std::vector<at::Tensor>{weight});
  expect_error<Error>([&] { TorchOptimizer refused(optim::SGD(groups, optim::SGDOptions(0.1))); },
                      {"torch.SGD: two parameter groups have a tensor in common", "to one group only"});
}

TEST(TorchParity, SGD) {
  expect_equal(
      [](const Params& p) { return SGD(p, {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}); },
      [](const Params& p) {
        return optim::SGD(p, optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.1).nesterov(true));
      });
}

TEST(TorchParity, Adam) {
  expect_equal(
      [](const Params& p) { return Adam(p, {.lr = 0.05, .weight_decay = 0.1, .amsgrad = true}); },
      [](const Params& p) { return optim::Adam(p, optim::AdamOptions(0.05).weight_decay(0.1).amsgrad(true)); });
}

TEST(TorchParity, AdamW) {
  expect_equal(
      [](const Params& p) {
        return AdamW(p, {.lr = 0.05, .betas = {0.8, 0.95}, .weight_decay = 0.2});
      },
      [](const Params& p) {
        return optim::AdamW(p, optim::AdamWOptions(0.05).betas({0.8, 0.95}).weight_decay(0.2));
      });
}

TEST(TorchParity, RMSprop) {
  expect_equal(
      [](const Params& p) { return RMSprop(p, {.lr = 0.02, .weight_decay = 0.1, .momentum = 0.5, .centered = true}); },
      [](const Params& p) {
        return optim::RMSprop(p, optim::RMSpropOptions(0.02).weight_decay(0.1).momentum(0.5).centered(true));
      });
}

TEST(TorchParity, Adagrad) {
  expect_equal(
      [](const Params& p) {
        return Adagrad(p, {.lr = 0.2, .lr_decay = 0.05, .weight_decay = 0.1, .initial_accumulator_value = 0.1});
      },
      [](const Params& p) {
        return optim::Adagrad(
            p, optim::AdagradOptions(0.2).lr_decay(0.05).weight_decay(0.1).initial_accumulator_value(0.1));
      });
}

TEST(TorchParity, LBFGS) {
  expect_equal([](const Params& p) { return LBFGS(p, {.lr = 0.5, .max_iter = 3, .history_size = 4}); },
               [](const Params& p) { return optim::LBFGS(p, optim::LBFGSOptions(0.5).max_iter(3).history_size(4)); });
}

template <class T, class Options>
void expect_continues(const Options& options) {
  auto params = make_params();
  TorchOptimizer optimizer(T(params, options));
  for (int i = 0; i < 3; ++i) train_step(optimizer, params);
  Params resumed_params;
  for (const auto& param : params) resumed_params.push_back(param.detach().clone().requires_grad_(true));
  TorchOptimizer resumed(T(resumed_params, options));
  State saved = optimizer.state_dict();
  for (auto& [name, tensor] : saved.tensors) tensor = tensor.clone();
  resumed.load_state_dict(saved);
  for (int i = 0; i < 4; ++i) {
    train_step(optimizer, params);
    train_step(resumed, resumed_params);
    ASSERT_TRUE(testing::bitwise_equal(params, resumed_params)) << optimizer.name() << " step " << i;
  }
}

TEST(TorchOptimizer, ResumesBitwiseIdentical) {
  expect_continues<optim::SGD>(optim::SGDOptions(0.05).momentum(0.9));
  expect_continues<optim::Adam>(optim::AdamOptions(0.05).amsgrad(true));
  expect_continues<optim::AdamW>(optim::AdamWOptions(0.05));
  expect_continues<optim::RMSprop>(optim::RMSpropOptions(0.02).momentum(0.5).centered(true));
  expect_continues<optim::Adagrad>(optim::AdagradOptions(0.2));
  expect_continues<optim::LBFGS>(optim::LBFGSOptions(0.5).max_iter(3).line_search_fn("strong_wolfe"));
}

// Three steps of one, three of the other from its state, against six of the first.
void expect_same_steps(Optimizer& first, const Params& params, Optimizer& second, const Params& continued) {
  for (int i = 0; i < 3; ++i) train_step(first, params);
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < params.size(); ++i) continued[i].copy_(params[i]);
  }
  State saved = first.state_dict();
  for (auto& [name, tensor] : saved.tensors) tensor = tensor.clone();
  second.load_state_dict(saved);
  for (int step = 0; step < 3; ++step) {
    train_step(first, params);
    train_step(second, continued);
    for (size_t i = 0; i < params.size(); ++i) {
      ASSERT_TRUE(at::allclose(params[i], continued[i], 1e-5, 1e-6)) << second.name() << " step " << step;
    }
  }
}

template <class Own, class Torch, class TorchOptions>
void expect_common_state(typename Own::Options options, TorchOptions torch_options) {
  for (const bool from_torch : {true, false}) {
    const auto params = make_params();
    const auto others = make_params();
    TorchOptimizer torch_optimizer(Torch(from_torch ? params : others, torch_options));
    Own own(from_torch ? others : params, options);
    if (from_torch) expect_same_steps(torch_optimizer, params, own, others);
    if (!from_torch) expect_same_steps(own, params, torch_optimizer, others);
  }
}

TEST(TorchOptimizer, ItsStateEqualsTheStateOfLevinsClass) {
  expect_common_state<SGD, optim::SGD>({.lr = 0.05, .momentum = 0.9}, optim::SGDOptions(0.05).momentum(0.9));
  expect_common_state<Adam, optim::Adam>({.lr = 0.05, .amsgrad = true}, optim::AdamOptions(0.05).amsgrad(true));
  expect_common_state<AdamW, optim::AdamW>({.lr = 0.05, .weight_decay = 0.1},
                                           optim::AdamWOptions(0.05).weight_decay(0.1));
  expect_common_state<RMSprop, optim::RMSprop>({.lr = 0.02, .momentum = 0.5, .centered = true},
                                               optim::RMSpropOptions(0.02).momentum(0.5).centered(true));
  expect_common_state<Adagrad, optim::Adagrad>({.lr = 0.2}, optim::AdagradOptions(0.2));
}

TEST(TorchOptimizer, IsMovedBySchedulersAndGroups) {
  auto params = make_params();
  TorchOptimizer optimizer(optim::Adam({params[0]}, optim::AdamOptions(0.1).betas({0.7, 0.99})));
  EXPECT_EQ(optimizer.name(), "torch.Adam");
  EXPECT_EQ(optimizer.param_groups()[0].momentum, 0.7);
  EXPECT_TRUE(optimizer.param_groups()[0].has_momentum);
  optimizer.add_param_group({.params = {params[1]}, .lr = 0.5, .weight_decay = 0.2});
  ExponentialLR scheduler(optimizer, {.gamma = 0.5});
  scheduler.step();
  optimizer.param_groups()[0].momentum = 0.6;
  train_step(optimizer, params);
  const auto& inner = optimizer.inner().param_groups();
  ASSERT_EQ(inner.size(), 2U);
  EXPECT_EQ(inner[0].options().get_lr(), 0.05);
  EXPECT_EQ(inner[1].options().get_lr(), 0.25);
  EXPECT_EQ(std::get<0>(static_cast<const optim::AdamOptions&>(inner[0].options()).betas()), 0.6);
  EXPECT_EQ(static_cast<const optim::AdamOptions&>(inner[1].options()).weight_decay(), 0.2);
}

TEST(TorchOptimizer, NamesWhatDoesNotMatch) {
  auto params = make_params();
  TorchOptimizer adam(optim::Adam(params, optim::AdamOptions(0.1)));
  train_step(adam, params);
  TorchOptimizer sgd(optim::SGD(make_params(), optim::SGDOptions(0.1)));
  expect_error<CheckpointError>([&] { sgd.load_state_dict(adam.state_dict()); },
                                {"torch.SGD", "belongs to torch.Adam"});
  State saved = adam.state_dict();
  saved.tensors["0.exp_avg"] = at::ones({7});
  expect_error<CheckpointError>([&] { adam.load_state_dict(saved); }, {"\"0.exp_avg\"", "shape"});
  saved = adam.state_dict();
  saved.tensors["0.momentum_buffer"] = at::ones({3, 4});
  expect_error<CheckpointError>([&] { adam.load_state_dict(saved); },
                                {"\"0.momentum_buffer\"", "not of this optimizer"});
}

// A user's own: sign descent with a state of its own class.
struct SignOptions : optim::OptimizerCloneableOptions<SignOptions> {
  double lr = 0.1;
  double get_lr() const override { return lr; }
  void set_lr(const double value) override { lr = value; }
};
struct SignState : optim::OptimizerCloneableParamState<SignState> {};
struct Sign : optim::Optimizer {
  explicit Sign(Params params) : Optimizer(std::move(params), std::make_unique<SignOptions>()) {}
  at::Tensor step(LossClosure closure = nullptr) override {
    at::Tensor loss = closure ? closure() : at::Tensor();
    const torch::NoGradGuard no_grad;
    for (auto& group : param_groups_) {
      for (auto& param : group.params()) {
        param.add_(param.grad().sign(), -group.options().get_lr());
        state_[param.unsafeGetTensorImpl()] = std::make_unique<SignState>();
      }
    }
    return loss;
  }
};

TEST(TorchOptimizer, RefusesALearningRateThatIsNotFinite) {
  expect_error<Error>([] { TorchOptimizer(torch::optim::SGD({torch::ones({1})}, HUGE_VAL)); },
                      {"torch.SGD: parameter group 0.lr: must be finite, got .inf."});
}

TEST(TorchOptimizer, TakesAUsersOwnButCannotSaveItsState) {
  auto params = make_params();
  TorchOptimizer optimizer{Sign(params)};
  EXPECT_EQ(optimizer.name(), "torch.Optimizer");
  StepLR scheduler(optimizer, {.step_size = 1});
  scheduler.step();
  const double before = params[2].item<double>();
  train_step(optimizer, params);
  EXPECT_NEAR(std::abs(params[2].item<double>() - before), 0.01, 1e-12);
  expect_error<Error>([&] { static_cast<void>(optimizer.state_dict()); },
                      {"TorchOptimizer", "cannot be saved", "state_dict()"});
}

}  // namespace
}  // namespace levin::torch_optimizer_test
