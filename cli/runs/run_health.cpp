#include "levin/cli/runs/run_health.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "levin/cli/runs/html.h"
#include "levin/core/options/error.h"
#include "levin/core/options/units.h"

namespace levin {

namespace {

constexpr size_t kParts = 10;
constexpr size_t kEndParts = 3;         // in which a loss falls, or is flat
constexpr size_t kLeastValues = 20;     // for a trend
constexpr double kNegligible = 0.01;    // of the whole fall: less does not count as a fall, however small the noise
constexpr double kFlat = 0.1;           // of the whole fall: what noise may hide in a loss that is called flat
constexpr double kNoFall = 2;           // times the noise of a value: a smaller whole fall is none
constexpr double kRounding = 1e-9;      // of the loss
constexpr double kSpikeDeviations = 8;  // above the running mean
constexpr size_t kSpikeWarmUp = 30;     // values before any can be a spike
constexpr double kRunningKept = 0.95;

double mean_of(const std::vector<double>& values, size_t begin, size_t end) {
  double sum = 0;
  for (size_t k = begin; k < end; ++k) sum += values[k];
  return sum / static_cast<double>(end - begin);
}

// The standard deviation of the noise, from neighbouring values, which a trend hardly moves apart: von Neumann's mean
// squared successive difference, halved.
double noise_of(const std::vector<double>& values) {
  double squares = 0;
  for (size_t k = 1; k < values.size(); ++k) squares += (values[k] - values[k - 1]) * (values[k] - values[k - 1]);
  return std::sqrt(squares / 2 / static_cast<double>(values.size() - 1));
}

// The two-sided 95 % quantile of Student's t; within 1 % of the exact one from 4 degrees of freedom on.
double student_t(double freedom) {
  return 1.96 + 2.4 / freedom + 3.2 / (freedom * freedom);
}

// How much the least-squares line through values[begin:] falls from its first value to its last, and by how much noise
// may have changed that.
struct Fall {
  double size = 0;
  double margin = 0;
};

Fall fall_of(const std::vector<double>& values, size_t begin) {
  const auto count = static_cast<double>(values.size() - begin);
  const double middle = (count - 1) / 2;
  const double mean = mean_of(values, begin, values.size());
  double products = 0;
  for (size_t k = begin; k < values.size(); ++k) {
    products += (static_cast<double>(k - begin) - middle) * (values[k] - mean);
  }
  const double spread = count * (count * count - 1) / 12;  // sum of (k - middle)^2
  const double slope = products / spread;
  double squares = 0;
  for (size_t k = begin; k < values.size(); ++k) {
    const double residual = values[k] - mean - slope * (static_cast<double>(k - begin) - middle);
    squares += residual * residual;
  }
  const double error = std::sqrt(squares / (count - 2) / spread);  // of the slope
  return {-slope * (count - 1), student_t(count - 2) * error * (count - 1)};
}

void find_spikes(const std::vector<double>& values, const std::vector<int64_t>& steps, LossTrend& trend) {
  double mean = 0;
  double deviation = 0;
  for (size_t k = 0; k < values.size(); ++k) {
    const double above = values[k] - mean;
    if (k >= kSpikeWarmUp && above > kSpikeDeviations * deviation && above > 0.1 * std::abs(mean)) {
      ++trend.spikes;
      if (!(trend.highest_spike >= values[k])) {
        trend.highest_spike = values[k];
        trend.highest_spike_step = steps[k];
      }
      continue;  // the running mean is of ordinary values
    }
    const double kept = k < 20 ? static_cast<double>(k) / static_cast<double>(k + 1) : kRunningKept;
    mean = kept * mean + (1 - kept) * values[k];
    deviation = kept * deviation + (1 - kept) * std::abs(values[k] - mean);
  }
}

bool rises(const LossTrend& trend, double error_of_tenth, double whole_fall) {
  const double noise = 3 * std::sqrt(2.0) * error_of_tenth;
  return trend.end - trend.lowest > std::max({noise, 0.05 * std::abs(trend.lowest), 0.05 * whole_fall});
}

// A loss that grows without bound is its own noise, for it moves neighbours apart; so its values are compared, not its
// noise: the last tenth is above everything in the first seven.
bool explodes(const std::vector<double>& values, const LossTrend& trend) {
  const auto begin_of = [&](size_t part) {
    return values.begin() + static_cast<int64_t>(part * values.size() / kParts);
  };
  const double least = *std::min_element(begin_of(kParts - 1), values.end());
  const double largest = *std::max_element(values.begin(), begin_of(kParts - kEndParts));
  return least > largest && trend.end - trend.lowest > std::abs(trend.lowest);
}

void judge(const std::vector<double>& values, const std::vector<int64_t>& steps, LossTrend& trend) {
  const auto begin_of = [&](size_t part) { return part * values.size() / kParts; };
  for (size_t part = 0; part < kParts; ++part) {
    const double mean = mean_of(values, begin_of(part), begin_of(part + 1));
    trend.end = mean;
    if (part > 0 && mean >= trend.lowest) continue;
    trend.lowest = mean;
    trend.lowest_step = steps[begin_of(part + 1) - 1];
  }
  trend.start = mean_of(values, 0, std::min<size_t>(begin_of(1), 50));
  const double noise = noise_of(values);
  const double whole_fall = std::max(trend.start - trend.lowest, 0.0);
  if (rises(trend, noise / std::sqrt(static_cast<double>(values.size()) / kParts), whole_fall) ||
      explodes(values, trend)) {
    trend.kind = LossTrend::Kind::rising;
    return;
  }
  const double negligible = std::max(kNegligible * whole_fall, kRounding * std::abs(trend.end));
  const bool never_fell = whole_fall < kNoFall * noise;
  const double visible = std::max({kFlat * whole_fall, never_fell ? noise : 0, negligible});
  const auto falls = [&](const Fall& fall) { return fall.size > std::max(fall.margin, negligible); };
  const auto is_flat = [&](const Fall& fall) { return !falls(fall) && fall.margin <= visible; };
  const Fall last = fall_of(values, begin_of(kParts - kEndParts));
  trend.kind = falls(last) ? LossTrend::Kind::falling : is_flat(last) ? LossTrend::Kind::flat : LossTrend::Kind::hidden;
  if (trend.kind != LossTrend::Kind::flat) return;
  size_t since = kParts - kEndParts;
  while (since > 0 && is_flat(fall_of(values, begin_of(since - 1)))) --since;
  trend.flat_since = steps[begin_of(since)];
}

constexpr size_t kLeastPoints = 20;  // for a judgement

std::string at_step(int64_t step) {
  return "step " + grouped_number(step);
}

// " (-85 %)" or " (2500 times as much)": from one value to another.
std::string change(double from, double to) {
  if (from == 0 || !std::isfinite(from) || !std::isfinite(to)) return "";
  const double share = (to - from) / std::abs(from);
  if (share > 100 && from > 0) return " (" + short_number(to / from) + " times as much)";
  return std::string(" (") + (share >= 0 ? "+" : "−") + percent(std::abs(share)) + ")";
}

class Health {
 public:
  Health(const RunRecord& record, const AllSeries& series) : record_(record), series_(series) {}

