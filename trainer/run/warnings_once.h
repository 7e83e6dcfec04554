// Shows each of LibTorch's warnings once: most of them are repeated in every step.
#pragma once

#include <c10/util/Exception.h>

#include <set>
#include <string>

namespace levin {

/// A scope that passes a warning that LibTorch gives on this thread to the previous handler, unless it has passed the
/// same text already. Destroyed on the thread that made it.
class WarningsOnce final : public c10::WarningHandler {
 public:
  WarningsOnce();
  ~WarningsOnce() override = default;
  WarningsOnce(const WarningsOnce&) = delete;
  WarningsOnce& operator=(const WarningsOnce&) = delete;

  void process(const c10::Warning& warning) override;

 private:
  c10::WarningHandler* before_;
  std::set<std::string> seen_ = {};
  c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace levin
