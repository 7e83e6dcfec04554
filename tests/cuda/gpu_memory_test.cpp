// Really running out of a GPU's memory.
#include "cuda/gpu.h"
#include "levin/trainer/run/memory_report.h"

namespace levin::gpu_memory_test {
namespace {

using namespace test;

class GpuMemoryReport : public OnGpu {};

// In batch 2 it asks for more than any GPU has.
struct Greedy : SmallNet {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    const at::Tensor loss = SmallNet::training_step(batch, batch_idx);
    if (batch_idx < 2) return loss;
    return loss + torch::ones({1LL << 42}, loss.options()).mean() * 0;
  }
};

TEST_F(GpuMemoryReport, ShowsTheStepTheAllocatorAndTheLargestUsers) {
  Greedy module;
  std::string text;
  try {
    Trainer(on_gpu(1)).fit(module, images(64));
  } catch (const OutOfMemoryError& error) {
    text = error.what();
  }
  EXPECT_TRUE(has(text, "training_step, epoch 0, batch 2, global step 2: out of memory in forward on cuda:0.")) << text;
  EXPECT_TRUE(has(text, " more were asked for, where ")) << text;
  EXPECT_TRUE(has(text, " are reserved, and ")) << text;
  EXPECT_TRUE(has(text, "Largest users: parameters ") && has(text, "conv ")) << text;
  EXPECT_TRUE(has(text, "; activations, batches and the rest ")) << text;
}

TEST_F(GpuMemoryReport, AGpuThatRanOutTrainsAgain) {
  Greedy greedy;
  EXPECT_THROW(Trainer(on_gpu(1)).fit(greedy, images(64)), OutOfMemoryError);
  SmallNet module;
  EXPECT_EQ(train(module, on_gpu(1)).steps, 8);
}

}  // namespace
}  // namespace levin::gpu_memory_test