  std::vector<HealthFinding> findings() {
    judge_end();
    judge_loss();
    judge_validation();
    judge_gradients();
    judge_steps();
    judge_time();
    std::stable_sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) {
      return (a.level >= HealthLevel::watch ? -static_cast<int>(a.level) : 0) <
             (b.level >= HealthLevel::watch ? -static_cast<int>(b.level) : 0);
    });
    return std::move(found_);
  }

 private:
  void add(HealthLevel level, const std::string& topic, const std::string& text, const std::string& remedy = "") {
    found_.push_back({level, topic, text, remedy});
  }

  void judge_end() {
    const std::string step = record_.step >= 0 ? " at " + at_step(record_.step) : "";
    switch (record_.status) {
      case RunStatus::failed:
        add(HealthLevel::bad, "End",
            "The run failed" + step +
                (record_.error.empty() ? "." : ": " + cut_text(record_.error.substr(0, record_.error.find('\n')), 300)),
            "The whole text is under Errors.");
        break;
      case RunStatus::killed:
        add(HealthLevel::bad, "End",
            "The process is gone" + step + " and has recorded no end: it was killed, or the machine stopped.",
            "Look for the out-of-memory killer in the system's log, and continue with --trainer.auto_resume=true.");
        break;
      case RunStatus::interrupted:
        add(HealthLevel::watch, "End", "The run was interrupted" + step + ".",
            "Continue with --trainer.auto_resume=true.");
        break;
      case RunStatus::running: {
        std::string text = "The run is active" + step;
        if (record_.progress >= 0) text += ", " + percent(record_.progress) + " of it done";
        if (record_.remaining_seconds >= 0)
          text += ", about " + readable_duration(Seconds(record_.remaining_seconds)) + " left";
        add(HealthLevel::note, "Progress", text + ".");
        break;
      }
      default: break;
    }
  }

