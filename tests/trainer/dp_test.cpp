// strategy: dp and dp_balanced on logical CPU devices: equal to one device, deterministic, with clear errors.
#include "levin/strategies/device/dp.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <mutex>

#include "levin/core/options/registry.h"
#include "levin/optim/adam.h"
#include "levin/precision/mixed_precision.h"
#include "levin/trainer/module_access.h"
#include "levin/trainer/plan/resolve_plan.h"
#include "levin/trainer/plan/run_plan.h"
#include "support/parted_module.h"
#include "support/temporary_folder.h"

namespace levin::dp_test {
namespace {

namespace F = torch::nn::functional;
using test::classes;
using test::error_of;
using test::expect_parts;
using test::TensorLoader;
using test::weights;

TrainerOptions quiet(int64_t devices, const char* strategy = "dp") {
  TrainerOptions options = test::parts_options(std::make_shared<SingleDeviceStrategy>(), devices);
  if (devices > 1) options.strategy = strategy;
  return options;
}

// What the replicas did.
struct Seen {
  std::mutex mutex;
  std::vector<std::string> slots;  // "cpu:1 4": which slot had how many samples
};

struct NetOptions {
  bool adamw = false;
  double dropout = 0;
  bool batch_norm = false;
  static auto fields() {
    using O = NetOptions;
    return levin::fields(field("adamw", &O::adamw, "optimizer"), field("dropout", &O::dropout, "share of units"),
                         field("batch_norm", &O::batch_norm, "normalize"));
  }
};

class Net : public LightningModule {
 public:
  using Options = NetOptions;
  explicit Net(NetOptions options, std::shared_ptr<Seen> seen = std::make_shared<Seen>())
      : options_(options), seen_(std::move(seen)) {
    torch::manual_seed(1);
    net_ = torch::nn::Sequential(torch::nn::Linear(8, 8), torch::nn::Tanh());
    if (options.batch_norm) net_->push_back(torch::nn::BatchNorm1d(8));
    if (options.dropout > 0) net_->push_back(torch::nn::Dropout(options.dropout));
    net_->push_back(torch::nn::Linear(8, 3));
    register_module("net", net_);
  }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<Net>(options_, seen_);
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    if (const DeviceSlot* slot = current_slot()) {  // none in the run without replicas
      const std::lock_guard lock(seen_->mutex);
      seen_->slots.push_back(slot->text() + " " + std::to_string(batch.size()));
    }
    const at::Tensor loss = F::cross_entropy(net_->forward(batch[0]), batch[1]);
    log("loss", loss, {.on_step = true, .on_epoch = true});
    log("rows", static_cast<double>(batch.size()), {.on_step = true, .on_epoch = true, .reduce_fx = ReduceFx::sum});
    log("largest", batch[0].max(), {.on_step = true, .on_epoch = true, .reduce_fx = ReduceFx::max});
    log("smallest", batch[0].min(), {.on_step = true, .on_epoch = true, .reduce_fx = ReduceFx::min});
    return loss;
  }
  void validation_step(const Batch& batch, int64_t) override {
    log("val_loss", F::cross_entropy(net_->forward(batch[0]), batch[1]));
  }
  at::Tensor forward(const at::Tensor& x) override { return net_->forward(x); }
  OptimizerConfig configure_optimizers() override {
    if (options_.adamw) return AdamW(parameters(), {.lr = 0.01});
    return SGD(parameters(), {.lr = 0.1, .momentum = 0.9});
  }
  [[nodiscard]] std::vector<std::string> slots() const {
    auto sorted = seen_->slots;
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }

 private:
  NetOptions options_;
  std::shared_ptr<Seen> seen_;
  torch::nn::Sequential net_ = nullptr;
};

struct Result {
  at::Tensor weights;
  Metrics metrics;
  std::vector<std::string> slots;
};

Result train(TrainerOptions options, NetOptions net = {}, int64_t samples = 96, int64_t batch = 32) {
  Net module(net);
  seed_everything(7);
  Trainer trainer(std::move(options));
  trainer.fit(module, classes(samples, batch), {classes(10, 5)});
  return {weights(module), trainer.callback_metrics(), module.slots()};
}

bool close(const at::Tensor& one, const at::Tensor& other, double tolerance = 1e-5) {
  return torch::allclose(one, other, tolerance, tolerance);
}

class Article : public LightningModule {
 public:
  Article() { weight_ = register_parameter("weight", torch::ones({8})); }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<Article>();
  }
  at::Tensor training_step(const Batch& batch, int64_t) override { return (batch[0] * weight_).sum(); }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.01, .momentum = 0.9}); }

 private:
  at::Tensor weight_;
};

