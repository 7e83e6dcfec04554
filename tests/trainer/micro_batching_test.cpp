// Batches in parts: the whole batch's gradient, and the same batch again in smaller parts when memory runs out.
#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/metrics/aggregation.h"
#include "levin/optim/lbfgs.h"
#include "levin/precision/mixed_precision.h"
#include "levin/strategies/process/ddp.h"
#include "levin/trainer/run/memory_report.h"
#include "levin/trainer/step/out_of_memory.h"
#include "support/captured_console.h"
#include "support/limited_allocator.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::micro_batching_test {
namespace {

using namespace test;
namespace F = torch::nn::functional;

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item().toDouble();
}

at::Tensor flat_weights(const LightningModule& module) {
  std::vector<at::Tensor> all;
  for (const auto& p : module.parameters()) all.push_back(p.detach().flatten().to(at::kDouble));
  return torch::cat(all);
}

// ---- a given size -------------------------------------------------------------------------------------------------

/// Batches of 8 in float64, in parts of `size` (0: whole), `accumulate` of them to a step.
at::Tensor tiny_weights(int64_t size, int64_t samples, int64_t accumulate = 1,
                        const std::string& precision = "64-true") {
  TinyModule module;
  module.make_optimizers = [](TinyModule& m) {
    return OptimizerConfig(SGD(m.parameters(), {.lr = 0.1, .momentum = 0.9}));
  };
  TrainerOptions options = quiet(3, {});
  options.precision = precision;
  options.accumulate_grad_batches = accumulate;
  if (size > 0) options.micro_batch_size = size;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(samples, 8));
  EXPECT_EQ(trainer.micro_batch_size(), size);
  return flat_weights(module);
}

TEST(MicroBatchSize, GivesTheWholeBatchsGradient) {
  for (const int64_t samples : {32, 21}) {  // 21: a last batch of 5
    const at::Tensor whole = tiny_weights(0, samples);
    for (const int64_t size : {1, 3, 4, 8, 100}) {  // 3: parts of 3, 3 and 2
      EXPECT_LT(distance(tiny_weights(size, samples), whole), 1e-12) << samples << " samples, " << size;
    }
    EXPECT_LT(distance(tiny_weights(3, samples, 2), tiny_weights(0, samples, 2)), 1e-12) << samples;
  }
}

TEST(MicroBatchSize, KeepsTheLossScaleRight) {
  TinyModule whole, parts;
  for (TinyModule* module : {&whole, &parts}) {
    TrainerOptions options = quiet(2, {});
    options.precision = MixedPrecision({.dtype = MixedDtype::float16});
    if (module == &parts) options.micro_batch_size = 2;
    Trainer trainer(options);
    trainer.fit(*module, tiny_loader(24, 8));
    EXPECT_EQ(trainer.skipped_steps(), 0);
  }
  EXPECT_LT(distance(flat_weights(parts), flat_weights(whole)), 2e-3);  // float16 has eleven bits
}

struct Weighted : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor tokens = (batch[0].sum(1, true) > 0).to(batch[0].scalar_type());
    set_loss_weight(tokens.sum());
    return ((layer->forward(batch[0]) - batch[1]).square() * tokens).sum() / tokens.sum();
  }
};

TEST(MicroBatchSize, WeighsPartsBySetLossWeight) {
  auto weights = [](int64_t size, int64_t accumulate) {
    Weighted module;
    TrainerOptions options = quiet(3, {});
    options.precision = "64-true";
    options.accumulate_grad_batches = accumulate;
    if (size > 0) options.micro_batch_size = size;
    Trainer(options).fit(module, tiny_loader(24, 8 / accumulate));
    return flat_weights(module);
  };
  const at::Tensor whole = weights(0, 1);
  EXPECT_LT(distance(weights(3, 1), whole), 1e-12);
  EXPECT_LT(distance(weights(1, 2), whole), 1e-12);
}

struct Logs : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    sizes.push_back(batch.size());
    log("mean", batch[0].mean(), {.on_step = true, .on_epoch = true});
    log("sum", batch[0].sum(), {.on_step = false, .on_epoch = true, .reduce_fx = ReduceFx::sum});
    log("most", batch[0].max(), {.on_step = false, .on_epoch = true, .reduce_fx = ReduceFx::max});
    return TinyModule::training_step(batch, batch_idx);
  }
  std::vector<int64_t> sizes = {};
};

