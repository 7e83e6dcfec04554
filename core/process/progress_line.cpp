#include "levin/core/process/progress_line.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <utility>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/options/units.h"
#include "levin/core/process/console.h"

namespace levin {

namespace {

constexpr auto kRedrawEvery = std::chrono::milliseconds(100);
constexpr auto kLineEvery = std::chrono::seconds(10);  // without a terminal

// 0:00:03
std::string clock_text(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(std::min(seconds, 3.6e8)));
  return formatted("%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
}

// `share` of `cells` columns in eighths of a column.
std::string bar(double share, int cells) {
  static constexpr std::array<const char*, 8> parts{" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * 8 * cells));
  std::string text;
  for (int cell = 0; cell < cells; ++cell) {
    const int filled = std::clamp(eighths - 8 * cell, 0, 8);
    text += filled == 8 ? "█" : parts[static_cast<size_t>(filled)];
  }
  return text;
}

std::optional<double> seconds_left(const ProgressView& view) {
  if (!view.total || view.rate <= 0) return std::nullopt;
  return static_cast<double>(*view.total - view.done) / view.rate;
}

std::string count_text(const ProgressView& view) {
  if (view.unit == ProgressUnit::items) {
    return std::to_string(view.done) + (view.total ? "/" + std::to_string(*view.total) : "");
  }
  const auto megabytes = [](int64_t bytes) { return formatted("%.1f", static_cast<double>(bytes) / 1e6); };
  return megabytes(view.done) + (view.total ? "/" + megabytes(*view.total) : "") + " MB";
}

std::string speed_text(const ProgressView& view) {
  return view.unit == ProgressUnit::items ? rate_text(view.rate) : decimal_bytes_text(view.rate) + "/s";
}

// After the count: bytes have their unit already.
std::string noun_text(const ProgressView& view) {
  return view.unit == ProgressUnit::items ? " " + view.noun : "";
}

std::string wait_text(const ProgressView& view, const char* separator) {
  return view.data_wait > 0 ? separator + formatted("waiting for data %.0f %%", 100 * view.data_wait) : "";
}

// The optional parts of a live line in the order in which they stand, as many as fit by importance: rate, time left,
// the first metric (usually the loss), memory, then the rest. `room` becomes what they leave.
std::vector<std::string> parts_that_fit(const ProgressView& view, int& room) {
  std::vector<std::pair<int, std::string>> parts;  // importance, 0 the most; text
  if (view.rate > 0) parts.emplace_back(0, "  " + speed_text(view));
  if (const auto left = seconds_left(view)) parts.emplace_back(1, "  " + clock_text(*left) + " left");
  if (view.run_seconds_left) parts.emplace_back(4, " (run " + clock_text(*view.run_seconds_left) + ")");
  for (const auto& [name, value] : view.metrics) {
    parts.emplace_back(name == view.metrics.begin()->first ? 2 : 6, "  " + name + " " + formatted("%.4g", value));
  }
  if (view.data_wait > 0) parts.emplace_back(5, wait_text(view, "  "));
  if (view.memory_bytes > 0) parts.emplace_back(3, "  " + decimal_bytes_text(static_cast<double>(view.memory_bytes)));
  for (int importance = 0; importance <= 6; ++importance) {
    for (auto& [own, text] : parts) {
      if (own != importance) continue;
      if (static_cast<int>(text.size()) > room) {
        text.clear();
      } else {
        room -= static_cast<int>(text.size());
      }
    }
  }
  std::vector<std::string> kept;
  for (auto& part : parts) kept.push_back(std::move(part.second));
  return kept;
}

}  // namespace

std::string rate_text(double rate) {
  if (rate >= 100) return formatted("%.0f it/s", rate);
  return rate >= 1 ? formatted("%.1f it/s", rate) : formatted("%.2f s/it", 1 / rate);
}

std::string metrics_text(const std::map<std::string, double>& metrics, const char* separator) {
  std::string text;
  for (const auto& [name, value] : metrics) text += separator + name + " " + formatted("%.4g", value);
  return text;
}

// Parts that do not fit are left out entirely, the least important first: half a number would be a different number.
std::string live_line(const ProgressView& view, int columns) {
  const double share =
      view.total && *view.total > 0 ? static_cast<double>(view.done) / static_cast<double>(*view.total) : 1;
  const std::string percent = view.total ? formatted("  %3.0f %%", 100 * share) : "";
  const std::string count = "  " + count_text(view) + (view.total ? "" : noun_text(view));
  int room = columns - static_cast<int>(view.title.size() + percent.size() + count.size());
  std::string rest;
  for (const auto& part : parts_that_fit(view, room)) rest += part;
  const int cells = view.total ? std::min(30, room - 2) : 0;
  return view.title + (cells >= 5 ? "  " + bar(share, cells) : "") + percent + count + rest;
}

std::string plain_line(const ProgressView& view) {
  std::string title = view.title;
  if (!title.empty()) title[0] = static_cast<char>(std::tolower(title[0]));
  std::string text = title + ": " + count_text(view) + noun_text(view);
  if (view.rate > 0) text += " (" + speed_text(view) + ")";
  if (const auto left = seconds_left(view)) text += ", " + clock_text(*left) + " left";
  if (view.run_seconds_left) text += " (run " + clock_text(*view.run_seconds_left) + ")";
  text += metrics_text(view.metrics, ", ") + wait_text(view, ", ");
  return view.memory_bytes > 0 ? text + ", " + decimal_bytes_text(static_cast<double>(view.memory_bytes)) : text;
}

ProgressTask::ProgressTask(std::string title, ProgressUnit unit, std::string noun)
    : view_{.title = std::move(title), .unit = unit, .noun = std::move(noun)},
      next_(started_ + (Console::instance().is_terminal() ? Clock::duration(kRedrawEvery) : kLineEvery)) {}

ProgressTask::~ProgressTask() {
  if (drawn_) Console::instance().live("");
}

void ProgressTask::update(int64_t done, std::optional<int64_t> total) {
  const auto now = Clock::now();
  if (now < next_) return;
  Console& console = Console::instance();
  view_.done = done;
  view_.total = total;
  view_.rate = static_cast<double>(done) / std::chrono::duration<double>(now - started_).count();
  if (console.is_terminal()) {
    console.live(live_line(view_, console.width() - 1));
    next_ = now + kRedrawEvery;
  } else {
    console.print(plain_line(view_));
    next_ = now + kLineEvery;
  }
  drawn_ = true;
}

}  // namespace levin
