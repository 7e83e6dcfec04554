// Fabric as a guest of a program: what it leaves alone, what it writes, and its errors.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "levin/callbacks/lambda_callback.h"
#include "levin/core/files/files.h"
#include "levin/data/loading/dataloader.h"
#include "levin/loggers/csv_logger.h"
#include "levin/optim/cyclic_schedulers.h"
#include "levin/optim/lbfgs.h"
#include "levin/optim/reduce_lr_on_plateau.h"
#include "levin/optim/sgd.h"
#include "levin/precision/mixed_precision.h"
#include "levin/trainer/fabric.h"
#include "levin/trainer/nonfinite_loss_error.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/process_settings.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"
#include "trainer/fabric_net.h"

namespace levin::fabric_run_test {
namespace {

using namespace test;
using Json = nlohmann::json;

CSVLogger csv(const TemporaryFolder& folder) {
  return CSVLogger({.save_dir = folder.path(), .name = "", .version = "run"});
}

Json record(const TemporaryFolder& folder) {
  return Json::parse(read_file(folder / "run/run.json"));
}

OptimizerConfig sgd(FabricNet& net) {
  return SGD(net.parameters(), {.lr = 0.1});
}

TEST(FabricGuest, LeavesTheProcessUnchanged) {
  const TemporaryFolder folder;
  FabricNet net;
  const ProcessSettings before;
  {
    Fabric fabric({.precision = "bf16-mixed", .loggers = csv(folder)});
    FabricOptimizer optimizer = fabric.setup(net, sgd(net));
    (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net.loss(batch); });
    optimizer.zero_grad();
    fabric.backward(net.loss(fixed_batch()));
    optimizer.step();
    fabric.log("loss", 1.0);
    fabric.save(folder / "a.ckpt");
    (void)fabric.load(folder / "a.ckpt");
    expect_unchanged(before);
  }
  expect_unchanged(before);
}

TEST(FabricGuest, RecordedStepsLeaveTheProcessUnchanged) {
  FabricNet net(/*dropout=*/0);
  const ProcessSettings before;
  {
    Fabric fabric({.record_steps = true});
    (void)fabric.setup(net, sgd(net));
    for (int k = 0; k < 20; ++k) {
      (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net.loss(batch); });
    }
    EXPECT_LT(net.calls, 20);  // it was recorded
    expect_unchanged(before);
  }
  expect_unchanged(before);
}

TEST(FabricGuest, HasNoCallbackThatWasNotGiven) {
  const TemporaryFolder folder;
  FabricNet net;
  Fabric fabric({.loggers = csv(folder)});
  (void)fabric.setup(net, sgd(net));
  fabric.call("setup");
  fabric.call("on_train_start");
  (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net.loss(batch); });
  fabric.call("on_train_epoch_end");
  fabric.call("on_train_end");
  fabric.save(folder / "a.ckpt");
  EXPECT_FALSE(std::filesystem::exists(folder / "run/checkpoints"));
  EXPECT_EQ(read_file(folder / "a.ckpt").find("ModelCheckpoint"), std::string::npos);
}

size_t threads_of_process() {
  size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) count += task.is_directory() ? 1 : 0;
  return count;
}

TEST(FabricGuest, ItsThreadsEndWithIt) {
  const auto train = [] {
    const TemporaryFolder folder;
    FabricNet net;
    Fabric fabric({.loggers = csv(folder), .num_threads = 1});
    (void)fabric.setup(net, sgd(net));
    const at::Tensor x = torch::ones({8, 4}), y = torch::ones({8, 1});
    FabricLoader loader = fabric.setup_dataloaders(DataLoader(
        std::make_shared<TensorDataset>(std::vector<at::Tensor>{x, y}), {.batch_size = 4, .num_workers = 2}));
    for (const Batch& batch : loader.epoch(0)) {
      (void)fabric.step(batch, [&](const Batch& each) { return net.loss(each); });
    }
    fabric.log("loss", 1.0);
    fabric.save(folder / "a.ckpt");
  };
  train();  // LibTorch's own threads stay
  const size_t before = threads_of_process();
  train();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (threads_of_process() != before && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();  // the kernel removes a thread shortly after it was joined
  }
  EXPECT_EQ(threads_of_process(), before);
}

