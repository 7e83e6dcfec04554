// Opening the component itself, on any machine: with a library that stands in for NVIDIA's driver and can do nothing,
// as one that is too old for this CUDA.
#include "cuda/gpu.h"
#include "support/stand_in_driver.h"

namespace levin::gpu_driver_test {
namespace {

using namespace test;

TEST(GpuComponent, DISABLED_ReportsThatTheDriverIsTooOld) {
  ASSERT_EQ(why_no_gpu(), "");
  const std::string error = error_of([] { (void)open_gpu(); });
  EXPECT_TRUE(has(error, "TrainerOptions.accelerator: gpu: LibTorch's CUDA finds no GPU, though NVIDIA's driver does"))
      << error;
  EXPECT_TRUE(has(error, "nvidia-smi")) << error;
  EXPECT_TRUE(has(error_of([] { Trainer trainer(on_gpu(1)); }), "LibTorch's CUDA finds no GPU"));
  EXPECT_FALSE(gpu_is_open());
}

TEST(GpuComponent, IsOpenedAndReportsWhatIsMissing) {
  EXPECT_EQ(with_stand_in_driver("GpuComponent.DISABLED_*", 1), 0);
}

}  // namespace
}  // namespace levin::gpu_driver_test
