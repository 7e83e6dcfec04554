// What the reference cases of numbers, text, images and masks do not show: errors, limits, graphs, autocast.
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "metrics/other_cases.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/field_count.h"

namespace levin::other_metrics_test {
namespace {

using namespace metrics;
using Texts = TextMetric::Texts;
using test::error_of;
using test::holds;

template <class Options>
void expect_all_fields() {
  EXPECT_EQ(testing::field_count<Options>(), field_names<Options>().size());
}

TEST(OtherMetricsOptions, ListEveryField) {
  expect_all_fields<MeanAbsoluteErrorOptions>();
  expect_all_fields<MeanSquaredErrorOptions>();
  expect_all_fields<R2ScoreOptions>();
  expect_all_fields<PearsonCorrCoefOptions>();
  expect_all_fields<CosineSimilarityOptions>();
  expect_all_fields<PerplexityOptions>();
  expect_all_fields<BLEUScoreOptions>();
  expect_all_fields<ROUGEScoreOptions>();
  expect_all_fields<EditDistanceOptions>();
  expect_all_fields<PeakSignalNoiseRatioOptions>();
  expect_all_fields<StructuralSimilarityIndexMeasureOptions>();
  expect_all_fields<JaccardIndexOptions>();
  expect_all_fields<DiceScoreOptions>();
  expect_all_fields<MeanIoUOptions>();
}

TEST(OtherMetricsOptions, OutOfRangeAreErrors) {
  EXPECT_TRUE(holds(error_of<ConfigError>([] { MeanAbsoluteError({.num_outputs = 0}); }),
                    {"MeanAbsoluteErrorOptions.num_outputs", "must be >= 1, got 0"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] {
                      BLEUScore({.weights = {0.5, 0.5}});
                    }),
                    {"BLEUScoreOptions.weights: must have n_gram = 4 values, got 2"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { ROUGEScore({.rouge_key = "rougeLsum"}); }),
                    {"ROUGEScoreOptions.rouge_key", "must be rougeL or rouge1 to rouge9", "rougeLsum"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { PeakSignalNoiseRatio metric(PeakSignalNoiseRatioOptions{}); }),
                    {"PeakSignalNoiseRatioOptions.data_range", "must be set, and above 0"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { StructuralSimilarityIndexMeasure({.sigma = 0.0}); }),
                    {"sigma", "must be above 0"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { StructuralSimilarityIndexMeasure({.kernel_size = int64_t{4}}); }),
                    {"kernel_size", "must be odd and above 0, got 4"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { DiceScore metric(DiceScoreOptions{}); }),
                    {"DiceScoreOptions.num_classes", "must be >= 1, got 0"}));
}

TEST(OtherMetricsInput, ShapesThatDifferAreErrorsThatShowBoth) {
  MeanSquaredError error;
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      error.update(at::zeros({4, 3}), at::zeros({4}));
                    }),
                    {"MeanSquaredError: preds has the shape [4, 3] and target [4]", "Give both the same shape"}));
  EXPECT_EQ(error.update_count(), 0);
  MeanAbsoluteError outputs({.num_outputs = 2});
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      outputs.update(at::zeros({4, 3}), at::zeros({4, 3}));
                    }),
                    {"[4, 3]", "num_outputs is 2", "Give them the shape (N, 2), or set .num_outputs"}));
  R2Score r2;
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      r2.update(at::zeros({4, 3}), at::zeros({4, 3}));
                    }),
                    {"R2Score", "num_outputs is 1", "(N) or (N, 1)"}));
  CosineSimilarity cosine;
  EXPECT_TRUE(holds(error_of<Error>([&] { cosine.update(at::zeros({4}), at::zeros({4})); }),
                    {"CosineSimilarity: preds and target have the shape [4]", "(N, D)"}));
  Perplexity perplexity;
  EXPECT_TRUE(
      holds(error_of<Error>([&] {
              perplexity.update(at::zeros({4, 3}), at::zeros({4, 3}));
            }),
            {"Perplexity: preds has the shape [4, 3] and target [4, 3]", "logits (N, T, V) and tokens (N, T)"}));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      perplexity.update(at::zeros({1, 2, 3}), at::zeros({1, 2}));
                    }),
                    {"preds has the type Float and target Float", "tokens of int64"}));
}

