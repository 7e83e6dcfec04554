// Recorded steps through a device's recorder, as strict as a CUDA graph (support/device/recorder.h): what was recorded
// has not run, a replay uses the same memory, and nothing may wait.
#include <gtest/gtest.h>

#include "device/on_test_device.h"
#include "levin/optim/muon.h"
#include "levin/optim/rmsprop.h"
#include "levin/optim/sgd.h"

namespace levin::device_recording_test {
namespace {

using namespace test;

struct Wanted {
  std::function<void(TrainerOptions&)> options = nullptr;
  double dropout = 0;
  std::function<OptimizerConfig(DeviceNet&)> optimizers = nullptr;
};

// A run as it is and a recorded one: the same bits.
template <class Net = DeviceNet>
DeviceCounts expect_the_same(const Wanted& wanted) {
  std::vector<Trained> runs;
  for (const bool recorded : {false, true}) {
    Net module(wanted.dropout);
    module.make_optimizers = wanted.optimizers;
    TrainerOptions options = on_test_device(2);
    if (wanted.options) wanted.options(options);
    options.record_steps = recorded;
    reset_device_counts();
    runs.push_back(train(module, options, 80));
  }
  expect_same_bits(runs[0], runs[1]);
  EXPECT_GT(device_counts().replayed, 0);
  return device_counts();
}

TEST(DeviceRecording, trains_to_the_same_bits) {
  const DeviceCounts counts = expect_the_same({});
  EXPECT_EQ(counts.recorded, 1);
  EXPECT_EQ(counts.replayed, 20 - 3) << "all steps but three that warm up";
}

TEST(DeviceRecording, draws_new_numbers_at_each_replay) {
  (void)expect_the_same({.dropout = 0.5});
}

TEST(DeviceRecording, works_with_accumulation_and_clipping) {
  (void)expect_the_same({.options = [](TrainerOptions& options) {
    options.accumulate_grad_batches = 2;
    options.gradient_clip_val = 0.25;
  }});
}

TEST(DeviceRecording, works_in_every_precision) {
  for (const char* precision : {"bf16-mixed", "bf16-true", "16-mixed"}) {
    SCOPED_TRACE(precision);
    (void)expect_the_same({.options = [&](TrainerOptions& options) { options.precision = precision; }});
  }
}

TEST(DeviceRecording, leaves_to_the_host_what_an_optimizer_computes_there) {
  const auto expect = [](const std::function<OptimizerConfig(DeviceNet&)>& optimizers) {
    const DeviceCounts counts = expect_the_same({.options =
                                                     [](TrainerOptions& options) {
                                                       options.accumulate_grad_batches = 2;
                                                       options.gradient_clip_val = 0.25;
                                                     },
                                                 .optimizers = optimizers});
    EXPECT_EQ(counts.replayed, 20 - 6) << "all batches but those of three windows that warm up";
  };
  expect([](DeviceNet& m) { return RMSprop(m.parameters(), {.lr = 0.01}); });
  expect([](DeviceNet& m) { return Muon(m.parameters(), {.lr = 0.01}); });
  expect([](DeviceNet& m) { return torch::optim::Adam(m.parameters(), torch::optim::AdamOptions(0.01)); });
}

// As OneCycleLR does, but with a learning rate that is exact in float32, in which a recorded update reads it.
TEST(DeviceRecording, follows_a_momentum_that_moves_every_step) {
  struct Moving : Callback {
    void on_train_batch_start(Trainer& trainer, LightningModule&, const Batch&, int64_t batch_idx) override {
      trainer.optimizers()[0].optimizer().groups()[0].momentum = 0.5 + 0.03 * static_cast<double>(batch_idx);
    }
  };
  const DeviceCounts counts =
      expect_the_same({.options = [](TrainerOptions& options) { options.callbacks.push_back(Moving()); }});
  EXPECT_GE(counts.replayed, 10);
}

TEST(DeviceRecording, leaves_to_the_host_what_acts_before_the_update) {
  struct Halving : Callback {
    void on_before_optimizer_step(Trainer&, LightningModule& module, Optimizer&) override {
      for (const auto& parameter : module.parameters()) parameter.mutable_grad().mul_(0.5);
    }
  };
  (void)expect_the_same({.options = [](TrainerOptions& options) {
    options.precision = "16-mixed";
    options.callbacks.push_back(Halving());
  }});
}

TEST(DeviceRecording, records_again_when_a_layer_is_frozen) {
  struct Freezes : DeviceNet {
    using DeviceNet::DeviceNet;
    void on_train_epoch_start() override { conv->weight.set_requires_grad(trainer().current_epoch() != 1); }
  };
  EXPECT_EQ(expect_the_same<Freezes>({}).recorded, 2);
}

TEST(DeviceRecording, says_what_cannot_be_recorded) {
  struct Reads : DeviceNet {
    at::Tensor training_step(const Batch& batch, int64_t idx) override {
      const at::Tensor loss = DeviceNet::training_step(batch, idx);
      if (loss.item<float>() > 1e9) return {};
      return loss;
    }
  } module;
  TrainerOptions options = on_test_device(2);
  options.record_steps = true;
  const std::string error = error_of([&] { (void)train(module, options); });
  EXPECT_TRUE(holds(error, {"record_steps", "reads a number"})) << error;
}

}  // namespace
}  // namespace levin::device_recording_test