TEST(FabricGuest, SettingsOfOptionsEndWithIt) {
  FabricNet net;
  const ProcessSettings before;
  {
    Fabric fabric({.deterministic = true, .num_threads = 1});
    (void)fabric.setup(net);
    EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
    EXPECT_EQ(at::get_num_threads(), 1);
  }
  expect_unchanged(before);
}

TEST(FabricGuest, InitModuleMakesWeightsInThePrecision) {
  Fabric fabric({.precision = "bf16-true"});
  {
    const auto scope = fabric.init_module();
    EXPECT_EQ(torch::nn::Linear(2, 2)->weight.scalar_type(), at::kBFloat16);
  }
  FabricNet net;
  (void)fabric.setup(net);
  EXPECT_EQ(net.parameters()[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(fabric.to_device(fixed_batch())[0].scalar_type(), at::kBFloat16);
}

TEST(FabricLoggers, RowsAndTheRecordAreWritten) {
  const TemporaryFolder folder;
  FabricNet net;
  {
    Fabric fabric({.loggers = csv(folder)});
    (void)fabric.setup(net, sgd(net));
    fabric.log("loss", 0.5, 3);
    fabric.log_dict({{"a", 1}, {"loss", 0.25}}, 4);
    fabric.log("loss", torch::scalar_tensor(0.125));
  }
  const std::string rows = read_file(folder / "run/metrics.csv");
  EXPECT_TRUE(holds(rows, {"a,", "loss", "step", "0.5", "0.25", "0.125"}));
  EXPECT_EQ(record(folder)["status"], "success");
  EXPECT_EQ(record(folder)["metrics"]["loss"]["last"], 0.125);
}

TEST(FabricLoggers, AnExceptionThatLeavesTheLoopIsRecorded) {
  const TemporaryFolder folder;
  FabricNet net;
  EXPECT_EQ(error_of([&] {
              Fabric fabric({.loggers = csv(folder)});
              (void)fabric.setup(net, sgd(net));
              (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net.loss(batch); });
              (void)fabric.step(fixed_batch(), [](const Batch&) -> at::Tensor { throw std::domain_error("mine"); });
            }),
            "mine");  // of user code: unchanged
  EXPECT_EQ(record(folder)["status"], "failed");
  EXPECT_TRUE(has(record(folder)["error"].get<std::string>(), "mine"));
}

OptimizerConfig sgd_with_plateau(FabricNet& net, int64_t frequency = 1) {
  return {SGD(net.parameters(), {.lr = 1e-3}),
          ReduceLROnPlateau({.factor = 0.5, .patience = 0}),
          {.frequency = frequency, .monitor = "val_loss"}};
}

TEST(FabricSchedulers, LoggedValuesMoveWhatWatchesAMetric) {
  const TemporaryFolder folder;
  FabricNet net;
  Fabric fabric;
  const FabricOptimizer optimizer = fabric.setup(net, sgd_with_plateau(net));
  std::vector<double> rates;
  for (const double value : {1.0, 2.0, 3.0, 0.5, 0.6}) {
    (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net.loss(batch); });
    fabric.end_epoch();
    fabric.log("val_loss", value);
    fabric.log("another", value);
    fabric.save(folder / (std::to_string(value) + ".ckpt"));
    rates.push_back(optimizer.optimizer().param_groups()[0].lr);
  }
  EXPECT_EQ(rates, (std::vector<double>{1e-3, 5e-4, 2.5e-4, 2.5e-4, 1.25e-4}));

  FabricNet resumed_net;
  Fabric resumed;
  const FabricOptimizer resumed_optimizer = resumed.setup(resumed_net, sgd_with_plateau(resumed_net));
  (void)resumed.load(folder / (std::to_string(0.5) + ".ckpt"));
  EXPECT_EQ(resumed_optimizer.optimizer().param_groups()[0].lr, 2.5e-4);
  (void)resumed.step(fixed_batch(), [&](const Batch& batch) { return resumed_net.loss(batch); });
  resumed.log("val_loss", 0.6);
  EXPECT_EQ(resumed_optimizer.optimizer().param_groups()[0].lr, 1.25e-4);
}

