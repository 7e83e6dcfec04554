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

#include "levin/core/fields.h"
#include "levin/metrics/metric.h"

namespace levin::metrics {

struct MetricCollectionOptions {
  std::string prefix = "";  // of all names
  std::string postfix = "";

  template <class = void>
  static auto fields() {
    using O = MetricCollectionOptions;
    return levin::fields(field("prefix", &O::prefix, "before all names"),
                         field("postfix", &O::postfix, "after all names"));
  }
};

/// Metrics keep the order in which they were added. torchmetrics: metrics with equal states share them (compute
/// groups); here: each has its own, as an update is cheap.
class MetricCollection {
 public:
  /// What iteration gives. `name` has the prefix and the postfix.
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

  /// Feeds all. Throws Error naming a metric that takes something else.
  void update(const at::Tensor& preds, const at::Tensor& target);
  void operator()(const at::Tensor& preds, const at::Tensor& target);
  void update(const TextMetric::Texts& preds, const std::vector<TextMetric::Texts>& references);
  void operator()(const TextMetric::Texts& preds, const std::vector<TextMetric::Texts>& references);
  void update(const TextMetric::Texts& preds, const TextMetric::Texts& references);
  void operator()(const TextMetric::Texts& preds, const TextMetric::Texts& references);

  /// The value of each by its name.
  [[nodiscard]] std::map<std::string, at::Tensor> compute() const;
  void reset();

  /// A collection of new metrics with the same options and names, and another prefix and postfix. Throws Error naming
  /// a metric that it only refers to: how to create another one is not known.
  [[nodiscard]] MetricCollection clone(MetricCollectionOptions options) const;

  /// By the name with which it was added, or by the full name. Throws Error naming those that there are.
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
