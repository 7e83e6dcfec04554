#include "levin/cli/sweep/sweep_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "levin/cli/runs/html.h"
#include "levin/core/options/error.h"

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

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5c6675; --line: #d5dae1; --page: #ffffff; --accent: #0072b2;
  --best: #d55e00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa4b2; --line: #39414d; --page: #14181f;
  --accent: #56b4e9; --best: #e69f00; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1060px; padding: 16px; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 4px; } h2 { font-size: 1.1rem; margin: 28px 0 6px; }
p { margin: 4px 0; } .soft { color: var(--soft); } code { font-size: .9em; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; } .wide { overflow-x: auto; }
svg text { fill: var(--soft); font-size: 12px; } svg .name { fill: var(--ink); }
svg .axis { stroke: var(--line); } svg .bar { fill: var(--accent); } svg .dot { fill: var(--soft); }
svg .trial { fill: none; stroke-width: 1.5; } svg .best { stroke: var(--best); stroke-width: 3; fill: none; }
svg .far { fill: none; stroke: var(--accent); stroke-width: 2; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
td.long { white-space: normal; min-width: 260px; } tr.best td { font-weight: 600; color: var(--best); }
)";

// On a screen that is narrower than the chart, the chart keeps its size and scrolls, so that its text can be read.
std::string svg_open(double width, double height, const std::string& what) {
  return "<div class=\"wide\"><svg style=\"min-width:" + pixels(width) + "px\" viewBox=\"0 0 " + pixels(width) + " " +
         pixels(height) + "\" role=\"img\" aria-label=\"" + html_text(what) + "\">\n";
}

constexpr const char* kSvgEnd = "</svg></div>\n";

std::string svg_text(double x, double y, const std::string& text, const char* anchor, const char* kind = "") {
  return "<text x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\" text-anchor=\"" + anchor + "\" class=\"" + kind +
         "\">" + html_text(text) + "</text>\n";
}

std::string svg_line(double x1, double y1, double x2, double y2) {
  return "<line class=\"axis\" x1=\"" + pixels(x1) + "\" y1=\"" + pixels(y1) + "\" x2=\"" + pixels(x2) + "\" y2=\"" +
         pixels(y2) + "\"/>\n";
}

// From the worst trial (violet) to the best one (yellow-green): even in brightness steps, as viridis is.
std::string colour_at(double share) {
  struct Stop {
    double at, red, green, blue;
  };
  constexpr std::array<Stop, 4> kStops{
      {{0, 104, 64, 155}, {.33, 58, 110, 165}, {.66, 35, 155, 135}, {1, 122, 190, 60}}};
  size_t k = 0;
  while (k + 2 < kStops.size() && share > kStops[k + 1].at) ++k;
  const double inside = (share - kStops[k].at) / (kStops[k + 1].at - kStops[k].at);
  const auto mix = [inside](double a, double b) { return static_cast<int>(std::lround(a + (b - a) * inside)); };
  return formatted("rgb(%d,%d,%d)", mix(kStops[k].red, kStops[k + 1].red), mix(kStops[k].green, kStops[k + 1].green),
                   mix(kStops[k].blue, kStops[k + 1].blue));
}

// An axis of the parallel coordinates: where a value stands, from 0 (below) to 1.
class Axis {
 public:
  explicit Axis(const Range& range) : range_(range), values_(range.choices) {}
  // The metric: its own range.
  Axis(double low, double high) : low_(low), high_(high) { range_.kind = Range::Kind::uniform; }

