// Cases that record_cases.py writes: a metric, its options, batches, and the value that torchmetrics gives.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "levin/metrics/classification.h"

namespace levin::testing {

inline nlohmann::json read_cases(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + " cannot be opened");
  return nlohmann::json::parse(file);
}

/// null is NaN.
inline at::Tensor tensor_of(const nlohmann::json& written) {
  std::vector<double> values;
  for (const auto& value : written.at("values")) values.push_back(value.is_null() ? std::nan("") : value.get<double>());
  const auto type = written.at("type") == "float" ? at::kFloat : at::kLong;
  return at::tensor(values, at::kDouble).to(type).reshape(written.at("shape").get<std::vector<int64_t>>());
}

using Batches = std::vector<std::pair<at::Tensor, at::Tensor>>;

inline Batches batches_of(const nlohmann::json& written) {
  Batches batches;
  for (const auto& batch : written) batches.emplace_back(tensor_of(batch.at("preds")), tensor_of(batch.at("target")));
  return batches;
}

/// Options as a run file has them.
inline ConfigNode config_of(const nlohmann::json& options) {
  ConfigNode node = ConfigNode::map();
  for (const auto& [name, value] : options.items()) {
    if (value.is_string()) {
      node.set(name, ConfigNode::scalar(value.get<std::string>(), /*quoted=*/true));
    } else if (!value.is_null()) {
      node.set(name, ConfigNode::scalar(value.dump()));
    }
  }
  return node;
}

template <class Metric>
std::unique_ptr<metrics::TensorMetric> make_metric(const nlohmann::json& written) {
  typename Metric::Options options;
  Problems problems;
  read_options(config_of(written), options, "options", problems);
  problems.throw_if_any();
  return std::make_unique<Metric>(options);
}

inline std::unique_ptr<metrics::TensorMetric> make_metric(const std::string& name, const nlohmann::json& options) {
  using namespace metrics;
  if (name == "Accuracy") return make_metric<Accuracy>(options);
  if (name == "Precision") return make_metric<metrics::Precision>(options);
  if (name == "Recall") return make_metric<Recall>(options);
  if (name == "Specificity") return make_metric<Specificity>(options);
  if (name == "F1Score") return make_metric<F1Score>(options);
  if (name == "FBetaScore") return make_metric<FBetaScore>(options);
  if (name == "ConfusionMatrix") return make_metric<ConfusionMatrix>(options);
  if (name == "AUROC") return make_metric<AUROC>(options);
  if (name == "AveragePrecision") return make_metric<AveragePrecision>(options);
  if (name == "CalibrationError") return make_metric<CalibrationError>(options);
  throw std::runtime_error("no metric is called " + name);
}

/// One rank's value over all batches.
inline at::Tensor value_of(metrics::TensorMetric& metric, const Batches& batches) {
  for (const auto& [preds, target] : batches) metric.update(preds, target);
  return metric.compute();
}

/// The value of two ranks, one of which has every other batch: what rank 0 computes after the reduction.
inline at::Tensor value_of_two_ranks(const std::string& name, const nlohmann::json& options, const Batches& batches) {
  const auto zero = make_metric(name, options);
  const auto one = make_metric(name, options);
  for (size_t k = 0; k < batches.size(); ++k) {
    metrics::TensorMetric& rank = k % 2 == 0 ? *zero : *one;
    rank(batches[k].first, batches[k].second);
  }
  zero->merge(one->states(), one->update_count());
  return zero->compute();
}

}  // namespace levin::testing
