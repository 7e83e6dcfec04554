// strategy: dp on CPU slots: backward of the replicas side by side, in a whole run.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "levin/precision/mixed_precision.h"
#include "levin/strategies/device/dp.h"
#include "support/parted_module.h"

namespace levin::dp_backward_test {
namespace {

using test::classes;
using test::error_of;
using test::expect_parts;

using OnBackward = std::function<void(int64_t replica)>;

class Watched : public LightningModule {
 public:
  explicit Watched(OnBackward on_backward) : on_backward_(std::move(on_backward)) {
    layer_ = register_module("layer", torch::nn::Linear(8, 3));
  }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<Watched>(on_backward_);
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor logits = layer_->forward(batch[0]);
    logits.register_hook([this, replica = current_slot()->index](const at::Tensor&) { on_backward_(replica); });
    return torch::nn::functional::cross_entropy(logits, batch[1]);
  }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.1}); }

 private:
  OnBackward on_backward_;
  torch::nn::Linear layer_ = nullptr;
};

TrainerOptions two_devices(const char* strategy) {
  TrainerOptions options = test::parts_options(std::make_shared<SingleDeviceStrategy>(), 2);
  options.strategy = strategy;
  return options;
}

TEST(Dp, RunsBackwardOfItsReplicasAtTheSameTime) {
  for (const char* strategy : {"dp", "dp_balanced"}) {
    for (const bool scaled : {false, true}) {
      std::mutex mutex;
      std::condition_variable changed;
      std::set<std::thread::id> threads;
      int there = 0;
      bool met = true;
      Watched module([&](int64_t) {
        std::unique_lock lock(mutex);
        threads.insert(std::this_thread::get_id());
        const int wanted = there / 2 * 2 + 2;  // both of this step
        ++there;
        changed.notify_all();
        met = met && changed.wait_for(lock, std::chrono::seconds(60), [&] { return there >= wanted; });
      });
      TrainerOptions options = two_devices(strategy);
      options.accumulate_grad_batches = 2;
      if (scaled) {
        options.precision = MixedPrecision({.dtype = MixedDtype::float16, .scaler = GradScalerOptions{}});
      }
      Trainer(options).fit(module, classes(32, 8));
      EXPECT_TRUE(met) << strategy << scaled;
      EXPECT_EQ(there, 16) << strategy << scaled;
      EXPECT_EQ(threads.size(), 2U) << strategy << scaled;
    }
  }
}

TEST(Dp, AnExceptionInBackwardNamesTheReplicaAndItsDevice) {
  Watched module([](int64_t replica) {
    if (replica == 1) throw std::runtime_error("a fault in backward");
  });
  expect_parts(error_of([&] { Trainer(two_devices("dp")).fit(module, classes(8, 8)); }),
               {"replica 1 of 2 on cpu:1: a fault in backward"});
}

}  // namespace
}  // namespace levin::dp_backward_test
