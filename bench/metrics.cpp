// One update of each metric compared with torchmetrics, on batches in memory, on one thread: Levin's loops over the
// CPU's memory, and torchmetrics' operators from Python.
//
//   bench_metrics [NAME…]        all metrics, or those whose names begin with NAME
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "levin/metrics/aggregation.h"
#include "levin/metrics/classification.h"
#include "levin/metrics/image.h"
#include "levin/metrics/metric_collection.h"
#include "levin/metrics/regression.h"
#include "levin/metrics/segmentation.h"
#include "levin/metrics/text.h"
#include "peer.h"
#include "rounds.h"

namespace bench::metrics {

namespace {

using namespace levin::metrics;
using Clock = std::chrono::steady_clock;

constexpr int kUpdates = 20;  // of an epoch; peers/metrics.py has the same

// A metric with its batch.
struct Fed {
  std::shared_ptr<Metric> metric;
  std::function<void()> update;
};

struct Case {
  std::string name;  // of peers/metrics.py too
  std::string batch;
  std::function<Fed()> make;
  bool by_epochs =
      false;  // the target is for update() and compute() together, because torchmetrics' update() only stores the batch
};

template <class M, class Batch, class... Options>
std::function<Fed()> of(Batch batch, Options... options) {
  return [=] {
    auto metric = std::make_shared<M>(options...);
    return Fed{metric,
               [metric, given = batch()] { std::apply([&](const auto&... part) { metric->update(part...); }, given); }};
  };
}

auto normal(std::vector<int64_t> shape) {
  return [=] { return std::make_tuple(torch::randn(shape), torch::randn(shape)); };
}

auto uniform(std::vector<int64_t> shape) {
  return [=] { return std::make_tuple(torch::rand(shape), torch::rand(shape)); };
}

auto scores(std::vector<int64_t> shape, int64_t classes, std::vector<int64_t> targets) {
  return [=] { return std::make_tuple(torch::randn(shape), torch::randint(classes, targets, at::kLong)); };
}

auto probabilities(int64_t samples, int64_t classes) {
  return [=] {
    return std::make_tuple(torch::randn({samples, classes}).softmax(1), torch::randint(classes, {samples}, at::kLong));
  };
}

auto masks(int64_t classes, std::vector<int64_t> shape) {
  return [=] {
    return std::make_tuple(torch::randint(classes, shape, at::kLong), torch::randint(classes, shape, at::kLong));
  };
}

auto values(int64_t count) {
  return [=] { return std::make_tuple(torch::randn({count})); };
}

std::vector<std::string> sentences(size_t count, size_t change) {
  const std::vector<std::string> words = {"the", "quick", "brown", "fox",  "jumps", "over", "a",   "lazy",
                                          "dog", "and",   "runs",  "away", "from",  "the",  "big", "bear"};
  std::vector<std::string> all(count);
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < 16; ++k) {
      all[i] += (k == 0 ? "" : " ") + words[(i * change + k * (1 + i % change)) % words.size()];
    }
  }
  return all;
}

auto texts(size_t count) {
  return [=] { return std::make_tuple(sentences(count, 2), sentences(count, 3)); };
}

struct Several : Metric {  // a collection as one of the cases
  MetricCollection all;
  Several() { all.add<MeanAbsoluteError>("mae").add<MeanSquaredError>("mse").add<R2Score>("r2"); }
  void update(const at::Tensor& preds, const at::Tensor& target) { all.update(preds, target); }
  [[nodiscard]] at::Tensor compute() const override { return all.compute().begin()->second; }
  void reset() override { all.reset(); }
  [[nodiscard]] std::string name() const override { return "MetricCollection"; }
};

template <class M, class Options>
Case classification(const std::string& name, Options options) {
  options.num_classes = 10;
  return {name, "(256, 10)", of<M>(scores({256, 10}, 10, {256}), options)};
}

std::vector<Case> classification_cases() {
  ClassificationOptions macro;
  macro.average = Average::macro;
  ClassificationOptions top;
  top.top_k = 3;
  return {
      classification<Accuracy>("Accuracy", ClassificationOptions{}),
      classification<Accuracy>("Accuracy_top_3", top),
      classification<Precision>("Precision", macro),
      classification<Recall>("Recall", macro),
      classification<Specificity>("Specificity", macro),
      classification<F1Score>("F1Score", macro),
      classification<FBetaScore>("FBetaScore", macro),
      classification<ConfusionMatrix>("ConfusionMatrix", ConfusionMatrixOptions{}),
      classification<AUROC>("AUROC", CurveOptions{}),
      {"AUROC_large", "(1024, 1000) probabilities",
       of<AUROC>(probabilities(1024, 1000), CurveOptions{.num_classes = 1000}), true},
      classification<AveragePrecision>("AveragePrecision", CurveOptions{}),
      classification<CalibrationError>("CalibrationError", CalibrationErrorOptions{}),
  };
}