TEST(OtherMetricsInput, ATokenOrClassOutOfRangeIsAnErrorThatNamesIt) {
  Perplexity perplexity;
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      perplexity.update(at::zeros({1, 2, 3}), at::tensor({0, -100}, at::kLong).view({1, 2}));
                    }),
                    {"token -100 at index 1", "logits for 0 to 2", "set .ignore_index"}));
  DiceScore dice({.num_classes = 3, .input_format = MaskFormat::index});
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      dice.update(at::zeros({1, 2}, at::kLong), at::tensor({0, 3}, at::kLong).view({1, 2}));
                    }),
                    {"DiceScore: target has the class 3 at index 1", "Classes are 0 to 2", "num_classes is 3"}));
}

TEST(OtherMetricsInput, MasksOfADifferentFormatAreErrorsThatNameTheRightOne) {
  const at::Tensor index = at::zeros({2, 4, 4}, at::kLong);
  const at::Tensor hot = at::zeros({2, 3, 4, 4});
  DiceScore one_hot({.num_classes = 3});
  EXPECT_TRUE(holds(
      error_of<Error>([&] { one_hot.update(index, index); }),
      {"preds has the shape [2, 4, 4]", "Give both as (N, C, ...) with C = num_classes = 3", "set .input_format"}));
  MeanIoU by_index({.num_classes = 3, .input_format = MaskFormat::index});
  EXPECT_TRUE(
      holds(error_of<Error>([&] { by_index.update(hot, hot); }), {"MeanIoU", "Give both as (N, ...), integers"}));
  MeanIoU mixed({.num_classes = 3, .input_format = MaskFormat::mixed});
  EXPECT_TRUE(
      holds(error_of<Error>([&] { mixed.update(index, index); }), {"Give one as (N, C, ...)", "and the other"}));
  EXPECT_EQ(error_of<Error>([&] { mixed.update(index, hot); }), "");
}

TEST(OtherMetricsInput, ImagesSmallerThanTheKernelAreErrors) {
  StructuralSimilarityIndexMeasure ssim;
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      ssim.update(at::zeros({1, 1, 5, 20}), at::zeros({1, 1, 5, 20}));
                    }),
                    {"[1, 1, 5, 20]", "kernel is 11 pixels long", "more than 5 pixels on each side", "lower .sigma"}));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      ssim.update(at::zeros({9, 9}), at::zeros({9, 9}));
                    }),
                    {"images (N, C, H, W)"}));
  StructuralSimilarityIndexMeasure two({.sigma = std::vector<double>{1.0, 1.0, 1.0}});
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      two.update(at::zeros({1, 1, 9, 9}), at::zeros({1, 1, 9, 9}));
                    }),
                    {".sigma has 3 values", "the images have 2 dimensions besides N and C"}));
  PeakSignalNoiseRatio psnr({.data_range = 1.0, .dim = {4}});
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      psnr.update(at::zeros({2, 2}), at::zeros({2, 2}));
                    }),
                    {"PeakSignalNoiseRatio: .dim has 4", "[2, 2]", "Give dimensions that they have"}));
}

TEST(OtherMetricsInput, StringsWithoutReferencesAreErrors) {
  BLEUScore bleu;
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      bleu.update({"a", "b"}, std::vector<Texts>{{"a"}});
                    }),
                    {"BLEUScore: 2 predictions for references of 1 prediction", "Give a list of references for each"}));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      bleu.update({"a", "b"}, Texts{"a"});
                    }),
                    {"BLEUScore: 2 predictions for 1 reference", "Give one reference for each"}));
  ROUGEScore rouge;
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      rouge.update({"a", "b"}, std::vector<Texts>{{"a"}, {}});
                    }),
                    {"ROUGEScore: prediction 1 has no reference", "at least one"}));
  EditDistance edits;
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      edits.update({"a"}, std::vector<Texts>{{"a", "b"}});
                    }),
                    {"EditDistance: prediction 0 has 2 references. Give it one."}));
}