TEST(Dp, EndsAtTheArticlesEightWeights) {
  for (const char* strategy : {"dp", "dp_balanced"}) {
    torch::manual_seed(0);
    const at::Tensor data = torch::rand({8, 8});
    Article module;
    TrainerOptions options = quiet(2, strategy);
    options.devices = std::vector<std::string>{"cpu", "cpu"};
    Trainer trainer(options);
    // Two ranks of 4 make one step of 8, and so do two devices.
    trainer.fit(module, std::make_shared<TensorLoader>(std::vector<at::Tensor>{data}, 8));
    const at::Tensor wanted = torch::tensor({0.9472, 0.9440, 0.9527, 0.9687, 0.9570, 0.9343, 0.9411, 0.9186});
    EXPECT_LT((weights(module) - wanted).abs().max().item<double>(), 5e-5) << strategy;
    EXPECT_EQ(trainer.global_step(), 2);
  }
}

TEST(Dp, OneBatchOf32IsTwoSharesOf16) {
  for (const bool adamw : {false, true}) {
    const Result whole = train(quiet(1), {.adamw = adamw});
    for (const char* strategy : {"dp", "dp_balanced"}) {
      const Result shared = train(quiet(2, strategy), {.adamw = adamw});
      EXPECT_TRUE(close(whole.weights, shared.weights)) << strategy << adamw;
      EXPECT_FALSE(shared.slots.empty());
      EXPECT_EQ(std::count(shared.slots.begin(), shared.slots.end(), "cpu:0 16"), 6);
      EXPECT_EQ(std::count(shared.slots.begin(), shared.slots.end(), "cpu:1 16"), 6);
    }
  }
}

TEST(Dp, EqualsOneDeviceWithUnevenSharesAccumulationAndClipping) {
  TrainerOptions one = quiet(1), three = quiet(3);
  one.accumulate_grad_batches = three.accumulate_grad_batches = 2;
  one.gradient_clip_val = three.gradient_clip_val = 0.1;
  EXPECT_TRUE(close(train(one, {}, 50, 16).weights, train(three, {}, 50, 16).weights));  // 6 + 5 + 5, and a tail of 2
}

TEST(Dp, ABatchSmallerThanTheNumberOfDevicesUsesAsManyAsItHasSamples) {
  const Result result = train(quiet(4), {}, 7, 5);
  EXPECT_EQ(result.slots, (std::vector<std::string>{"cpu:0 1", "cpu:0 1", "cpu:0 2", "cpu:0 2", "cpu:1 1", "cpu:1 1",
                                                    "cpu:1 1", "cpu:1 1", "cpu:2 1", "cpu:2 1", "cpu:3 1", "cpu:3 1"}));
  EXPECT_TRUE(close(result.weights, train(quiet(1), {}, 7, 5).weights));
}

TEST(Dp, LogsOneValueForTheBatch) {
  const Metrics one = train(quiet(1), {}, 50, 16).metrics, three = train(quiet(3), {}, 50, 16).metrics;
  ASSERT_EQ(one.size(), three.size());
  for (const auto& [name, value] : one) EXPECT_NEAR(three.at(name), value, 1e-5) << name;
  EXPECT_EQ(three.at("rows_epoch"), 50);
  EXPECT_EQ(three.at("rows_step"), 2);
  EXPECT_TRUE(three.contains("val_loss"));
}

TEST(Dp, IsAFunctionOfTheSeedWithDropoutToo) {
  const NetOptions net{.dropout = 0.5};
  const at::Tensor once = train(quiet(3), net).weights;
  EXPECT_TRUE(once.equal(train(quiet(3), net).weights));
  EXPECT_FALSE(once.equal(train(quiet(1), net).weights));
}

