// Cases that record_other_cases.py writes: a metric, its options, batches, and the value that torchmetrics gives.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "levin/metrics/aggregation.h"
#include "levin/metrics/classification.h"
#include "levin/metrics/image.h"
#include "levin/metrics/regression.h"
#include "levin/metrics/segmentation.h"
#include "levin/metrics/text.h"

namespace levin::other_cases {

using Json = nlohmann::json;

inline Json read_cases(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + " cannot be opened");
  return Json::parse(file);
}

/// null is nan.
inline double number_of(const Json& written) {
  if (written.is_null()) return std::nan("");
  if (!written.is_string()) return written.get<double>();
  return (written == "inf" ? 1 : -1) * std::numeric_limits<double>::infinity();
}

inline at::Tensor value_of(const Json& written) {
  std::vector<double> values;
  for (const auto& value : written.at("values")) values.push_back(number_of(value));
  return at::tensor(values, at::kDouble).reshape(written.at("shape").get<std::vector<int64_t>>());
}

/// Inputs are in units of 1 / grid.
inline at::Tensor input_of(const Json& written, double grid) {
  const at::Tensor values = value_of(written);
  return written.at("type") == "int" ? values.to(at::kLong) : values.div(grid).to(at::kFloat);
}

/// Options as a run file has them.
inline ConfigNode node_of(const Json& written) {
  if (written.is_string()) return ConfigNode::scalar(written.get<std::string>(), /*quoted=*/true);
  ConfigNode node = ConfigNode::list();
  if (written.is_array()) {
    for (const auto& item : written) node.items.push_back(node_of(item));
    return node;
  }
  return ConfigNode::scalar(written.dump());
}

template <class M>
std::unique_ptr<metrics::Metric> make(const Json& written) {
  ConfigNode node = ConfigNode::map();
  for (const auto& [name, value] : written.items()) {
    if (!value.is_null()) node.set(name, node_of(value));
  }
  typename M::Options options;
  Problems problems;
  read_options(node, options, "options", problems);
  problems.throw_if_any();
  return std::make_unique<M>(options);
}

inline std::unique_ptr<metrics::Metric> make_metric(const std::string& name, const Json& options) {
  using namespace metrics;
  if (name == "MeanAbsoluteError") return make<MeanAbsoluteError>(options);
  if (name == "MeanSquaredError") return make<MeanSquaredError>(options);
  if (name == "R2Score") return make<R2Score>(options);
  if (name == "PearsonCorrCoef") return make<PearsonCorrCoef>(options);
  if (name == "CosineSimilarity") return make<CosineSimilarity>(options);
  if (name == "Perplexity") return make<Perplexity>(options);
  if (name == "BLEUScore") return make<BLEUScore>(options);
  if (name == "ROUGEScore") return make<ROUGEScore>(options);
  if (name == "EditDistance") return make<EditDistance>(options);
  if (name == "PeakSignalNoiseRatio") return make<PeakSignalNoiseRatio>(options);
  if (name == "StructuralSimilarityIndexMeasure") return make<StructuralSimilarityIndexMeasure>(options);
  if (name == "JaccardIndex") return make<JaccardIndex>(options);
  if (name == "DiceScore") return make<DiceScore>(options);
  if (name == "MeanIoU") return make<MeanIoU>(options);
  if (name == "MeanMetric") return make<MeanMetric>(options);
  if (name == "SumMetric") return make<SumMetric>(options);
  if (name == "MinMetric") return make<MinMetric>(options);
  if (name == "MaxMetric") return make<MaxMetric>(options);
  throw std::runtime_error("no metric is called " + name);
}

/// Applied to each tensor of a batch: the same numbers in a different layout.
using Change = std::function<at::Tensor(const at::Tensor&)>;

inline void give_value(metrics::AggregationMetric& metric, const Json& batch, double grid, const Change& change) {
  const auto is_number = [](const Json& part) { return part.is_number() || part.is_null(); };
  const auto tensor = [&](const Json& part) { return change(input_of(part, grid)); };
  if (batch.size() == 1 && is_number(batch[0])) return metric(number_of(batch[0]));
  if (batch.size() == 1) return metric(tensor(batch[0]));
  auto& mean = dynamic_cast<metrics::MeanMetric&>(metric);
  if (is_number(batch[0])) return mean(number_of(batch[0]), number_of(batch[1]));
  if (is_number(batch[1])) return mean(tensor(batch[0]), number_of(batch[1]));
  return mean(tensor(batch[0]), tensor(batch[1]));
}

inline void give_batch(metrics::Metric& metric, const Json& batch, double grid, const Change& change) {
  if (auto* values = dynamic_cast<metrics::AggregationMetric*>(&metric)) {
    give_value(*values, batch, grid, change);
  } else if (auto* text_metric = dynamic_cast<metrics::TextMetric*>(&metric)) {
    const auto preds = batch[0].get<std::vector<std::string>>();
    if (!batch[1].empty() && batch[1][0].is_string()) {
      (*text_metric)(preds, batch[1].get<std::vector<std::string>>());
    } else {
      (*text_metric)(preds, batch[1].get<std::vector<std::vector<std::string>>>());
    }
  } else {
    auto& tensors = dynamic_cast<metrics::TensorMetric&>(metric);
    tensors(change(input_of(batch[0], grid)), change(input_of(batch[1], grid)));
  }
}

inline at::Tensor unchanged(const at::Tensor& tensor) {
  return tensor;
}

/// The value over `ranks` ranks among which the batches are divided: rank 0 computes it after merging the others'
/// states.
inline at::Tensor run_case(const Json& one, double grid, size_t ranks, const Change& change = unchanged) {
  std::vector<std::unique_ptr<metrics::Metric>> all;
  for (size_t r = 0; r < ranks; ++r) all.push_back(make_metric(one.at("metric"), one.at("options")));
  const auto& batches = one.at("batches");
  // In turns of whole parts: cat states keep the order of batches.
  for (size_t k = 0; k < batches.size(); ++k) give_batch(*all[k * ranks / batches.size()], batches[k], grid, change);
  for (size_t r = 1; r < ranks; ++r) all[0]->merge(all[r]->states(), all[r]->update_count());
  return all[0]->compute();
}

}  // namespace levin::other_cases
