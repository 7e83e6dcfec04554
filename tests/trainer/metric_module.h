// A metric and a module that logs it, for tests of logged metrics.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "levin/metrics/metric.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::metric_module {

using test::TemporaryFolder;
using test::tiny_loader;

// The fraction of targets above a third, which no mean over unequal batches gives exactly; and all targets, as rows.
class Share final : public metrics::TensorMetric {
 public:
  explicit Share(bool each = false) : each_(each) {}
  [[nodiscard]] std::string name() const override { return "Share"; }
  void update(const at::Tensor&, const at::Tensor& target) override {
    begin_update(target.device());
    state(hits_) += (target > 0.3).sum();
    state(count_) += target.numel();
    append(rows_, target.flatten());
  }
  [[nodiscard]] at::Tensor compute() const override {
    if (each_) return at::stack({state(hits_), state(count_)});
    EXPECT_EQ(rows(rows_).numel(), state(count_).item<int64_t>());
    return state(hits_).to(at::kDouble) / state(count_);
  }

 private:
  bool each_;
  size_t hits_ = add_state("hits", metrics::StateReduce::sum, torch::zeros({}, torch::kLong));
  size_t count_ = add_state("count", metrics::StateReduce::sum, torch::zeros({}, torch::kLong));
  size_t rows_ = add_state("rows", metrics::StateReduce::cat);
};

// tiny_loader's targets are 0, 0.2, 0.4, 0.6, 0.8, 0, …: those above a third in samples [from, to).
inline double share_of(int64_t from, int64_t to) {
  int64_t hits = 0;
  for (int64_t k = from; k < to; ++k) hits += k % 5 >= 2 ? 1 : 0;
  return static_cast<double>(hits) / static_cast<double>(to - from);
}

class Module : public test::TinyModule {
 public:
  at::Tensor training_step(const Batch& batch, int64_t index) override {
    if (train_options) {
      train(batch[0], batch[1]);
      log("train_share", train, *train_options);
    }
    return TinyModule::training_step(batch, index);
  }
  void validation_step(const Batch& batch, int64_t index) override {
    if (in_validation) in_validation(batch);
    TinyModule::validation_step(batch, index);
  }
  Share train{};
  Share val{};
  std::optional<LogOptions> train_options = std::nullopt;
  std::function<void(const Batch&)> in_validation = nullptr;
};

inline TrainerOptions options(const TemporaryFolder& folder, int64_t epochs = 1) {
  return {.max_epochs = epochs,
          .log_every_n_steps = 1,
          .logger = false,
          .enable_checkpointing = false,
          .enable_progress_bar = false,
          .enable_model_summary = false,
          .default_root_dir = folder.path()};
}

}  // namespace levin::metric_module