TEST(MicroBatchSize, LogsWhatTheWholeBatchWouldHaveLogged) {
  std::vector<Metrics> all;
  for (const int64_t size : {0, 3}) {
    Logs module;
    TrainerOptions options = quiet(1, {});
    options.precision = "64-true";
    if (size > 0) options.micro_batch_size = size;
    Trainer trainer(options);
    trainer.fit(module, tiny_loader(16, 8));
    all.push_back(trainer.callback_metrics());
    EXPECT_EQ(module.sizes, size == 0 ? (std::vector<int64_t>{8, 8}) : (std::vector<int64_t>{3, 3, 2, 3, 3, 2}));
  }
  ASSERT_EQ(all[0].size(), all[1].size());
  for (const auto& [name, value] : all[0]) EXPECT_NEAR(all[1].at(name), value, 1e-12) << name;
  EXPECT_TRUE(all[0].contains("mean_epoch") && all[0].contains("sum") && all[0].contains("most"));
}

TEST(MicroBatchSize, SkipsAnUpdateWhoseLossIsNotFinite) {
  struct Nan : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      const at::Tensor loss = TinyModule::training_step(batch, batch_idx);
      return batch_idx == 1 ? loss * std::nan("") : loss;
    }
  };
  Nan module;
  TrainerOptions options = quiet(1, {});
  options.micro_batch_size = 3;
  EXPECT_TRUE(has(error_of([&] { Trainer(options).fit(module, tiny_loader(24, 8)); }),
                  "the loss is nan in epoch 0, batch 1, global step 1. Nothing was updated with it."));
  options.nonfinite_loss = NonFiniteLoss::skip;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24, 8));
  EXPECT_EQ(trainer.global_step(), 2);
}

TEST(MicroBatchSize, RefusesWhatItCannotBeHadWith) {
  auto refusal = [](TinyModule& module, TrainerOptions options) {
    options.micro_batch_size = "auto";
    return error_of([&] { Trainer(options).fit(module, tiny_loader(16, 8)); });
  };
  TinyModule module;
  module.make_optimizers = [](TinyModule& m) { return OptimizerConfig(LBFGS(m.parameters())); };
  EXPECT_TRUE(has(refusal(module, quiet(1, {})), "micro_batch_size: LBFGS evaluates its batch several times"));
  TinyModule manual;
  manual.set_automatic_optimization(false);
  EXPECT_TRUE(has(refusal(manual, quiet(1, {})), "TrainerOptions.micro_batch_size: auto has no meaning with manual"));
  TinyModule plain;
  TrainerOptions recorded = quiet(1, {});
  recorded.record_steps = true;
  EXPECT_TRUE(has(refusal(plain, recorded), "micro_batch_size: recorded steps take full batches."));
}

TEST(MicroBatchSize, OfNoSamplesIsNotAnOption) {
  for (const int64_t bad : {0, -3}) {
    TrainerOptions options = quiet(1, {});
    options.micro_batch_size = bad;
    EXPECT_TRUE(has(error_of([&] { Trainer trainer(options); }),
                    "TrainerOptions.micro_batch_size: must be >= 1, or auto, got " + std::to_string(bad)))
        << error_of([&] { Trainer trainer(options); });
  }
  TrainerOptions options = quiet(1, {});
  options.micro_batch_size = "some";
  EXPECT_TRUE(
      has(error_of([&] { Trainer trainer(options); }), "TrainerOptions.micro_batch_size: must be >= 1, or auto"));
}

// ---- auto -----------------------------------------------------------------------------------------------------------

constexpr int64_t kBatch = 32;

