#include "levin/models/exported_model.h"

#include "levin/core/error.h"
#include "levin/models/exported/exported_program.h"
#include "support/error_text.h"
#include "support/paths.h"

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