TEST(R2Score, NeedsTwoSamples) {
  R2Score r2;
  r2.update(at::zeros({1}), at::zeros({1}));
  EXPECT_TRUE(holds(error_of<Error>([&] { static_cast<void>(r2.compute()); }),
                    {"R2Score: it was given 1 sample", "needs at least two"}));
}

// 1 - 2e-5 / 5e-6, in any unit and around any mean.
TEST(R2Score, DoesNotDependOnTheUnitOrTheOriginOfTheTargets) {
  const at::Tensor preds = at::tensor({4.0, 3.0, 2.0, 1.0}, at::kDouble), target = preds.flip(0);
  for (const double unit : {1e-12, 1e-3, 1.0, 1e9}) {
    for (const double origin : {0.0, 1e6 * unit}) {
      R2Score whole, zero, one;
      whole.update(preds * unit + origin, target * unit + origin);
      zero.update(preds.slice(0, 0, 1) * unit + origin, target.slice(0, 0, 1) * unit + origin);
      one.update(preds.slice(0, 1) * unit + origin, target.slice(0, 1) * unit + origin);
      zero.merge(one.states(), one.update_count());
      EXPECT_NEAR(whole.compute().item<double>(), -3, 1e-6) << unit << " " << origin;
      EXPECT_NEAR(zero.compute().item<double>(), -3, 1e-6) << unit << " " << origin;
    }
  }
  R2Score small;
  small.update(at::tensor({0.004F, 0.003F, 0.002F, 0.001F}), at::tensor({0.001F, 0.002F, 0.003F, 0.004F}));
  EXPECT_NEAR(small.compute().item<double>(), -3, 1e-4);
}

// 0.1 has no exact binary form: sums of its squares would leave a variation that is not 0.
TEST(R2Score, OfTargetsThatDoNotVaryIs0UnlessPredictionsAreRight) {
  const at::Tensor same = at::full({7}, 0.1, at::kDouble);
  for (const double error : {0.0, 1e-9, 3.0}) {
    R2Score r2;
    for (int k = 0; k < 3; ++k) r2.update(same + error, same);
    EXPECT_EQ(r2.compute().item<double>(), error == 0 ? 1 : 0) << error;
  }
  R2Score weighted({.multioutput = Multioutput::variance_weighted, .num_outputs = 2});
  weighted.update(at::tensor({0.1, 2.0, 0.1, 2.0}, at::kDouble).view({2, 2}),
                  at::tensor({0.1, 1.0, 0.1, 1.0}, at::kDouble).view({2, 2}));
  EXPECT_EQ(weighted.compute().item<double>(), 0.5);  // 1 and 0, and no variance to weigh them by
}

TEST(R2Score, ReportsWhenItCannotBeAdjusted) {
  const test::CapturedConsole console;
  R2Score r2({.adjusted = 2});
  r2.update(at::tensor({1.0F, 2.0F, 3.0F}), at::tensor({1.0F, 2.0F, 4.0F}));
  EXPECT_NEAR(r2.compute().item<double>(), 1 - 1 / (14.0 / 3), 1e-12);
  EXPECT_TRUE(console.has("R2Score: the score is not adjusted"));
}

// 1e8 + small numbers: in float, or without centered sums, nothing of them would remain.
TEST(PearsonCorrCoef, KeepsItsDigitsAtLargeMeansOverRanks) {
  const at::Tensor noise = at::tensor({0.5, -1.25, 2.0, 0.75, -3.0, 1.5, 0.25, -0.5}, at::kDouble);
  const at::Tensor other = noise * 2 + at::tensor({0.1, 0.2, -0.3, 0.1, 0.0, -0.2, 0.3, 0.1}, at::kDouble);
  PearsonCorrCoef near, far, rest;
  near.update(noise, other);
  far.update(noise.narrow(0, 0, 3) + 1e8, other.narrow(0, 0, 3) - 1e8);
  rest.update(noise.narrow(0, 3, 5) + 1e8, other.narrow(0, 3, 5) - 1e8);
  far.merge(rest.states(), 1);
  EXPECT_NEAR(far.compute().item<double>(), near.compute().item<double>(), 1e-7);
  EXPECT_EQ(far.update_count(), 2);
  PearsonCorrCoef nothing;
  far.merge(nothing.states(), 0);
  EXPECT_NEAR(far.compute().item<double>(), near.compute().item<double>(), 1e-7);
}

