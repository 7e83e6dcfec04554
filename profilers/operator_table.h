// Statistics of the operators in a trace: calls, time with and without the operators within, sorted by own time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace levin {

/// One call of an operator, or a range, on one thread. Those of a thread nest.
struct TracedCall {
  std::string name = "";
  uint64_t thread = 0;
  int64_t start = 0;     // ns
  int64_t duration = 0;  // ns
};

struct OperatorTotal {
  std::string name = "";
  int64_t calls = 0;
  int64_t total = 0;  // ns, with the calls within; a call within itself counts twice
  int64_t self = 0;   // ns, without
};

/// Sums by name, the largest own time first.
[[nodiscard]] std::vector<OperatorTotal> operator_totals(std::vector<TracedCall> calls);

/// The first `rows` of them, for people.
[[nodiscard]] std::string operator_table(const std::vector<OperatorTotal>& totals, int64_t rows);

}  // namespace levin
