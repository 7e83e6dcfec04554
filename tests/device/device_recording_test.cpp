// Recorded steps through a device's recorder, as strict as a CUDA graph (support/device/recorder.h): what was recorded
// has not run, a replay uses the same memory, and nothing may wait.
#include <gtest/gtest.h>

#include "device/on_test_device.h"
#include "levin/optim/adagrad.h"
#include "levin/optim/muon.h"
#include "levin/optim/sgd.h"
#include "levin/optim/step_schedulers.h"
#include "support/captured_console.h"

namespace levin::device_recording_test {
namespace {

using namespace test;

struct Wanted {
  std::function<void(TrainerOptions&)> options = nullptr;
  double dropout = 0;
  std::function<OptimizerConfig(DeviceNet&)> optimizers = nullptr;
};

// Expects an eager run and a recorded run to be bitwise identical.
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
    EXPECT_EQ(counts.replayed, 20 - 6) << "all batches except three warm-up windows";
  };
  expect([](DeviceNet& m) { return RMSprop(m.parameters(), {.lr = 0.01}); });
  expect([](DeviceNet& m) { return Muon(m.parameters(), {.lr = 0.01}); });
  expect([](DeviceNet& m) { return torch::optim::Adam(m.parameters(), torch::optim::AdamOptions(0.01)); });
}

