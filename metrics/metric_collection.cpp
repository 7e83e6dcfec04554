#include "levin/metrics/metric_collection.h"

#include <utility>

#include "levin/core/options/error.h"

namespace levin::metrics {

MetricCollection::MetricCollection(MetricCollectionOptions options)
    : options_(checked(std::move(options), "MetricCollectionOptions")) {}

// Items refer to metrics and cannot be assigned.
MetricCollection& MetricCollection::operator=(MetricCollection&& other) noexcept {
  options_ = std::move(other.options_);
  entries_ = std::move(other.entries_);
  items_.swap(other.items_);
  return *this;
}

MetricCollection& MetricCollection::insert(Entry entry) {
  const std::string full = options_.prefix + entry.name + options_.postfix;
  for (const Item& item : items_) {
    if (item.name == full) {
      throw Error("MetricCollection: there is a metric called \"" + full + "\" already. Give the other one a name of " +
                  "its own.");
    }
  }
  items_.push_back({full, *entry.metric});
  entries_.push_back(std::move(entry));
  return *this;
}

MetricCollection& MetricCollection::insert(const std::string& name, const Make& make) {
  return insert({name, make, make()});
}

MetricCollection& MetricCollection::add(const std::string& name, Metric& metric) {
  return insert({name, {}, std::shared_ptr<Metric>(&metric, [](Metric*) {})});
}

// Checks all metrics before it changes one.
template <class Kind, class Action>
void MetricCollection::for_each(const char* given, Action action) {
  std::vector<Kind*> metrics;
  for (const Item& item : items_) {
    auto* metric = dynamic_cast<Kind*>(&item.metric);
    if (metric == nullptr) {
      throw Error("MetricCollection: \"" + item.name + "\" is a " + item.metric.name() + ", which does not take " +
                  given + ". Call it by itself, or put it into another collection.");
    }
    metrics.push_back(metric);
  }
  for (Kind* metric : metrics) action(*metric);
}

void MetricCollection::update(const at::Tensor& preds, const at::Tensor& target) {
  for_each<TensorMetric>("tensors", [&](TensorMetric& metric) { metric.update(preds, target); });
}

void MetricCollection::operator()(const at::Tensor& preds, const at::Tensor& target) {
  for_each<TensorMetric>("tensors", [&](TensorMetric& metric) { metric(preds, target); });
}

void MetricCollection::update(const TextMetric::Texts& preds, const std::vector<TextMetric::Texts>& references) {
  for_each<TextMetric>("text", [&](TextMetric& metric) { metric.update(preds, references); });
}

void MetricCollection::operator()(const TextMetric::Texts& preds, const std::vector<TextMetric::Texts>& references) {
  for_each<TextMetric>("text", [&](TextMetric& metric) { metric(preds, references); });
}

void MetricCollection::update(const TextMetric::Texts& preds, const TextMetric::Texts& references) {
  for_each<TextMetric>("text", [&](TextMetric& metric) { metric.update(preds, references); });
}

void MetricCollection::operator()(const TextMetric::Texts& preds, const TextMetric::Texts& references) {
  for_each<TextMetric>("text", [&](TextMetric& metric) { metric(preds, references); });
}

std::map<std::string, at::Tensor> MetricCollection::compute() const {
  std::map<std::string, at::Tensor> values;
  for (const Item& item : items_) values[item.name] = item.metric.compute();
  return values;
}

void MetricCollection::reset() {
  for (const Item& item : items_) item.metric.reset();
}

MetricCollection MetricCollection::clone(MetricCollectionOptions options) const {
  MetricCollection copy(std::move(options));
  for (const Entry& entry : entries_) {
    if (!entry.make) {
      throw Error("MetricCollection: \"" + entry.name +
                  "\" cannot be cloned, because the collection only refers to it. " + "Add it as add<" +
                  entry.metric->name() + ">(name, options), so that the collection creates it.");
    }
    copy.insert(entry.name, entry.make);
  }
  return copy;
}

Metric& MetricCollection::operator[](const std::string& name) const {
  std::vector<std::string> known;
  for (size_t k = 0; k < items_.size(); ++k) {
    if (entries_[k].name == name || items_[k].name == name) return items_[k].metric;
    known.push_back(items_[k].name);
  }
  throw Error("MetricCollection: no metric is called \"" + name + "\"." + did_you_mean(name, known) +
              " There are: " + join(known) + ".");
}

}  // namespace levin::metrics
