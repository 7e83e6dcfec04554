// Training on a GPU: the CPU's results within rounding, in every precision, with batches copied ahead.
#include <c10/util/Exception.h>

#include "cuda/gpu.h"
#include "levin/data/loading/dataloader.h"

namespace levin::gpu_training_test {
namespace {

using namespace test;

class GpuTraining : public OnGpu {};

TrainerOptions on_cpu(int64_t epochs) {
  TrainerOptions options = quiet(epochs, {});
  options.accelerator = "cpu";
  return options;
}

// cuDNN's convolutions round float32 to TensorFloat-32 by default, regardless of float32_matmul_precision.
class WholeFloat32 {
 public:
  WholeFloat32() { at::globalContext().setAllowTF32CuDNN(false); }
  ~WholeFloat32() { at::globalContext().setAllowTF32CuDNN(true); }
  WholeFloat32(const WholeFloat32&) = delete;
  WholeFloat32& operator=(const WholeFloat32&) = delete;
};

// With SGD: the gradient of the bias before the batch norm is 0 but for rounding, and AdamW makes a whole step of it.
TEST_F(GpuTraining, GivesWhatTheCpuGives) {
  const WholeFloat32 float32;
  SmallNet here, there;
  here.make_optimizers = there.make_optimizers = [](SmallNet& module) {
    return OptimizerConfig(SGD(module.parameters(), {.lr = 0.0625, .momentum = 0.5}));
  };
  const Trained cpu = train(here, on_cpu(2));
  TrainerOptions options = on_gpu(2);
  options.float32_matmul_precision = MatmulPrecision::highest;
  options.deterministic = "warn";
  const Trained gpu = train(there, options);
  EXPECT_TRUE(there.conv->weight.is_cuda());
  EXPECT_EQ(cpu.steps, gpu.steps);
  expect_close(cpu, gpu, 1e-3, 1e-4);
  EXPECT_NEAR(cpu.metrics.at("val_loss"), gpu.metrics.at("val_loss"), 1e-2);
}

TEST_F(GpuTraining, IsTheSameWithItselfToTheBit) {
  SmallNet one, other;
  TrainerOptions options = on_gpu(2);
  options.deterministic = "warn";
  expect_same_bits(train(one, options), train(other, options));
}

void expect_every_batch(const std::shared_ptr<Loader>& loader) {
  struct Looks : SmallNet {
    void on_train_batch_start(const Batch& batch, int64_t) override {
      labels.push_back(batch[1]);
      sums.push_back(batch[0].to(torch::kDouble).sum());
    }
    std::vector<at::Tensor> labels, sums;
  };
  Looks module;
  Trainer trainer(on_gpu(1));
  trainer.fit(module, loader);
  loader->pin_memory(false);
  loader->start(0, 0);
  Batch batch;
  size_t seen = 0;
  for (; loader->next(batch); ++seen) {
    ASSERT_LT(seen, module.labels.size());
    EXPECT_TRUE(torch::equal(module.labels[seen].cpu(), batch[1])) << "batch " << seen;
    EXPECT_NEAR(module.sums[seen].item<double>(), batch[0].to(torch::kDouble).sum().item<double>(), 1e-6);
  }
  EXPECT_EQ(seen, module.labels.size());
}

// The copies are on a stream of their own, out of pinned memory, which is used again: batches that differ must arrive
// whole and in order.
TEST_F(GpuTraining, SeesEveryBatchAsItWasLoaded) {
  expect_every_batch(images(250));  // 32 batches, the last of 2
  Batch all;
  const auto whole = images(250, 250);
  whole->start(0, 0);
  ASSERT_TRUE(whole->next(all));
  const auto data = std::make_shared<TensorDataset>(all.tensors);
  for (const int64_t workers : {0, 2}) {
    SCOPED_TRACE(workers);
    expect_every_batch(std::make_shared<DataLoader>(
        data, DataLoaderOptions{.batch_size = 8, .shuffle = true, .num_workers = workers, .seed = 1}));
  }
}

TEST_F(GpuTraining, ScalesTheLossIn16Mixed) {
  SmallNet here, there;
  const Trained cpu = train(here, on_cpu(2));
  TrainerOptions options = on_gpu(2);
  options.precision = "16-mixed";
  const Trained gpu = train(there, options);
  EXPECT_EQ(gpu.steps + gpu.skipped, cpu.steps);
  EXPECT_NEAR(cpu.metrics.at("val_loss"), gpu.metrics.at("val_loss"), 0.1);
}

TEST_F(GpuTraining, TrainsInBfloat16AndWithChannelsLast) {
  SmallNet here, there;
  const Trained cpu = train(here, on_cpu(2));
  TrainerOptions options = on_gpu(2);
  options.precision = "bf16-mixed";
  options.channels_last = true;
  options.benchmark = true;
  options.float32_matmul_precision = MatmulPrecision::high;
  const Trained gpu = train(there, options);
  EXPECT_TRUE(there.conv->weight.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_NEAR(cpu.metrics.at("val_loss"), gpu.metrics.at("val_loss"), 0.1);
}

TEST_F(GpuTraining, ALossThatIsNotFiniteStopsBeforeItsUpdate) {
  SmallNet module;
  Batch all;
  const auto whole = images(64, 64);
  whole->start(0, 0);
  whole->next(all);
  all[0].slice(0, 24, 25).fill_(NAN);  // batch 3
  const std::string error =
      error_of([&] { Trainer(on_gpu(1)).fit(module, std::make_shared<TensorLoader>(all.tensors, 8)); });
  EXPECT_TRUE(has(error, "the loss is nan in epoch 0, batch 3, global step 3")) << error;
  for (const auto& parameter : module.parameters()) EXPECT_TRUE(parameter.isfinite().all().item<bool>());
}

struct Warnings : c10::WarningHandler {
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  std::vector<std::string> texts;
};

TEST_F(GpuTraining, SgdWithoutMomentumGivesNoWarning) {
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  SmallNet module;
  module.make_optimizers = [](SmallNet& m) { return OptimizerConfig(SGD(m.parameters(), {.lr = 0.0625})); };
  train(module, on_gpu(1));
  EXPECT_EQ(warnings.texts, std::vector<std::string>());
}

}  // namespace
}  // namespace levin::gpu_training_test
