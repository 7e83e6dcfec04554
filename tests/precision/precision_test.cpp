// Each precision in a real fit: what the step sees, what the weights are, and that nothing leaks out of the step.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "levin/precision/default_dtype.h"
#include "levin/precision/mixed_precision.h"
#include "levin/trainer/plan/resolve_plan.h"
#include "support/tiny_module.h"

namespace levin::precision_test {
namespace {

using namespace test;

at::ScalarType default_dtype() {
  return c10::typeMetaToScalarType(c10::get_default_dtype());
}

/// Notes the number formats that its steps see.
class Probe : public TinyModule {
 public:
  at::Tensor training_step(const Batch& batch, int64_t) override {
    if (fail) throw std::runtime_error("broken step");
    autocast = at::autocast::is_autocast_enabled(at::kCPU);
    fresh = torch::zeros({1}).scalar_type();
    input = batch[0].scalar_type();
    const at::Tensor product = layer->forward(batch[0]);
    output = product.scalar_type();
    const at::Tensor loss = torch::mse_loss(product, batch[1].to(product.scalar_type()));
    loss_dtype = loss.scalar_type();
    return loss;
  }
  at::Tensor predict_step(const Batch& batch, int64_t batch_idx) override {
    fresh = torch::zeros({1}).scalar_type();
    return TinyModule::predict_step(batch, batch_idx);
  }
  void on_train_batch_end(const at::Tensor&, const Batch&, int64_t) override {
    default_outside = default_dtype();
    autocast_outside = at::autocast::is_autocast_enabled(at::kCPU);
  }

  bool fail = false, autocast = false, autocast_outside = true;
  at::ScalarType fresh{}, input{}, output{}, loss_dtype{}, default_outside{};
};

TrainerOptions with(const std::string& precision) {
  TrainerOptions options = quiet(1, {});
  options.precision = precision;
  return options;
}

std::shared_ptr<Precision> make_precision(const std::string& name) {
  add_builtins();
  return Component<Precision>(name).object("TrainerOptions.precision");
}

TEST(Precision, KnowsLightningsNames) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"32-true", "32-true"},     {"32", "32-true"},      {"64-true", "64-true"},       {"64", "64-true"},
      {"bf16-true", "bf16-true"}, {"16-true", "16-true"}, {"bf16-mixed", "bf16-mixed"}, {"bf16", "bf16-mixed"},
      {"16-mixed", "16-mixed"},   {"16", "16-mixed"}};
  for (const auto& [given, name] : names) EXPECT_EQ(make_precision(given)->name(), name);
}

TEST(Precision, RefusesUnknownNames) {
  const std::string error = error_of([] { (void)make_precision("32-tru"); });
  EXPECT_TRUE(has(error, "TrainerOptions.precision: unknown precision \"32-tru\"")) << error;
  EXPECT_TRUE(has(error, "Did you mean \"32-true\"?")) << error;
  EXPECT_TRUE(has(error, "Known: 16, 16-mixed, 16-true, 32, 32-true, 64, 64-true, bf16, bf16-mixed, bf16-true"))
      << error;
}

// A precision as a run file gives it: a name, a number, or a class with options.
TrainerOptions read(const ConfigNode& precision, Problems& problems) {
  add_builtins();
  ConfigNode trainer = ConfigNode::map();
  trainer.set("precision", precision);
  TrainerOptions options;
  (void)read_options(trainer, options, "trainer", problems);
  return options;
}

ConfigNode mixed(const char* dtype, const ConfigNode& scaler) {
  ConfigNode args = ConfigNode::map(), spec = ConfigNode::map();
  args.set("dtype", ConfigNode::scalar(dtype));
  args.set("scaler", scaler);
  spec.set("class_path", ConfigNode::scalar("MixedPrecision"));
  spec.set("init_args", args);
  return spec;
}

