// Trainer::init_module: modules are created in the number format of the run.
#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "support/tiny_module.h"

namespace levin::init_module_test {
namespace {

using namespace test;

at::ScalarType created_with(const std::string& precision) {
  TrainerOptions options = quiet(1, {});
  options.precision = precision;
  Trainer trainer(options);
  std::shared_ptr<torch::nn::LinearImpl> layer;
  {
    const auto scope = trainer.init_module();
    layer = std::make_shared<torch::nn::LinearImpl>(8, 8);
  }
  EXPECT_EQ(torch::zeros({1}).scalar_type(), at::kFloat) << "as before";
  return layer->weight.scalar_type();
}

TEST(InitModule, CreatesWeightsInTheFormatOfTheRun) {
  EXPECT_EQ(created_with("32-true"), at::kFloat);
  EXPECT_EQ(created_with("bf16-mixed"), at::kFloat);
  EXPECT_EQ(created_with("bf16-true"), at::kBFloat16);
  EXPECT_EQ(created_with("64-true"), at::kDouble);
}

TEST(InitModule, TheModuleTrainsAsEver) {
  TrainerOptions options = quiet(1, {});
  options.precision = "64-true";
  Trainer trainer(options);
  std::shared_ptr<TinyModule> made, converted = std::make_shared<TinyModule>();
  {
    const auto scope = trainer.init_module();
    made = std::make_shared<TinyModule>();
  }
  EXPECT_EQ(made->layer->weight.scalar_type(), at::kDouble);
  trainer.fit(*made, tiny_loader(24));
  Trainer(options).fit(*converted, tiny_loader(24));
  EXPECT_TRUE(made->layer->weight.allclose(converted->layer->weight, 1e-6));
}

}  // namespace
}  // namespace levin::init_module_test
