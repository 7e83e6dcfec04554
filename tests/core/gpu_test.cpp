// Opening libraries at run time, and every way in which a GPU may be missing.
#include "levin/core/gpu.h"

#include <gtest/gtest.h>

#include "levin/core/options/error.h"
#include "levin/core/process/parts.h"
#include "levin/core/process/shared_library.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/stand_in_driver.h"

namespace levin::gpu_test {
namespace {

using test::error_of;
using test::has;

TEST(SharedLibrary, FindsWhatItHasAndNamesWhatItHasNot) {
  const SharedLibrary library("libm.so.6", "sums", "Install a C library.");
  double (*root)(double) = nullptr;
  library.find(root, "sqrt");
  EXPECT_EQ(root(81), 9);
  EXPECT_EQ(error_of([&] { library.find(root, "sqroot"); }), "sums: libm.so.6 has no sqroot. Install a C library.");
}

TEST(SharedLibrary, ReportsTheLoadersError) {
  const std::string error = error_of([] { const SharedLibrary none("libnowhere.so.3", "sums", "Install it."); });
  EXPECT_TRUE(has(error, "sums: libnowhere.so.3: cannot open shared object file")) << error;
  EXPECT_TRUE(has(error, "Install it.")) << error;
}

TEST(Gpu, AMissingLibraryIsNamed) {
  const std::string error = error_of([] { (void)open_gpu("/nowhere/liblevin_cuda.so"); });
  EXPECT_TRUE(has(error, "TrainerOptions.accelerator: gpu: /nowhere/liblevin_cuda.so")) << error;
  EXPECT_TRUE(has(error, "./dev setup --cuda")) << error;
  EXPECT_FALSE(gpu_is_open());
}

TEST(Gpu, ADifferentLibraryIsNotTakenForTheComponent) {
  const std::string error = error_of([] { (void)open_gpu(test::stand_in_nvidia()); });
  EXPECT_TRUE(has(error, "has no levin_cuda_version")) << error;
  EXPECT_FALSE(gpu_is_open());
}

TEST(Gpu, AComponentOfADifferentVersionIsRefused) {
  const std::string error = error_of([] { (void)open_gpu(test::binary_dir() + "/lib/liblevin_other_component.so"); });
  EXPECT_TRUE(
      has(error, "was built for Levin 9.8.7 with LibTorch 1.2, and this is " + std::string(component_version())))
      << error;
  EXPECT_FALSE(gpu_is_open());
}

TEST(Gpu, ReportsWhyThereIsNone) {
  if (!gpu_component().empty()) GTEST_SKIP() << "this build has the CUDA component";
  EXPECT_TRUE(has(why_no_gpu(), "this build of Levin has no CUDA component")) << why_no_gpu();
  EXPECT_TRUE(has(error_of([] { (void)open_gpu(); }), "TrainerOptions.accelerator: gpu: this build")) << why_no_gpu();
}

TEST(GpuDriver, ReportsWhatIsMissing) {
  const GpuDriver driver = ask_gpu_driver();
  if (driver.count > 0) GTEST_SKIP() << "this machine has NVIDIA's driver";
  EXPECT_TRUE(has(driver.problem, "NVIDIA's driver")) << driver.problem;
  EXPECT_TRUE(has(driver.problem, "accelerator: cpu")) << driver.problem;
}

TEST(GpuDriver, DISABLED_CountsTheStandInsGpus) {
  EXPECT_EQ(ask_gpu_driver().count, 3);
  EXPECT_EQ(ask_gpu_driver().problem, "");
}
TEST(GpuDriver, DISABLED_FindsNoGpu) {
  EXPECT_EQ(ask_gpu_driver().count, 0);
  EXPECT_TRUE(has(ask_gpu_driver().problem, "finds no GPU")) << ask_gpu_driver().problem;
  EXPECT_TRUE(has(ask_gpu_driver().problem, "CUDA_VISIBLE_DEVICES"));
}
TEST(GpuDriver, CountsWhatTheDriverHas) {
  EXPECT_EQ(test::with_stand_in_driver("GpuDriver.DISABLED_CountsTheStandInsGpus", 3), 0);
  EXPECT_EQ(test::with_stand_in_driver("GpuDriver.DISABLED_FindsNoGpu", 0), 0);
}

}  // namespace
}  // namespace levin::gpu_test