TEST(FabricSchedulers, ALoopWithBackwardMovesThemItself) {
  FabricNet net;
  Fabric fabric;
  FabricOptimizer optimizer = fabric.setup(net, sgd_with_plateau(net));
  for (const double value : {1.0, 2.0}) {
    optimizer.zero_grad();
    fabric.backward(net.loss(fixed_batch()));
    optimizer.step();
    fabric.log("val_loss", value);
    EXPECT_EQ(optimizer.optimizer().param_groups()[0].lr, 1e-3);
  }
  for (const double value : {1.0, 2.0}) fabric.lr_schedulers()[0].scheduler->step(value);
  EXPECT_EQ(optimizer.optimizer().param_groups()[0].lr, 5e-4);
}

TEST(FabricSchedulers, AMetricThatIsNeverLoggedIsAWarning) {
  FabricNet net;
  const CapturedConsole console;
  Fabric fabric;
  (void)fabric.setup(net, sgd_with_plateau(net));
  (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net.loss(batch); });
  fabric.log("loss", 1.0);
  fabric.finish();
  EXPECT_TRUE(console.has("ReduceLROnPlateau was never moved: no value of \"val_loss\" was logged. Call fabric.log"))
      << console.text();
}

TEST(FabricSchedulers, OneThatWatchesAMetricHasNoFrequency) {
  FabricNet net;
  expect_parts(error_of<ConfigError>([&] { (void)Fabric().setup(net, sgd_with_plateau(net, 2)); }),
               {"Fabric.setup: ReduceLROnPlateau.frequency: 2", "fabric.log(\"val_loss\"", "Leave it unset"});
}

TEST(FabricCallbacks, CallRunsTheHooksThatItNames) {
  std::vector<std::string> called;
  const LambdaCallback callback({
      .on_train_epoch_end =
          [&](Trainer& trainer, LightningModule&) {
            called.push_back("epoch");
            trainer.request_stop("enough");
          },
      .on_train_batch_start = [&](Trainer&, LightningModule&, const Batch&,
                                  int64_t k) { called.push_back("start " + std::to_string(k)); },
      .on_train_batch_end = [&](Trainer&, LightningModule&, const at::Tensor& loss, const Batch&,
                                int64_t) { called.push_back("end " + std::to_string(loss.item<int64_t>())); },
      .on_before_optimizer_step = [&](Trainer&, LightningModule&, Optimizer&) { called.push_back("update"); },
  });
  FabricNet net;
  Fabric fabric({.callbacks = callback});
  (void)fabric.setup(net, sgd(net));
  fabric.call("on_train_batch_start", fixed_batch(), 3);
  (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net.loss(batch); });
  fabric.call("on_train_batch_end", torch::tensor(5), fixed_batch(), 3);
  EXPECT_FALSE(fabric.should_stop());
  fabric.call("on_train_epoch_end");
  EXPECT_TRUE(fabric.should_stop());
  fabric.finish();
  EXPECT_EQ(called, (std::vector<std::string>{"start 3", "update", "end 5", "epoch"}));
  expect_parts(error_of<Error>([&] { Fabric().call("on_epoch_end"); }),
               {"Fabric.call(\"on_epoch_end\"): ", "is not a hook", "on_train_epoch_end"});
  expect_parts(error_of<Error>([&] { Fabric().call("on_train_batch_start"); }), {"with batch and index"});
}

