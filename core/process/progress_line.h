// The one design of progress that Levin shows: a live line on a terminal, plain lines elsewhere. Used for training,
// validation, downloads, planning and sweeps.
//
//   Epoch 2/3  ███████▌       54 %  507/938  4321 it/s  0:00:03 left  train_loss 0.412  1.3 GB
//   Download train-images.gz  ████    34 %  9.0/26.4 MB  11.2 MB/s  0:00:02 left
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "levin/core/options/units.h"

namespace levin {

/// What is counted: batches and other items, or bytes.
enum class ProgressUnit { items, bytes };

/// What a line shows.
struct ProgressView {
  std::string title = "";                       // "Epoch 2/3"
  int64_t done = 0;                             // items (batches) or bytes
  std::optional<int64_t> total = std::nullopt;  // unset: unknown
  double rate = 0;                              // items or bytes per second; 0: not known yet
  std::optional<double> run_seconds_left = std::nullopt;
  std::map<std::string, double> metrics = {};
  double data_wait = 0;      // fraction of training's time, if it is large; else 0
  int64_t memory_bytes = 0;  // held now; 0: not shown
  ProgressUnit unit = ProgressUnit::items;
  std::string noun = "batches";  // of the items
};

/// Returns the live line in at most `columns` columns; the bar takes the remaining space, and is the first to be
/// omitted.
[[nodiscard]] std::string live_line(const ProgressView& view, int columns);
/// "epoch 1/3: 507/938 batches (780 it/s), 0:00:03 left, train_loss 0.41"
[[nodiscard]] std::string plain_line(const ProgressView& view);

/// "4321 it/s", "0.52 s/it".
[[nodiscard]] std::string rate_text(double rate);
/// Returns each metric with its name, preceded by `separator`.
[[nodiscard]] std::string metrics_text(const std::map<std::string, double>& metrics, const char* separator);

/// The progress of work other than an epoch: a live line after the first 0.1 s, or a plain line every ten seconds
/// without a terminal. The line disappears with the object. One at a time.
class ProgressTask {
 public:
  explicit ProgressTask(std::string title, ProgressUnit unit = ProgressUnit::items, std::string noun = "steps");
  ~ProgressTask();
  ProgressTask(const ProgressTask&) = delete;
  ProgressTask& operator=(const ProgressTask&) = delete;

  /// Updates the line. Cheap enough to be called often. `total`: unset while it is not known.
  void update(int64_t done, std::optional<int64_t> total);

 private:
  using Clock = std::chrono::steady_clock;

  ProgressView view_;
  Clock::time_point started_ = Clock::now();
  Clock::time_point next_;
  bool drawn_ = false;
};

}  // namespace levin
