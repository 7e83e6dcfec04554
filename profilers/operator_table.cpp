#include "levin/profilers/operator_table.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>

namespace levin {

std::vector<OperatorTotal> operator_totals(std::vector<TracedCall> calls) {
  // A call comes before those within it: they start later, or at once and are shorter.
  std::sort(calls.begin(), calls.end(), [](const TracedCall& a, const TracedCall& b) {
    return std::tuple(a.thread, a.start, -a.duration) < std::tuple(b.thread, b.start, -b.duration);
  });
  std::map<std::string, OperatorTotal> by_name;
  std::vector<const TracedCall*> open;  // the calls around the one at hand
  for (const TracedCall& call : calls) {
    auto is_around = [&](const TracedCall& outer) {
      return outer.thread == call.thread && call.start < outer.start + outer.duration;
    };
    while (!open.empty() && !is_around(*open.back())) open.pop_back();
    if (!open.empty()) by_name[open.back()->name].self -= call.duration;
    OperatorTotal& total = by_name[call.name];
    ++total.calls;
    total.total += call.duration;
    total.self += call.duration;
    open.push_back(&call);
  }
  std::vector<OperatorTotal> totals;
  for (auto& [name, total] : by_name) {
    total.name = name;
    totals.push_back(total);
  }
  std::stable_sort(totals.begin(), totals.end(), [](const auto& a, const auto& b) { return a.self > b.self; });
  return totals;
}

std::string operator_table(const std::vector<OperatorTotal>& totals, int64_t rows) {
  int64_t all = 0;
  for (const auto& total : totals) all += total.self;
  const auto shown = std::min<size_t>(totals.size(), static_cast<size_t>(rows));
  size_t widest = 8;
  for (size_t i = 0; i < shown; ++i) widest = std::max(widest, totals[i].name.size());
  const int width = static_cast<int>(std::min<size_t>(widest, 60));
  char line[256];
  std::snprintf(line, sizeof line, "%-*s  %8s  %10s  %10s  %6s", width, "operator", "calls", "self ms", "total ms",
                "self");
  std::string text = line;
  for (size_t i = 0; i < shown; ++i) {
    const OperatorTotal& one = totals[i];
    std::snprintf(line, sizeof line, "\n%-*.*s  %8lld  %10.3f  %10.3f  %4.1f %%", width, width, one.name.c_str(),
                  static_cast<long long>(one.calls), 1e-6 * static_cast<double>(one.self),
                  1e-6 * static_cast<double>(one.total),
                  all > 0 ? 100.0 * static_cast<double>(one.self) / static_cast<double>(all) : 0.0);
    text += line;
  }
  if (shown < totals.size()) text += "\n… and " + std::to_string(totals.size() - shown) + " more";
  return text;
}

}  // namespace levin
