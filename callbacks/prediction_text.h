// Rows of predictions as text: CSV or JSON lines. Formats whole batches, on the run's threads (at::parallel_for).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace levin {

/// What is written of a batch, on the CPU: the prediction, named "prediction", then what the step has published.
struct PredictionRows {
  std::vector<std::pair<std::string, at::Tensor>> parts = {};  // (rows, …) each
  std::vector<std::string> ids = {};                           // none: unknown
  std::vector<std::string> classes = {};                       // predicted names; none: unknown
  at::Tensor indices = {};                                     // (rows) int64, in the data set; undefined: unknown

  [[nodiscard]] int64_t rows() const { return parts.empty() ? 0 : parts[0].second.size(0); }
};

/// The numbers of a batch's loader and of the batch, which its rows name.
struct BatchNumbers {
  int64_t loader = 0;
  int64_t batch = 0;
};

/// Which columns precede the predictions in CSV.
struct RowKeys {
  bool ids = false;
  bool indices = false;
};

/// Appends the number as Python's repr() prints it: the shortest digits that read back as the same number of its type.
/// nan and infinities are nan, inf and -inf.
void append_number(std::string& text, double number);
void append_number(std::string& text, float number);

/// Returns a string as JSON. Bytes that are not UTF-8, which names of files may have, become U+FFFD.
[[nodiscard]] std::string json_string(std::string_view text);

/// Returns the rows as lines of CSV, in pieces that follow one another. Throws Error for complex numbers.
[[nodiscard]] std::vector<std::string> csv_lines(const PredictionRows& rows, BatchNumbers numbers, RowKeys keys);

/// Same, as lines of JSON; nan and infinities become null.
[[nodiscard]] std::vector<std::string> json_lines(const PredictionRows& rows, BatchNumbers numbers);

}  // namespace levin
