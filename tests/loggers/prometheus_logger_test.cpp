// What needs no Prometheus; prometheus_test.py has the rest.
#include "levin/loggers/prometheus_logger.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/temporary_folder.h"
#include "support/wait_until.h"

namespace levin::prometheus_logger_test {
namespace {

using test::TemporaryFolder;

TEST(PrometheusLogger, WritesAFileThatItHasRemovedAgainInTheNextRun) {
  const TemporaryFolder folder;
  PrometheusLogger logger({.every = Seconds(0.05), .remove_at_end = true});
  logger.start(folder.path(), false);
  for (int64_t run = 0; run < 2; ++run) {
    logger.own_folder();
    logger.log_metrics({{"loss", 1.0}}, {run, 0});
    EXPECT_TRUE(test::wait_until([&] { return std::filesystem::exists(logger.path()); })) << "run " << run;
    logger.finalize("success");
    EXPECT_FALSE(std::filesystem::exists(logger.path())) << "run " << run;
  }
}

}  // namespace
}  // namespace levin::prometheus_logger_test