  void judge_loss() {
    const std::string name = training_loss_name(series_);
    if (name.empty()) return;
    const LossTrend trend = loss_trend(series_.at(name));
    const std::string shown = cut_text(name);
    const std::string span =
        "from " + short_number(trend.start) + " to " + short_number(trend.end) + change(trend.start, trend.end);
    switch (trend.kind) {
      case LossTrend::Kind::nonfinite:
        add(HealthLevel::bad, "Training loss",
            shown + " is nan or infinite since " + at_step(trend.nonfinite_step) + ": " +
                count_of(trend.nonfinite, "value") + " of " +
                grouped_number(static_cast<int64_t>(series_.at(name).values.size())) + ".",
            "Lower the learning rate, set gradient_clip_val, and find the cause with detect_anomaly: true.");
        break;
      case LossTrend::Kind::falling:
        add(HealthLevel::good, "Training loss", shown + " is falling: " + span + ".");
        break;
      case LossTrend::Kind::flat:
        add(trend.end < trend.start ? HealthLevel::note : HealthLevel::watch, "Training loss",
            shown + " has been flat since " + at_step(trend.flat_since) + ": " + span + " over the run.",
            trend.end < 0.98 * trend.start
                ? "Training further gains little with these settings; lower the learning rate, or stop."
                : "It has hardly learned: try another learning rate, and check the data and the labels.");
        break;
      case LossTrend::Kind::hidden:
        add(HealthLevel::note, "Training loss",
            shown + " went " + span + ". Whether it still falls is hidden by its noise.",
            "Log it more often (log_every_n_steps), or train longer.");
        break;
      case LossTrend::Kind::rising:
        add(HealthLevel::bad, "Training loss",
            shown + " is rising: it was lowest (" + short_number(trend.lowest) + ") at " + at_step(trend.lowest_step) +
                " and is " + short_number(trend.end) + change(trend.lowest, trend.end) + " now.",
            "Lower the learning rate, add a warm-up, or set gradient_clip_val.");
        break;
      default:
        add(HealthLevel::note, "Training loss",
            shown + " has too few values to judge: " +
                count_of(static_cast<int64_t>(series_.at(name).values.size()), "value") + ".",
            "Lower log_every_n_steps.");
    }
    if (trend.spikes == 0) return;
    add(trend.spikes > 5 ? HealthLevel::watch : HealthLevel::note, "Spikes",
        shown + " has " + count_of(trend.spikes, "spike") + ", the highest of " + short_number(trend.highest_spike) +
            " at " + at_step(trend.highest_spike_step) + ".",
        "gradient_clip_val limits what one batch can do; look at the batches of that step.");
  }