TEST(Dp, AResumedRunIsBitwiseIdentical) {
  const test::TemporaryFolder folder;
  const NetOptions net{.dropout = 0.5, .batch_norm = true};
  const std::string path = folder / "one.ckpt";
  Net whole(net), first(net), second(net);
  seed_everything(7);
  Trainer(quiet(2)).fit(whole, classes(96, 32));
  seed_everything(7);
  TrainerOptions half = quiet(2);
  half.max_epochs = 1;
  Trainer begun(half);
  begun.fit(first, classes(96, 32));
  begun.save_checkpoint(path);
  seed_everything(8);
  Trainer(quiet(2)).fit(second, classes(96, 32), {}, path);
  EXPECT_TRUE(weights(whole).equal(weights(second)));
  for (const auto& buffer : whole.named_buffers()) {
    EXPECT_TRUE(second.named_buffers()[buffer.key()].equal(buffer.value())) << buffer.key();
  }
}

TEST(Dp, BatchNormKeepsTheFirstReplicasStatistics) {
  Net module({.batch_norm = true});
  TrainerOptions options = quiet(2);
  options.max_steps = 1;
  const auto loader = classes(8, 8);
  Batch batch;
  loader->start(0, 0);
  loader->next(batch);
  const auto layer = module.named_modules("", false)["net.0"]->as<torch::nn::Linear>();
  const at::Tensor seen = torch::tanh(layer->forward(batch[0].slice(0, 0, 4))).mean(0).detach();
  Trainer(options).fit(module, loader);
  EXPECT_TRUE(torch::allclose(module.named_buffers()["net.2.running_mean"], 0.1 * seen, 1e-4, 1e-5));
}

TEST(Dp, TrainsInMixedPrecision) {
  for (const auto dtype : {MixedDtype::bfloat16, MixedDtype::float16}) {
    TrainerOptions one = quiet(1), two = quiet(2);
    MixedPrecisionOptions mixed{.dtype = dtype};
    if (dtype == MixedDtype::float16) mixed.scaler = GradScalerOptions{};
    one.precision = MixedPrecision(mixed);
    two.precision = MixedPrecision(mixed);
    const at::Tensor alone = train(one).weights, shared = train(two).weights;
    EXPECT_TRUE(close(alone, shared, 2e-2)) << static_cast<int>(dtype);
    EXPECT_FALSE(close(shared, train(quiet(2)).weights, 1e-7));  // it did not compute in float32
  }
}

TEST(Dp, PredictsAndEvaluatesAsOneDeviceDoes) {
  Net module({});
  const auto expected = Trainer(quiet(1)).predict(module, {classes(7, 5)});
  const auto losses = Trainer(quiet(1)).validate(module, {classes(7, 5)});
  for (const char* strategy : {"dp", "dp_balanced"}) {
    const auto found = Trainer(quiet(3, strategy)).predict(module, {classes(7, 5)});
    ASSERT_EQ(found[0].size(), 2U);
    for (size_t k = 0; k < 2; ++k) EXPECT_TRUE(close(found[0][k], expected[0][k])) << strategy;
    EXPECT_NEAR(Trainer(quiet(3, strategy)).validate(module, {classes(7, 5)})[0].at("val_loss"),
                losses[0].at("val_loss"), 1e-6);
  }
}

// ---- what cannot be ------------------------------------------------------------------------------------------------

class Failing : public Article {
 public:
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<Failing>();
  }
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    if (current_slot()->index == 1) (void)batch[0].matmul(torch::ones({3, 3}));
    return Article::training_step(batch, batch_idx);
  }
};

TEST(Dp, AnExceptionNamesTheReplicaAndItsDevice) {
  Failing module;
  const std::string text = error_of([&] { Trainer(quiet(2)).fit(module, classes(8, 4)); });
  expect_parts(text, {"replica 1 of 2 on cpu:1: ", "2x8 and 3x3"});
}

// No clone(), as users write modules.
class ByName : public Article {
 public:
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& device) const override {
    return torch::nn::Module::clone(device);
  }
};

TEST(Dp, AModuleThatCannotBeCopiedIsReportedWithTheRemedy) {
  ByName module;
  const std::string text = error_of([&] { Trainer(quiet(2)).fit(module, classes(8, 4)); });
  expect_parts(text, {"dp needs a replica of ByName", "Override clone()", "std::make_shared<ByName>(options_)",
                      "name the model in a run file"});
}

