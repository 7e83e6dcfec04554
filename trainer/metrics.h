// The values that user code logs, and the options of `log`.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/core/options/value.h"
#include "levin/core/state.h"
#include "levin/loggers/log_values.h"
#include "levin/trainer/hook.h"

namespace levin {

namespace metrics {
class Metric;
class MetricCollection;
}  // namespace metrics

/// How the values of an epoch's batches become one value.
enum class ReduceFx { mean, sum, min, max };
template <>
struct EnumNames<ReduceFx> {
  static constexpr EnumName<ReduceFx> names[] = {
      {"mean", ReduceFx::mean}, {"sum", ReduceFx::sum}, {"min", ReduceFx::min}, {"max", ReduceFx::max}};
};

/// Returns the reduction of two values, or the sum of two totals of a mean; nan if one of them is nan.
[[nodiscard]] double reduced(ReduceFx reduce, double a, double b);

class RankCollectives;

/// The options of `log`: Lightning's arguments of self.log.
struct LogOptions {
  bool prog_bar = false;                             // show it on the progress bar
  bool logger = true;                                // write it to the loggers
  std::optional<bool> on_step = std::nullopt;        // log the value of each batch; unset: depends on the hook
  std::optional<bool> on_epoch = std::nullopt;       // log the epoch's reduction; unset: depends on the hook
  EnumOption<ReduceFx> reduce_fx = ReduceFx::mean;   // how batches become an epoch; mean weighs by batch_size
  std::optional<int64_t> batch_size = std::nullopt;  // samples of the value; unset: the batch's first dimension
  bool sync_dist = false;                            // reduce over ranks too
  bool add_dataloader_idx = true;                    // append /dataloader_idx_N if there are several loaders
};

/// Names with values, sorted by name.
using Metrics = std::map<std::string, double>;

/// The metrics of one loop (training, validation or testing) during one epoch: kept per (hook, name, loader), reduced
/// over the epoch, and read only when a logger, the progress bar or a callback needs them. A value on a device stays
/// there until then, so `log` never waits for a device. Not thread-safe.
class MetricStore {
 public:
  /// The position of the loop; set by the loop before user code runs.
  struct Place {
    Hook hook = Hook::none;
    int64_t batch_size = 1;  // samples in the current batch
    int64_t dataloader_idx = 0;
    int64_t num_dataloaders = 1;
  };

  /// Records a value of one element. `other`: the store of the other loop of a fit, in which the name must not be
  /// logged too. Throws Error naming the metric, the hook and the rule that was broken.
  void log(const Place& place, std::string_view name, const at::Tensor& value, const LogOptions& options,
           const MetricStore* other = nullptr);
  void log(const Place& place, std::string_view name, double value, const LogOptions& options,
           const MetricStore* other = nullptr);
  /// Records a metric that accumulates by itself: its value is computed when it is read, over all ranks for an epoch;
  /// NaN, with a warning, if it has too few samples. The store resets it, and holds a weak reference to it. Throws
  /// Error for a metric that is also logged for a different loader or in `other`, or has samples of a different loader,
  /// because its value would count the samples of both.
  void log(const Place& place, std::string_view name, metrics::Metric& metric, const LogOptions& options,
           const MetricStore* other = nullptr);

  /// Returns the values for the loggers: the last values of on_step metrics, or the reductions of on_epoch metrics.
  /// `only`: one loader's.
  [[nodiscard]] Metrics logged(bool on_step, std::optional<int64_t> only = std::nullopt) const;
  /// Returns the same values as logged(true), sorted by name. The names are shared with the last row as long as they do
  /// not change.
  [[nodiscard]] MetricRow step_row();
  /// Returns the values for the progress bar. `failing`: here and below, values that cannot be computed are left out,
  /// so that they do not hide the error that makes the run fail.
  [[nodiscard]] Metrics shown(bool on_step, bool failing = false) const;
  /// Returns the values for callbacks, by plain names in addition to the _step and _epoch names. `training`: step
  /// values count too.
  [[nodiscard]] Metrics monitored(bool on_step, bool training, bool failing = false) const;

  /// Reduces epoch values logged with sync_dist over all samples of all ranks, and replaces other epoch values by the
  /// values of the first rank that has them, in one message. Values already reduced are left alone. Every rank calls
  /// it, if there are several. `keep_states`: state_dict() then holds the metrics' states over all ranks.
  /// `idle_loaders`: the loaders without a batch for this rank, which takes the other ranks' values of their metrics.
  /// Throws Error naming the metrics if ranks have logged different ones.
  void sync_epoch(RankCollectives& ranks, bool keep_states = false, const std::vector<int64_t>& idle_loaders = {});
  /// Returns the metrics whose epoch value sync_epoch has taken from one rank although the ranks' values differ; each
  /// is named once.
  [[nodiscard]] std::vector<std::string> take_unsynced();
  /// Reduces the last batch's values of on_step metrics with sync_dist over all ranks. Every rank calls it.
  void sync_step(RankCollectives& ranks);
  /// Returns whether a metric needs sync_step().
  [[nodiscard]] bool syncs_steps() const { return any_step_sync_; }

  /// Forgets the values; the slots stay, for fast lookup in the next epoch.
  void reset();

