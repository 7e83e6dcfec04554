// The guard: what it changes, that everything is restored, and that it affects one thread only.
#include "levin/precision/autocast.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "callbacks/quiet_trainer.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/dataset.h"
#include "support/tiny_module.h"

namespace levin::autocast_test {
namespace {

using namespace test;

at::ScalarType product_type() {
  return torch::mm(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type();
}

TEST(Autocast, ComputesProductsInItsTypeUntilItEnds) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    {
      const Autocast autocast(at::kCPU, dtype);
      EXPECT_EQ(product_type(), dtype);
      EXPECT_EQ(torch::mse_loss(torch::ones({2}, dtype), torch::zeros({2})).scalar_type(), at::kFloat);
    }
    EXPECT_EQ(product_type(), at::kFloat);
  }
}

TEST(Autocast, NestsAndSwitchesOffInside) {
  const Autocast outer(at::kCPU, at::kBFloat16);
  {
    const Autocast off(at::kCPU, std::nullopt, {.enabled = false});
    EXPECT_EQ(product_type(), at::kFloat);
    const Autocast inner(at::kCPU, at::kHalf);
    EXPECT_EQ(product_type(), at::kHalf);
  }
  EXPECT_EQ(product_type(), at::kBFloat16);
}

TEST(Autocast, EndsWithAnException) {
  EXPECT_THROW(
      {
        const Autocast autocast(at::kCPU, at::kHalf, {.cache_enabled = false});
        throw std::runtime_error("broken");
      },
      std::runtime_error);
  EXPECT_EQ(product_type(), at::kFloat);
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kBFloat16);
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
}

TEST(Autocast, RefusesOtherTypes) {
  const std::string error = error_of([] { const Autocast autocast(at::kCPU, at::kDouble); });
  EXPECT_TRUE(has(error, "Autocast: Double") && has(error, "at::kBFloat16 or at::kHalf")) << error;
  EXPECT_EQ(product_type(), at::kFloat);
}

TEST(Autocast, BelongsToItsThread) {
  const Autocast autocast(at::kCPU, at::kBFloat16);
  at::ScalarType bare{}, own{}, after{};
  std::thread([&] {
    bare = product_type();
    {
      const Autocast in_thread(at::kCPU, at::kHalf);
      own = product_type();
    }
    after = product_type();
  }).join();
  EXPECT_EQ(bare, at::kFloat);
  EXPECT_EQ(own, at::kHalf);
  EXPECT_EQ(after, at::kFloat);
  EXPECT_EQ(product_type(), at::kBFloat16);
}

TEST(Autocast, ThreadsMakeAndEndTheirGuardsAtTheSameTime) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, dtype = t % 2 == 0 ? at::kBFloat16 : at::kHalf] {
      const at::Tensor weight = torch::ones({2, 2}).requires_grad_();
      for (int i = 0; i < 50; ++i) {
        {
          const Autocast autocast(at::kCPU, dtype);
          if (torch::mm(weight, weight).scalar_type() != dtype) ++wrong;
        }
        if (torch::mm(weight, weight).scalar_type() != at::kFloat) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

/// Notes in which type a loader's worker multiplies, by itself and under a guard of its own.
class Probing : public Dataset {
 public:
  explicit Probing(std::atomic<bool>& all_float, std::atomic<bool>& all_bfloat16)
      : all_float_(all_float), all_bfloat16_(all_bfloat16) {}
  [[nodiscard]] int64_t size() const override { return 12; }
  [[nodiscard]] Batch get(int64_t index) const override {
    if (product_type() != at::kFloat) all_float_ = false;
    const Autocast autocast(at::kCPU, at::kBFloat16);
    if (product_type() != at::kBFloat16) all_bfloat16_ = false;
    return Batch{torch::full({4}, static_cast<double>(index) / 12), torch::ones({1})};
  }

 private:
  std::atomic<bool>& all_float_;
  std::atomic<bool>& all_bfloat16_;
};

TEST(Autocast, OfTheStepDoesNotReachTheLoadersWorkers) {
  for (const int64_t num_workers : {0, 2}) {
    std::atomic<bool> all_float{true}, all_bfloat16{true};
    TrainerOptions options = quiet(2, {});
    options.precision = "bf16-mixed";
    TinyModule module;
    bool step_is_bfloat16 = true;
    module.on_training_step = [&](int64_t) { step_is_bfloat16 = step_is_bfloat16 && product_type() == at::kBFloat16; };
    Trainer(options).fit(module,
                         std::make_shared<DataLoader>(std::make_shared<Probing>(all_float, all_bfloat16),
                                                      DataLoaderOptions{.batch_size = 4, .num_workers = num_workers}));
    EXPECT_TRUE(step_is_bfloat16) << num_workers;
    EXPECT_TRUE(all_float) << num_workers;
    EXPECT_TRUE(all_bfloat16) << num_workers;
  }
}

}  // namespace
}  // namespace levin::autocast_test
