// Runs drawn from a seed: a model, an optimizer, clipping, accumulation, a schedule, a policy, a precision, and what a
// callback or the module does in the middle. Each trains, validates and predicts once with every step run eagerly and
// once with recorded steps, and both must end bitwise identical.
//
//   LEVIN_RANDOM_RUNS=FIRST:COUNT    the seeds to draw from, instead of the test's default
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/weight_averaging.h"
#include "levin/optim/adagrad.h"
#include "levin/optim/adam.h"
#include "levin/optim/cyclic_schedulers.h"
#include "levin/optim/sgd.h"
#include "levin/optim/step_schedulers.h"
#include "levin/precision/mixed_precision.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/step_output.h"
#include "levin/trainer/trainer.h"
#include "support/captured_console.h"
#include "support/tensor_loader.h"

namespace levin::test {

struct RandomPlan {
  enum Change { none, freeze, eval_layer, set_data, momentum, rate, decay, replace_gradient, skip_batch, kChanges };
  enum Kept { nothing, batch_before, target, target_view, hidden, loss, output, gradient, given_tensor, kKept };

  explicit RandomPlan(uint64_t from) : seed(from), engine(from) {
    hidden_sizes.resize(static_cast<size_t>(1 + pick(3)));
    for (int64_t& size : hidden_sizes) size = 3 + pick(14);
    norm = pick(3);
    dropout = pick(3) == 0 ? 0.25 : 0;
    activation = pick(3);
    optimizer = pick(6);
    lr = std::vector<double>{0.015625, 0.01, 0.003, 0.0007}[static_cast<size_t>(pick(4))];
    two_groups = pick(3) == 0;
    schedule = pick(5);
    accumulate = pick(2) == 0 ? 1 : 2 + pick(3);
    clip = pick(3);
    precision = pick(6);
    policy = pick(3);
    averages = pick(6) == 0;
    batch_size = 4 + pick(5);
    samples = batch_size * (10 + pick(10)) + (pick(3) == 0 ? 2 + pick(2) : 0);  // BatchNorm needs two samples
    epochs = 2 + pick(2);
    bad_sample = policy == 1 && pick(2) == 0 ? pick(samples) : -1;
    change = static_cast<Change>(pick(kChanges));
    first_change = accumulate * 3 + pick(samples / batch_size);
    change_length = 1 + pick(8);
    layer = pick(std::ssize(hidden_sizes));
    kept = pick(2) == 0 ? nothing : static_cast<Kept>(pick(kKept));
    keeps_in_evaluation = pick(4);
  }

  int64_t pick(int64_t count) { return static_cast<int64_t>(engine() % static_cast<uint64_t>(count)); }

  [[nodiscard]] std::string text() const {
    return "seed " + std::to_string(seed) + ": layers " + std::to_string(hidden_sizes.size()) + ", norm " +
           std::to_string(norm) + ", dropout " + std::to_string(dropout) + ", activation " +
           std::to_string(activation) + ", optimizer " + std::to_string(optimizer) + ", lr " + std::to_string(lr) +
           ", two groups " + std::to_string(static_cast<int>(two_groups)) + ", schedule " + std::to_string(schedule) +
           ", accumulate " + std::to_string(accumulate) + ", clip " + std::to_string(clip) + ", precision " +
           std::to_string(precision) + ", policy " + std::to_string(policy) + ", averages " +
           std::to_string(static_cast<int>(averages)) + ", batch size " + std::to_string(batch_size) + ", samples " +
           std::to_string(samples) + ", epochs " + std::to_string(epochs) + ", bad sample " +
           std::to_string(bad_sample) + ", change " + std::to_string(static_cast<int>(change)) + " at batch " +
           std::to_string(first_change) + " for " + std::to_string(change_length) + ", layer " + std::to_string(layer) +
           ", kept " + std::to_string(static_cast<int>(kept)) + ", in evaluation " +
           std::to_string(keeps_in_evaluation);
  }

