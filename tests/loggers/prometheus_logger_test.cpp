// What needs no Prometheus; prometheus_test.py has the rest.
#include "levin/loggers/prometheus_logger.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "support/temporary_folder.h"

namespace levin::prometheus_logger_test {
namespace {

using test::TemporaryFolder;

bool appears(const std::string& path) {
  for (int k = 0; k < 1000 && !std::filesystem::exists(path); ++k) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return std::filesystem::exists(path);
}

TEST(PrometheusLogger, WritesAFileThatItHasRemovedAgainInTheNextRun) {
  const TemporaryFolder folder;
  PrometheusLogger logger({.every = Seconds(0.05), .remove_at_end = true});
  logger.start(folder.path(), false);
  for (int64_t run = 0; run < 2; ++run) {
    logger.own_folder();
    logger.log_metrics({{"loss", 1.0}}, {run, 0});
    EXPECT_TRUE(appears(logger.path())) << "run " << run;
    logger.finalize("success");
    EXPECT_FALSE(std::filesystem::exists(logger.path())) << "run " << run;
  }
}

}  // namespace
}  // namespace levin::prometheus_logger_test