  [[nodiscard]] double place(const std::string& text) const {
    if (range_.kind == Range::Kind::choice) {
      const auto at = static_cast<double>(std::find(values_.begin(), values_.end(), text) - values_.begin());
      return values_.size() < 2 ? 0.5 : std::min(1.0, at / static_cast<double>(values_.size() - 1));
    }
    return place(std::strtod(text.c_str(), nullptr));
  }
  [[nodiscard]] double place(double value) const {
    const bool log = range_.kind == Range::Kind::log_uniform || range_.log;
    const double low = low_of(), high = high_of();
    if (high <= low) return 0.5;
    const double share = log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return std::clamp(share, 0.0, 1.0);
  }
  // Texts to write at the axis, with their places.
  [[nodiscard]] std::vector<std::pair<double, std::string>> labels() const {
    std::vector<std::pair<double, std::string>> texts;
    if (range_.kind == Range::Kind::choice) {
      for (const auto& value : values_)
        texts.emplace_back(place(value), value.size() > 14 ? value.substr(0, 13) + "…" : value);
      return texts;
    }
    return {{0, short_number(low_of())}, {1, short_number(high_of())}};
  }

 private:
  [[nodiscard]] double low_of() const { return range_.path.empty() ? low_ : range_.low; }
  [[nodiscard]] double high_of() const { return range_.path.empty() ? high_ : range_.high; }

  Range range_ = {};
  std::vector<std::string> values_ = {};
  double low_ = 0, high_ = 0;
};

struct Shown {
  const SweepStore& store;
  const std::vector<Trial>& trials;
  const Trial* best;
  std::vector<const Trial*> valued = {};  // by their values, the worst first
  double low = 0, high = 0;               // of the values
};

Shown shown_of(const SweepStore& store, const std::vector<Trial>& trials) {
  Shown shown{store, trials, best_trial(trials, store.higher_is_better())};
  for (const Trial& trial : trials) {
    if (trial.value() && std::isfinite(*trial.value())) shown.valued.push_back(&trial);
  }
  std::stable_sort(shown.valued.begin(), shown.valued.end(), [&](const Trial* a, const Trial* b) {
    return is_better(*b->value(), *a->value(), store.higher_is_better());
  });
  if (!shown.valued.empty()) {
    shown.low = std::min(*shown.valued.front()->value(), *shown.valued.back()->value());
    shown.high = std::max(*shown.valued.front()->value(), *shown.valued.back()->value());
  }
  return shown;
}

std::string polyline(const std::string& points, const std::string& kind, const std::string& colour,
                     const std::string& title) {
  const std::string stroke = colour.empty() ? "" : " stroke=\"" + colour + "\"";
  return "<polyline class=\"" + kind + "\"" + stroke + " points=\"" + points + "\"><title>" + html_text(title) +
         "</title></polyline>\n";
}

std::string parallel_coordinates(const Shown& shown) {
  constexpr double kWidth = 1000, kHeight = 360, kTop = 50, kBottom = 30, kSide = 70;
  std::vector<Axis> axes;
  std::vector<std::string> names;
  for (const Range& range : shown.store.space()) {
    axes.emplace_back(range);
    names.push_back(range.path);
  }
  axes.emplace_back(shown.low, shown.high);
  names.push_back(shown.store.options().metric);
  const double gap = (kWidth - 2 * kSide) / static_cast<double>(std::max<size_t>(1, axes.size() - 1));
  const auto x_of = [&](size_t k) { return kSide + gap * static_cast<double>(k); };
  const auto y_of = [&](double share) { return kHeight - kBottom - share * (kHeight - kTop - kBottom); };
  std::string svg = svg_open(kWidth, kHeight, "parallel coordinates of all trials");
  for (size_t k = 0; k < axes.size(); ++k) {
    const double x = x_of(k);
    svg += svg_line(x, kTop, x, kHeight - kBottom);
    svg += svg_text(x, k % 2 == 0 ? kTop - 30 : kTop - 14, names[k], "middle", "name");
  }
  for (size_t n = 0; n < shown.valued.size(); ++n) {
    const Trial& trial = *shown.valued[n];
    std::string points;
    for (size_t k = 0; k < trial.parameters.size() && k + 1 < axes.size(); ++k) {
      points += pixels(x_of(k)) + "," + pixels(y_of(axes[k].place(trial.parameters[k].second))) + " ";
    }
    points += pixels(x_of(axes.size() - 1)) + "," + pixels(y_of(axes.back().place(*trial.value())));
    const double share =
        shown.valued.size() < 2 ? 1 : static_cast<double>(n) / static_cast<double>(shown.valued.size() - 1);
    const bool is_best = &trial == shown.best;
    svg += polyline(points, is_best ? "best" : "trial", is_best ? "" : colour_at(share),
                    "trial " + std::to_string(trial.id) + ": " + short_number(*trial.value()) + ", " +
                        parameters_text(trial.parameters));
  }
  for (size_t k = 0; k < axes.size(); ++k) {  // over the lines
    const bool last = k + 1 == axes.size();
    for (const auto& [at, text] : axes[k].labels()) {
      svg += svg_text(x_of(k) + (last ? 6 : -6), y_of(at) + 4, text, last ? "start" : "end");
    }
  }
  return svg + kSvgEnd;
}

