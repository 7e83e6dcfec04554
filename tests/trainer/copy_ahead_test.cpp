// Batches that are copied to the device one ahead: who waits for what, and that training is the same.
#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "levin/trainer/run/batch_stream.h"
#include "support/repeating_strategy.h"
#include "support/tiny_module.h"
#include "support/unsized_loader.h"

namespace levin::copy_ahead_test {
namespace {

using namespace test;
using Events = std::vector<std::string>;

at::Tensor weights_after(TinyModule& module, const std::shared_ptr<DeviceLog>& log) {
  TrainerOptions options = quiet(2, {});
  if (log != nullptr) options.strategy = RepeatingStrategy(log, /*copies=*/true);
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(18), tiny_loader(8));
  EXPECT_EQ(trainer.global_step(), 10);
  return module.layer->weight.detach().clone();
}

TEST(CopyAhead, TheNextCopyBeginsBeforeTheBatchAtHandIsWorkedOn) {
  const auto log = std::make_shared<DeviceLog>();
  LateCopier copier(log);
  const auto loader = tiny_loader(10);  // batches of 4, 4 and 2
  BatchStream stream(*loader, 100);
  stream.copy_ahead(copier);
  stream.start(0);
  EXPECT_EQ(log->copies, (Events{"send"}));
  Batch batch;
  std::vector<bool> last;
  std::vector<int64_t> sizes;
  while (stream.next(batch)) {
    log->copies.push_back("step");
    last.push_back(stream.is_last());
    sizes.push_back(batch.size());
    EXPECT_FALSE(batch[0].eq(-1).any().item<bool>()) << "the copy is there";
  }
  EXPECT_EQ(log->copies, (Events{"send", "receive", "send", "step", "receive", "send", "step", "receive", "step"}));
  EXPECT_EQ(last, (std::vector<bool>{false, false, true}));
  EXPECT_EQ(sizes, (std::vector<int64_t>{4, 4, 2}));
}

TEST(CopyAhead, ADeferredCopyBeginsWhenItIsSentAndAtTheLatestWhenItIsNeeded) {
  const auto log = std::make_shared<DeviceLog>();
  LateCopier copier(log);
  const auto loader = tiny_loader(10);
  BatchStream stream(*loader, 100);
  stream.copy_ahead(copier);
  stream.defer_copies();
  stream.start(0);
  Batch batch;
  for (int step = 0; stream.next(batch); ++step) {
    log->copies.push_back("step");
    EXPECT_FALSE(batch[0].eq(-1).any().item<bool>()) << "the copy is there";
    if (step == 0) stream.send_ahead();
    if (step == 0) stream.send_ahead();  // has begun
  }
  EXPECT_EQ(log->copies, (Events{"send", "receive", "step", "send", "receive", "step", "send", "receive", "step"}));
}

TEST(CopyAhead, ALimitEndsItInTime) {
  const auto log = std::make_shared<DeviceLog>();
  LateCopier copier(log);
  const auto loader = tiny_loader(40);
  BatchStream stream(*loader, 2);
  stream.copy_ahead(copier);
  stream.start(0, 1);
  Batch batch;
  EXPECT_TRUE(stream.next(batch) && stream.is_last() && !stream.has_next());
  EXPECT_FALSE(stream.next(batch));
  EXPECT_EQ(log->copies, (Events{"send", "receive"})) << "a batch that nobody will see is not copied";
}

TEST(CopyAhead, AStreamOfUnknownLengthIsCopiedToo) {
  const auto log = std::make_shared<DeviceLog>();
  LateCopier copier(log);
  UnsizedLoader loader(tiny_loader(10));
  BatchStream stream(loader, 100);
  stream.copy_ahead(copier);
  stream.start(0);
  Batch batch;
  int batches = 0;
  while (stream.next(batch)) batches += batch[0].eq(-1).any().item<bool>() ? 100 : 1;
  EXPECT_EQ(batches, 3);
}

TEST(CopyAhead, TrainsAndValidatesBitwiseIdentically) {
  TinyModule plain, copied;
  const auto log = std::make_shared<DeviceLog>();
  EXPECT_TRUE(torch::equal(weights_after(plain, nullptr), weights_after(copied, log)));
  EXPECT_GE(log->copies.size(), 2U * 2 * (5 + 2));
}

TEST(CopyAhead, AModuleThatWantsTheBatchBeforeItIsThereGetsIt) {
  struct Early : TinyModule {
    Batch on_before_batch_transfer(Batch batch, int64_t) override {
      ++seen;
      return batch;
    }
    int seen = 0;
  };
  Early module;
  const auto log = std::make_shared<DeviceLog>();
  (void)weights_after(module, log);
  EXPECT_GT(module.seen, 0);
  EXPECT_TRUE(log->copies.empty()) << "so nothing is copied ahead of it";
}

}  // namespace
}  // namespace levin::copy_ahead_test
