// Writes how fast a run is to the loggers, every log_every_n_steps: batches, samples and items (tokens) and FLOPs per
// second, and the fraction of the device's peak (model FLOPs utilization, MFU).
//
//   .callbacks = {levin::ThroughputMonitor({.length_dim = 1})}     // batch[0]: (batch, tokens)
//   train/device/samples_per_sec, train/device/items_per_sec, train/device/mfu, …
//
// "device" rates are this rank's; rates of all ranks are this rank's times the number of ranks. On a GPU each
// row waits for the device. A resumed run continues the totals and the steps of validation rows; its rates start anew.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "levin/core/options/fields.h"
#include "levin/profilers/flop_counter.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/metrics.h"

namespace levin {

/// One device's totals at the end of a batch.
struct ThroughputPoint {
  double seconds = 0;
  int64_t batches = 0;
  int64_t samples = 0;
  std::optional<int64_t> lengths = std::nullopt;  // sum over batches of the items in one of their samples
  std::optional<double> flops = std::nullopt;
};

/// Rates over the latest batches of a run, under Lightning's names:
///   device/batches_per_sec, device/samples_per_sec, device/items_per_sec, device/flops_per_sec, device/mfu
///   and without "device/" for all devices together, if there are several
///   time, batches, samples, lengths: totals
class Throughput {
 public:
  /// `window_size`: number of points for a rate, at least 2. `available_flops`: the device's peak, per second.
  Throughput(int64_t window_size, std::string separator, int64_t world_size, std::optional<double> available_flops);

  void update(const ThroughputPoint& point);
  /// Returns totals, and rates once there are two points. Lightning computes rates once the window is full; here they
  /// are available earlier, for short runs.
  [[nodiscard]] Metrics compute() const;

 private:
  int64_t window_size_;
  std::string separator_;
  int64_t world_size_;
  std::optional<double> available_flops_;
  std::deque<ThroughputPoint> window_ = {};
};

/// Options of ThroughputMonitor.
struct ThroughputMonitorOptions {
  int64_t window_size = 100;
  std::string separator = "/";
  std::optional<int64_t> length_dim = std::nullopt;
  std::optional<double> flops_per_batch = std::nullopt;
  std::optional<double> available_flops = std::nullopt;

  template <class = void>
  static auto fields() {
    using O = ThroughputMonitorOptions;
    auto not_negative = [](const auto& value) { return !value || *value >= 0; };
    return levin::fields(
        field("window_size", &O::window_size, "number of batches for a rate").min(2),
        field("separator", &O::separator, "between the parts of a name"),
        field("length_dim", &O::length_dim,
              "dimension of a batch's first tensor that counts the items of a sample: 1 for tokens of (batch, tokens)")
            .check(not_negative, ">= 0"),
        field("flops_per_batch", &O::flops_per_batch,
              "floating-point operations of a batch; null: counted in the first batch; 0: no FLOPs")
            .check(not_negative, ">= 0"),
        field("available_flops", &O::available_flops,
              "the device's peak, per second; null: from the data sheet, for GPUs that Levin knows")
            .check([](const auto& value) { return !value || *value > 0; }, "> 0"));
  }
};

/// A callback that measures throughput in every stage, on every rank; only rank 0 has loggers. Throws ConfigError in
/// setup() if a fit has no logger, and Error if length_dim does not exist in a batch.
class ThroughputMonitor final : public Callback {
 public:
  using Options = ThroughputMonitorOptions;
  using BatchCount = std::function<int64_t(const Batch&)>;

  explicit ThroughputMonitor(Defaults = {}) : ThroughputMonitor(ThroughputMonitorOptions()) {}
  /// `batch_size_fn`: samples of a batch, instead of Batch::size(). `length_fn`: items in one of its samples, instead
  /// of length_dim.
  explicit ThroughputMonitor(ThroughputMonitorOptions options, BatchCount batch_size_fn = nullptr,
                             BatchCount length_fn = nullptr);