TEST(FabricRanks, OneProcessIsAllThereIs) {
  Fabric fabric;
  EXPECT_TRUE(fabric.is_global_zero());
  EXPECT_EQ(fabric.world_size(), 1);
  EXPECT_EQ(fabric.local_rank(), 0);
  EXPECT_EQ(fabric.device(), at::Device(at::kCPU));
  const at::Tensor value = torch::tensor({1.0, 2.0});
  EXPECT_TRUE(at::equal(fabric.all_reduce(value), value));
  EXPECT_TRUE(at::equal(fabric.all_gather(value), value.unsqueeze(0)));
  EXPECT_TRUE(at::equal(fabric.broadcast(value), value));
  EXPECT_EQ(fabric.broadcast("text"), "text");
  fabric.barrier();
}

// ---- errors ---------------------------------------------------------------------------------------------------------

TEST(FabricErrors, NameTheOptionsOfFabric) {
  expect_parts(error_of<ConfigError>([] { Fabric({.precision = "fp8"}); }), {"FabricOptions.precision: ", "fp8"});
  expect_parts(error_of<ConfigError>([] { Fabric({.num_nodes = 0, .num_threads = 0}); }),
               {"FabricOptions.num_nodes", "FabricOptions.num_threads"});
  expect_parts(error_of<ConfigError>([] { Fabric({.loggers = std::shared_ptr<CSVLogger>()}); }),
               {"FabricOptions.loggers[0]: "});
  expect_parts(error_of<Error>([] { Fabric({.devices = 2}).barrier(); }), {"Fabric.barrier: ", "launch()"});
}

TEST(FabricErrors, OfReplicas) {
  FabricNet net;
  Fabric fabric({.strategy = "dp", .devices = 2});
  FabricOptimizer optimizer = fabric.setup(net, sgd(net));
  expect_parts(error_of<Error>([&] { (void)fabric.step(fixed_batch(), [&](const Batch& b) { return net.loss(b); }); }),
               {"Fabric.step: dp computes on replicas", "fabric.step<Net>(batch, [](Net& net"});
  const auto by_replica = [](FabricNet& one, const Batch& batch) { return one.loss(batch); };
  expect_parts(error_of<ConfigError>([&] { (void)fabric.step<FabricNet>(fixed_batch(), by_replica); }),
               {"FabricOptions.strategy: dp needs a copy of ", "torch::nn::Cloneable"});
  FabricNet other;
  (void)fabric.setup(other, {}, "other");
  expect_parts(error_of<Error>([&] { (void)fabric.step<FabricNet>(fixed_batch(), by_replica); }),
               {"Fabric.step: its closure gets the module, and 2 modules were set up", "Set up one module"});

  torch::nn::Linear copied(4, 1);
  Fabric by_hand({.strategy = "dp", .devices = 2});
  (void)by_hand.setup(copied, SGD(copied->parameters(), {.lr = 0.1}));
  expect_parts(error_of<Error>([&] {
                 by_hand.backward(copied->forward(torch::ones({2, 4})).mean());
               }),
               {"Fabric.backward: dp computes on replicas of the module, which only Fabric.step does"});
}

TEST(FabricErrors, NameTheCallThatIsMissing) {
  FabricNet net;
  Fabric fabric;
  expect_parts(error_of<Error>([&] { fabric.backward(net.loss(fixed_batch())); }),
               {"Fabric.backward: no module was set up", "setup(module, optimizer)"});
  FabricOptimizer none = fabric.setup(net);
  expect_parts(error_of<Error>([&] { none.step(); }), {"FabricOptimizer", "no optimizer with the module \"model\""});
  expect_parts(error_of<Error>([&] { (void)fabric.step(fixed_batch(), {}); }),
               {"Fabric.step: it steps one optimizer, and 0 optimizers were set up"});
  expect_parts(error_of<Error>([&] { fabric.launch(); }), {"Fabric.launch: the run has begun", "once, first"});
  fabric.finish();
  expect_parts(error_of<Error>([&] { (void)fabric.world_size(); }), {"Fabric.world_size: the run has ended"});
  expect_parts(error_of<Error>([&] { fabric.finish(); }), {"Fabric.finish: ", "ended already"});
}