std::vector<Case> other_cases() {
  const auto index = MaskFormat::index;
  return {
      {"MeanAbsoluteError", "(4096)", of<MeanAbsoluteError>(normal({4096}))},
      {"MeanSquaredError", "(4096)", of<MeanSquaredError>(normal({4096}))},
      {"MeanSquaredError_outputs", "(1024, 8)",
       of<MeanSquaredError>(normal({1024, 8}), MeanSquaredErrorOptions{.num_outputs = 8})},
      {"R2Score", "(4096)", of<R2Score>(normal({4096}))},
      {"PearsonCorrCoef", "(4096)", of<PearsonCorrCoef>(normal({4096}))},
      {"CosineSimilarity", "(256, 128)", of<CosineSimilarity>(normal({256, 128})), true},
      {"Perplexity", "(8, 64, 256)", of<Perplexity>(scores({8, 64, 256}, 256, {8, 64}))},
      {"Perplexity_large", "(2, 32, 32000)", of<Perplexity>(scores({2, 32, 32000}, 32000, {2, 32}))},
      {"BLEUScore", "32 sentences", of<BLEUScore>(texts(32))},
      {"ROUGEScore", "32 sentences, rougeL", of<ROUGEScore>(texts(32))},
      {"EditDistance", "4 sentences", of<EditDistance>(texts(4))},
      {"JaccardIndex", "(4, 21, 64, 64)",
       of<JaccardIndex>(scores({4, 21, 64, 64}, 21, {4, 64, 64}), JaccardIndexOptions{.num_classes = 21})},
      {"DiceScore", "(8, 64, 64)",
       of<DiceScore>(masks(21, {8, 64, 64}), DiceScoreOptions{.num_classes = 21, .input_format = index})},
      {"MeanIoU", "(8, 64, 64)",
       of<MeanIoU>(masks(21, {8, 64, 64}), MeanIoUOptions{.num_classes = 21, .input_format = index})},
      {"PeakSignalNoiseRatio", "(8, 3, 64, 64)",
       of<PeakSignalNoiseRatio>(uniform({8, 3, 64, 64}), PeakSignalNoiseRatioOptions{.data_range = 1.0})},
      {"StructuralSimilarity", "(4, 3, 64, 64)",
       of<StructuralSimilarityIndexMeasure>(uniform({4, 3, 64, 64}),
                                            StructuralSimilarityIndexMeasureOptions{.data_range = 1.0})},
      {"MeanMetric", "(4096)", of<MeanMetric>(values(4096))},
      {"MeanMetric_number", "a number", of<MeanMetric>([] { return std::make_tuple(0.5); })},
      {"SumMetric", "(4096)", of<SumMetric>(values(4096))},
      {"MinMetric", "(4096)", of<MinMetric>(values(4096))},
      {"MaxMetric", "(4096)", of<MaxMetric>(values(4096))},
      {"MetricCollection", "(4096), three metrics", of<Several>(normal({4096}))},
  };
}

std::vector<Case> cases() {
  std::vector<Case> all = classification_cases();
  std::vector<Case> others = other_cases();
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

// Runs as many epochs as fit into `milliseconds`: on a busy machine, short turns are disturbed less.
double microseconds_per_update(const Fed& fed, double milliseconds, bool computes) {
  std::chrono::duration<double, std::micro> passed{};
  int64_t updates = 0;
  while (updates == 0 || passed.count() < milliseconds * 1e3) {
    fed.metric->reset();
    const auto start = Clock::now();
    for (int k = 0; k < kUpdates; ++k) fed.update();
    if (computes) static_cast<void>(fed.metric->compute());
    passed += Clock::now() - start;
    updates += kUpdates;
  }
  return passed.count() / static_cast<double>(updates);
}

void measure(const Case& one, const std::shared_ptr<Peer>& peer, const Options& options, Report& report,
             bool computes) {
  const Fed fed = one.make();
  const double milliseconds = options.quick ? 1 : 20;
  std::vector<Candidate> candidates = {{"Levin", [=] { return microseconds_per_update(fed, milliseconds, computes); }}};
  if (peer != nullptr) {
    const std::string words = one.name + " " + std::to_string(milliseconds) + (computes ? " epochs" : "");
    candidates.push_back({"torchmetrics", [=] { return peer->round(words); }});
  }
  const auto measurements = interleave(candidates, options);
  report.table(one.name + ", " + one.batch + (computes ? ", with compute() every 20 updates" : ""), "us an update",
               measurements);
  const std::string key = one.name + (computes ? "_epoch" : "");
  const auto speed = ratio(measurements, "torchmetrics", "Levin");
  if (one.by_epochs && !computes) {
    report.number(key, speed);
  } else {
    report.at_least(key, speed, 3);
  }
}

int run(const Options& options) {
  pin_to_one_core();
  torch::manual_seed(0);
  const auto peer = Peer::start("metrics");
  Report report("metrics");
  if (peer != nullptr) report.peers(peer->versions());
  for (const Case& one : cases()) {
    const auto chosen = [&](const std::string& word) { return one.name.starts_with(word); };
    if (!options.words.empty() && std::none_of(options.words.begin(), options.words.end(), chosen)) continue;
    measure(one, peer, options, report, false);
    if (one.by_epochs) measure(one, peer, options, report, true);
  }
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 15);
  return guarded([&] { return run(options); });
}

}  // namespace bench::metrics
