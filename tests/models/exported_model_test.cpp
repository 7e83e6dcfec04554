#include "levin/models/exported_model.h"

#include <map>
#include <set>

#include "callbacks/quiet_trainer.h"
#include "levin/core/options/error.h"
#include "levin/levin.h"
#include "levin/models/exported/exported_program.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"
#include "support/tensor_loader.h"

namespace levin::exported_model_test {
namespace {

using test::error_of;
using test::holds;

const std::string kMlp = test::source_dir() + "/tests/models/data/mlp.pt2";

Batch batch() {
  return {at::ones({3, 4}), at::zeros({3}, at::kLong)};
}

// The Error of one training step.
std::string step_error(const ExportedModuleOptions& options, const Batch& of) {
  ExportedModule model(options);
  return error_of<Error>([&] { (void)model.training_step(of, 0); });
}

TEST(ExportedModule, ParametersAndBuffersHaveTheirNamesInPython) {
  const ExportedModule model({.path = kMlp});
  EXPECT_TRUE(model.named_parameters().contains("first.weight"));
  EXPECT_TRUE(model.named_buffers().contains("norm.running_mean"));
  EXPECT_EQ(model.program().input_names(), std::vector<std::string>{"x"});
}

TEST(ExportedModule, PredictsTheOutputWithAndWithoutATargetInTheBatch) {
  ExportedModule model({.path = kMlp});
  model.eval();
  const at::Tensor with = model.predict_step(batch(), 0);
  EXPECT_EQ(with.sizes(), (std::vector<int64_t>{3, 2}));
  EXPECT_TRUE(at::equal(with, model.predict_step({batch()[0]}, 0)));
}

TEST(ExportedModule, EvaluationReachesOperatorsOutsideOfSubmodules) {
  ExportedModule model({.path = kMlp});
  model.train();
  EXPECT_TRUE(model.program().is_training());
  model.eval();
  EXPECT_FALSE(model.program().is_training());
  EXPECT_FALSE(model.named_modules("", false)["drop"]->is_training());
}

TEST(ExportedModule, InputsAndTargetMayBeChosen) {
  ExportedModule model({.path = kMlp, .inputs = {1}, .target = 0});
  model.eval();
  const Batch turned = {batch()[1], batch()[0]};
  ExportedModule plain({.path = kMlp});
  plain.eval();
  EXPECT_TRUE(at::equal(model.predict_step(turned, 0), plain.predict_step(batch(), 0)));
}

TEST(ExportedModule, AnOutputThatEvaluationLacksIsAnErrorThere) {
  ExportedModule model({.path = test::source_dir() + "/tests/models/data/modes.pt2", .output = 1});
  EXPECT_EQ(model.predict_step({at::ones({3, 4})}, 0).size(1), 2);
  model.eval();
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      (void)model.predict_step({at::ones({3, 4})}, 0);
                    }),
                    {"output is 1, and in evaluation", "modes.pt2 has 1 output", "in both modes"}));
}

// The loss by its definition, in float64.
double defined_loss(ExportedLoss loss, const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor x = output.to(at::kDouble), y = target.to(at::kDouble);
  if (loss == ExportedLoss::mse_loss) return (x - y).square().mean().item<double>();
  if (loss == ExportedLoss::l1_loss) return (x - y).abs().mean().item<double>();
  const at::Tensor p = x.sigmoid();
  return -(y * p.log() + (1 - y) * (1 - p).log()).mean().item<double>();
}

TEST(ExportedModule, LossesOf16BitOutputsCompareThemWithTheUncastTargets) {
  const at::Tensor x = at::arange(12, at::kFloat).view({3, 4}) / 5;
  for (const auto loss : {ExportedLoss::mse_loss, ExportedLoss::l1_loss, ExportedLoss::bce_with_logits}) {
    // bfloat16 has no number between 1000 and 1004.
    const at::Tensor target =
        loss == ExportedLoss::bce_with_logits ? at::full({3, 2}, 0.1234) : at::full({3, 2}, 1001.7);
    ExportedModule model({.path = kMlp, .loss = loss});
    model.to(at::kBFloat16);
    model.eval();
    const at::Tensor output = model.predict_step({x.to(at::kBFloat16)}, 0);
    ASSERT_EQ(output.scalar_type(), at::kBFloat16);
    const at::Tensor got = model.training_step({x.to(at::kBFloat16), target}, 0);
    const double wanted = defined_loss(loss, output, target);
    EXPECT_EQ(got.scalar_type(), at::kFloat);
    EXPECT_NEAR(got.item<double>(), wanted, 1e-5 * wanted) << enum_name(loss);
  }
}

