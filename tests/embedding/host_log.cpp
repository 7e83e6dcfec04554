// Compiled without LibTorch's include folder, which has a different libfmt.
#include "embedding/host_log.h"

#define SPDLOG_LEVEL_NAMES \
  { "T", "D", "I", "W", "E", "C", "O" }
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>

namespace host_log {

static std::ostringstream kept;

void start() {
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(kept);
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("host", sink));
  spdlog::register_logger(std::make_shared<spdlog::logger>("other", sink));
  spdlog::set_level(spdlog::level::err);
  spdlog::set_pattern("%n/%l/%v;");
}

std::string state() {
  spdlog::warn("not shown");
  spdlog::error("one of {}", 2);
  spdlog::get("other")->error("two of {}", 2);
  int loggers = 0;
  spdlog::apply_all([&](const std::shared_ptr<spdlog::logger>&) { ++loggers; });
  std::string text = kept.str();
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text + std::to_string(loggers) + " loggers";
}

}  // namespace host_log
