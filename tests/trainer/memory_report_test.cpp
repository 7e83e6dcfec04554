// The report of a run that ran out of memory. Here the module throws LibTorch's error; tests/cuda really runs out.
#include "levin/trainer/run/memory_report.h"

#include <gtest/gtest.h>

#include <new>

#include "callbacks/quiet_trainer.h"
#include "levin/core/options/units.h"
#include "levin/core/tensors.h"
#include "levin/optim/adam.h"
#include "levin/trainer/loops/make_run.h"
#include "support/tiny_module.h"

namespace levin::memory_report_test {
namespace {

using namespace test;

[[noreturn]] void run_out() {
  C10_THROW_ERROR(OutOfMemoryError, "CUDA out of memory. Tried to allocate 2.00 GiB.\nmore lines");
}

// Linear(4, 1) and a larger head next to it; fails in batch 2, in forward or in backward.
struct Greedy : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    if (batch_idx == 2 && !in_backward) run_out();
    at::Tensor loss = torch::mse_loss(layer->forward(batch[0]) + head->forward(batch[0]).sum(1, true), batch[1]);
    if (batch_idx == 2) loss.register_hook([](const at::Tensor&) { run_out(); });
    return loss;
  }
  OptimizerConfig configure_optimizers() override { return AdamW(parameters()); }
  bool in_backward = false;
  torch::nn::Linear head{register_module("head", torch::nn::Linear(4, 1000))};
};

std::string report(Greedy& module) {
  try {
    Trainer(quiet(1, {})).fit(module, tiny_loader(24));
  } catch (const OutOfMemoryError& error) {
    return error.what();
  }
  return "";
}

TEST(MemoryReport, NamesTheStepThePhaseAndTheError) {
  Greedy module;
  const std::string text = report(module);
  EXPECT_TRUE(has(text, "training_step, epoch 0, batch 2, global step 2: out of memory in forward on cpu.")) << text;
  EXPECT_TRUE(has(text, "CUDA out of memory. Tried to allocate 2.00 GiB.")) << text;
  EXPECT_FALSE(has(text, "more lines")) << text;
  EXPECT_TRUE(has(text, "Use a smaller batch_size")) << text;
}

TEST(MemoryReport, TellsForwardFromBackward) {
  Greedy module;
  module.in_backward = true;
  const std::string text = report(module);
  EXPECT_TRUE(has(text, "backward, epoch 0, batch 2, global step 2: out of memory in backward on cpu.")) << text;
}

// LibTorch 2.11 reports this as a plain c10::Error.
TEST(MemoryReport, IsWrittenForAllocationsOnACpuThatReallyFail) {
  struct Fails : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      if (batch_idx == 1 && by_new) throw std::bad_alloc();
      if (batch_idx == 1) (void)at::empty({int64_t{1} << 50}, at::kByte);
      return TinyModule::training_step(batch, batch_idx);
    }
    bool by_new = false;
  };
  const std::string start = "training_step, epoch 0, batch 1, global step 1: out of memory in forward on cpu.";
  for (const bool by_new : {false, true}) {
    Fails module;
    module.by_new = by_new;
    try {
      Trainer(quiet(1, {})).fit(module, tiny_loader(24));
      FAIL() << "it trained";
    } catch (const OutOfMemoryError& error) {
      const std::string text = error.what();
      const std::string cause =
          " DefaultCPUAllocator: can't allocate memory: you tried to allocate 1125899906842624 bytes. "
          "Error code 12 (Cannot allocate memory).";
      EXPECT_TRUE(text.starts_with(start + (by_new ? "" : cause) + " Largest users: parameters")) << text;
      EXPECT_TRUE(has(text, "Use a smaller batch_size")) << text;
    }
  }
}

// layer: 5 float32, head: 5000; AdamW keeps two numbers for each.
TEST(MemoryReport, NamesTheLargestUsersLargestFirst) {
  Greedy module;
  const std::string text = report(module);
  const std::string weights = bytes_text(20000) + ", layer " + bytes_text(20) + ")";
  EXPECT_TRUE(has(text, "parameters " + bytes_text(20020) + " (head " + weights)) << text;
  EXPECT_TRUE(has(text, "gradients " + bytes_text(20020) + " (head " + weights)) << text;
  EXPECT_TRUE(has(text, "optimizer state " + bytes_text(40040) + " (head " + bytes_text(40000))) << text;
}

// Statistics as a GPU's allocator reports them.
TEST(MemoryReport, ShowsTheAllocatorsStatisticsAndWhatIsLeftForActivations) {
  Greedy module;
  const auto error = [] {
    try {
      run_out();
    } catch (const c10::OutOfMemoryError& caught) {
      return caught;
    }
  }();
  std::string text;
  struct Asks : Callback {
    Asks(const c10::OutOfMemoryError& e, std::string& t) : error(e), text(t) {}
    void on_train_end(Trainer& trainer, LightningModule& module) override {
      const auto made = make_run(trainer, quiet(1, {}));
      levin::Run& run = *made;
      run.entry.module = &module;
      text = memory_report(run, "here", error,
                           {.wanted = 2LL << 30,
                            .allocated = (10LL << 30) + 20020,
                            .reserved = 12LL << 30,
                            .peak = 11LL << 30,
                            .free = 1LL << 30,
                            .total = 24LL << 30});
    }
    const c10::OutOfMemoryError& error;
    std::string& text;
  };
  module.in_backward = true;
  TrainerOptions options = quiet(1, {Asks(error, text)});
  options.limit_train_batches = int64_t{1};
  Trainer(options).fit(module, tiny_loader(24));
  EXPECT_TRUE(has(text, bytes_text(2ULL << 30) + " more were asked for")) << text;
  EXPECT_TRUE(has(text, bytes_text(12ULL << 30) + " are reserved")) << text;
  EXPECT_TRUE(has(text, "at most " + bytes_text(11ULL << 30))) << text;
  EXPECT_TRUE(has(text, bytes_text(1ULL << 30) + " of the device's " + bytes_text(24ULL << 30) + " are free")) << text;
  EXPECT_TRUE(has(text, "activations, batches and the rest " + bytes_text((10ULL << 30) - 20020))) << text;
}

}  // namespace
}  // namespace levin::memory_report_test
