// ddp on a GPU: one rank over NCCL gives the results of one process without NCCL.
#include "cuda/gpu.h"
#include "levin/strategies/process/ddp.h"

namespace levin::gpu_ranks_test {
namespace {

using namespace test;

class GpuRanks : public OnGpu {};

TEST_F(GpuRanks, OneRankOverNcclOrGlooTrainsBitwiseIdentically) {
  TrainerOptions options = on_gpu(2);
  options.deterministic = "warn";
  SmallNet plain;
  const Trained alone = train(plain, options);
  for (const char* backend : {"auto", "nccl", "gloo"}) {
    SmallNet module;
    options.strategy = DDP({.process_group_backend = backend});
    expect_same_bits(alone, train(module, options));
  }
}

TEST_F(GpuRanks, OneRankOverNcclReplaysItsStepsBitwiseIdentically) {
  TrainerOptions options = on_gpu(2);
  options.deterministic = "warn";
  options.record_steps = true;
  SmallNet plain, module;
  const Trained alone = train(plain, options);
  options.strategy = DDP({.process_group_backend = "nccl"});
  expect_same_bits(alone, train(module, options));
}

TEST_F(GpuRanks, ABadChoiceOfGpusIsReportedBeforeTheRun) {
  TrainerOptions options = on_gpu(1);
  options.devices = std::vector<int64_t>{4711};
  EXPECT_TRUE(has(error_of([&] { Trainer trainer(options); }), "GPU 4711 was asked for; there "));
}

}  // namespace
}  // namespace levin::gpu_ranks_test