  /// Throws ConfigError if a fit has no logger.
  void setup(Trainer& trainer, LightningModule&, Stage stage) override;
  void teardown(Trainer&, LightningModule&, Stage) override { counter_.reset(); }
  void on_exception(Trainer&, LightningModule&, const std::exception&) override { counter_.reset(); }

  void on_train_start(Trainer& trainer, LightningModule&) override { start(trainer, Mode::train); }
  void on_train_batch_start(Trainer&, LightningModule&, const Batch&, int64_t) override { start_batch(Mode::train); }
  void on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch& batch,
                          int64_t batch_idx) override;
  void on_validation_start(Trainer& trainer, LightningModule&) override { start(trainer, Mode::validate); }
  void on_validation_batch_start(Trainer&, LightningModule&, const Batch&, int64_t, int64_t) override {
    start_batch(Mode::validate);
  }
  void on_validation_batch_end(Trainer& trainer, LightningModule&, const Batch& batch, int64_t, int64_t) override {
    end_evaluation_batch(trainer, Mode::validate, batch);
  }
  void on_validation_end(Trainer&, LightningModule&) override;
  void on_test_start(Trainer& trainer, LightningModule&) override { start(trainer, Mode::test); }
  void on_test_batch_start(Trainer&, LightningModule&, const Batch&, int64_t, int64_t) override {
    start_batch(Mode::test);
  }
  void on_test_batch_end(Trainer& trainer, LightningModule&, const Batch& batch, int64_t, int64_t) override {
    end_evaluation_batch(trainer, Mode::test, batch);
  }
  void on_predict_start(Trainer& trainer, LightningModule&) override { start(trainer, Mode::predict); }
  void on_predict_batch_start(Trainer&, LightningModule&, const Batch&, int64_t, int64_t) override {
    start_batch(Mode::predict);
  }
  void on_predict_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch& batch, int64_t,
                            int64_t) override {
    end_evaluation_batch(trainer, Mode::predict, batch);
  }

  /// Returns the totals of training, and the step of the next validation's rows.
  [[nodiscard]] State state_dict() const override;
  /// Restores them in a fit. Throws CheckpointError if `saved` lacks one of them.
  void load_state_dict(const State& saved) override;
  [[nodiscard]] std::string state_key() const override { return "ThroughputMonitor"; }

  /// Returns the current values of a stage ("train", "validate", "test", "predict"), without its prefix. Throws Error
  /// for any other stage.
  [[nodiscard]] Metrics metrics(const std::string& stage) const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Mode { train, validate, test, predict };
  struct Meter {
    std::optional<Throughput> throughput = std::nullopt;
    Clock::time_point started = {};  // moved on by the time of validations
    ThroughputPoint totals = {};
    bool counted = false;
    double flops_per_sample = 0;   // from the batch in which FLOPs were counted
    int64_t evaluated = 0;         // batches over all passes: the step of evaluation rows
    int64_t evaluated_before = 0;  // without batches of an unfinished pass, which a resumed run repeats
  };

  [[nodiscard]] Meter& meter(Mode mode) { return meters_[static_cast<size_t>(mode)]; }
  void start(Trainer& trainer, Mode mode);
  void start_batch(Mode mode);
  void end_batch(Trainer& trainer, Mode mode, const Batch& batch, bool writes);
  void end_evaluation_batch(Trainer& trainer, Mode mode, const Batch& batch);
  void add_flops(Meter& meter, int64_t samples);
  void write(Trainer& trainer, Mode mode, int64_t step);

  ThroughputMonitorOptions options_;
  BatchCount batch_size_;
  BatchCount length_;
  std::optional<double> available_flops_ = std::nullopt;
  std::array<Meter, 4> meters_ = {};  // by Mode
  Clock::time_point validation_started_ = {};
  bool off_ = false;   // during the sanity check
  bool fits_ = false;  // the stage is fit: an evaluation counts from 0, also with a run's checkpoint
  std::shared_ptr<FlopCounter> counter_ = nullptr;
};

}  // namespace levin