  void judge_validation() {
    const std::string name = validation_loss_name(series_);
    if (name.empty()) return;
    const MetricSeries& values = series_.at(name);
    const auto best = std::min_element(values.values.begin(), values.values.end(),
                                       [](double a, double b) { return a < b || (!std::isnan(a) && std::isnan(b)); });
    const double lowest = *best;
    const double last = values.values.back();
    const int64_t lowest_step = values.steps[static_cast<size_t>(best - values.values.begin())];
    if (values.values.size() < 2 || !std::isfinite(lowest)) return;
    const std::string shown = cut_text(name);
    if (!std::isfinite(last)) {
      add(HealthLevel::bad, "Validation",
          shown + " is not finite at the end; it was lowest (" + short_number(lowest) + ") at " + at_step(lowest_step) +
              ".",
          "Use the checkpoint of that step, and see the training loss.");
      return;
    }
    const double range = std::abs(values.values.front() - lowest);
    if (last - lowest <= std::max(0.02 * std::abs(lowest), 0.02 * range)) {
      add(HealthLevel::good, "Validation",
          shown + " is " + short_number(last) + " at the end; its lowest is " + short_number(lowest) + " at " +
              at_step(lowest_step) + "." + against_training(last));
      return;
    }
    const std::string training = training_loss_name(series_);
    const double then = training.empty() ? kUnknown : mean_around(series_.at(training), lowest_step);
    const double now = training.empty() ? kUnknown : loss_trend(series_.at(training)).end;
    const bool overfits = now < then;
    add(HealthLevel::watch, overfits ? "Overfitting" : "Validation",
        shown + " was lowest (" + short_number(lowest) + ") at " + at_step(lowest_step) + " and is " +
            short_number(last) + change(lowest, last) + " at the end" +
            (overfits
                 ? ", while " + cut_text(training) + " fell from " + short_number(then) + " to " + short_number(now)
                 : "") +
            ".",
        overfits ? "Use the checkpoint of that step; EarlyStopping, more data, dropout or weight decay help."
                 : "Use the checkpoint of that step; a lower learning rate makes the end steadier.");
  }

  std::string against_training(double validation) const {
    const std::string training = training_loss_name(series_);
    if (training.empty()) return "";
    const double end = loss_trend(series_.at(training)).end;
    if (!std::isfinite(end)) return "";
    const std::string gap = validation > end ? ", a gap of " + short_number(validation - end) : ", which is not better";
    return " " + cut_text(training) + " is " + short_number(end) + gap + ".";
  }

  // The mean of the 5 % of values before `step`.
  static double mean_around(const MetricSeries& series, int64_t step) {
    const auto end =
        static_cast<size_t>(std::upper_bound(series.steps.begin(), series.steps.end(), step) - series.steps.begin());
    const size_t wanted = std::max<size_t>(series.values.size() / 20, 1);
    double sum = 0;
    size_t count = 0;
    for (size_t k = end; k > 0 && count < wanted; --k) {
      if (!std::isfinite(series.values[k - 1])) continue;
      sum += series.values[k - 1];
      ++count;
    }
    return count == 0 ? kUnknown : sum / static_cast<double>(count);
  }

  void judge_gradients() {
    for (const auto& [name, values] : series_) {
      const bool is_norm = name.find("grad") != std::string::npos && name.find("norm") != std::string::npos;
      if (!is_norm || values.values.size() < kLeastPoints) continue;
      std::vector<double> sorted;
      for (const double value : values.values) {
        if (std::isfinite(value)) sorted.push_back(value);
      }
      const int64_t nonfinite = static_cast<int64_t>(values.values.size() - sorted.size());
      if (sorted.empty()) continue;
      std::sort(sorted.begin(), sorted.end());
      const double median = sorted[sorted.size() / 2];
      const std::string text =
          cut_text(name) + " is " + short_number(median) + " in the middle and at most " + short_number(sorted.back());
      if (nonfinite > 0) {
        add(HealthLevel::watch, "Gradient norm", text + "; " + count_of(nonfinite, "value") + " nan or infinite.",
            "With 16-bit precision a few are normal; else lower the learning rate.");
      } else if (sorted.back() > 100 * median) {
        add(HealthLevel::watch, "Gradient norm",
            text + ", " + short_number(std::round(sorted.back() / median)) + " times as much.",
            "Set gradient_clip_val to about " + short_number(2 * median) + ".");
      } else if (median < 1e-7) {
        add(HealthLevel::watch, "Gradient norm", text + ": the gradients vanish.",
            "Check the initialization and for dead activations.");
      } else {
        add(HealthLevel::good, "Gradient norm", text + ".");
      }
      return;
    }
  }