  /// Returns what was logged since the last reset. A value that was on a device is saved as a number; after
  /// load_state_dict, values that follow on a device are added to it on the device.
  [[nodiscard]] State state_dict() const;
  /// Resets the sums, but not which metrics were logged.
  void drop_totals();
  void load_state_dict(const State& saved);

 private:
  struct Slot {
    Hook hook;
    std::string name;
    int64_t dataloader_idx;
    bool on_step, on_epoch, prog_bar, logger, add_suffix;
    ReduceFx reduce;
    bool sync_dist = false;
    bool used = false;            // logged since the last reset
    bool synced = false;          // `total` and `weight` are of all ranks
    bool differs = false;         // between ranks, in some epoch; not logged with sync_dist
    bool named = false;           // by take_unsynced
    double last_weight = 0;       // samples of `last`
    double last = 0;              // value of the latest batch
    double total = 0;             // weighted sum, sum, min or max
    double weight = 0;            // samples of `total`
    at::Tensor device_last = {};  // instead of last and total for values on a device
    at::Tensor device_total = {};
    // For a metric that accumulates by itself; then `total` is its value if `synced`.
    bool is_object = false;
    std::weak_ptr<metrics::Metric> object = {};
    State states = {};  // from a checkpoint, until it is logged again; or over all ranks, for one
  };

  // A value that all ranks reduce together; some may not have logged it.
  struct Shared {
    Slot* slot;
    size_t states = 0;               // of a metric that accumulates by itself
    std::vector<bool> lacking = {};  // rank by rank; empty: all have it
    [[nodiscard]] bool lacks(size_t rank) const { return !lacking.empty() && lacking[rank]; }
  };

  Slot& slot(const Place& place, std::string_view name, const LogOptions& options, const MetricStore* other);
  Slot& make_slot(const Place& place, std::string_view name, const LogOptions& options, const MetricStore* other);
  void check_name_is_free(const Slot& slot, const MetricStore* other) const;
  void check_object_is_free(const Slot& slot, const metrics::Metric& metric, const MetricStore* other) const;
  static void check_same_options(const Slot& slot, const LogOptions& options);
  static void add(Slot& slot, double value, double weight);
  static void add(Slot& slot, const at::Tensor& value, double weight);
  static double step_value(const Slot& slot);
  static double epoch_value(const Slot& slot);
  static std::shared_ptr<metrics::Metric> object_of(const Slot& slot);
  static double number_of(const Slot& slot, const at::Tensor& value);
  static double object_value(const Slot& slot, bool of_batch);
  static std::optional<double> value_of(const Slot& slot, bool on_step, bool failing);
  static State object_state(const Slot& slot);
  static double object_value_so_far(const Slot& slot);
  [[nodiscard]] std::vector<Shared> waiting(bool on_step);
  [[nodiscard]] static std::vector<double> numbers_of(const std::vector<Shared>& shared, bool on_step);
  [[nodiscard]] static std::string key_of(const Slot& slot);
  [[nodiscard]] static std::string names_of(const std::vector<Shared>& shared, bool on_step);
  [[nodiscard]] static std::string description_of(const Shared& shared);
  [[nodiscard]] std::pair<size_t, size_t> place_for(const std::string& key, const std::string& description);
  void agree(RankCollectives& ranks, std::vector<Shared>& shared, bool on_step,
             const std::vector<int64_t>& idle_loaders);
  [[nodiscard]] at::Tensor exchange(RankCollectives& ranks, std::vector<Shared>& shared, bool on_step,
                                    const std::vector<int64_t>& idle_loaders);
  static void sync_objects(RankCollectives& ranks, const std::vector<Shared>& shared, bool keep_states);
  static void merge_object(Slot& slot, const std::vector<std::pair<std::vector<at::Tensor>, int64_t>>& parts,
                           bool keep_states);
  static void take_values(RankCollectives& ranks, const std::vector<const Shared*>& objects,
                          const std::exception_ptr& failed);
  static std::string full_name(const Slot& slot, bool on_step, bool plain);
  template <class Keep>
  void collect(bool on_step, Metrics& metrics, Keep keep, bool failing = false) const;

  // The slots in a row of a step.
  struct RowSlots {
    std::vector<size_t> used = {};     // in the order in which they are logged
    std::vector<size_t> by_name = {};  // the last of two slots with one name
    std::shared_ptr<const std::vector<std::string>> names = nullptr;
  };
  static bool has_value(const Slot& slot, bool on_step) {
    return slot.used && (on_step ? slot.on_step : slot.on_epoch);
  }
  static bool in_step_row(const Slot& slot) { return has_value(slot, true) && slot.logger; }
  [[nodiscard]] bool fits(const RowSlots& row) const;
  [[nodiscard]] RowSlots row_slots() const;

  Slot& add_slot(Slot slot);
  [[nodiscard]] std::vector<size_t> slots_that_may_clash(const Slot& slot) const;

  std::vector<Slot> slots_ = {};
  std::map<std::string, std::vector<size_t>, std::less<>> by_name_ = {};  // the slots with a name, in their order
  RowSlots row_ = {};
  bool any_step_sync_ = false;  // a metric has its step values reduced over ranks
  size_t cursor_ = 0;           // calls usually come in the same order in every batch, so the next slot is tried first
};

}  // namespace levin