TEST(Dp, AModuleMadeByNameIsMadeAgainForEachDevice) {
  [[maybe_unused]] static const bool added = [] {
    Registry<LightningModule>::instance().add<ByName>("DpTestByName", "a model of a run file");
    return true;
  }();
  const auto module = Registry<LightningModule>::instance().make({"DpTestByName", {}, {}}, "model");
  EXPECT_EQ(ModuleAccess::made_from(*module).class_path, "DpTestByName");
  Article alone;
  Trainer(quiet(2)).fit(*module, classes(8, 4));
  Trainer(quiet(1)).fit(alone, classes(8, 4));
  // A loss that is a sum: the mean of two shares' sums is half of it.
  EXPECT_TRUE(close(1 - weights(*module), (1 - weights(alone)) / 2, 1e-5));
}

TEST(Dp, ACloneOfADifferentShapeOrTheModuleItselfIsAnError) {
  struct Wider : Article {
    std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
      return std::make_shared<Net>(NetOptions{});
    }
  };
  struct NoModule : Article {
    std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
      return torch::nn::Linear(1, 1).ptr();
    }
  };
  Wider wider;
  expect_parts(error_of([&] { Trainer(quiet(2)).fit(wider, classes(8, 4)); }),
               {"the replica for cpu:1 has net.0.weight (8, 8) where the module has weight (8)"});
  NoModule none;
  expect_parts(error_of([&] { Trainer(quiet(2)).fit(none, classes(8, 4)); }), {"clone() of", "must return a new"});
}

TEST(Dp, RefusesManualOptimization) {
  Article module;
  module.set_automatic_optimization(false);
  expect_parts(error_of([&] { Trainer(quiet(2)).fit(module, classes(8, 4)); }),
               {"TrainerOptions.strategy: dp needs automatic optimization", "Use ddp"});
}

TEST(Dp, ATensorOfTheBatchWithOtherRowsIsAnError) {
  Article module;
  class Uneven final : public Loader {
   public:
    void start(int64_t, int64_t first) override { done_ = first > 0; }
    bool next(Batch& batch) override {
      batch = {torch::ones({4, 8}), torch::ones({3})};
      return !std::exchange(done_, true);
    }
    [[nodiscard]] std::optional<int64_t> num_batches() const override { return 1; }

   private:
    bool done_ = false;
  };
  expect_parts(error_of([&] { Trainer(quiet(2)).fit(module, std::make_shared<Uneven>()); }),
               {"shape (3) cannot be split with a batch of 4 samples"});
}

TEST(Dp, DevicesMayBeWordsInYamlAndOnlyCpuIsOne) {
  add_builtins();
  TrainerOptions options;
  Problems problems;
  ConfigNode node = ConfigNode::map();
  node.set("devices", ConfigNode::list({ConfigNode::scalar("cpu"), ConfigNode::scalar("cpu")}));
  node.set("strategy", ConfigNode::scalar("dp"));
  ASSERT_TRUE(read_options(node, options, "trainer", problems));
  const RunPlan plan = resolve_plan(options);
  EXPECT_EQ(plan.strategy, "dp");
  ASSERT_EQ(plan.slots.size(), 2U);
  EXPECT_EQ(plan.slots[1].text(), "cpu:1");
  EXPECT_EQ(plan.devices, 1);

  options.devices = std::vector<std::string>{"cpu", "tpu"};
  expect_parts(error_of([&] { (void)resolve_plan(options); }),
               {"TrainerOptions.devices: [cpu, tpu] is not a number of devices, nor a list of them", "[cpu, cpu]"});
  options.devices = std::vector<int64_t>{};
  expect_parts(error_of([&] { (void)resolve_plan(options); }), {"an empty list is not a number of devices"});
  options.devices = int64_t{2};
  options.num_nodes = 2;
  expect_parts(error_of([&] { (void)resolve_plan(options); }),
               {"TrainerOptions.num_nodes: 2 nodes", "dp is one process"});
}

TEST(Dp, RefusesToBeStartedAsSeveralRanks) {
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", "29999", 1);
  TrainerOptions options = quiet(2);
  const std::string text = error_of([&] { (void)resolve_plan(options); });
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  expect_parts(text, {"dp is one process on several devices", "has started 2"});
}

}  // namespace
}  // namespace levin::dp_test
