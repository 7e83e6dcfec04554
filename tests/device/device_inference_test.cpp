// load_for_inference on a device that is not the CPU.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <memory>
#include <thread>

#include "device/on_test_device.h"
#include "levin/callbacks/lora.h"
#include "levin/inference/load_for_inference.h"
#include "levin/models/exported/exported_program.h"
#include "levin/strategies/device_placement.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::device_inference_test {
namespace {

using namespace test;

at::Tensor images(int64_t samples, int64_t shift = 0) {
  return torch::arange(samples * 2 * 6 * 6, torch::kDouble)
      .add_(shift)
      .mul_(0.37)
      .sin_()
      .to(torch::kFloat)
      .view({samples, 2, 6, 6});
}

class DeviceInference : public ::testing::Test {
 protected:
  std::string train(Callbacks callbacks = {}) {
    DeviceNet module(0.5);
    TrainerOptions options = quiet(2, std::move(callbacks));
    options.num_threads = int64_t{2};
    Trainer trainer(options);
    seed_everything(3);
    trainer.fit(module, device_data(48));
    trainer.save_checkpoint(folder_ / "a.ckpt");
    return folder_ / "a.ckpt";
  }

  TemporaryFolder folder_;
};

TEST_F(DeviceInference, predicts_the_bits_of_the_cpu) {
  const std::string path = train();
  const InferenceModel on_cpu = load_for_inference<DeviceNet>(path, {.device = "cpu"});
  for (const std::string device : {"testdev", "testdev:1"}) {
    const InferenceModel model = load_for_inference<DeviceNet>(path, {.device = device});
    EXPECT_EQ(model.device().type(), kTestDeviceType);
    EXPECT_EQ(model.device().index(), device == "testdev" ? 0 : 1);
    for (const at::Tensor& parameter : model.module().parameters()) EXPECT_EQ(parameter.device(), model.device());
    const at::Tensor prediction = model.predict(images(5));
    EXPECT_EQ(prediction.device(), model.device());
    EXPECT_TRUE(prediction.cpu().equal(on_cpu.predict(images(5)))) << device;
  }
}

TEST_F(DeviceInference, auto_and_the_cpu_do_not_touch_it) {
  const std::string path = train();
  reset_device_counts();
  for (const char* device : {"auto", "cpu"}) {
    EXPECT_TRUE(load_for_inference<DeviceNet>(path, {.device = device}).device().is_cpu());
  }
  EXPECT_EQ(device_counts().operators, 0);
}

TEST_F(DeviceInference, in_mixed_and_true_precision_too) {
  const std::string path = train();
  for (const char* precision : {"bf16-mixed", "bf16-true", "64-true"}) {
    const auto on = [&](const char* device) {
      return load_for_inference<DeviceNet>(path, {.precision = precision, .device = device}).predict(images(5)).cpu();
    };
    EXPECT_TRUE(on("testdev").equal(on("cpu"))) << precision;
  }
}

TEST_F(DeviceInference, adapters_of_a_run_go_along) {
  const std::string path = train(Callbacks{LoRA({.target_modules = {"first", "last"}, .r = 2})});
  for (const bool merge : {false, true}) {
    const auto on = [&](const char* device) {
      return load_for_inference<DeviceNet>(path, {.device = device, .merge_lora = merge}).predict(images(5)).cpu();
    };
    EXPECT_TRUE(on("testdev:1").equal(on("cpu"))) << merge;
  }
}

TEST_F(DeviceInference, many_threads_get_the_bits_of_one) {
  const std::string path = train();
  const InferenceModel on_cpu = load_for_inference<DeviceNet>(path, {.device = "cpu"});
  const InferenceModel one = load_for_inference<DeviceNet>(path, {.device = "testdev:1"});
  std::vector<at::Tensor> expected;
  for (int64_t k = 0; k < 4; ++k) expected.push_back(on_cpu.predict(images(3 + k, k)));
  std::atomic<int> differing = 0, compared = 0;
  {
    std::vector<std::jthread> threads;
    for (int64_t t = 0; t < 6; ++t) {
      threads.emplace_back([&, t] {
        for (int64_t n = 0; n < 50; ++n) {
          const int64_t k = (n + t) % 4;
          differing += one.predict(images(3 + k, k)).cpu().equal(expected[static_cast<size_t>(k)]) ? 0 : 1;
          ++compared;
        }
      });
    }
  }
  EXPECT_EQ(compared, 300);
  EXPECT_EQ(differing, 0);
}

// The first of the threads moves the constants of the program, which follow its weights.
TEST(DeviceInferenceOfPrograms, several_threads_may_make_the_first_predictions) {
  const auto program = [] {
    auto made = std::make_unique<ExportedProgram>(test::source_dir() + "/tests/models/data/state.pt2");
    made->eval();
    return made;
  };
  const at::NoGradGuard no_grad;
  const at::Tensor x = torch::arange(12, torch::kFloat).view({3, 4}).cos(), shift = torch::ones({4});
  const at::Tensor expected = program()->forward({x, shift}).at(0);
  constexpr int kThreads = 4, kRounds = 25;
  std::atomic<int> right = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto net = program();
    const at::Device device(kTestDeviceType, 0);
    move_module(*net, device);
    std::barrier begin(kThreads);
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        const at::NoGradGuard no_grad_here;
        const std::vector<at::Tensor> inputs = {x.to(device), shift.to(device)};
        begin.arrive_and_wait();
        right += net->forward(inputs).at(0).cpu().equal(expected) ? 1 : 0;
      });
    }
  }
  EXPECT_EQ(right, kThreads * kRounds);
}

TEST_F(DeviceInference, one_that_is_not_there_is_refused) {
  const std::string path = train();
  const auto error_for = [&](const char* device) {
    return error_of<ConfigError>([&] { (void)load_for_inference<DeviceNet>(path, {.device = device}); });
  };
  EXPECT_TRUE(
      holds(error_for("testdev:2"),
            {"InferenceOptions.device: testdev:2 was asked for; there are 2 testdev devices, from testdev:0 on"}));
  EXPECT_TRUE(holds(error_for("testdv"), {"\"testdv\" is not known", "Did you mean \"testdev\"",
                                          "Known: auto, cpu, gpu, cuda, testdev; all but auto and cpu with an index"}));
  EXPECT_TRUE(holds(error_for("xpu"), {"xpu: this LibTorch has no backend for xpu", "device: cpu"}));
}

}  // namespace
}  // namespace levin::device_inference_test
