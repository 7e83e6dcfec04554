// NVTX ranges through a library that stands in for NVIDIA's: it writes down what is pushed and popped.
#include "levin/profilers/nvtx_profiler.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "support/captured_console.h"
#include "support/paths.h"
#include "support/tiny_module.h"

namespace levin::nvtx_profiler_test {
namespace {

using namespace test;

std::string nvtx_calls() {
  void* library = ::dlopen(stand_in_nvidia().c_str(), RTLD_NOW);
  auto* calls = reinterpret_cast<const char* (*)()>(::dlsym(library, "stand_in_nvtx_calls"));
  return calls();
}

TrainerOptions ranged(NvtxProfilerOptions profiler) {
  TrainerOptions options = quiet(1, {});
  options.profiler = NvtxProfiler(std::move(profiler));
  return options;
}

TEST(NvtxProfiler, GivesNestedRangesForThePartsOfARun) {
  const CapturedConsole console;
  TinyModule module;
  Trainer trainer(ranged({.library = stand_in_nvidia()}));
  (void)nvtx_calls();
  trainer.fit(module, tiny_loader(4));
  EXPECT_EQ(nvtx_calls(),
            "(train_dataloader)(train_dataloader_start)(train_dataloader_next)"
            "(run_training_batch(training_step)(backward)(optimizer_step))(train_dataloader_next)");
  EXPECT_TRUE(console.has("NVTX ranges were given through"));
}

TEST(NvtxProfiler, OperatorsHaveRangesWhenAskedFor) {
  const CapturedConsole console;
  TinyModule module;
  Trainer trainer(ranged({.operators = true, .library = stand_in_nvidia()}));
  (void)nvtx_calls();
  trainer.fit(module, tiny_loader(4));
  const std::string calls = nvtx_calls();
  EXPECT_TRUE(has(calls, "(training_step(aten::")) << calls;
  EXPECT_TRUE(has(calls, "(aten::addmm")) << calls;
  EXPECT_TRUE(has(calls, "AddmmBackward0(")) << calls;
  EXPECT_EQ(std::count(calls.begin(), calls.end(), '('), std::count(calls.begin(), calls.end(), ')'));
  (void)torch::ones({2}).add(1);
  EXPECT_EQ(nvtx_calls(), "") << "no range is left open";
}

TEST(NvtxProfiler, ARunThatFailsClosesItsRanges) {
  TinyModule module;
  module.on_training_step = [](int64_t) { throw Error("enough"); };
  Trainer trainer(ranged({.library = stand_in_nvidia()}));
  (void)nvtx_calls();
  EXPECT_TRUE(has(error_of([&] { trainer.fit(module, tiny_loader(4)); }), "enough"));
  const std::string calls = nvtx_calls();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), '('), std::count(calls.begin(), calls.end(), ')')) << calls;
}

TEST(NvtxProfiler, ReportsWhatIsMissing) {
  const std::string wrong = error_of([] { NvtxProfiler({.library = "/nowhere/libnvToolsExt.so"}); });
  EXPECT_TRUE(has(wrong, "NvtxProfilerOptions.library")) << wrong;
  EXPECT_TRUE(has(wrong, "/nowhere/libnvToolsExt.so")) << wrong;
  EXPECT_TRUE(has(error_of([] { NvtxProfiler({.library = "libm.so.6"}); }), "no nvtxRangePushA"));

  const std::string missing = error_of([] { (void)find_nvtx(); });
  if (missing.empty()) GTEST_SKIP() << "this machine has NVTX";
  EXPECT_TRUE(has(missing, "libnvToolsExt.so.1")) << missing;
  EXPECT_TRUE(has(missing, "accelerator: gpu")) << missing;
  TinyModule module;
  TrainerOptions options = quiet(1, {});
  options.profiler = "nvtx";
  EXPECT_TRUE(has(error_of([&] { Trainer(options).fit(module, tiny_loader(4)); }), "NVTX is not available"));
}

}  // namespace
}  // namespace levin::nvtx_profiler_test