TEST(PearsonCorrCoef, IsNanWhereNothingVaries) {
  PearsonCorrCoef same;
  for (int batch = 0; batch < 3; ++batch) same.update(at::full({7}, 0.1F), at::rand({7}));
  EXPECT_TRUE(std::isnan(same.compute().item<double>()));
  EXPECT_TRUE(std::isnan(PearsonCorrCoef().compute().item<double>()));
}

TEST(Perplexity, StaysFiniteForTokensOfSmallProbability) {
  Perplexity perplexity;
  perplexity.update(at::tensor({0.0F, 200.0F}).view({1, 1, 2}), at::zeros({1, 1}, at::kLong));
  EXPECT_NEAR(std::log(perplexity.compute().item<double>()), 200, 1e-9);
}

TEST(Perplexity, OfEqualLogitsIsTheSizeOfTheVocabulary) {
  for (const int64_t classes : {1, 7, 255, 256, 257, 1023, 5000}) {
    Perplexity perplexity;
    perplexity.update(at::full({2, 3, classes}, 3.25F), at::zeros({2, 3}, at::kLong));
    EXPECT_NEAR(perplexity.compute().item<double>() / static_cast<double>(classes), 1, 2e-7) << classes;
  }
}

TEST(Perplexity, ALogitThatIsNanOrInfiniteGivesNan) {
  for (const double odd : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (const int64_t classes : {5, 600}) {
      at::Tensor logits = at::zeros({1, 1, classes});
      logits[0][0][3].fill_(odd);
      Perplexity perplexity;
      perplexity.update(logits, at::zeros({1, 1}, at::kLong));
      EXPECT_TRUE(std::isnan(perplexity.compute().item<double>())) << odd << " " << classes;
    }
  }
}

TEST(Perplexity, AWordThatIsExcludedCountsForNothing) {
  at::Tensor logits = at::zeros({1, 1, 600});
  logits.slice(2, 300, 600).fill_(-std::numeric_limits<double>::infinity());
  Perplexity perplexity;
  perplexity.update(logits, at::zeros({1, 1}, at::kLong));
  EXPECT_NEAR(perplexity.compute().item<double>(), 300, 1e-4);
}

TEST(CosineSimilarity, EqualsDoublesForVectorsOfAnySizeAndScale) {
  torch::manual_seed(4);
  for (const int64_t dimensions : {1, 5, 8, 255, 257, 512, 1000}) {
    const at::Tensor x = at::randn({7, dimensions}), y = at::randn({7, dimensions});
    const at::Tensor wide = x.to(at::kDouble), other = y.to(at::kDouble);
    const at::Tensor expected = (wide * other).sum(1) / (wide.norm(2, 1) * other.norm(2, 1));
    for (const double scale : {1.0, 1e-22, 1e25}) {  // floats whose squares are below or above all floats
      CosineSimilarity cosine({.reduction = Reduction::none});
      cosine.update(x * scale, y / scale);
      EXPECT_TRUE(at::allclose(cosine.compute(), expected, 1e-5, 1e-6)) << dimensions << " " << scale;
    }
  }
}

TEST(Perplexity, EqualsLogSoftmaxInDoubleWhereverTheHighLogitsAre) {
  torch::manual_seed(3);
  for (const int64_t classes : {3, 64, 65, 1000, 1024, 1040, 3001}) {
    // The last class's logit is up to 3,000 above the first one's.
    for (const float rise : {0.0F, 0.01F, 1.0F, -1.0F}) {
      const at::Tensor logits = at::randn({2, 3, classes}) * 4 + at::arange(classes, at::kFloat) * rise;
      const at::Tensor tokens = at::randint(classes, {2, 3}, at::kLong);
      const double expected =
          -at::log_softmax(logits.to(at::kDouble), -1).gather(2, tokens.unsqueeze(2)).mean().item<double>();
      Perplexity perplexity;
      perplexity.update(logits, tokens);
      const double value = std::log(perplexity.compute().item<double>());
      const double shown = expected < 709 ? expected : std::numeric_limits<double>::infinity();  // of exp in double
      EXPECT_TRUE(value == shown || std::abs(value - shown) < 2e-7 * std::max(1.0, shown)) << classes << " " << rise;
    }
  }
}

