// Steps as CUDA graphs are bitwise identical to eager steps. A graph reads learning rates as float32: here they are
// exact.
#include "cuda/gpu.h"
#include "levin/optim/adagrad.h"
#include "levin/optim/step_schedulers.h"

namespace levin::gpu_graph_test {
namespace {

using namespace test;

class GpuGraph : public OnGpu {};

struct Wanted {
  std::function<void(TrainerOptions&)> options = nullptr;
  std::function<OptimizerConfig(SmallNet&)> optimizers = nullptr;
  double dropout = 0;
  int64_t samples = 96;
};

template <class Net = SmallNet>
void expect_the_same(const Wanted& wanted) {
  TrainerOptions options = on_gpu(3);
  options.deterministic = "warn";
  if (wanted.options) wanted.options(options);
  Net plain(wanted.dropout), recorded(wanted.dropout);
  plain.make_optimizers = recorded.make_optimizers = wanted.optimizers;
  const Trained launched = train(plain, options, wanted.samples);
  options.record_steps = true;
  expect_same_bits(launched, train(recorded, options, wanted.samples));
}

TEST_F(GpuGraph, AStepTrainsBitwiseIdentically) {
  expect_the_same({});
}

TEST_F(GpuGraph, EveryOptimizerThatCanBeRecordedDoes) {
  expect_the_same({.optimizers = [](SmallNet& m) {
    return OptimizerConfig(SGD(m.parameters(), {.lr = 0.0625, .momentum = 0.9, .weight_decay = 0.01}));
  }});
  expect_the_same({.optimizers = [](SmallNet& m) {
    return OptimizerConfig(Adam(m.parameters(), {.lr = 0.0078125, .amsgrad = true}));
  }});
  expect_the_same({.optimizers = [](SmallNet& m) { return OptimizerConfig(Adagrad(m.parameters(), {.lr = 0.0625})); }});
}

struct MovesMomentum : Callback {
  void on_train_batch_start(Trainer& trainer, LightningModule&, const Batch&, int64_t batch_idx) override {
    trainer.optimizers()[0].optimizer().param_groups()[0].momentum = 0.5 + 0.01 * static_cast<double>(batch_idx);
  }
};

// RMSprop computes on the host, and the momentum moves, as with OneCycleLR: the graph ends after backward.
TEST_F(GpuGraph, TheHostMayPerformTheUpdate) {
  expect_the_same(
      {.options =
           [](TrainerOptions& o) {
             o.accumulate_grad_batches = 2;
             o.gradient_clip_val = 0.1;
           },
       .optimizers = [](SmallNet& m) { return OptimizerConfig(RMSprop(m.parameters(), {.lr = 0.0078125})); }});
  expect_the_same({.options = [](TrainerOptions& o) { o.callbacks.push_back(MovesMomentum()); }});
}

TEST_F(GpuGraph, AWindowOfFourDoesToo) {
  expect_the_same({.options = [](TrainerOptions& o) { o.accumulate_grad_batches = 4; }});
}

TEST_F(GpuGraph, ClippingASmallerLastBatchAndAScheduleDoToo) {
  expect_the_same({.options = [](TrainerOptions& o) { o.gradient_clip_val = 0.1; },
                   .optimizers =
                       [](SmallNet& m) {
                         return OptimizerConfig(SGD(m.parameters(), {.lr = 0.25, .momentum = 0.5}),
                                                StepLR({.step_size = 4, .gamma = 0.5}), {.interval = Interval::step});
                       },
                   .samples = 100});
}

TEST_F(GpuGraph, DropoutDrawsTheSameNumbers) {
  expect_the_same({.dropout = 0.5});
}

TEST_F(GpuGraph, MixedPrecisionWithAScalerDoesToo) {
  for (const char* precision : {"bf16-mixed", "16-mixed"}) {
    expect_the_same({.options = [=](TrainerOptions& o) { o.precision = precision; }});
  }
}

// The graphs of the first two epochs are destroyed, and with them the pool of memory that they share.
TEST_F(GpuGraph, AStepIsCapturedAgainWhenALayerIsFrozen) {
  struct Freezes : SmallNet {
    using SmallNet::SmallNet;
    void on_train_epoch_start() override { conv->weight.set_requires_grad(trainer().current_epoch() != 1); }
  };
  expect_the_same<Freezes>({});
}

// All memory of the GPU, so that the allocator keeps it when this returns.
void fill_allocator(at::Device device) {
  const bool fills = at::globalContext().deterministicFillUninitializedMemory();
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  std::vector<at::Tensor> all;
  for (const int64_t bytes : {int64_t{1} << 30, int64_t{1} << 24, int64_t{1} << 20}) {
    try {
      for (;;) all.push_back(torch::empty({bytes}, torch::dtype(torch::kByte).device(device)));
    } catch (const c10::OutOfMemoryError&) {
    }
  }
  at::globalContext().setDeterministicFillUninitializedMemory(fills);
}

TEST_F(GpuGraph, AStepIsCapturedWhereTheAllocatorKeepsAllMemory) {
  struct Fills : SmallNet {
    using SmallNet::SmallNet;
    void on_train_batch_end(const at::Tensor&, const Batch&, int64_t) override {
      if (++batches == 3) fill_allocator(device());  // the next step is captured
    }
    int64_t batches = 0;
  };
  expect_the_same<Fills>({});
}

TEST_F(GpuGraph, AStepThatReadsAValueIsRefusedInOneSentence) {
  struct Reads : SmallNet {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      const at::Tensor loss = SmallNet::training_step(batch, batch_idx);
      return loss.item<float>() > 1e9 ? loss * 0 : loss;
    }
  };
  Reads module;
  TrainerOptions options = on_gpu(1);
  options.record_steps = true;
  const std::string error = error_of([&] { Trainer(options).fit(module, images(96)); });
  EXPECT_TRUE(has(error, "TrainerOptions.record_steps: the step cannot be recorded, because something in it waits"))
      << error;
  // What a capture changes in LibTorch's allocators and generators is undone: random numbers are drawn outside of
  // captures and in others.
  expect_the_same({.dropout = 0.5});
}

}  // namespace
}  // namespace levin::gpu_graph_test