  uint64_t seed;
  std::mt19937_64 engine;
  std::vector<int64_t> hidden_sizes;
  int64_t norm, activation, optimizer, schedule, accumulate, clip, precision, policy, batch_size, samples, epochs,
      bad_sample, first_change, change_length, layer, keeps_in_evaluation;
  double dropout, lr;
  bool two_groups, averages;
  Change change;
  Kept kept;
};

constexpr int64_t kFeatures = 6, kClasses = 3;

class RandomNet : public LightningModule {
 public:
  explicit RandomNet(const RandomPlan& plan) : plan_(plan) {
    int64_t inputs = kFeatures;
    for (size_t k = 0; k < plan.hidden_sizes.size(); ++k) {
      const std::string index = std::to_string(k);
      const int64_t size = plan.hidden_sizes[k];
      layers.push_back(register_module("layer" + index, torch::nn::Linear(inputs, size)));
      if (plan.norm == 1) batch_norms.push_back(register_module("norm" + index, torch::nn::BatchNorm1d(size)));
      if (plan.norm == 2) {
        layer_norms.push_back(
            register_module("norm" + index, torch::nn::LayerNorm(torch::nn::LayerNormOptions({size}))));
      }
      inputs = size;
    }
    head = register_module("head", torch::nn::Linear(inputs, kClasses));
    dropout = register_module("dropout", torch::nn::Dropout(plan.dropout));
    const torch::NoGradGuard no_grad;
    double phase = 0.1;
    for (auto& parameter : parameters()) {
      if (parameter.dim() < 2) continue;  // biases and norms begin as LibTorch sets them, but for what is random
      const auto numbers = torch::arange(parameter.numel(), torch::kDouble).mul_(0.7).add_(phase++).sin_().mul_(0.4);
      parameter.copy_(numbers.view_as(parameter));
    }
    for (auto& linear : layers) linear->bias.zero_();
    head->bias.zero_();
  }

  at::Tensor training_step(const Batch& batch, int64_t) override {
    ++calls;
    at::Tensor x = batch[0];
    if (plan_.kept == RandomPlan::batch_before && before.defined() && before.sizes() == x.sizes()) x = x + before * 0.5;
    if (plan_.kept == RandomPlan::given_tensor && given.defined()) x = x * given;
    const at::Tensor features = hidden_of(x), logits = head->forward(features);
    const at::Tensor loss = torch::nn::functional::cross_entropy(logits, batch[1]);
    average.mul_(0.75).add_(loss.detach().to(average.scalar_type()), 0.25);
    log("loss", loss, {.on_step = true, .on_epoch = true});
    step_output("logits", logits);
    if (plan_.kept == RandomPlan::batch_before) before = batch[0].detach();
    if (plan_.kept == RandomPlan::target) list.push_back(batch[1]);
    if (plan_.kept == RandomPlan::target_view) list.push_back(batch[1].detach());
    if (plan_.kept == RandomPlan::hidden) list.push_back(features.detach());
    if (plan_.kept == RandomPlan::loss) list.push_back(loss.detach());
    if (plan_.kept == RandomPlan::output) list.push_back(logits.detach());
    return loss;
  }
  void validation_step(const Batch& batch, int64_t) override {
    const at::Tensor logits = head->forward(hidden_of(batch[0]));
    const at::Tensor loss = torch::nn::functional::cross_entropy(logits, batch[1]);
    log("val_loss", loss);
    if (plan_.keeps_in_evaluation == 1) list.push_back(batch[1].detach());
    if (plan_.keeps_in_evaluation == 2) list.push_back(logits.detach());
  }
  at::Tensor predict_step(const Batch& batch, int64_t) override {
    at::Tensor logits = head->forward(hidden_of(batch[0]));
    if (plan_.keeps_in_evaluation == 1) list.push_back(batch[0]);
    if (plan_.keeps_in_evaluation == 3) list.push_back(logits);
    return logits;
  }