/// Wide enough that activations outweigh everything else; random numbers and statistics in every pass.
struct Wide : LightningModule {
  Wide() {
    torch::manual_seed(3);
    net = register_module(
        "net", torch::nn::Sequential(torch::nn::Linear(4, 512), torch::nn::BatchNorm1d(512), torch::nn::Tanh(),
                                     torch::nn::Dropout(0.5), torch::nn::Linear(512, 1)));
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    passes.push_back(batch.size());
    samples(static_cast<double>(batch.size()));
    log("samples", samples, {.on_step = false, .on_epoch = true});
    const at::Tensor loss = F::mse_loss(net->forward(batch[0]), batch[1]);
    log("loss", loss, {.on_step = true, .on_epoch = true});
    log("passes", 1.0, {.on_step = false, .on_epoch = true, .reduce_fx = ReduceFx::sum});
    return loss;
  }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.05, .momentum = 0.9}); }

  torch::nn::Sequential net{nullptr};
  std::vector<int64_t> passes = {};
  metrics::SumMetric samples{};
};

struct Left {
  std::vector<at::Tensor> tensors;  // parameters and buffers
  Metrics metrics;
  at::Tensor random;
  int64_t size = 0;
  size_t peak = 0;
  std::vector<int64_t> passes;
  std::string output;
};

/// One fit; `limit`: bytes above what is held at its beginning, 0: none.
Left fit_wide(TrainerOptions options, size_t limit, const std::string& ckpt = "") {
  Left left;
  Wide module;
  torch::manual_seed(7);
  Trainer trainer(options);
  CapturedConsole console;
  {
    MemoryLimit memory;
    if (limit > 0) memory.set(limit);
    trainer.fit(module, tiny_loader(96, kBatch), {}, ckpt);
    left.peak = memory.peak();
  }
  left.output = console.text();
  left.metrics = trainer.callback_metrics();
  left.size = trainer.micro_batch_size();
  left.random = torch::rand({4});
  for (const auto& p : module.parameters()) left.tensors.push_back(p.detach().clone());
  for (const auto& b : module.buffers()) left.tensors.push_back(b.detach().clone());
  left.passes = module.passes;
  return left;
}

TrainerOptions in_parts(std::variant<int64_t, std::string> size) {
  TrainerOptions options = quiet(2, {});
  options.micro_batch_size = size;
  return options;
}

/// Between what parts of 8 and parts of 16 need.
size_t limit_for_eight() {
  static const size_t limit = [] {
    const size_t eight = fit_wide(in_parts(8), 0).peak, sixteen = fit_wide(in_parts(16), 0).peak;
    EXPECT_GT(sixteen, eight + 20000);
    return (eight + sixteen) / 2;
  }();
  return limit;
}

void expect_same_bits(const Left& a, const Left& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t k = 0; k < a.tensors.size(); ++k) EXPECT_TRUE(torch::equal(a.tensors[k], b.tensors[k])) << k;
  EXPECT_EQ(a.metrics, b.metrics);
  EXPECT_TRUE(torch::equal(a.random, b.random));
}

TEST(AutoMicroBatch, IsBitwiseIdenticalToARunThatWasGivenTheSize) {
  const Left given = fit_wide(in_parts(8), 0);
  const Left found = fit_wide(in_parts("auto"), limit_for_eight());
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.passes[0], 32);  // the whole batch, then halves, then quarters
  EXPECT_EQ(found.passes[1], 16);
  EXPECT_EQ(found.passes[2], 8);
  EXPECT_EQ(found.passes.size(), given.passes.size() + 2);
  expect_same_bits(found, given);
  EXPECT_TRUE(has(found.output,
                  "micro_batch_size: out of memory with 32 samples in one pass (epoch 0, batch 0); from "
                  "here on batches are computed in parts of 16 samples."))
      << found.output;
  EXPECT_TRUE(has(found.output, "in parts of 8 samples."));
  EXPECT_EQ(found.metrics.at("samples"), 96) << "samples of failed passes were counted";
}

TEST(AutoMicroBatch, LeavesABatchThatFitsWhole) {
  const Left whole = fit_wide(quiet(2, {}), 0);
  const Left automatic = fit_wide(in_parts("auto"), 0);
  EXPECT_EQ(automatic.size, 0);
  EXPECT_EQ(automatic.passes, whole.passes);
  EXPECT_FALSE(has(automatic.output, "micro_batch_size"));
  expect_same_bits(automatic, whole);
}

// Without dropout and statistics, parts of any size give the same gradient: what a failed pass has added must be gone.
struct Plain : Wide {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    net->eval();
    return Wide::training_step(batch, batch_idx);
  }
};

