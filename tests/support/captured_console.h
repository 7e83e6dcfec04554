// Captures what Levin prints during its lifetime.
#pragma once

#include <string>
#include <vector>

#include "levin/core/process/console.h"

namespace levin::test {

class CapturedConsole {
 public:
  CapturedConsole() {
    Console::instance().capture([this](const std::string& line) { lines_.push_back(line); });
  }
  ~CapturedConsole() { Console::instance().capture({}); }
  CapturedConsole(const CapturedConsole&) = delete;
  CapturedConsole& operator=(const CapturedConsole&) = delete;

  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
  [[nodiscard]] std::string text() const {
    std::string all;
    for (const auto& line : lines_) all += line + "\n";
    return all;
  }
  [[nodiscard]] bool has(const std::string& part) const { return text().find(part) != std::string::npos; }

 private:
  std::vector<std::string> lines_;
};

}  // namespace levin::test