// A mixed precision computes the output in bfloat16 and leaves the targets unchanged.
TEST(ExportedModule, AMixedPrecisionReportsTheLossOfTheUncastTargets) {
  const test::TemporaryFolder folder;
  TrainerOptions options = test::quiet(1, {}, folder.path());
  options.precision = "bf16-mixed";
  Trainer trainer(options);
  ExportedModule model({.path = kMlp, .loss = ExportedLoss::mse_loss});
  const at::Tensor x = at::arange(12, at::kFloat).view({3, 4}) / 5, y = at::full({3, 2}, 1001.7);
  const auto loader = [&](std::vector<at::Tensor> tensors) {
    return Loaders{std::make_shared<test::TensorLoader>(std::move(tensors), 3)};
  };
  const at::Tensor output = trainer.predict(model, loader({x}))[0][0];
  ASSERT_EQ(output.scalar_type(), at::kBFloat16);
  const double wanted = defined_loss(ExportedLoss::mse_loss, output, y);
  EXPECT_NEAR(trainer.validate(model, loader({x, y}))[0].at("val_loss"), wanted, 1e-5 * wanted);
}

// LibTorch would make running_var nan, and the run would end well.
TEST(ExportedModule, ALastBatchOfOneSampleEndsAFitWithTheRemedy) {
  const test::TemporaryFolder folder;
  ExportedModule model({.path = kMlp});
  const auto loader =
      std::make_shared<test::TensorLoader>(std::vector<at::Tensor>{at::rand({5, 4}), at::zeros({5}, at::kLong)}, 2);
  EXPECT_TRUE(holds(error_of([&] { Trainer(test::quiet(1, {}, folder.path())).fit(model, loader); }),
                    {"training_step", "batch 2", "Expected more than 1 value per channel when training",
                     "Leave out an epoch's last batch where it is too small (drop_last: true)"}));
}

// Copies of parameters and buffers, by name.
std::map<std::string, at::Tensor> tensors_of(const ExportedModule& model) {
  std::map<std::string, at::Tensor> found;
  for (const auto& item : model.named_parameters()) found[item.key()] = item.value().detach().clone();
  for (const auto& item : model.named_buffers()) found[item.key()] = item.value().clone();
  return found;
}

// Returns the names of the tensors that a fit changes in which `backbone` is frozen throughout.
std::set<std::string> changed_by_frozen_fit(const std::string& backbone, bool train_bn) {
  const test::TemporaryFolder folder;
  ExportedModule model({.path = kMlp, .lr = 0.1});
  const auto before = tensors_of(model);
  const auto loader =
      std::make_shared<test::TensorLoader>(std::vector<at::Tensor>{at::rand({6, 4}), at::zeros({6}, at::kLong)}, 3);
  BackboneFinetuning finetuning({.unfreeze_backbone_at_epoch = 9, .train_bn = train_bn, .backbone = backbone});
  Trainer(test::quiet(2, {std::move(finetuning)}, folder.path())).fit(model, loader, loader);
  std::set<std::string> changed;
  for (const auto& [name, tensor] : tensors_of(model)) {
    if (!at::equal(tensor, before.at(name))) changed.insert(name);
  }
  return changed;
}

TEST(ExportedModule, ABackboneIsFrozenWithoutAnOptimizerInTheRunFile) {
  const auto changed = changed_by_frozen_fit("first", true);
  EXPECT_FALSE(changed.contains("first.weight"));
  EXPECT_TRUE(changed.contains("norm.weight"));
}

TEST(ExportedModule, BatchNormsOfAFrozenBackboneTrainUnlessConfiguredOtherwise) {
  for (const char* name : {"norm.weight", "norm.running_mean"}) {
    EXPECT_TRUE(changed_by_frozen_fit("norm", true).contains(name)) << name;
    EXPECT_FALSE(changed_by_frozen_fit("norm", false).contains(name)) << name;
  }
}

TEST(ExportedModule, MistakesSayWhatIsWrongAndHowToFixIt) {
  EXPECT_TRUE(holds(error_of([] { ExportedModule model({}); }), {"path", "must be"}));
  EXPECT_TRUE(holds(error_of([] { ExportedModule model({.path = kMlp, .output = 1}); }),
                    {"output is 1", "has 1 outputs: linear_1"}));
  EXPECT_TRUE(holds(step_error({.path = kMlp, .inputs = {-1}}, batch()), {"inputs has -1", "from 0"}));
  EXPECT_TRUE(holds(step_error({.path = kMlp, .loss = ExportedLoss::mse_loss}, {at::ones({3, 4}), at::ones({3})}),
                    {"mse_loss compares tensors of one shape", "[3, 2]", "[3]", "Reshape"}));
  EXPECT_TRUE(holds(step_error({.path = kMlp, .loss = ExportedLoss::none}, {at::ones({3, 4})}),
                    {"loss is none", "a scalar", "[3, 2]", "Choose a loss"}));
}

}  // namespace
}  // namespace levin::exported_model_test
