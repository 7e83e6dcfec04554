// A run on a device that is not the CPU is bitwise identical to a run on the CPU. The test device computes with the
// CPU's kernels, so any difference is an error of the run: a tensor on the wrong device, or a copy that was not waited
// for.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <set>
#include <thread>

#include "device/on_test_device.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/callbacks/weight_averaging.h"
#include "levin/metrics/classification.h"
#include "levin/optim/adafactor.h"
#include "levin/optim/adagrad.h"
#include "levin/optim/adam.h"
#include "levin/optim/lars.h"
#include "levin/optim/lbfgs.h"
#include "levin/optim/lookahead.h"
#include "levin/optim/muon.h"
#include "levin/optim/sam.h"
#include "levin/optim/schedule_free_adamw.h"
#include "levin/optim/sgd.h"
#include "levin/optim/step_schedulers.h"
#include "levin/strategies/device/model_parallel.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"

namespace levin::device_training_test {
namespace {

using namespace test;

TEST(DeviceTraining, gives_the_bits_of_the_CPU) {
  const Trained run = expect_as_on_the_cpu();
  EXPECT_EQ(run.steps, 12);
}

TEST(DeviceTraining, leaves_the_module_on_the_device) {
  DeviceNet module;
  (void)train(module, on_test_device(1));
  for (const auto& parameter : module.parameters()) EXPECT_EQ(parameter.device().str(), "testdev:0");
}

TEST(DeviceTraining, uses_the_device_that_is_named) {
  DeviceNet module;
  TrainerOptions options = on_test_device(1);
  options.devices = std::vector<int64_t>{1};
  (void)train(module, options);
  EXPECT_EQ(module.last->weight.device().str(), "testdev:1");
}

TEST(DeviceTraining, accumulates_and_clips_as_the_CPU_does) {
  (void)expect_as_on_the_cpu([](TrainerOptions& options) {
    options.accumulate_grad_batches = 3;
    options.gradient_clip_val = 0.25;
  });
  (void)expect_as_on_the_cpu([](TrainerOptions& options) {
    options.gradient_clip_val = 0.01;
    options.gradient_clip_algorithm = ClipAlgorithm::value;
  });
}

TEST(DeviceTraining, works_with_every_optimizer) {
  using Make = std::function<OptimizerConfig(DeviceNet&)>;
  const std::vector<std::pair<const char*, Make>> all = {
      {"Adafactor", [](DeviceNet& m) { return OptimizerConfig(Adafactor(m.parameters(), {})); }},
      {"Adadelta", [](DeviceNet& m) { return OptimizerConfig(Adadelta(m.parameters(), {})); }},
      {"Adagrad", [](DeviceNet& m) { return OptimizerConfig(Adagrad(m.parameters(), {})); }},
      {"Adam", [](DeviceNet& m) { return OptimizerConfig(Adam(m.parameters(), {.amsgrad = true})); }},
      {"Adamax", [](DeviceNet& m) { return OptimizerConfig(Adamax(m.parameters(), {})); }},
      {"LAMB", [](DeviceNet& m) { return OptimizerConfig(LAMB(m.parameters(), {})); }},
      {"LARS", [](DeviceNet& m) { return OptimizerConfig(LARS(m.parameters(), {.lr = 0.1})); }},
      {"Lookahead",
       [](DeviceNet& m) { return OptimizerConfig(Lookahead(SGD(m.parameters(), {.lr = 0.1}), {.k = 2})); }},
      {"Muon",
       [](DeviceNet& m) {
         return OptimizerConfig(Muon({m.first->weight, m.last->weight}, {.lr = 0.02}));
       }},
      {"SAM", [](DeviceNet& m) { return OptimizerConfig(SAM(SGD(m.parameters(), {.lr = 0.1}), {.rho = 0.05})); }},
      {"ScheduleFreeAdamW", [](DeviceNet& m) { return OptimizerConfig(ScheduleFreeAdamW(m.parameters(), {})); }},
      {"LBFGS", [](DeviceNet& m) { return OptimizerConfig(LBFGS(m.parameters(), {.lr = 0.1, .max_iter = 3})); }},
      {"NAdam", [](DeviceNet& m) { return OptimizerConfig(NAdam(m.parameters(), {})); }},
      {"RAdam", [](DeviceNet& m) { return OptimizerConfig(RAdam(m.parameters(), {})); }},
      {"RMSprop", [](DeviceNet& m) { return OptimizerConfig(RMSprop(m.parameters(), {.momentum = 0.5})); }},
      {"SGD", [](DeviceNet& m) { return OptimizerConfig(SGD(m.parameters(), {.lr = 0.1, .momentum = 0.9})); }},
  };
  for (const auto& [name, make] : all) {
    SCOPED_TRACE(name);
    (void)expect_as_on_the_cpu(nullptr, make);
  }
}

TEST(DeviceTraining, follows_schedulers_and_averages_weights) {
  (void)expect_as_on_the_cpu([](TrainerOptions& options) { options.callbacks = {EMAWeightAveraging({.decay = 0.5})}; },
                             [](DeviceNet& m) {
                               return OptimizerConfig{AdamW(m.parameters(), {.lr = 0.01}),
                                                      StepLR({.step_size = 1}),
                                                      {.interval = Interval::epoch}};
                             });
}

TEST(DeviceTraining, accumulates_metrics_on_the_device) {
  struct Measured : DeviceNet {
    void validation_step(const Batch& batch, int64_t) override {
      accuracy.update(forward(batch[0]), batch[1]);
      log("accuracy", accuracy);
    }
    metrics::Accuracy accuracy{{.task = metrics::Task::multiclass, .num_classes = 3}};
  };
  std::vector<Metrics> results;
  for (const char* accelerator : {"cpu", kTestDevice}) {
    Measured module;
    TrainerOptions options = on_test_device(1);
    options.accelerator = accelerator;
    results.push_back(train(module, options).metrics);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_TRUE(results[0].contains("accuracy"));
}

// In lower precision the device uses LibTorch's autocast lists for GPUs, which differ from the CPU's.
TEST(DeviceTraining, trains_in_mixed_precision) {
  DeviceNet plain;
  const Trained full = train(plain, on_test_device(2));
  for (const char* precision : {"bf16-mixed", "16-mixed"}) {
    SCOPED_TRACE(precision);
    DeviceNet module;
    TrainerOptions options = on_test_device(2);
    options.precision = precision;
    const Trained run = train(module, options);
    EXPECT_EQ(run.steps + run.skipped, full.steps);
    EXPECT_NEAR(run.metrics.at("val_loss"), full.metrics.at("val_loss"), 0.05);
    EXPECT_EQ(module.last->weight.scalar_type(), at::kFloat);
  }
}

TEST(DeviceTraining, skips_an_update_that_overflows_in_16_mixed) {
  TrainerOptions options = on_test_device(1);
  options.precision = "16-mixed";
  struct Large : DeviceNet {
    at::Tensor training_step(const Batch& batch, int64_t idx) override {
      return DeviceNet::training_step(batch, idx) * (idx == 2 ? 1e30 : 1.0);
    }
  } large;
  const Trained run = train(large, options);
  EXPECT_EQ(run.skipped, 1);
  for (const at::Tensor& tensor : run.tensors) EXPECT_TRUE(tensor.isfinite().all().item<bool>());
}

TEST(DeviceTraining, reports_a_loss_that_is_not_finite_before_its_update) {
  struct Bad : DeviceNet {
    at::Tensor training_step(const Batch& batch, int64_t idx) override {
      return DeviceNet::training_step(batch, idx) * (idx == 3 ? NAN : 1.0);
    }
  } module;
  const std::string error = error_of([&] { (void)train(module, on_test_device(1)); });
  EXPECT_TRUE(has(error, "the loss is nan in epoch 0, batch 3, global step 3")) << error;
  for (const auto& parameter : module.parameters()) EXPECT_TRUE(parameter.cpu().isfinite().all().item<bool>());
}

// Dropout draws from the device's own generator, whose state a checkpoint must hold.
TEST(DeviceTraining, resumes_to_the_bit) {
  const TemporaryFolder folder;
  DeviceNet whole(0.5);
  const Trained expected =
      train(whole,
            on_test_device(
                3, {ModelCheckpoint(
                       {.dirpath = folder.path(), .filename = "{step}", .save_top_k = -1, .every_n_train_steps = 8})}));
  DeviceNet second(0.5);
  Trainer trainer(on_test_device(3));
  seed_everything(99);
  trainer.fit(second, device_data(48), device_data(16), folder / "step=8.ckpt");  // in the second epoch
  size_t i = 0;
  for (const auto& parameter : second.parameters()) {
    EXPECT_TRUE(torch::equal(parameter.detach().cpu(), expected.tensors[i++]));
  }
  EXPECT_EQ(trainer.callback_metrics(), expected.metrics);
}

TEST(DeviceTraining, moves_a_checkpoint_between_devices) {
  const TemporaryFolder folder;
  DeviceNet module;
  (void)train(module, on_test_device(1, {ModelCheckpoint({.dirpath = folder.path(), .save_last = true})}));
  DeviceNet copy;
  TrainerOptions options = on_test_device(1);
  options.accelerator = "cpu";
  Trainer trainer(options);
  trainer.validate(copy, device_data(16), folder / "last.ckpt");
  for (size_t i = 0; i < module.parameters().size(); ++i) {
    EXPECT_TRUE(torch::equal(module.parameters()[i].cpu(), copy.parameters()[i]));
  }
}

TEST(DeviceTraining, predicts) {
  std::vector<at::Tensor> results;
  for (const char* accelerator : {"cpu", kTestDevice}) {
    DeviceNet module;
    TrainerOptions options = on_test_device(1);
    options.accelerator = accelerator;
    const Predictions predictions = Trainer(options).predict(module, device_data(16));
    results.push_back(predictions.front().front().cpu());
  }
  EXPECT_TRUE(torch::equal(results[0], results[1]));
}

TEST(DeviceTraining, copies_batches_ahead_on_a_stream_of_their_own) {
  reset_device_counts();
  (void)expect_as_on_the_cpu();
  EXPECT_GT(device_counts().late_copies, 0);
}

TEST(DeviceTraining, copies_batches_when_needed_on_a_backend_without_streams) {
  set_device_streams(false);
  reset_device_counts();
  (void)expect_as_on_the_cpu();
  EXPECT_EQ(device_counts().late_copies, 0);
  set_device_streams(true);
}

TEST(DeviceTraining, recomputes_with_inputs_kept_on_the_host) {
  for (const bool offload : {false, true}) {
    DeviceNet plain(0.25), recomputed(0.25);
    const Trained expected = train(plain, on_test_device(2));
    TrainerOptions options = on_test_device(2);
    options.recompute = RecomputeOptions{.modules = {"first"}, .offload = offload};
    expect_same_bits(expected, train(recomputed, options));
  }
}

TEST(DeviceTraining, splits_batches_over_two_devices) {
  DeviceNet one, two;
  const Trained single = train(one, on_test_device(1));
  TrainerOptions options = on_test_device(1);
  options.devices = int64_t{2};
  options.strategy = "dp";
  const Trained both = train(two, options);
  EXPECT_EQ(single.steps, both.steps);
  // Batch normalization sees half a batch on each device, as in PyTorch.
  EXPECT_NEAR(single.metrics.at("val_loss"), both.metrics.at("val_loss"), 0.2);
  for (const at::Tensor& tensor : both.tensors) EXPECT_TRUE(tensor.isfinite().all().item<bool>());
}

// The threads in which the gradient of the output was computed.
std::set<std::thread::id> threads_of_backward(const TrainerOptions& options) {
  struct Looks : DeviceNet {
    at::Tensor forward(const at::Tensor& x) override {
      at::Tensor y = DeviceNet::forward(x);
      if (y.requires_grad()) {
        y.register_hook([this](const at::Tensor&) {
          const std::lock_guard lock(shared->mutex);
          shared->threads.insert(std::this_thread::get_id());
        });
      }
      return y;
    }
    std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& /*device*/) const override {
      auto copy = std::make_shared<Looks>();
      copy->shared = shared;
      return copy;
    }
    struct Shared {
      std::mutex mutex;
      std::set<std::thread::id> threads;
    };
    std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  };
  Looks module;
  (void)train(module, options);
  return module.shared->threads;
}

TEST(DeviceTraining, runs_backward_of_one_device_on_the_thread_that_trains) {
  EXPECT_EQ(threads_of_backward(on_test_device(1)), std::set{std::this_thread::get_id()});
  TrainerOptions options = on_test_device(1);
  options.devices = int64_t{2};
  options.strategy = "dp";
  const auto threads = threads_of_backward(options);
  EXPECT_EQ(threads.size(), 2) << "one for each device, in parallel";
  EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
}

// On CPUs all slots share one device; here a tensor that is left on another one is an error.
TEST(DeviceTraining, places_parts_on_two_devices_and_gives_the_bits_of_one) {
  DeviceNet one, two;
  const Trained single = train(one, on_test_device(2));
  TrainerOptions options = on_test_device(2);
  options.devices = int64_t{2};
  options.strategy = ModelParallel({.placement = Placement{{"first", 1}}});
  expect_same_bits(single, train(two, options));
  EXPECT_EQ(two.first->weight.device().index(), 1);
  EXPECT_EQ(two.last->weight.device().index(), 0);
}

}  // namespace
}  // namespace levin::device_training_test
