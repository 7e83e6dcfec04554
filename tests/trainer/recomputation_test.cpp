// trainer.recompute in a fit: bitwise identical to a fit without, in every form and with every strategy of one process.
#include "levin/recompute/recomputation.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "callbacks/quiet_trainer.h"
#include "levin/precision/mixed_precision.h"
#include "levin/strategies/device/dp.h"
#include "levin/strategies/device/model_parallel.h"
#include "levin/trainer/run/run.h"
#include "recompute/segments.h"
#include "support/captured_console.h"
#include "support/parted_module.h"
#include "support/temporary_folder.h"

namespace levin::recomputation_test {
namespace {

using test::classes;
using test::error_of;
using test::expect_parts;
using test::expect_same_bits;

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    fc = register_module("fc", torch::nn::Linear(8, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
  }
  at::Tensor forward(const at::Tensor& x, double scale) {
    ++calls;
    return x + at::dropout(levin::call(norm, levin::call(fc, x)).tanh(), 0.3, is_training()) * scale;
  }
  torch::nn::Linear fc{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  int64_t calls = 0;
};
TORCH_MODULE(Block);

// Blocks that call_chain calls, a Sequential, and a head that the step calls twice.
class Model : public LightningModule {
 public:
  explicit Model(bool manual = false) {
    torch::manual_seed(1);
    torch::nn::ModuleList list;
    for (int k = 0; k < 4; ++k) list->push_back(blocks.emplace_back());
    register_module("h", list);
    net = register_module("net", torch::nn::Sequential(torch::nn::Linear(8, 8), torch::nn::Dropout(0.2),
                                                       torch::nn::Tanh(), torch::nn::Linear(8, 8)));
    head = register_module("head", torch::nn::Linear(8, 8));
    pred = register_module("pred", torch::nn::Linear(8, 3));
    set_automatic_optimization(!manual);
  }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<Model>();
  }
  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor h = levin::call(head, levin::call(head, levin::call_chain(blocks, x, 0.5)).sin());
    return pred->forward(net->forward(h));
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor loss = torch::nn::functional::cross_entropy(forward(batch[0]), batch[1]);
    log("loss", loss, {.on_step = false, .on_epoch = true});
    if (automatic_optimization()) return loss;
    optimizer().zero_grad();
    manual_backward(loss);
    optimizer().step();
    return {};
  }
  void validation_step(const Batch& batch, int64_t) override {
    log("val_loss", torch::nn::functional::cross_entropy(forward(batch[0]), batch[1]));
  }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.1, .momentum = 0.9}); }

  std::vector<Block> blocks;
  torch::nn::Sequential net{nullptr};
  torch::nn::Linear head{nullptr}, pred{nullptr};
};

TrainerOptions options_of(RecomputeChoice recompute) {
  TrainerOptions options = test::quiet(2, {});
  options.accelerator = "cpu";
  options.devices = 1;
  options.recompute = std::move(recompute);
  return options;
}

struct Result {
  std::vector<at::Tensor> state;
  Metrics metrics;
  int64_t calls = 0;  // of block 1, in training and validation
};

Result train(TrainerOptions options, bool manual = false) {
  Model model(manual);
  seed_everything(7);
  Trainer trainer(std::move(options));
  trainer.fit(model, classes(30, 6), {classes(12, 6)});
  EXPECT_FALSE(CallActions::any());
  Result result{model.parameters(), trainer.callback_metrics(), model.blocks[1]->calls};
  for (const at::Tensor& buffer : model.buffers()) result.state.push_back(buffer);
  result.state.push_back(torch::rand({2}));
  return result;
}

void expect_same(const Result& one, const Result& other) {
  expect_same_bits(one.state, other.state);
  EXPECT_EQ(one.metrics, other.metrics);
}

constexpr int64_t kTraining = 2 * 5, kValidation = 2 * 2 + 2;  // batches, and sanity checking

const std::vector<RecomputeOptions>& forms() {
  static const std::vector<RecomputeOptions> list = {
      {.modules = {"h.*"}},
      {.modules = {"h.0..h.2", "net", "head"}},
      {.modules = {"h", "h.1", "h.2..h.3", "h.2.fc", "net.1..net.2", "net.1"}},
      {.checkpoints = {"h.1", "h.3", "net.2"}},
      {.modules = {"h", "net"}, .segments = 2},
      {.modules = {"h.*", "net.*", "head"}, .keep = Keep::matmul, .offload = true},
  };
  return list;
}

TEST(Recomputation, IsBitwiseIdenticalInEveryForm) {
  const Result plain = train(options_of({}));
  EXPECT_EQ(plain.calls, kTraining + kValidation);
  for (const auto& form : forms()) {
    const Result result = train(options_of(form));
    expect_same(result, plain);
    EXPECT_GE(result.calls, 2 * kTraining + kValidation);
  }
}