TEST(AutoMicroBatch, UndoesAFailedPassInsideAnAccumulationWindow) {
  auto fit = [](bool limited) {
    Plain module;
    MemoryLimit memory;
    size_t most = 0;
    auto watch = LambdaCallback(
        {.on_train_batch_start = [&](Trainer& trainer, LightningModule&, const Batch&, int64_t batch_idx) {
          if (batch_idx == 0 && trainer.current_epoch() == 0) return;
          if (most == 0) most = memory.peak();
          if (limited) memory.set(most - 40000);  // less than the first, whole batch has taken
        }});
    TrainerOptions options = quiet(2, {watch});
    options.precision = "64-true";
    options.accumulate_grad_batches = 3;
    options.micro_batch_size = "auto";
    Trainer trainer(options);
    trainer.fit(module, tiny_loader(96, kBatch));
    EXPECT_EQ(memory.refused() > 0, limited);
    EXPECT_EQ(trainer.micro_batch_size() > 0, limited);
    return flat_weights(module);
  };
  EXPECT_LT(distance(fit(true), fit(false)), 1e-12);
}

TEST(AutoMicroBatch, OfOneSampleThatDoesNotFitIsReported) {
  std::string error;
  Plain module;
  Trainer trainer(in_parts("auto"));
  MemoryLimit memory;
  memory.set(20000);  // more than undoing needs, and less than the gradients
  try {
    trainer.fit(module, tiny_loader(96, kBatch));
  } catch (const OutOfMemoryError& caught) {
    error = caught.what();
  }
  EXPECT_TRUE(has(error, "training_step, epoch 0, batch 0: out of memory with micro-batches of 1 sample. ")) << error;
  EXPECT_TRUE(has(error, "can't allocate memory")) << error;
}

TEST(AutoMicroBatch, PassesOnEveryOtherError) {
  struct Fails : TinyModule {
    at::Tensor training_step(const Batch&, int64_t) override { throw Error("of my own"); }
  };
  Fails module;
  EXPECT_EQ(error_of([&] { Trainer(in_parts("auto")).fit(module, tiny_loader(8)); }),
            "training_step, epoch 0, batch 0, global step 0: of my own");
}

TEST(AutoMicroBatch, AResumedRunBeginsWithTheSizeThatWasFound) {
  const TemporaryFolder folder;
  const std::string path = folder / "mid.ckpt";
  const Left undisturbed = fit_wide(in_parts("auto"), limit_for_eight());
  TrainerOptions saving = in_parts("auto");
  saving.callbacks = {LambdaCallback(
      {.on_train_batch_end = [&](Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t idx) {
        if (idx == 1 && trainer.current_epoch() == 0) trainer.save_checkpoint(path);
      }})};
  (void)fit_wide(saving, limit_for_eight());
  const Left resumed = fit_wide(in_parts("auto"), 0, path);  // it would fit now: still bitwise identical
  EXPECT_EQ(resumed.size, 8);
  EXPECT_EQ(resumed.passes, std::vector<int64_t>(4 * 4, 8));
  expect_same_bits(resumed, undisturbed);
}

TEST(OutOfMemory, IsDistinguishedFromOtherErrors) {
  auto is = [](const std::exception& error) { return is_out_of_memory(error); };
  EXPECT_TRUE(is(std::bad_alloc()));
  EXPECT_TRUE(is(c10::OutOfMemoryError(c10::SourceLocation{}, "CUDA out of memory. Tried to allocate 2.00 GiB.")));
  EXPECT_TRUE(is(
      c10::Error(c10::SourceLocation{}, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")));
  EXPECT_TRUE(is(Error("replica 0 of 2 on cpu:0: could not create a primitive")));  // oneDNN without memory
  EXPECT_FALSE(is(Error("could not create a primitive descriptor for a convolution forward propagation primitive")));
  EXPECT_FALSE(is(Error("the loss has no gradient")));
  // The real message of LibTorch's allocator.
  std::string message;
  try {
    (void)torch::empty({int64_t{1} << 58}, at::kByte);
  } catch (const std::exception& error) {
    message = error.what();
    EXPECT_TRUE(is(error)) << message;
  }
  EXPECT_NE(message, "");
}

}  // namespace
}  // namespace levin::micro_batching_test
