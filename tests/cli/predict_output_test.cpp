// levin predict --output: the real tool.
#include <gtest/gtest.h>

#include <algorithm>

#include "levin/core/exit_codes.h"
#include "levin/core/files.h"
#include "support/levin_runs.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::predict_output_test {
namespace {

TEST(PredictOutput, WritesARowPerSampleBesideTheCallbacksOfTheRunFile) {
  const test::TemporaryFolder folder;
  const auto ran =
      test::run_levin("predict --config " + test::source_dir() +
                          "/configs/fashion_mnist.yaml --trainer.limit_predict_batches=2 "
                          "--trainer.enable_progress_bar=false --data.batch_size=8 --output 'a, \"b\".csv'",
                      folder.path());
  ASSERT_EQ(ran.status, kExitOk) << ran.output;
  const std::string rows = read_file(folder / "a, \"b\".csv");
  EXPECT_EQ(rows.substr(0, rows.find('\n')), "loader,batch,prediction");
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 1 + 2 * 8);
}

}  // namespace
}  // namespace levin::predict_output_test
