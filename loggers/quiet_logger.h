// The logger of ranks that log nothing.
#pragma once

#include <string>

#include "levin/loggers/logger.h"

namespace levin {

/// A logger that discards everything. It replaces rank 0's loggers on the other ranks, for callbacks that write to a
/// logger.
class QuietLogger final : public Logger {
 public:
  void start(const std::string& /*default_root_dir*/, bool /*resume*/) override {}
  [[nodiscard]] std::string log_dir() const override { return log_dir_; }
  void set_log_dir(const std::string& rank_zeros) { log_dir_ = rank_zeros; }
  void log_metrics(const MetricList& /*metrics*/, const LogPoint& /*at*/) override {}

 private:
  std::string log_dir_;
};

}  // namespace levin
