// Random runs with and without CUDA graphs, on a GPU; tests/trainer/recorded_random_test.cpp has the same on the CPU.
#include "cuda/gpu.h"
#include "support/random_runs.h"

namespace levin::gpu_recorded_test {
namespace {

class GpuRecorded : public test::OnGpu {};

TEST_F(GpuRecorded, RandomRunsEndBitwiseIdentically) {
  test::compare_random_runs(/*first=*/1, /*count=*/24, "gpu");
}

}  // namespace
}  // namespace levin::gpu_recorded_test