TEST(EditDistance, WithoutABeamIsExact) {
  const std::string far(60, 'x');
  const Texts pred{far + "abcabcabcabcabcabcabcabcabcabcabcabcabc"};
  const Texts target{"abcabcabcabcabcabcabcabcabcabcabcabcabc" + far};
  EditDistance exact({.beam_width = 0}), beam;
  exact.update(pred, target);
  beam.update(pred, target);
  EXPECT_EQ(exact.compute().item<double>(), 78);  // deletes 39 characters in front and adds them at the end
  EXPECT_GE(beam.compute().item<double>(), 78);
}

TEST(EditDistance, CountsCharactersThatAreNotUtf8) {
  EditDistance edits;
  edits.update({"a\xFF\xFE"}, Texts{"a\xFF"});
  EXPECT_EQ(edits.compute().item<double>(), 1);
}

TEST(ROUGEScore, HasAllThreeValues) {
  ROUGEScore rouge;
  rouge.update({"a cat sat"}, std::vector<Texts>{{"the cat sat here", "cat"}});
  EXPECT_NEAR(rouge.compute(RougeValue::precision).item<double>(), 2.0 / 3, 1e-12);
  EXPECT_NEAR(rouge.compute(RougeValue::recall).item<double>(), 0.5, 1e-12);
  EXPECT_NEAR(rouge.compute().item<double>(), 4.0 / 7, 1e-12);
}

TEST(OtherMetricsStates, HaveNoGraphAndAreDoubleUnderAutocast) {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  MeanSquaredError error;
  StructuralSimilarityIndexMeasure volumes({.data_range = 1.0});
  const at::Tensor preds = at::rand({1, 1, 8, 8, 8}).requires_grad_();
  error(preds, preds * 0.5);
  volumes(preds, preds);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  for (const auto& metric : {static_cast<Metric*>(&error), static_cast<Metric*>(&volumes)}) {
    EXPECT_FALSE(metric->compute().requires_grad());
    EXPECT_EQ(metric->compute().scalar_type(), at::kDouble);
  }
  EXPECT_NEAR(volumes.compute().item<double>(), 1, 1e-12);
  EXPECT_NEAR(error.compute().item<double>(), preds.detach().square().mean(at::kDouble).item<double>() / 4, 1e-9);
}

TEST(OtherMetricsStates, ReturnFromACheckpoint) {
  PearsonCorrCoef first, second, whole;
  const at::Tensor x = at::randn({20}), y = x + at::randn({20});
  first.update(x.narrow(0, 0, 11), y.narrow(0, 0, 11));
  second.load_state_dict(first.state_dict());
  second.update(x.narrow(0, 11, 9), y.narrow(0, 11, 9));
  whole.update(x, y);
  EXPECT_NEAR(second.compute().item<double>(), whole.compute().item<double>(), 1e-12);
  PearsonCorrCoef other({.num_outputs = 2});
  EXPECT_TRUE(holds(error_of<CheckpointError>([&] { other.load_state_dict(first.state_dict()); }),
                    {"PearsonCorrCoef: the saved state \"mean_x\" has the shape [1]", "[2]", "options have changed"}));
}

TEST(OtherMetricsStates, LongBatchesAreBitwiseIdenticalWithOneThreadAndTwo) {
  const at::Tensor x = at::randn({300000}), y = at::randn({300000});
  const int threads = at::get_num_threads();
  MeanSquaredError one, two;
  at::set_num_threads(1);
  one.update(x, y);
  at::set_num_threads(2);
  two.update(x, y);
  at::set_num_threads(threads);
  EXPECT_EQ(one.compute().item<double>(), two.compute().item<double>());
  EXPECT_NEAR(one.compute().item<double>(), (x - y).to(at::kDouble).square().mean().item<double>(), 1e-7);
}

}  // namespace
}  // namespace levin::other_metrics_test