std::string best_so_far(const Shown& shown) {
  constexpr double kWidth = 1000, kHeight = 260, kLeft = 70, kRight = 20, kTop = 14, kBottom = 34;
  std::vector<const Trial*> ended = shown.valued;
  std::stable_sort(ended.begin(), ended.end(), [](const Trial* a, const Trial* b) { return a->ended < b->ended; });
  const double span = shown.high > shown.low ? shown.high - shown.low : 1;
  const auto x_of = [&](size_t k) {
    return kLeft + (kWidth - kLeft - kRight) * (static_cast<double>(k) + 0.5) / static_cast<double>(ended.size());
  };
  const auto y_of = [&](double value) {
    return kHeight - kBottom - (value - shown.low) / span * (kHeight - kTop - kBottom);
  };
  std::string svg = svg_open(kWidth, kHeight, "best value so far over the trials");
  for (const double value : {shown.low, shown.low + span / 2, shown.low + span}) {
    svg += svg_line(kLeft, y_of(value), kWidth - kRight, y_of(value));
    svg += svg_text(kLeft - 8, y_of(value) + 4, short_number(value), "end");
  }
  std::string points;
  double best = std::nan("");
  for (size_t k = 0; k < ended.size(); ++k) {
    const double value = *ended[k]->value();
    const double before = best;
    if (is_better(value, best, shown.store.higher_is_better())) best = value;
    if (k > 0) points += pixels(x_of(k)) + "," + pixels(y_of(before)) + " ";
    points += pixels(x_of(k)) + "," + pixels(y_of(best)) + " ";
    svg += "<circle class=\"dot\" r=\"3\" cx=\"" + pixels(x_of(k)) + "\" cy=\"" + pixels(y_of(value)) +
           "\"><title>trial " + std::to_string(ended[k]->id) + ": " + short_number(value) + "</title></circle>\n";
  }
  svg += polyline(points, "far", "", "best so far");
  svg += svg_text((kLeft + kWidth - kRight) / 2, kHeight - 8, "trials, in the order of their ends", "middle");
  return svg + kSvgEnd;
}

std::string importance_bars(const Shown& shown) {
  auto all = importances(shown.store.space(), shown.trials);
  if (all.empty()) return "<p class=\"soft\">Three trials with a value are needed.</p>\n";
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  constexpr double kWidth = 640, kRow = 26, kLeft = 220;
  const double height = kRow * static_cast<double>(all.size()) + 8;
  std::string svg = svg_open(kWidth, height, "importance of each key");
  for (size_t k = 0; k < all.size(); ++k) {
    const double y = kRow * static_cast<double>(k) + 6;
    const double width = std::max(1.0, (kWidth - kLeft - 60) * all[k].second);
    svg += svg_text(kLeft - 10, y + 14, all[k].first, "end", "name");
    svg += "<rect class=\"bar\" x=\"" + pixels(kLeft) + "\" y=\"" + pixels(y) + "\" width=\"" + pixels(width) +
           "\" height=\"18\"/>\n";
    svg += svg_text(kLeft + width + 8, y + 14, short_number(all[k].second), "start");
  }
  return svg + kSvgEnd;
}