  void judge_steps() {
    if (!record_.has_record || record_.step < 1) return;
    const auto steps = static_cast<double>(record_.step);
    const double share = static_cast<double>(record_.skipped_steps) / steps;
    const std::string text =
        grouped_number(record_.skipped_steps) + " of " + grouped_number(record_.step) + " steps were skipped" +
        (record_.skipped_steps > 0 ? " (" + percent(share) + ")" : "") +
        (record_.nonfinite_losses > 0
             ? "; " + count_of(record_.nonfinite_losses, "loss or gradient", "losses or gradients") + " not finite"
             : "") +
        ".";
    const HealthLevel level = share > 0.1                                    ? HealthLevel::bad
                              : share > 0.01 || record_.nonfinite_losses > 0 ? HealthLevel::watch
                                                                             : HealthLevel::good;
    add(level, "Skipped steps", text,
        level == HealthLevel::good
            ? ""
            : "With 16-bit precision use bf16-mixed; else lower the learning rate and look for bad batches.");
  }

  void judge_time() {
    double total = 0;
    for (const auto& part : record_.time_split) total += part.second;
    if (total < 1) return;
    for (const auto& [name, seconds] : record_.time_split) {
      const double share = seconds / total;
      const std::string text = percent(share) + " of the time (" + readable_duration(Seconds(seconds)) + ")";
      if (name == "data") {
        const HealthLevel level = share > 0.2    ? HealthLevel::bad
                                  : share > 0.05 ? HealthLevel::watch
                                                 : HealthLevel::good;
        add(level, "Waiting for data", text + " was spent waiting for data.",
            level == HealthLevel::good ? "" : "Raise num_workers, or prepare the data once and keep it ready.");
      } else if (name == "validation" && share > 0.3) {
        add(HealthLevel::watch, "Validation time", text + " was spent in validation.",
            "Validate less often (val_check_interval), or limit_val_batches.");
      }
    }
  }

  const RunRecord& record_;
  const AllSeries& series_;
  std::vector<HealthFinding> found_ = {};
};

std::string first_of(const AllSeries& series, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = series.find(name);
    if (found != series.end() && !found->second.values.empty()) return name;
  }
  return "";
}

}  // namespace

LossTrend loss_trend(const MetricSeries& series) {
  LossTrend trend;
  std::vector<double> values;
  std::vector<int64_t> steps;
  for (size_t k = 0; k < series.values.size(); ++k) {
    if (std::isfinite(series.values[k])) {
      values.push_back(series.values[k]);
      steps.push_back(series.steps[k]);
    } else if (trend.nonfinite++ == 0) {
      trend.nonfinite_step = series.steps[k];
    }
  }
  if (values.size() >= kLeastValues) {
    find_spikes(values, steps, trend);
    judge(values, steps, trend);
  }
  const bool ends_so = !series.values.empty() && !std::isfinite(series.values.back());
  if (ends_so || trend.nonfinite > static_cast<int64_t>(values.size() / 10)) trend.kind = LossTrend::Kind::nonfinite;
  return trend;
}

std::string percent(double fraction) {
  const double value = 100 * fraction;
  return formatted(std::abs(value) >= 9.95 || value == 0 ? "%.0f %%" : "%.1f %%", value);
}

std::string training_loss_name(const AllSeries& series) {
  std::string usual = first_of(series, {"train_loss", "train_loss_step", "loss", "loss_step", "train/loss",
                                        "train_loss_epoch", "training_loss"});
  if (!usual.empty()) return usual;
  for (const auto& [name, values] : series) {
    const bool other = name.starts_with("val") || name.starts_with("test");
    if (!other && name.find("loss") != std::string::npos && !values.values.empty()) return name;
  }
  return "";
}

std::string validation_loss_name(const AllSeries& series) {
  std::string usual = first_of(series, {"val_loss", "val_loss_epoch", "val/loss", "validation_loss", "valid_loss"});
  if (!usual.empty()) return usual;
  for (const auto& [name, values] : series) {
    if (name.starts_with("val") && name.find("loss") != std::string::npos && !values.values.empty()) return name;
  }
  return "";
}

std::vector<HealthFinding> run_health(const RunRecord& record, const AllSeries& series) {
  return Health(record, series).findings();
}

}  // namespace levin
