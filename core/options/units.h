// Spans of time, amounts of memory and periods of a run, as people write them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "levin/core/options/value.h"

namespace levin {

// Spans of time as people write them: "00:12:00:00" (days:hours:minutes:seconds), "90min", "1h30m", "45s".

/// A span of time; 0 means "none" where an option allows it.
using Seconds = std::chrono::duration<double>;

/// Reads DD:HH:MM:SS, or numbers with units d, h, m, min, s, ms one after another.
/// Throws Error showing the text if it is neither.
[[nodiscard]] Seconds parse_duration(const std::string& text);

/// DD:HH:MM:SS, whole seconds: reads back with parse_duration.
[[nodiscard]] std::string duration_text(Seconds span);

/// Readable, with at most two units: "1 h 02 min", "3 min 07 s", "4.2 s".
[[nodiscard]] std::string readable_duration(Seconds span);

template <>
struct ValueType<Seconds> {
  static std::string name() { return "duration"; }
  static bool read(const ConfigNode& node, Seconds& value, const std::string& path, Problems& problems);
  static ConfigNode write(Seconds value);  // DD:HH:MM:SS, or "1.5s" where that would round
};

/// An amount of memory. People write it as "11GiB", "512 MiB", "1.5GB", or a plain number of bytes.
struct ByteSize {
  int64_t bytes = 0;
  friend bool operator==(ByteSize, ByteSize) = default;
};

/// Reads a number with B, KiB, MiB, GiB, TiB (powers of 1024), kB, MB, GB or TB (powers of 1000); without a unit:
/// bytes. Throws Error showing the text if it is not an amount.
[[nodiscard]] ByteSize parse_byte_size(const std::string& text);

/// Returns "1.5 GiB" or "17 B": a number of bytes in the largest unit of 1024 that fits.
[[nodiscard]] std::string bytes_text(uint64_t bytes);

/// Returns "1.3 GB", "20.0 MB" or "512 kB", in units of 1000 as speeds of networks have them.
[[nodiscard]] std::string decimal_bytes_text(double bytes);

template <>
struct ValueType<ByteSize> {
  static std::string name() { return "amount of memory"; }
  static bool read(const ConfigNode& node, ByteSize& value, const std::string& path, Problems& problems);
  static ConfigNode write(ByteSize value);  // reads back exactly: "11GiB", or the number of bytes
};

/// The unit of a Period: training batches, epochs, time, or fractions of the run. As in MosaicML Composer's Time.
enum class PeriodUnit { batches, epochs, time, run };

/// How often something happens during training, from a string or a span of time: "500ba" (training batches), "2ep"
/// (epochs), "30min" or "00:00:30:00" (time), "0.1dur" (a fraction of the run), or `std::chrono::minutes(30)`.
class Period {
 public:
  Period() = default;
  /// Throws ConfigError showing the text unless it is a number above 0 with one of the units. Batches are whole
  /// numbers, so are epochs above one, and a fraction of the run is at most 1.
  Period(const std::string& text);                         // NOLINT(google-explicit-constructor)
  Period(const char* text) : Period(std::string(text)) {}  // NOLINT(google-explicit-constructor)
  /// Throws ConfigError unless it is above 0.
  Period(Seconds span);  // NOLINT(google-explicit-constructor)

  [[nodiscard]] PeriodUnit unit() const { return unit_; }
  /// Returns the amount in units; in seconds for a time.
  [[nodiscard]] double amount() const { return amount_; }
  /// Returns the number of epochs if the period is a whole number of epochs, else 0.
  [[nodiscard]] int64_t whole_epochs() const;
  /// Returns true if a multiple of the period lies in (`before`, `now`], both in the unit.
  [[nodiscard]] bool ends_between(double before, double now) const;
  /// Returns a string that reads back as the same period.
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
