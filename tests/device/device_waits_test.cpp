// A step reads no number from the device: the host would wait for it, and could not prepare the next step meanwhile.
#include <gtest/gtest.h>

#include "device/on_test_device.h"
#include "levin/loggers/csv_logger.h"
#include "support/temporary_folder.h"

namespace levin::device_waits_test {
namespace {

using namespace test;

// Counts from batch kFirst on: by then a recorded step has its recording.
struct Seen {
  DeviceCounts counts = {};
  std::string read = {};
  int64_t batches = 0;
};

class Waits : public DeviceNet {
 public:
  void on_train_batch_start(const Batch&, int64_t idx) override {
    if (idx == kFirst) reset_device_counts();
  }
  void on_train_batch_end(const at::Tensor&, const Batch&, int64_t) override {
    seen = {device_counts(), last_number_read(), seen.batches + 1};
  }
  static constexpr int64_t kFirst = 6;
  Seen seen = {.batches = -kFirst};
};

constexpr int64_t kBatches = 9;  // counted

TrainerOptions options_for(const std::string& precision) {
  TrainerOptions options = on_test_device(1);
  options.precision = precision;
  options.limit_val_batches = int64_t{0};
  options.log_every_n_steps = 1000;
  options.gradient_clip_val = 0.5;
  return options;
}

Seen waits_of(const TrainerOptions& options) {
  Waits module;
  Trainer trainer(options);
  trainer.fit(module, device_data((kBatches + Waits::kFirst) * 8));
  EXPECT_EQ(module.seen.batches, kBatches);
  EXPECT_GT(module.seen.counts.operators, 0);
  return module.seen;
}

TEST(DeviceWaits, a_step_without_a_check_reads_no_number) {
  for (const char* precision : {"32-true", "bf16-mixed", "bf16-true"}) {
    SCOPED_TRACE(precision);
    TrainerOptions options = options_for(precision);
    options.nonfinite_loss = NonFiniteLoss::ignore;
    const Seen seen = waits_of(options);
    EXPECT_EQ(seen.counts.numbers_read, 0) << seen.read;
    EXPECT_EQ(seen.counts.to_host, 0);
  }
}

// Whether the loss was finite is read while the device computes the next window.
TEST(DeviceWaits, a_check_that_only_stops_does_not_wait) {
  for (const bool recorded : {false, true}) {
    for (const char* precision : {"32-true", "bf16-mixed", "bf16-true"}) {
      SCOPED_TRACE(std::string(precision) + (recorded ? ", recorded" : ""));
      TrainerOptions options = options_for(precision);
      options.record_steps = recorded;
      const Seen seen = waits_of(options);
      EXPECT_EQ(seen.counts.numbers_read + seen.counts.to_host, 0) << seen.read;
      EXPECT_EQ(seen.counts.late_reads, kBatches);
    }
  }
}

// The host acts on it before the next window. With a scaler also on whether the gradients were finite: one read for
// both.
TEST(DeviceWaits, a_check_that_the_host_acts_on_waits_once) {
  for (const char* precision : {"32-true", "16-mixed"}) {
    SCOPED_TRACE(precision);
    TrainerOptions options = options_for(precision);
    if (options.precision.is_name("32-true")) options.nonfinite_loss = NonFiniteLoss::skip;
    const Seen seen = waits_of(options);
    EXPECT_EQ(seen.counts.numbers_read + seen.counts.to_host, kBatches) << seen.read;
  }
}

TEST(DeviceWaits, a_window_of_batches_is_checked_once) {
  for (const NonFiniteLoss policy : {NonFiniteLoss::stop, NonFiniteLoss::skip}) {
    TrainerOptions options = options_for("32-true");
    options.accumulate_grad_batches = 3;
    options.nonfinite_loss = policy;
    const DeviceCounts counts = waits_of(options).counts;
    EXPECT_EQ(counts.numbers_read + counts.to_host, policy == NonFiniteLoss::skip ? kBatches / 3 : 0);
    EXPECT_EQ(counts.late_reads, policy == NonFiniteLoss::stop ? kBatches / 3 : 0);
  }
}

// A row of "loss", "epoch" and what else is due: one wait for a row, not one per value.
TEST(DeviceWaits, a_logger_reads_when_a_row_is_due) {
  const TemporaryFolder folder;
  TrainerOptions options = options_for("32-true");
  options.nonfinite_loss = NonFiniteLoss::ignore;
  options.logger = CSVLogger({.save_dir = folder.path()});
  options.log_every_n_steps = 4;
  const Seen seen = waits_of(options);
  const int64_t waits = seen.counts.numbers_read + seen.counts.to_host;
  EXPECT_GE(waits, 2) << "rows of steps 7 and 11, of 6 to 14";
  EXPECT_LE(waits, 3);
}

TEST(DeviceWaits, batches_that_are_columns_of_larger_tensors_are_sent_ahead_too) {
  const at::Tensor columns = torch::arange(64 * 2 * 6 * 12, torch::kFloat).sin_().view({64, 2, 6, 12}).slice(3, 0, 6);
  const auto data = std::make_shared<TensorLoader>(std::vector<at::Tensor>{columns, torch::arange(64) % 3}, 8);
  DeviceNet module;
  reset_device_counts();
  Trainer(options_for("32-true")).fit(module, data);
  EXPECT_EQ(device_counts().late_copies, 2 * 8);
}

// Tensors of batches whose copies have begun, when the step of each batch begins and when the host has waited for it.
struct Sends : Waits {
  at::Tensor training_step(const Batch& batch, int64_t idx) override {
    if (idx == 0) reset_device_counts();
    begun.push_back(device_counts().late_copies);
    return DeviceNet::training_step(batch, idx);
  }
  void optimizer_step(int64_t epoch, int64_t idx, Optimizer& optimizer) override {
    waited.push_back(device_counts().late_copies);
    Waits::optimizer_step(epoch, idx, optimizer);
  }
  std::vector<int64_t> begun = {}, waited = {};
};

// Two tensors per batch. Before a step the device has nothing to compute, so a copy would overlap with nothing.
TEST(DeviceWaits, the_next_batch_is_sent_while_the_device_computes_and_before_the_host_waits) {
  Sends module;
  Trainer trainer(options_for("32-true"));
  trainer.fit(module, device_data(4 * 8));
  EXPECT_EQ(module.begun, (std::vector<int64_t>{0, 2, 4, 6}));
  EXPECT_EQ(module.waited, (std::vector<int64_t>{2, 4, 6, 6}));
}

}  // namespace
}  // namespace levin::device_waits_test