  void on_train_batch_start(const Batch&, int64_t) override {
    if (plan_.kept == RandomPlan::given_tensor) {
      given = torch::full({1}, 1 + 0.01 * static_cast<double>(batches % 7), average.options());
    }
    if (batches == plan_.first_change) change_something(true);
    if (batches == plan_.first_change + plan_.change_length) change_something(false);
  }
  void on_train_batch_end(const at::Tensor& loss, const Batch&, int64_t) override {
    ++batches;
    if (loss.defined()) list.push_back(loss);
    if (plan_.kept == RandomPlan::gradient && batches % 4 == 0) list.push_back(head->weight.grad());
    if (trainer().step_output().has("logits")) list.push_back(trainer().step_output()["logits"]);
  }
  void on_train_end() override {
    for (const auto& [name, tensor] : trainer().optimizers()[0].optimizer().state_dict().tensors) {
      list.push_back(tensor.detach().clone());
    }
  }

  OptimizerConfig configure_optimizers() override {
    const double decay = plan_.two_groups ? 0.01 : 0;
    std::vector<ParamGroup> groups(1);
    groups[0].params = parameters();
    if (plan_.two_groups) {
      groups.push_back({.params = {head->weight, head->bias}, .lr = plan_.lr / 2, .weight_decay = 0.02});
      std::erase_if(groups[0].params,
                    [&](const at::Tensor& t) { return t.is_same(head->weight) || t.is_same(head->bias); });
    }
    switch (plan_.optimizer) {
      case 0: return scheduled(SGD(std::move(groups), {.lr = plan_.lr, .weight_decay = decay}));
      case 1: return scheduled(SGD(std::move(groups), {.lr = plan_.lr, .momentum = 0.9, .nesterov = true}));
      case 2: return scheduled(Adam(std::move(groups), {.lr = plan_.lr, .amsgrad = true}));
      case 3: return scheduled(AdamW(std::move(groups), {.lr = plan_.lr, .weight_decay = decay}));
      case 4: return scheduled(Adagrad(std::move(groups), {.lr = plan_.lr, .lr_decay = 0.01}));
      default: return scheduled(RMSprop(std::move(groups), {.lr = plan_.lr, .momentum = 0.5}));
    }
  }

  std::vector<torch::nn::Linear> layers;
  std::vector<torch::nn::BatchNorm1d> batch_norms;
  std::vector<torch::nn::LayerNorm> layer_norms;
  torch::nn::Linear head{nullptr};
  torch::nn::Dropout dropout{nullptr};
  at::Tensor average{register_buffer("average", torch::zeros({1}))};
  at::Tensor before, given;
  std::vector<at::Tensor> list;  // kept from many batches, read at the end
  int64_t batches = 0, calls = 0;

 private:
  at::Tensor hidden_of(at::Tensor x) {
    for (size_t k = 0; k < layers.size(); ++k) {
      x = layers[k]->forward(x);
      if (!batch_norms.empty()) x = batch_norms[k]->forward(x);
      if (!layer_norms.empty()) x = layer_norms[k]->forward(x);
      x = plan_.activation == 0 ? x.relu() : plan_.activation == 1 ? torch::gelu(x) : x.tanh();
    }
    return dropout->forward(x);
  }

  template <class O>
  OptimizerConfig scheduled(O optimizer) {
    const LRSchedulerOptions each_step{.interval = Interval::step};
    const bool has_momentum = plan_.optimizer >= 1 && plan_.optimizer <= 3;
    if (plan_.schedule == 1) return {std::move(optimizer), StepLR({.step_size = 2, .gamma = 0.875}), each_step};
    if (plan_.schedule == 2) return {std::move(optimizer), StepLR({.step_size = 1, .gamma = 0.5})};
    if (plan_.schedule == 3) {
      return {std::move(optimizer),
              OneCycleLR({.max_lr = plan_.lr * 2, .total_steps = 200, .cycle_momentum = has_momentum}), each_step};
    }
    return {std::move(optimizer)};
  }