TEST(FabricErrors, OfSetup) {
  FabricNet net, other;
  Fabric fabric;
  (void)fabric.setup(net, sgd(net));
  expect_parts(error_of<Error>([&] { (void)fabric.setup(net, {}, "again"); }),
               {"Fabric.setup: the module was set up before, as \"model\""});
  expect_parts(error_of<Error>([&] { (void)fabric.setup(other); }), {"Fabric.setup: a module named \"model\""});
  expect_parts(error_of<Error>([&] { (void)fabric.setup(other, {}, "a.b"); }), {"\"a.b\"", "without dots"});
  FabricNet stranger;
  expect_parts(error_of<ConfigError>([&] { (void)fabric.setup(other, sgd(stranger), "other"); }),
               {"Fabric.setup: SGD of \"other\"", "belongs to no module that was set up"});
  expect_parts(error_of<ConfigError>([&] {
                 (void)fabric.setup(other, {SGD(other.parameters(), {.lr = 0.1}), OneCycleLR({.max_lr = 0.5})}, "o");
               }),
               {"OneCycleLR.total_steps"});
  expect_parts(error_of<Error>([&] { (void)fabric.setup(std::shared_ptr<torch::nn::Module>(), {}, "null"); }),
               {"null pointer"});
  expect_parts(error_of<Error>([&] { (void)fabric.setup_dataloaders(Loaders()); }),
               {"Fabric.setup_dataloaders: got 0 loaders"});
  (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net.loss(batch); });
  expect_parts(error_of<Error>([&] { (void)fabric.setup(other, {}, "late"); }), {"Fabric.setup: training has begun"});
}

TEST(FabricErrors, OfUnfinishedSteps) {
  FabricNet net;
  Fabric fabric({.accumulate_grad_batches = 3});
  FabricOptimizer optimizer = fabric.setup(net, sgd(net));
  expect_parts(error_of<ConfigError>([&] { fabric.backward(net.loss(fixed_batch())); }),
               {"FabricOptions.accumulate_grad_batches: 3 applies to Fabric.step alone"});
  (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net.loss(batch); });
  const std::vector<std::string> parts{"the gradients of 1 batch of 3", "Call step until"};
  expect_parts(error_of<Error>([&] { optimizer.step(); }), parts);
  expect_parts(error_of<Error>([&] { optimizer.zero_grad(); }), parts);
  expect_parts(error_of<Error>([&] { fabric.clip_gradients(optimizer, {.max_norm = 1}); }), parts);
  expect_parts(error_of<Error>([&] { fabric.backward(net.loss(fixed_batch())); }), parts);
}

TEST(FabricErrors, OfALoopByHand) {
  FabricNet net;
  Fabric fabric;
  FabricOptimizer optimizer = fabric.setup(net, sgd(net));
  expect_parts(error_of<Error>([&] { fabric.backward({}); }), {"Fabric.backward: the loss is undefined"});
  expect_parts(error_of<Error>([&] { fabric.backward(torch::ones(2)); }), {"Fabric.backward: ", "got 2 elements"});
  expect_parts(error_of<ConfigError>([&] { fabric.clip_gradients(optimizer, {}); }),
               {"Fabric.clip_gradients: exactly one of clip_val and max_norm"});
  fabric.backward(net.loss(fixed_batch()));
  expect_parts(error_of<Error>([&] { (void)fabric.step(fixed_batch(), {}); }),
               {"Fabric.step: the gradients of backward() were not used yet"});
  optimizer.zero_grad();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_parts(error_of<NonFiniteLossError>([&] { fabric.backward(net.loss(fixed_batch()) * nan); }),
               {"Fabric.backward: the loss is nan", "FabricOptions.nonfinite_loss"});
}