std::string table_of(const Shown& shown) {
  std::string html = "<div class=\"wide\"><table><thead><tr><th>trial</th><th>state</th><th>" +
                     html_text(shown.store.options().metric) + "</th>";
  const bool rungs = shown.store.options().search.has_rungs();
  if (rungs)
    html +=
        "<th>" + std::string(shown.store.options().search.resource == Resource::epochs ? "epochs" : "steps") + "</th>";
  for (const Range& range : shown.store.space()) html += "<th>" + html_text(range.path) + "</th>";
  html += "</tr></thead><tbody>\n";
  std::vector<const Trial*> rows(shown.valued.rbegin(), shown.valued.rend());
  for (const Trial& trial : shown.trials) {
    if (std::find(rows.begin(), rows.end(), &trial) == rows.end()) rows.push_back(&trial);
  }
  for (const Trial* trial : rows) {
    html += trial == shown.best ? "<tr class=\"best\">" : "<tr>";
    html += "<td>" + std::to_string(trial->id) + "</td><td>" + word(trial->state) + "</td><td>" +
            (trial->value() ? short_number(*trial->value()) : "") + "</td>";
    if (rungs) html += "<td>" + (trial->rungs.empty() ? "" : std::to_string(trial->rungs.back().resource)) + "</td>";
    for (const auto& [path, value] : trial->parameters) html += "<td>" + html_text(value) + "</td>";
    html += "</tr>\n";
    if (trial->state == TrialState::failed) {
      html += "<tr><td></td><td class=\"long soft\" colspan=\"" + std::to_string(trial->parameters.size() + 3) + "\">" +
              html_text(trial->error) + "</td></tr>\n";
    }
  }
  return html + "</tbody></table></div>\n";
}

std::string summary_of(const Shown& shown) {
  std::map<TrialState, int64_t> counts;
  for (const Trial& trial : shown.trials) ++counts[trial.state];
  std::string text = count_of(std::ssize(shown.trials), "trial");
  for (const auto& [state, count] : counts) text += ", " + std::to_string(count) + " " + word(state);
  std::string html = "<p class=\"soft\">" + text + "; " +
                     ValueType<SearchMethod>::write(shown.store.options().search.method).text + " search, seed " +
                     std::to_string(shown.store.options().seed) + "</p>\n";
  if (shown.best == nullptr) return html + "<p>No trial has a value yet.</p>\n";
  return html + "<p>Best: trial " + std::to_string(shown.best->id) + " with " +
         html_text(shown.store.options().metric) + " " + short_number(*shown.best->value()) + "</p>\n<p><code>" +
         html_text(parameters_text(shown.best->parameters)) + "</code></p>\n";
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

std::string sweep_html(const SweepStore& store, const std::vector<Trial>& trials) {
  const Shown shown = shown_of(store, trials);
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<title>" +
      html_text(store.plan().name) + "</title>\n<style>" + kStyle + "</style></head>\n<body>\n<h1>Sweep " +
      html_text(store.plan().name) + "</h1>\n" + summary_of(shown);
  if (!shown.valued.empty()) {
    html += "<h2>Best so far</h2>\n" + best_so_far(shown) +
            "<h2>All trials</h2>\n<p class=\"soft\">A line is a trial, from violet for the worst to green for the "
            "better ones; the best is orange and thick.</p>\n" +
            parallel_coordinates(shown) +
            "<h2>Importance</h2>\n<p class=\"soft\">Absolute rank correlation (Spearman) of each key with the "
            "metric; for strings, the correlation ratio of its ranks. It shows single keys, not how keys work "
            "together.</p>\n" +
            importance_bars(shown);
  }
  return html + "<h2>Table</h2>\n" + table_of(shown) + "</body></html>\n";
}

}  // namespace levin
