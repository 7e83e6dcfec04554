// Random runs with and without recorded steps, on the CPU; tests/cuda has the same on a GPU.
#include "support/random_runs.h"

namespace levin::recorded_random_test {
namespace {

TEST(RecordedRandomRuns, EndBitwiseIdentically) {
  test::compare_random_runs(/*first=*/1, /*count=*/60, "cpu");
}

}  // namespace
}  // namespace levin::recorded_random_test
