// MixUp and CutMix: the mix, targets, random numbers of the run.
#include "levin/callbacks/mixed_batches.h"

#include <gtest/gtest.h>

#include "callbacks/resume.h"
#include "support/field_count.h"

namespace levin::mixed_batches_test {
namespace {

using namespace test;

// Image i is full of i; its label is i mod 3.
Batch numbered_images(int64_t count, int64_t side = 6) {
  const at::Tensor numbers = torch::arange(count);
  return {numbers.to(at::kFloat).reshape({count, 1, 1, 1}).expand({count, 2, side, side}).contiguous(),
          numbers.remainder(3)};
}

at::Tensor shares_of(const at::Tensor& labels) {
  return torch::one_hot(labels, 3).to(at::kFloat);
}

TEST(MixUp, IsTheWeightedMeanOfTwoSamplesAndTheirLabels) {
  const Batch batch = numbered_images(4);
  const at::Tensor other = torch::tensor({2, 0, 3, 1});
  const Batch mixed = MixUp({.num_classes = 3}).mixed(batch, 0.75, other);
  const at::Tensor numbers = torch::tensor({0.25 * 2, 0.75, 0.75 * 2 + 0.25 * 3, 0.75 * 3 + 0.25}, at::kFloat);
  EXPECT_TRUE(torch::allclose(mixed[0], numbers.reshape({4, 1, 1, 1}).expand({4, 2, 6, 6})));
  const at::Tensor want = torch::tensor({{0.75, 0.0, 0.25}, {0.25, 0.75, 0.0}, {0.25, 0.0, 0.75}, {0.75, 0.25, 0.0}});
  EXPECT_TRUE(torch::allclose(mixed[1], want.to(at::kFloat)));
  EXPECT_EQ(batch[0][2][0][0][0].item<float>(), 2);  // the loader's images are left alone
  EXPECT_EQ(batch[1].scalar_type(), at::kLong);
}

// cross_entropy of mixed targets is the mean of both labels' losses, weighted alike (equation 2 of the paper's
// appendix).
TEST(MixUp, GivesTheWeightedMeanOfBothLosses) {
  torch::manual_seed(1);
  const at::Tensor logits = torch::randn({4, 3});
  const Batch batch = numbered_images(4);
  const at::Tensor other = torch::tensor({2, 0, 3, 1});
  const Batch mixed = MixUp({.num_classes = 3}).mixed(batch, 0.6, other);
  const at::Tensor loss = torch::nn::functional::cross_entropy(logits, mixed[1]);
  const at::Tensor own = torch::nn::functional::cross_entropy(logits, batch[1]);
  const at::Tensor others = torch::nn::functional::cross_entropy(logits, batch[1].index_select(0, other));
  EXPECT_NEAR(loss.item<float>(), (0.6 * own + 0.4 * others).item<float>(), 1e-6);
}

TEST(MixUp, DrawsItsWeightsFromBeta) {
  torch::manual_seed(3);
  for (const double alpha : {0.2, 2.0}) {
    MixUp mixup({.num_classes = 3, .alpha = alpha});
    double sum = 0, squares = 0;
    const int count = 4000;
    for (int i = 0; i < count; ++i) {
      const Batch two = mixup.change_batch({torch::tensor({0.0F, 1.0F}), torch::tensor({0, 1})});
      const auto kept = two[1][0][0].item<double>();  // 1 where the sample was mixed with itself
      if (two[0][0].item<float>() == 0 && kept == 1) {
        --i;
        continue;
      }
      EXPECT_NEAR(two[0][0].item<double>(), 1 - kept, 1e-6);
      sum += kept;
      squares += kept * kept;
    }
    const double mean = sum / count, variance = squares / count - mean * mean;
    EXPECT_NEAR(mean, 0.5, 0.03) << alpha;
    EXPECT_NEAR(variance, 1 / (4 * (2 * alpha + 1)), 0.01) << alpha;
  }
}

TEST(CutMix, PastesARectangleAndWeighsLabelsByArea) {
  torch::manual_seed(5);
  const int64_t side = 12;
  const at::Tensor other = torch::tensor({1, 2, 3, 0});
  for (const double kept : {0.0, 0.3, 0.9, 1.0}) {
    for (int i = 0; i < 20; ++i) {
      const Batch batch = numbered_images(4, side);
      const Batch mixed = CutMix({.num_classes = 3}).mixed(batch, kept, other);
      const at::Tensor pasted = mixed[0] != batch[0];  // (batch, channel, height, width)
      EXPECT_TRUE(mixed[0].index({pasted}).equal(batch[0].index_select(0, other).index({pasted})));
      EXPECT_TRUE(pasted.equal(pasted[0][0].expand_as(pasted)));  // the same place in all
      const at::Tensor place = pasted[0][0].to(at::kLong);
      EXPECT_EQ(place.sum().item<int64_t>(), place.amax(0).sum().item<int64_t>() * place.amax(1).sum().item<int64_t>());
      const double area = place.sum().item<double>() / (side * side);
      EXPECT_LE(area, 1 - kept + 1e-9);
      const at::Tensor want = shares_of(batch[1]) * (1 - area) + shares_of(batch[1].index_select(0, other)) * area;
      EXPECT_TRUE(torch::allclose(mixed[1], want, 1e-5, 1e-6));
    }
  }
}

TEST(MixedBatches, MixAboutTheShareOfBatchesThatIsAskedFor) {
  torch::manual_seed(2);
  MixUp mixup({.num_classes = 3, .p = 0.3});
  int mixed = 0;
  for (int i = 0; i < 1000; ++i) mixed += mixup.change_batch(numbered_images(2))[1].is_floating_point() ? 1 : 0;
  EXPECT_NEAR(mixed, 300, 60);
}

TEST(MixedBatches, FollowEachOther) {
  torch::manual_seed(4);
  MixUp first({.num_classes = 3});
  CutMix second({.num_classes = 3});
  const Batch batch = second.change_batch(first.change_batch(numbered_images(8)));
  EXPECT_TRUE(torch::allclose(batch[1].sum(1), torch::ones({8})));
}

TEST(MixedBatches, SayWhatTheyCannotMix) {
  const at::Tensor other = torch::tensor({1, 0});
  const auto message = [&](const MixedBatches& callback, const Batch& batch) {
    return error_of([&] { static_cast<void>(callback.mixed(batch, 0.5, other)); });
  };
  const MixUp mixup({.num_classes = 3});
  EXPECT_NE(message(mixup, {torch::ones({2, 4}, torch::kLong), torch::tensor({0, 1})}).find("MixUp: tensor 0"),
            std::string::npos);
  const std::string text = message(mixup, {torch::ones({2, 4}), torch::tensor({0.5, 1.0})});
  EXPECT_NE(text.find("MixUp: tensor 1 of the batch has shape (2)"), std::string::npos) << text;
  EXPECT_NE(text.find("probabilities (batch, 3)"), std::string::npos) << text;
  const std::string flat = message(CutMix({.num_classes = 3}), {torch::ones({2, 4}), torch::tensor({0, 1})});
  EXPECT_NE(flat.find("CutMix: the images have shape (2, 4)"), std::string::npos) << flat;
  EXPECT_NE(error_of([] { MixUp({}); }).find("MixUpOptions.num_classes"), std::string::npos);
}

TEST(MixedBatches, ListTheirOptions) {
  EXPECT_EQ(testing::field_count<MixUpOptions>(), field_names<MixUpOptions>().size());
  EXPECT_EQ(testing::field_count<CutMixOptions>(), field_names<CutMixOptions>().size());
}

// A linear classifier of 3 classes, on MixUp's targets.
class Classes final : public TinyModule {
 public:
  Classes() {
    torch::manual_seed(7);
    unregister_module("layer");
    layer = register_module("layer", torch::nn::Linear(4, 3));
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    targets.push_back(batch[1]);
    return torch::nn::functional::cross_entropy(layer->forward(batch[0]), batch[1]);
  }
  std::vector<at::Tensor> targets = {};
};

std::shared_ptr<Loader> labelled(int64_t samples) {
  torch::manual_seed(11);
  return std::make_shared<TensorLoader>(
      std::vector<at::Tensor>{torch::randn({samples, 4}), torch::arange(samples).remainder(3)}, 4);
}

std::pair<State, std::vector<at::Tensor>> train(const Callbacks& more, const std::string& ckpt_path) {
  Classes module;
  Callbacks callbacks{MixUp({.num_classes = 3, .p = 0.8})};
  for (const auto& one : more) callbacks.push_back(one);
  const auto loader = labelled(24);
  torch::manual_seed(13);
  Trainer trainer(quiet(3, callbacks));
  static_cast<void>(error_of([&] { trainer.fit(module, {loader}, {}, ckpt_path); }));
  return {module_tensors(module), module.targets};
}

TEST(MixedBatches, ResumeWithTheSameRandomNumbers) {
  const TemporaryFolder folder;
  const std::string path = folder / "cut.ckpt";
  const auto [whole, targets] = train({}, "");
  ASSERT_EQ(targets.size(), 18U);
  static_cast<void>(train({std::make_shared<SaveThenFail>(path, 8)}, ""));
  const auto [rest, rest_targets] = train({}, path);
  ASSERT_EQ(rest_targets.size(), 10U);
  for (size_t i = 0; i < rest_targets.size(); ++i) EXPECT_TRUE(rest_targets[i].equal(targets[i + 8])) << i;
  expect_same_bits(rest, whole, "module");
}

}  // namespace
}  // namespace levin::mixed_batches_test