TEST(Recomputation, IsBitwiseIdenticalWithAccumulationAndInEveryPrecision) {
  for (const std::string precision : {"32-true", "bf16-mixed", "bf16-true", "float16"}) {
    const auto run = [&](RecomputeChoice recompute) {
      auto options = options_of(std::move(recompute));
      options.precision = precision;
      // By its name, 16-mixed, it would be bfloat16 on a CPU.
      if (precision == "float16") options.precision = MixedPrecision({.dtype = MixedDtype::float16});
      options.accumulate_grad_batches = 2;
      options.gradient_clip_val = 0.1;
      return train(options);
    };
    const Result plain = run({});
    for (const size_t form : {size_t{1}, size_t{5}}) expect_same(run(forms()[form]), plain);
  }
}

TEST(Recomputation, IsBitwiseIdenticalInManualOptimization) {
  expect_same(train(options_of(forms()[1]), /*manual=*/true), train(options_of({}), /*manual=*/true));
}

TEST(Recomputation, IsBitwiseIdenticalOnReplicas) {
  auto options = options_of({});
  options.strategy = "dp";
  options.devices = 2;
  const Result plain = train(options);
  for (const size_t form : {size_t{2}, size_t{5}}) {
    options.recompute = forms()[form];
    expect_same(train(options), plain);
  }
}

TEST(Recomputation, IsBitwiseIdenticalOnPlacedParts) {
  const auto run = [](RecomputeChoice recompute) {
    auto options = options_of(std::move(recompute));
    options.devices = 3;
    options.strategy =
        std::make_shared<ModelParallel>(ModelParallelOptions{.placement = Placement{{"h.[0-1]", 1}, {"net.*", 2}}});
    return train(options);
  };
  const Result plain = run({});
  for (const auto& form : forms()) expect_same(run(form), plain);
}

TEST(Recomputation, IsBitwiseIdenticalInThePartsOfAPipeline) {
  const auto run = [](RecomputeChoice recompute) {
    test::PartedModule module(0.5);
    seed_everything(7);
    auto options = options_of(std::move(recompute));
    options.devices = 2;
    options.strategy = std::make_shared<ModelParallel>(ModelParallelOptions{
        .placement = Placement{{"encoder", 0}, {"decoder", 1}}, .pipeline = PipelineOptions{.micro_batches = 2}});
    Trainer trainer(options);
    trainer.fit(module, classes(24, 12));
    return test::weights(module);
  };
  EXPECT_TRUE(run(RecomputeOptions{.modules = {"encoder.0..encoder.1", "decoder.0"}}).equal(run({})));
}

TEST(Recomputation, ContinuesARunThatBeganWithoutIt) {
  const test::TemporaryFolder folder;
  const auto run = [&](RecomputeChoice first, RecomputeChoice then) {
    Model model;
    seed_everything(7);
    auto options = options_of(std::move(first));
    options.max_epochs = 1;
    Trainer trainer(options);
    trainer.fit(model, classes(30, 6), {});
    trainer.save_checkpoint(folder / "a.ckpt");
    Model other;
    Trainer later(options_of(std::move(then)));
    later.fit(other, classes(30, 6), {}, folder / "a.ckpt");
    return other.parameters();
  };
  expect_same_bits(run({}, forms()[1]), run({}, {}));
  expect_same_bits(run(forms()[1], {}), run({}, {}));
}

TEST(Recomputation, ReportsWhatTheStepDoesNotCallWhereItIsSeen) {
  const std::string all = error_of([] { train(options_of(RecomputeOptions{.modules = {"pred"}})); });
  expect_parts(all,
               {"TrainerOptions.recompute: the first training step has called no segment where it could be seen: pred",
                "levin::call(module, x)", "levin::call_chain(blocks, x)"});
  const test::CapturedConsole console;
  (void)train(options_of(RecomputeOptions{.modules = {"pred", "head"}}));
  expect_parts(console.text(), {"the first training step has not called pred where it could be seen"});
}

TEST(Recomputation, RefusesWhatItCannotDo) {
  expect_parts(error_of([] { train(options_of(RecomputeOptions{.modules = {"block"}})); }),
               {"TrainerOptions.recompute.modules[0]: no submodule's name matches \"block\"", "h.0"});
  EXPECT_FALSE(CallActions::any());
  auto piped = options_of(RecomputeOptions{.modules = {"encoder"}});
  piped.devices = 2;
  piped.strategy =
      ModelParallel(ModelParallelOptions{.placement = Placement{{"encoder.0", 0}, {"encoder.2", 0}, {"decoder", 1}},
                                         .pipeline = PipelineOptions{.micro_batches = 2}});
  expect_parts(error_of([&] {
                 test::PartedModule module;
                 Trainer(piped).fit(module, classes(24, 12));
               }),
               {"TrainerOptions.recompute: encoder.0..encoder.2 holds parts that a pipeline places"});
}

}  // namespace
}  // namespace levin::recomputation_test