  void change_something(bool there) {
    torch::nn::Linear& layer = layers[static_cast<size_t>(plan_.layer)];
    auto& group = trainer().optimizers()[0].optimizer().param_groups()[0];
    switch (plan_.change) {
      case RandomPlan::freeze: layer->weight.set_requires_grad(!there); break;
      case RandomPlan::eval_layer:
        dropout->train(!there);
        if (!batch_norms.empty()) batch_norms[0]->train(!there);
        break;
      case RandomPlan::set_data: layer->weight.set_data(layer->weight.detach() * (there ? 0.5 : 1.5)); break;
      case RandomPlan::momentum:
        if (plan_.optimizer >= 1 && plan_.optimizer <= 3) group.momentum = there ? 0.75 : 0.875;
        break;
      case RandomPlan::rate: group.lr = group.lr * (there ? 0.5 : 1.25); break;
      case RandomPlan::decay: group.weight_decay = there ? 0.05 : 0.01; break;
      case RandomPlan::replace_gradient:
        if (layer->weight.grad().defined()) layer->weight.mutable_grad() = layer->weight.grad() * 3;
        break;
      case RandomPlan::skip_batch: trainer().skip_batch(); break;
      default: break;
    }
  }

  RandomPlan plan_;
};

inline std::shared_ptr<TensorLoader> random_data(const RandomPlan& plan, int64_t samples, int64_t bad = -1) {
  at::Tensor x =
      torch::arange(samples * kFeatures, torch::kDouble).mul_(0.37).add_(static_cast<double>(plan.seed % 97));
  x = x.sin_().to(torch::kFloat).view({samples, kFeatures});
  if (bad >= 0) x.select(0, bad).fill_(std::nan(""));
  return std::make_shared<TensorLoader>(std::vector<at::Tensor>{x, torch::arange(samples) % kClasses}, plan.batch_size);
}

struct RandomOutcome {
  std::vector<at::Tensor> tensors = {};  // parameters, buffers, predictions, kept tensors, the optimizer's state
  Metrics metrics = {};
  int64_t steps = 0, skipped = 0, calls = 0;
  std::string error = {}, printed = {};
};

inline RandomOutcome run_random(const RandomPlan& plan, bool recorded, const std::string& accelerator) {
  TrainerOptions options = quiet(plan.epochs, {});
  options.accelerator = accelerator;
  options.devices = int64_t{1};
  options.num_sanity_val_steps = 0;
  options.deterministic = "warn";
  options.record_steps = recorded;
  options.accumulate_grad_batches = plan.accumulate;
  if (plan.clip > 0) options.gradient_clip_val = 0.125;
  if (plan.clip == 2) options.gradient_clip_algorithm = ClipAlgorithm::value;
  options.nonfinite_loss = plan.policy == 0   ? NonFiniteLoss::stop
                           : plan.policy == 1 ? NonFiniteLoss::skip
                                              : NonFiniteLoss::ignore;
  const MixedPrecision scaled(
      {.dtype = MixedDtype::float16, .scaler = GradScalerOptions{.init_scale = 1 << 20, .growth_interval = 5}});
  if (plan.precision == 1) options.precision = "bf16-mixed";
  if (plan.precision == 2) options.precision = "bf16-true";
  if (plan.precision == 3) options.precision = "64-true";
  if (plan.precision == 4) options.precision = scaled;
  if (plan.averages) options.callbacks.push_back(EMAWeightAveraging({.decay = 0.75}));

  const CapturedConsole console;
  RandomOutcome outcome;
  Trainer trainer(options);
  seed_everything(3);
  RandomNet module(plan);
  Predictions predictions;
  outcome.error = error_of([&] {
    trainer.fit(module, random_data(plan, plan.samples, plan.bad_sample), random_data(plan, plan.batch_size * 7));
    outcome.metrics = trainer.callback_metrics();
    outcome.steps = trainer.global_step();
    outcome.skipped = trainer.skipped_steps();
    predictions = trainer.predict(module, random_data(plan, plan.batch_size * 9));
  });
  for (const auto& parameter : module.parameters()) outcome.tensors.push_back(parameter.detach().cpu());
  for (const auto& buffer : module.buffers()) outcome.tensors.push_back(buffer.cpu());
  for (const auto& of_loader : predictions) {
    for (const at::Tensor& prediction : of_loader) outcome.tensors.push_back(prediction.cpu());
  }
  for (const at::Tensor& kept : module.list) outcome.tensors.push_back(kept.defined() ? kept.cpu() : torch::zeros({0}));
  outcome.calls = module.calls;
  outcome.printed = console.text();
  return outcome;
}

/// Describes how the two differ; "" if they do not. Compares bytes, so a nan equals the same nan.
inline std::string random_difference(const RandomOutcome& one, const RandomOutcome& other) {
  if (one.error != other.error) return "errors \"" + one.error + "\" and \"" + other.error + "\"";
  if (one.steps != other.steps || one.skipped != other.skipped) return "the number of steps";
  if (one.tensors.size() != other.tensors.size()) {
    return "the number of tensors: " + std::to_string(one.tensors.size()) + " and " +
           std::to_string(other.tensors.size());
  }
  for (size_t i = 0; i < one.tensors.size(); ++i) {
    const at::Tensor left = one.tensors[i].contiguous(), right = other.tensors[i].contiguous();
    const bool are_same = left.sizes() == right.sizes() && left.scalar_type() == right.scalar_type() &&
                          std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
    if (!are_same) return "tensor " + std::to_string(i) + " of " + std::to_string(one.tensors.size());
  }
  if (one.metrics.size() != other.metrics.size()) return "the number of metrics";
  for (const auto& [name, value] : one.metrics) {
    const auto found = other.metrics.find(name);
    if (found == other.metrics.end()) return "metric " + name;
    if (std::memcmp(&value, &found->second, sizeof value) != 0) return "metric " + name;
  }
  return "";
}

/// Compares `count` runs from seed `first` on. `accelerator`: cpu or gpu.
inline void compare_random_runs(uint64_t first, uint64_t count, const std::string& accelerator) {
  if (const char* wanted = std::getenv("LEVIN_RANDOM_RUNS")) {
    char* rest = nullptr;
    first = std::strtoull(wanted, &rest, 10);
    ASSERT_EQ(*rest, ':') << "LEVIN_RANDOM_RUNS is FIRST:COUNT";
    count = std::strtoull(rest + 1, nullptr, 10);
  }
  int64_t eager_calls = 0, recorded_calls = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const RandomPlan plan(seed);
    const RandomOutcome eager = run_random(plan, false, accelerator), recorded = run_random(plan, true, accelerator);
    eager_calls += eager.calls;
    recorded_calls += recorded.calls;
    EXPECT_EQ(eager.error, "") << plan.text();
    const std::string difference = random_difference(eager, recorded);
    if (difference.empty()) continue;
    const bool repeats = random_difference(eager, run_random(plan, false, accelerator)).empty();
    ADD_FAILURE() << plan.text() << "\nthe recorded run differs: " << difference
                  << (repeats ? "" : "\n(two eager runs differ, too)") << "\n"
                  << recorded.printed;
  }
  std::printf("%llu random runs: training_step was called %lld times eagerly and %lld times with recordings\n",
              static_cast<unsigned long long>(count), static_cast<long long>(eager_calls),
              static_cast<long long>(recorded_calls));
  if (count >= 8) {
    EXPECT_LT(recorded_calls, eager_calls * 9 / 10) << "most runs replay steps";
  }
}

}  // namespace levin::test