TEST(FabricErrors, GradientsOfAPlainBackwardThatAreNotScaled) {
  const std::vector<std::string> parts{"gradients that fabric.backward has not computed", "scale the loss",
                                       "Call fabric.backward(loss)"};
  FabricNet net;
  Fabric fabric({.precision = MixedPrecision({.dtype = MixedDtype::float16})});
  FabricOptimizer optimizer = fabric.setup(net, sgd(net));
  net.loss(fixed_batch()).backward();
  expect_parts(error_of<Error>([&] { optimizer.step(); }), parts);
  expect_parts(error_of<Error>([&] { fabric.clip_gradients(optimizer, {.max_norm = 1}); }), parts);
  optimizer.zero_grad();
  fabric.backward(net.loss(fixed_batch()));
  optimizer.step();
  optimizer.zero_grad();
  net.loss(fixed_batch()).backward();
  expect_parts(error_of<Error>([&] { optimizer.step(); }), parts);  // also after a good step
}

TEST(FabricBackward, APlainBackwardWorksWhereNothingIsScaledOrReduced) {
  FabricNet net, other;
  Fabric fabric, plain;
  FabricOptimizer optimizer = fabric.setup(net, sgd(net)), plain_optimizer = plain.setup(other, sgd(other));
  fabric.backward(net.loss(fixed_batch()));
  optimizer.step();
  other.loss(fixed_batch()).backward();
  plain_optimizer.step();
  expect_equal_weights(net.parameters(), other.parameters());
}

TEST(FabricErrors, AnUpdateBeforeTheReduction) {
  const std::vector<std::string> parts{"not reduced over ranks", "no_backward_sync", "End the scope"};
  FabricNet net;
  Fabric fabric;
  FabricOptimizer optimizer = fabric.setup(net, sgd(net));
  {
    const auto unsynced = fabric.no_backward_sync();
    fabric.backward(net.loss(fixed_batch()));
  }
  expect_parts(error_of<Error>([&] { optimizer.step(); }), parts);
  expect_parts(error_of<Error>([&] { fabric.clip_gradients(optimizer, {.max_norm = 1}); }), parts);
  fabric.backward(net.loss(fixed_batch()));
  fabric.clip_gradients(optimizer, {.max_norm = 1});
  optimizer.step();
  EXPECT_EQ(fabric.global_step(), 1);
}

TEST(FabricBackward, ClipsTheGradientsOfAModule) {
  FabricNet net, other;
  Fabric fabric, by_handle;
  FabricOptimizer optimizer = fabric.setup(net, sgd(net)), handle = by_handle.setup(other, sgd(other));
  fabric.backward(net.loss(fixed_batch()));
  fabric.clip_gradients(net, {.max_norm = 0.01});
  optimizer.step();
  by_handle.backward(other.loss(fixed_batch()));
  by_handle.clip_gradients(handle, {.max_norm = 0.01});
  handle.step();
  expect_equal_weights(net.parameters(), other.parameters());
  expect_parts(error_of<Error>([&] { fabric.clip_gradients(other, {.max_norm = 1}); }),
               {"Fabric.clip_gradients: the module was not set up"});
  TwoNets nets;
  Fabric without;
  (void)without.setup(nets.critic);
  expect_parts(error_of<Error>([&] { without.clip_gradients(*nets.critic, {.max_norm = 1}); }),
               {"set up with 0 optimizers", "handle of an optimizer"});
}

TEST(FabricErrors, OptionsOfStepAreRefusedByHand) {
  const auto refused = [](FabricOptions options) {
    FabricNet net;
    Fabric fabric(std::move(options));
    (void)fabric.setup(net, sgd(net));
    return error_of<ConfigError>([&] { fabric.backward(net.loss(fixed_batch())); });
  };
  expect_parts(refused({.gradient_clip_val = 0.5}), {"FabricOptions.gradient_clip_val: 0.5", "clip_gradients"});
  expect_parts(refused({.nonfinite_loss = NonFiniteLoss::skip}), {"FabricOptions.nonfinite_loss: skip"});
  expect_parts(refused({.record_steps = true}), {"FabricOptions.record_steps: true"});
}

