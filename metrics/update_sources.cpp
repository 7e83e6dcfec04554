#include "levin/metrics/update_sources.h"

#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/metrics/metric.h"
#include "levin/metrics/update_undo.h"

namespace levin::metrics {

namespace {

constexpr const char* kRemedy = "Make one metric object for training and one for validation.";

}  // namespace

struct SourceRecord final : UpdateRecord {
  // The samples that a metric has accumulated since it was empty.
  struct Samples {
    std::weak_ptr<Metric> metric = {};
    UpdateSource first = {};  // the first update in training or validation
    std::set<int64_t> loaders = {};
    std::string claimed_by = "";
    int64_t claimed_loader = -1;
  };

  explicit SourceRecord(std::function<UpdateSource()> given) : running(std::move(given)) {}

  void before_update(Metric& metric) override {
    const UpdateSource now = running();
    const std::lock_guard lock(mutex);
    Samples& samples = samples_of(metric);
    if (samples.first.stage.empty()) {
      samples.first = now;
    } else if (!now.stage.empty() && now.stage != samples.first.stage) {
      throw Error(metric.name() + ": " + std::string(now.hook) + " updates the metric object that " +
                  std::string(samples.first.hook) +
                  " has updated since its last reset, and its value would contain the samples of both. " + kRemedy);
    }
    if (now.loader < 0) return;
    samples.loaders.insert(now.loader);
    check_loaders(metric, samples);
  }

  void emptied(const Metric& metric) override {
    const std::lock_guard lock(mutex);
    all.erase(&metric);
  }

  void check_reset(const Metric& metric, const std::string& who) {
    const UpdateSource now = running();
    const std::lock_guard lock(mutex);
    const auto found = all.find(&metric);
    if (found == all.end() || found->second.metric.lock().get() != &metric) return;
    const UpdateSource& first = found->second.first;
    if (now.stage.empty() || first.stage.empty() || now.stage == first.stage) return;
    throw Error(who + ": this " + metric.name() + " is reset for " + std::string(now.stage) +
                ", and the samples that it has from " + std::string(first.hook) + " would be lost. " + kRemedy);
  }

  void claim(Metric& metric, const std::string& who, int64_t loader) {
    const std::lock_guard lock(mutex);
    Samples& samples = samples_of(metric);
    samples.claimed_by = who;
    samples.claimed_loader = loader;
    check_loaders(metric, samples);
  }

 private:
  Samples& samples_of(Metric& metric) {
    Samples& samples = all[&metric];
    if (samples.metric.lock().get() != &metric) samples = {metric.self()};  // new, or an earlier metric at this address
    return samples;
  }

  static void check_loaders(const Metric& metric, const Samples& samples) {
    if (samples.claimed_by.empty()) return;
    for (const int64_t loader : samples.loaders) {
      if (loader == samples.claimed_loader) continue;
      throw Error(samples.claimed_by + ": this " + metric.name() + " also has samples of dataloader " +
                  std::to_string(loader) + ", and its value for dataloader " + std::to_string(samples.claimed_loader) +
                  " would contain samples of both. Make a metric object for each loader, and choose it by "
                  "dataloader_idx().");
    }
  }

  std::function<UpdateSource()> running;
  std::mutex mutex = {};  // replicas of a module compute their parts in threads
  std::map<const Metric*, Samples> all = {};
};

UpdateSources::UpdateSources(std::function<UpdateSource()> running)
    : record_(std::make_shared<SourceRecord>(std::move(running))) {
  add_update_record(record_);
}

UpdateSources::~UpdateSources() = default;

namespace {

// Calls `action` for each record that the calling thread knows.
template <class Action>
void for_each_source_record(Action action) {
  for (const auto& one : update_records()) {
    const auto record = std::dynamic_pointer_cast<SourceRecord>(one.lock());
    if (record != nullptr) action(*record);
  }
}

}  // namespace

void check_reset(const Metric& metric, const std::string& who) {
  for_each_source_record([&](SourceRecord& record) { record.check_reset(metric, who); });
}

void claim_for_loader(Metric& metric, const std::string& who, int64_t loader) {
  for_each_source_record([&](SourceRecord& record) { record.claim(metric, who, loader); });
}

}  // namespace levin::metrics
