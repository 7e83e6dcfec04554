// MetricCollection: several metrics of the same predictions and targets, by name.
//
//   levin::metrics::MetricCollection val_{{.prefix = "val_"}};                        // members of the module
//   levin::metrics::MetricCollection test_;
//   …
//   val_.add<MeanSquaredError>("rmse", MeanSquaredErrorOptions{.squared = false}).add<R2Score>("r2");  // constructor
//   test_ = val_.clone({.prefix = "test_"});
//   …
//   val_(preds, target);                                                             // validation_step
//   for (auto& [name, metric] : val_) log(name, metric);                             // "val_rmse", "val_r2"
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/metrics/metric.h"

namespace levin::metrics {

/// Options of MetricCollection.
struct MetricCollectionOptions {
  std::string prefix = "";  // before all names
  std::string postfix = "";

  template <class = void>
  static auto fields() {
    using O = MetricCollectionOptions;
    return levin::fields(field("prefix", &O::prefix, "before all names"),
                         field("postfix", &O::postfix, "after all names"));
  }
};

/// A list of named metrics in the order in which they were added; like metrics, updated by every rank with its own
/// batches. torchmetrics shares the states of metrics that have the same ones (compute groups); here each metric has
/// its own, because an update is cheap.
class MetricCollection {
 public:
  /// An element of the collection. `name` includes the prefix and the postfix.
  struct Item {
    std::string name;
    Metric& metric;
  };

  explicit MetricCollection(Defaults = {}) : MetricCollection(MetricCollectionOptions()) {}
  explicit MetricCollection(MetricCollectionOptions options);
  MetricCollection(MetricCollection&&) = default;
  MetricCollection& operator=(MetricCollection&& other) noexcept;

  /// Creates a metric that belongs to the collection: add<F1Score>("f1", F1ScoreOptions{…}). Throws Error for a name
  /// that is taken.
  template <class M, class... Args>
  MetricCollection& add(const std::string& name, const Args&... args) {
    return insert(name, [args...] { return std::make_shared<M>(args...); });
  }
  /// Refers to a metric that outlives the collection.
  MetricCollection& add(const std::string& name, Metric& metric);

  /// Updates all metrics. Throws Error naming a metric that takes something else.
  void update(const at::Tensor& preds, const at::Tensor& target);
  void operator()(const at::Tensor& preds, const at::Tensor& target);
  void update(const TextMetric::Texts& preds, const std::vector<TextMetric::Texts>& references);
  void operator()(const TextMetric::Texts& preds, const std::vector<TextMetric::Texts>& references);
  void update(const TextMetric::Texts& preds, const TextMetric::Texts& references);
  void operator()(const TextMetric::Texts& preds, const TextMetric::Texts& references);

  /// Returns the value of each metric by its name.
  [[nodiscard]] std::map<std::string, at::Tensor> compute() const;
  void reset();

  /// Returns a collection of new metrics with the same options and names, and its own prefix and postfix. Throws Error
  /// naming a metric that the collection only refers to, because it cannot create another one.
  [[nodiscard]] MetricCollection clone(MetricCollectionOptions options) const;

  /// Returns a metric by the name with which it was added, or by its full name. Throws Error listing the names if there
  /// is none.
  [[nodiscard]] Metric& operator[](const std::string& name) const;

  [[nodiscard]] size_t size() const { return items_.size(); }
  [[nodiscard]] auto begin() const { return items_.begin(); }
  [[nodiscard]] auto end() const { return items_.end(); }

 private:
  using Make = std::function<std::shared_ptr<Metric>()>;
  struct Entry {
    std::string name;  // without prefix and postfix
    Make make;         // empty: referred to
    std::shared_ptr<Metric> metric;
  };

  MetricCollection& insert(const std::string& name, const Make& make);
  MetricCollection& insert(Entry entry);
  template <class Kind, class Action>
  void for_each(const char* given, Action action);

  MetricCollectionOptions options_;
  std::vector<Entry> entries_ = {};
  std::vector<Item> items_ = {};
};

}  // namespace levin::metrics