TEST(FabricErrors, OfAStep) {
  FabricNet net;
  Fabric fabric;
  (void)fabric.setup(net, sgd(net));
  expect_parts(error_of<Error>([&] { (void)fabric.step(fixed_batch(), [](const Batch&) { return torch::ones(2); }); }),
               {"Fabric.step: the loss must be one number, got 2 elements"});
  expect_parts(error_of<Error>([&] {
                 (void)fabric.step(fixed_batch(), [&](const Batch&) {
                   return net.loss(Batch({torch::ones({4, 3}), torch::ones({4, 1})}));
                 });
               }),
               {"Fabric.step: "});
  EXPECT_EQ(fabric.global_step(), 0);
  (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net.loss(batch); });  // it can continue
  EXPECT_EQ(fabric.global_step(), 1);
  FabricNet searched;
  Fabric closures({.accumulate_grad_batches = 2});
  (void)closures.setup(searched, LBFGS(searched.parameters()));
  expect_parts(error_of<ConfigError>([&] { (void)closures.step(fixed_batch(), {}); }),
               {"FabricOptions.accumulate_grad_batches: 2 is not possible with LBFGS"});
}

TEST(FabricErrors, CallsInsideTheClosureOfAStep) {
  const TemporaryFolder folder;
  FabricNet net;
  Fabric fabric;
  FabricOptimizer optimizer = fabric.setup(net, sgd(net));
  fabric.save(folder / "a.ckpt");
  const auto loss = [&](const Batch& batch) { return net.loss(batch); };
  const auto inside = [&](const std::function<void()>& call) {
    return error_of<Error>([&] {
      (void)fabric.step(fixed_batch(), [&](const Batch& batch) {
        call();
        return net.loss(batch);
      });
    });
  };
  const std::vector<std::pair<std::string, std::function<void()>>> calls = {
      {"Fabric.step", [&] { (void)fabric.step(fixed_batch(), loss); }},
      {"Fabric.end_epoch", [&] { fabric.end_epoch(); }},
      {"Fabric.save", [&] { fabric.save(folder / "b.ckpt"); }},
      {"Fabric.load", [&] { (void)fabric.load(folder / "a.ckpt"); }},
      {"Fabric.finish", [&] { fabric.finish(); }},
      {"FabricOptimizer.step", [&] { optimizer.step(); }},
      {"FabricOptimizer.zero_grad", [&] { optimizer.zero_grad(); }},
      {"FabricOptimizer.select_rows", [&] { optimizer.select_rows({net.parameters()[0]}, torch::arange(2), 2); }},
  };
  for (const auto& [name, call] : calls) {
    expect_parts(inside(call), {name + ": it was called inside the closure of Fabric.step", "Call it after step"});
  }
  EXPECT_EQ(fabric.global_step(), 0);
  (void)fabric.step(fixed_batch(), loss);
  EXPECT_EQ(fabric.global_step(), 1);
}

TEST(FabricErrors, RowsOfAParameterThatHasNone) {
  struct Scale : torch::nn::Module {
    at::Tensor scale = register_parameter("scale", torch::ones({}));
  } net;
  Fabric fabric;
  FabricOptimizer optimizer = fabric.setup(net, SGD(net.parameters(), {.lr = 0.1}));
  expect_parts(error_of<Error>([&] { optimizer.select_rows({net.scale}, torch::arange(1), 1); }),
               {"FabricOptimizer.select_rows: ", "tensor 0 has no rows: its shape is ()"});
}

TEST(FabricErrors, ALossThatIsNotFiniteIsSkipped) {
  FabricNet net, without;
  const CapturedConsole console;
  Fabric fabric({.nonfinite_loss = NonFiniteLoss::skip}), other;
  (void)fabric.setup(net, sgd(net));
  (void)other.setup(without, sgd(without));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net.loss(batch) * nan; });
  (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net.loss(batch); });
  (void)other.step(fixed_batch(), [&](const Batch& batch) { return without.loss(batch); });
  EXPECT_EQ(fabric.global_step(), 1);
  expect_equal_weights(net.parameters(), without.parameters());
}

}  // namespace
}  // namespace levin::fabric_run_test