TEST(Precision, IsANameOrAClassInARunFile) {
  Problems problems;
  EXPECT_EQ(resolve_plan(read(ConfigNode::scalar("64"), problems)).precision, "64-true");
  EXPECT_EQ(resolve_plan(read(ConfigNode::scalar("16"), problems)).precision, "bf16-mixed");  // this is a CPU
  EXPECT_EQ(resolve_plan(read(ConfigNode(), problems)).precision, "32-true");
  ConfigNode scaler = ConfigNode::map();
  scaler.set("init_scale", ConfigNode::scalar("8"));
  TrainerOptions options = read(mixed("float16", scaler), problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(resolve_plan(options).precision, "16-mixed");
  const auto precision = options.precision.object("test");
  ASSERT_NE(precision->scaler(), nullptr);
  EXPECT_EQ(precision->scaler()->scale_value(), 8);
  EXPECT_EQ(precision->scaler()->options().growth_interval, 2000);
  EXPECT_EQ(read(mixed("float16", ConfigNode()), problems).precision.object("test")->scaler(), nullptr);
  EXPECT_EQ(read(mixed("bfloat16", scaler), problems).precision.object("test")->scaler(), nullptr);
  EXPECT_TRUE(problems.empty());
  scaler.set("init_scale", ConfigNode::scalar("-1"));
  (void)read(mixed("float16", scaler), problems);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_TRUE(has(problems.lines()[0], "trainer.precision.init_args.scaler.init_scale: must be > 0"))
      << problems.lines()[0];
}

TEST(Precision, MixedCastsAWeightAgainAfterItHasChanged) {
  MixedPrecision precision({.dtype = MixedDtype::bfloat16});
  const std::shared_ptr<void> forward = precision.enter_forward(at::kCPU);
  const at::Tensor weight = torch::ones({2, 2}).requires_grad_();
  EXPECT_EQ(torch::mm(weight, weight)[0][0].item<float>(), 2);
  {
    const at::NoGradGuard no_grad;
    weight.fill_(2);
  }
  EXPECT_EQ(torch::mm(weight, weight)[0][0].item<float>(), 8);
}

TEST(Precision, SingleChangesNothing) {
  Probe module;
  Trainer(with("32-true")).fit(module, tiny_loader(4));
  EXPECT_EQ(module.fresh, at::kFloat);
  EXPECT_EQ(module.output, at::kFloat);
  EXPECT_FALSE(module.autocast);
  EXPECT_EQ(make_precision("32")->dtype(), std::nullopt);
}

TEST(Precision, DoubleConvertsModuleInputsAndFreshTensors) {
  Probe module;
  Trainer(with("64-true")).fit(module, tiny_loader(4));
  EXPECT_EQ(module.layer->weight.scalar_type(), at::kDouble);
  EXPECT_EQ(module.input, at::kDouble);
  EXPECT_EQ(module.fresh, at::kDouble);
  EXPECT_EQ(module.loss_dtype, at::kDouble);
  EXPECT_EQ(module.default_outside, at::kFloat);
  EXPECT_EQ(default_dtype(), at::kFloat);
}

TEST(Precision, Bfloat16ConvertsModuleInputsAndFreshTensors) {
  Probe module;
  Trainer(with("bf16-true")).fit(module, tiny_loader(4));
  EXPECT_EQ(module.layer->weight.scalar_type(), at::kBFloat16);
  EXPECT_EQ(module.input, at::kBFloat16);
  EXPECT_EQ(module.fresh, at::kBFloat16);
  EXPECT_EQ(module.output, at::kBFloat16);
  EXPECT_EQ(default_dtype(), at::kFloat);
}

TEST(Precision, Float16ConvertsModuleInputsAndFreshTensors) {
  Probe module;
  Trainer(with("16-true")).fit(module, tiny_loader(4));
  EXPECT_EQ(module.layer->weight.scalar_type(), at::kHalf);
  EXPECT_EQ(module.input, at::kHalf);
  EXPECT_EQ(module.fresh, at::kHalf);
  EXPECT_EQ(module.output, at::kHalf);
  EXPECT_EQ(default_dtype(), at::kFloat);
}

TEST(Precision, EvaluationUsesItToo) {
  Probe module;
  const Predictions predictions = Trainer(with("64-true")).predict(module, tiny_loader(4));
  EXPECT_EQ(predictions[0][0].scalar_type(), at::kDouble);
  EXPECT_EQ(module.fresh, at::kDouble);
}

TEST(Precision, WholeNumbersStayWhole) {
  at::ScalarType seen{};
  struct LabelModule : TinyModule {
    explicit LabelModule(at::ScalarType& out) : seen(out) {}
    void validation_step(const Batch& batch, int64_t) override { seen = batch[1].scalar_type(); }
    at::ScalarType& seen;
  } labels(seen);
  auto loader = std::make_shared<TensorLoader>(std::vector<at::Tensor>{torch::ones({2, 4}), torch::arange(2)}, 2);
  Trainer(with("64-true")).validate(labels, loader);
  EXPECT_EQ(seen, at::kLong);
}

TEST(Precision, DefaultDtypeComesBackAfterAnException) {
  for (const std::string name : {"64-true", "bf16-true"}) {
    Probe module;
    module.fail = true;
    Trainer trainer(with(name));
    EXPECT_THROW(trainer.fit(module, tiny_loader(4)), std::runtime_error);
    EXPECT_EQ(default_dtype(), at::kFloat) << name;
    module.fail = false;
    trainer.fit(module, tiny_loader(4));  // and the trainer still works
    EXPECT_NE(module.fresh, at::kFloat) << name;
    EXPECT_EQ(default_dtype(), at::kFloat) << name;
  }
}

TEST(Precision, MixedMultipliesInBfloat16AndKeepsTheWeights) {
  Probe module;
  Trainer(with("bf16-mixed")).fit(module, tiny_loader(4));
  EXPECT_TRUE(module.autocast);
  EXPECT_EQ(module.input, at::kFloat);
  EXPECT_EQ(module.output, at::kBFloat16);
  EXPECT_EQ(module.fresh, at::kFloat);
  EXPECT_EQ(module.layer->weight.scalar_type(), at::kFloat);
  EXPECT_EQ(module.layer->weight.grad().scalar_type(), at::kFloat);
  EXPECT_FALSE(module.autocast_outside);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(Precision, AutocastIsOffAgainAfterAnException) {
  Probe module;
  module.fail = true;
  Trainer trainer(with("bf16-mixed"));
  EXPECT_THROW(trainer.fit(module, tiny_loader(4)), std::runtime_error);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(Precision, MixedComputesWithTheUpdatedWeights) {
  // Autocast caches the cast of a weight; a cache that outlives the step would make the second step use old weights.
  Probe module;
  module.make_optimizers = [](TinyModule& m) { return SGD(m.parameters(), {.lr = 100.0}); };
  std::vector<double> outputs;
  class Recorder : public Callback {
   public:
    explicit Recorder(std::vector<double>& out) : out_(out) {}
    void on_train_batch_end(Trainer&, LightningModule&, const at::Tensor& loss, const Batch&, int64_t) override {
      out_.push_back(loss.item().toDouble());
    }

   private:
    std::vector<double>& out_;
  };
  TrainerOptions options = with("bf16-mixed");
  options.callbacks = {Recorder(outputs)};
  options.overfit_batches = int64_t{1};
  options.max_epochs = 2;
  Trainer(options).fit(module, tiny_loader(4));
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_GT(outputs[1], outputs[0] * 10);  // a step this large overshoots
}

TEST(ForwardScope, Nests) {
  for (const std::string name : {"64-true", "bf16-mixed"}) {
    const auto precision = make_precision(name);
    {
      const ForwardScope outer(*precision, at::kCPU);
      { const ForwardScope inner(*precision, at::kCPU); }
      EXPECT_TRUE(default_dtype() == at::kDouble || at::autocast::is_autocast_enabled(at::kCPU)) << name;
    }
    EXPECT_EQ(default_dtype(), at::kFloat) << name;
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU)) << name;
  }
}

TEST(ForwardScope, PutsBackWhatTheCallerHadSet) {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  const auto precision = make_precision("bf16-mixed");
  {
    const ForwardScope scope(*precision, at::kCPU);
    EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kBFloat16);
  }
  EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kHalf);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
}

TEST(DefaultDtype, EndsInAnyOrder) {
  const auto before = c10::get_default_dtype();
  auto one = std::make_unique<DefaultDtype>(at::kDouble);
  auto other = std::make_unique<DefaultDtype>(at::kDouble);
  one.reset();  // like a pipeline's micro-batch that ends before another one
  EXPECT_EQ(c10::get_default_dtype(), caffe2::TypeMeta::Make<double>());
  other.reset();
  EXPECT_EQ(c10::get_default_dtype(), before);
}

}  // namespace
}  // namespace levin::precision_test
