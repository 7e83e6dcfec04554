// Whole numbers of a traced model that follow from the number of samples in a batch, and from the samples' length.
// Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace levin::onnx {

/// What a model was traced with: samples in the batch, and their length where it is no fixed one (else 0).
struct TracePoint {
  int64_t batch = 0;
  int64_t length = 0;

  bool operator==(const TracePoint&) const = default;
};

/// per_sample * batch + rest + per_position * length + per_both * batch * length
struct BatchNumber {
  int64_t per_sample = 0;
  int64_t rest = 0;
  int64_t per_position = 0;
  int64_t per_both = 0;

  [[nodiscard]] bool is_fixed() const { return per_sample == 0 && per_position == 0 && per_both == 0; }
  [[nodiscard]] bool is_batch() const { return *this == BatchNumber{1, 0}; }
  [[nodiscard]] bool is_length() const { return *this == BatchNumber{0, 0, 1}; }
  /// Whether it is below 0 for large batches and lengths.
  [[nodiscard]] bool is_negative() const;
  [[nodiscard]] int64_t at(const TracePoint& point) const;
  /// "12", "batch", "4*batch+1", "batch*length"
  [[nodiscard]] std::string text() const;

  bool operator==(const BatchNumber&) const = default;
};

[[nodiscard]] BatchNumber operator+(const BatchNumber& one, const BatchNumber& other);
[[nodiscard]] BatchNumber operator*(const BatchNumber& number, int64_t factor);

using BatchNumbers = std::vector<BatchNumber>;

/// The points at which a model is traced: of several batch sizes, and of several lengths up to `length` if that is not
/// 0 (then at least 4). The first four decide a BatchNumber, the others check it.
[[nodiscard]] std::vector<TracePoint> trace_points(int64_t length);

/// What gives `values` at these points, which are a single one or those of trace_points; nothing where no BatchNumber
/// does.
[[nodiscard]] std::optional<BatchNumber> fit_batch_number(const std::vector<TracePoint>& points,
                                                          const std::vector<int64_t>& values);

}  // namespace levin::onnx
