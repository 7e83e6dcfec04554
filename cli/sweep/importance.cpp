#include "levin/cli/sweep/importance.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace levin {

namespace {

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const double mean_a = mean_of(a), mean_b = mean_of(b);
  double both = 0, square_a = 0, square_b = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    both += (a[k] - mean_a) * (b[k] - mean_b);
    square_a += (a[k] - mean_a) * (a[k] - mean_a);
    square_b += (b[k] - mean_b) * (b[k] - mean_b);
  }
  return square_a == 0 || square_b == 0 ? 0 : both / std::sqrt(square_a * square_b);
}

// The root of the share of the variance that the groups explain.
double correlation_ratio(const std::vector<std::string>& groups, const std::vector<double>& values) {
  std::map<std::string, std::vector<double>> by_group;
  for (size_t k = 0; k < values.size(); ++k) by_group[groups[k]].push_back(values[k]);
  const double mean = mean_of(values);
  double between = 0, total = 0;
  for (const auto& [group, own] : by_group) {
    between += static_cast<double>(own.size()) * (mean_of(own) - mean) * (mean_of(own) - mean);
  }
  for (const double value : values) total += (value - mean) * (value - mean);
  return total == 0 ? 0 : std::sqrt(between / total);
}

bool all_numbers(const std::vector<std::string>& texts, std::vector<double>& numbers) {
  for (const auto& text : texts) {
    double number = 0;
    if (!detail::parse_double(ConfigNode::scalar(text), number)) return false;
    numbers.push_back(number);
  }
  return true;
}

}  // namespace

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t k = 0; k < order.size();) {
    size_t end = k;
    while (end < order.size() && values[order[end]] == values[order[k]]) ++end;
    for (size_t j = k; j < end; ++j) ranks[order[j]] = 0.5 * static_cast<double>(k + 1 + end);
    k = end;
  }
  return ranks;
}

double spearman(const std::vector<double>& a, const std::vector<double>& b) {
  return a.empty() ? 0 : correlation(ranks_of(a), ranks_of(b));
}

std::vector<std::pair<std::string, double>> importances(const Space& space, const std::vector<Trial>& trials) {
  // A trial's value at the lowest rung that all have: values of other rungs cannot be compared.
  std::vector<const Trial*> used;
  std::vector<double> values;
  for (const Trial& trial : trials) {
    if (trial.rungs.empty() || std::isnan(trial.rungs[0].value)) continue;
    if (!used.empty() && trial.rungs[0].resource != used[0]->rungs[0].resource) continue;
    used.push_back(&trial);
    values.push_back(trial.rungs[0].value);
  }
  std::vector<std::pair<std::string, double>> result;
  if (used.size() < 3) return result;
  for (const auto& range : space) {
    std::vector<std::string> texts;
    for (const Trial* trial : used) {
      const auto found = std::find_if(trial->parameters.begin(), trial->parameters.end(),
                                      [&](const auto& parameter) { return parameter.first == range.path; });
      texts.push_back(found == trial->parameters.end() ? "" : found->second);
    }
    std::vector<double> numbers;
    const double importance =
        all_numbers(texts, numbers) ? std::abs(spearman(numbers, values)) : correlation_ratio(texts, ranks_of(values));
    result.emplace_back(range.path, importance);
  }
  return result;
}

}  // namespace levin