// As OneCycleLR does, but with a learning rate that is exact in float32, in which a recorded update reads it.
TEST(DeviceRecording, follows_a_momentum_that_moves_every_step) {
  struct Moving : Callback {
    void on_train_batch_start(Trainer& trainer, LightningModule&, const Batch&, int64_t batch_idx) override {
      trainer.optimizers()[0].optimizer().param_groups()[0].momentum = 0.5 + 0.03 * static_cast<double>(batch_idx);
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

// Trains both ways, and expects the warning `text`, or none if it is "".
template <class Net>
void expect_the_same_and(const std::string& text, const Wanted& wanted = {}) {
  const CapturedConsole console;
  (void)expect_the_same<Net>(wanted);
  const std::string output = console.text();
  EXPECT_EQ(output.find("record_steps") != std::string::npos, !text.empty()) << output;
  EXPECT_NE(output.find(text), std::string::npos) << output;
}

TEST(DeviceRecording, warns_of_a_step_that_uses_the_batch_before) {
  struct Uses : DeviceNet {
    using DeviceNet::DeviceNet;
    at::Tensor training_step(const Batch& batch, int64_t idx) override {
      const Batch mixed({previous.defined() ? batch[0] + previous * 0.25 : batch[0], batch[1]});
      previous = batch[0].detach();
      return DeviceNet::training_step(mixed, idx);
    }
    at::Tensor previous;
  };
  expect_the_same_and<Uses>("training_step keeps a tensor of its batch, whose memory the next batch replaces");
  struct IsGiven : Uses {
    using Uses::Uses;
    at::Tensor training_step(const Batch& batch, int64_t idx) override {
      const Batch mixed({last.defined() ? batch[0] + last * 0.25 : batch[0], batch[1]});
      return DeviceNet::training_step(mixed, idx);
    }
    void on_train_batch_end(const at::Tensor&, const Batch& batch, int64_t) override { last = batch[0] * 1; }
    at::Tensor last;
  };
  expect_the_same_and<IsGiven>("training_step reads a tensor that was replaced after the step was recorded");
}

TEST(DeviceRecording, warns_of_what_a_step_keeps) {
  struct Keeps : DeviceNet {
    using DeviceNet::DeviceNet;
    at::Tensor training_step(const Batch& batch, int64_t idx) override {
      const at::Tensor loss = DeviceNet::training_step(batch, idx);
      kept.push_back(loss.detach());
      return loss;
    }
    void on_train_batch_end(const at::Tensor& loss, const Batch&, int64_t) override {
      EXPECT_TRUE(torch::equal(kept.back().cpu(), loss.cpu()));
    }
    std::vector<at::Tensor> kept;
  };
  expect_the_same_and<Keeps>("training_step keeps its loss");
  struct KeepsGradient : DeviceNet {
    using DeviceNet::DeviceNet;
    void on_train_batch_end(const at::Tensor&, const Batch&, int64_t) override { kept.push_back(last->weight.grad()); }
    std::vector<at::Tensor> kept;
  };
  expect_the_same_and<KeepsGradient>("is kept after its window");
}

TEST(DeviceRecording, follows_what_changes_inside_a_window) {
  const Wanted windows = {.options = [](TrainerOptions& options) {
    options.accumulate_grad_batches = 4;
    options.max_epochs = 6;
  }};
  struct Freezes : DeviceNet {
    using DeviceNet::DeviceNet;
    void on_train_batch_start(const Batch&, int64_t idx) override {
      if (trainer().current_epoch() == 3) conv->weight.set_requires_grad(idx < 2 || idx > 6);
    }
  };
  expect_the_same_and<Freezes>("", windows);
  struct FreezesWhilePreparing : DeviceNet {
    using DeviceNet::DeviceNet;
    void on_train_batch_start(const Batch&, int64_t idx) override {
      if (trainer().current_epoch() == 1 && idx == 2) conv->weight.set_requires_grad(false);
    }
  };
  expect_the_same_and<FreezesWhilePreparing>("", windows);
  struct Evaluates : DeviceNet {
    using DeviceNet::DeviceNet;
    void on_train_batch_start(const Batch&, int64_t idx) override {
      if (trainer().current_epoch() == 3) norm->train(idx < 2 || idx > 6);
    }
  };
  expect_the_same_and<Evaluates>("", windows);
  struct Moves : DeviceNet {
    using DeviceNet::DeviceNet;
    void on_train_batch_start(const Batch&, int64_t idx) override {
      if (trainer().current_epoch() == 3 && idx == 2) last->weight.set_data(last->weight.detach() * 2);
    }
  };
  expect_the_same_and<Moves>("", windows);
}

TEST(DeviceRecording, goes_on_where_a_step_can_no_longer_be_recorded) {
  struct ReadsLater : DeviceNet {
    using DeviceNet::DeviceNet;
    at::Tensor training_step(const Batch& batch, int64_t idx) override {
      const at::Tensor loss = DeviceNet::training_step(batch, idx);
      return conv->weight.requires_grad() || loss.item<float>() < 1e9 ? loss : loss * 2;
    }
    void on_train_epoch_start() override { conv->weight.set_requires_grad(trainer().current_epoch() == 0); }
  };
  expect_the_same_and<ReadsLater>("the step cannot be recorded, because something in it waits for the GPU");
}

TEST(DeviceRecording, hands_on_what_a_step_changes_in_its_batch) {
  struct Scales : DeviceNet {
    using DeviceNet::DeviceNet;
    at::Tensor training_step(const Batch& batch, int64_t idx) override {
      at::Tensor(batch[0]).mul_(0.5);
      return DeviceNet::training_step(batch, idx);
    }
    void on_train_batch_end(const at::Tensor&, const Batch& batch, int64_t) override {
      sum += batch[0].sum().item<double>();
    }
    double sum = 0;
  };
  double sums[2] = {};
  for (const bool recorded : {false, true}) {
    Scales module;
    TrainerOptions options = on_test_device(1);
    options.record_steps = recorded;
    (void)train(module, options, 80);
    sums[recorded] = module.sum;
  }
  EXPECT_EQ(sums[0], sums[1]);
}

// 0.01 is not exact in float32, in which a recorded update would read it from a tensor.
TEST(DeviceRecording, uses_the_learning_rate_that_the_host_has) {
  const auto constant = [](DeviceNet& m) { return OptimizerConfig(Adagrad(m.parameters(), {.lr = 0.01})); };
  EXPECT_EQ(expect_the_same({.optimizers = constant}).recorded, 1);
  const auto moving = [](DeviceNet& m) {
    return OptimizerConfig(Adagrad(m.parameters(), {.lr = 0.01, .lr_decay = 0.01}),
                           StepLR({.step_size = 1, .gamma = 0.9}), {.interval = Interval::step});
  };
  EXPECT_GE(expect_the_same({.optimizers = moving}).replayed, 10) << "the host performs the updates";
  (void)expect_the_same(
      {.options = [](TrainerOptions& options) { options.precision = "64-true"; },
       .optimizers = [](DeviceNet& m) { return OptimizerConfig(SGD(m.parameters(), {.lr = 0.01, .momentum = 0.9})); }});
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
