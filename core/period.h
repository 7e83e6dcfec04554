// How often something happens during training: "500ba" (training batches), "2ep" (epochs), "30min" or "00:00:30:00"
// (time), "0.1dur" (a share of the whole run). The units are those of MosaicML Composer's Time.
#pragma once

#include <cstdint>
#include <string>

#include "levin/core/duration.h"
#include "levin/core/value.h"

namespace levin {

enum class PeriodUnit { batches, epochs, time, run };

/// A period, from its text or from a span of time: `.every = "500ba"`, `.every = std::chrono::minutes(30)`.
class Period {
 public:
  Period() = default;
  /// Throws ConfigError showing the text unless it is a number above 0 with one of the units. Batches are whole
  /// numbers, so are epochs above one, and a share of the run is at most 1.
  Period(const std::string& text);                         // NOLINT(google-explicit-constructor)
  Period(const char* text) : Period(std::string(text)) {}  // NOLINT(google-explicit-constructor)
  /// Throws ConfigError unless it is above 0.
  Period(Seconds span);  // NOLINT(google-explicit-constructor)

  [[nodiscard]] PeriodUnit unit() const { return unit_; }
  /// In the unit; seconds for a time.
  [[nodiscard]] double amount() const { return amount_; }
  /// A whole number of epochs; 0: it is none.
  [[nodiscard]] int64_t whole_epochs() const;
  /// Whether a multiple of the period lies after `before` and not after `now`, both in the unit.
  [[nodiscard]] bool ends_between(double before, double now) const;
  /// Reads back as the same period.
  [[nodiscard]] std::string text() const;

  bool operator==(const Period&) const = default;

 private:
  PeriodUnit unit_ = PeriodUnit::epochs;
  double amount_ = 1;
};

template <>
struct ValueType<Period> {
  static std::string name() { return "period (500ba, 2ep, 30min, 0.1dur)"; }
  static bool read(const ConfigNode& node, Period& value, const std::string& path, Problems& problems);
  static ConfigNode write(const Period& value) { return ConfigNode::scalar(value.text(), true); }
};

}  // namespace levin
