// Data that arrives while a run trains: queues and replay buffers in the Trainer and in Fabric.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

#include "callbacks/quiet_trainer.h"
#include "levin/data/loading/queue_loader.h"
#include "levin/data/loading/replay_loader.h"
#include "levin/optim/adam.h"
#include "levin/trainer/fabric.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"
#include "trainer/fabric_net.h"

namespace levin::online_data_test {
namespace {

using namespace test;

std::vector<at::Tensor> weights_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : module.parameters()) all.push_back(parameter.detach().clone());
  return all;
}

// The samples of tiny_loader(count), one by one.
std::vector<Batch> tiny_samples(int64_t count) {
  const auto loader = tiny_loader(count, 1);
  std::vector<Batch> samples;
  loader->start(0, 0);
  for (Batch batch; loader->next(batch);) samples.push_back({batch[0].squeeze(0), batch[1].squeeze(0)});
  return samples;
}

// ---- a queue -------------------------------------------------------------------------------------------------------

TEST(OnlineData, FitFromAQueueEndsWithTheWeightsOfFitFromTheSameBatches) {
  TinyModule from_data;
  Trainer(quiet(1, {})).fit(from_data, tiny_loader(22));
  TinyModule from_queue;
  std::jthread simulation;
  QueueLoader queue({.capacity = 2, .batch_size = 4});
  simulation = std::jthread([producer = queue.producer()] {
    for (const Batch& sample : tiny_samples(22)) EXPECT_TRUE(producer.push(sample));
    producer.close();
  });
  Trainer(quiet(1, {})).fit(from_queue, queue);
  expect_equal_weights(weights_of(from_queue), weights_of(from_data));
  EXPECT_EQ(queue.counts().delivered, 22);
}

TEST(OnlineData, FitThrowsTheErrorOfAProducer) {
  TinyModule module;
  QueueLoader queue({.batch_size = 4});
  const QueueProducer producer = queue.producer();
  for (const Batch& sample : tiny_samples(4)) EXPECT_TRUE(producer.push(sample));
  producer.close(std::make_exception_ptr(std::runtime_error("the simulation diverged")));
  EXPECT_TRUE(has(error_of([&] { Trainer(quiet(1, {})).fit(module, queue); }), "the simulation diverged"));
}

TEST(OnlineData, AProducerIsReleasedWhenFitFails) {
  std::jthread simulation;
  const auto fails = [&] {
    QueueLoader queue({.capacity = 1, .batch_size = 4});
    simulation = std::jthread([producer = queue.producer()] {
      const std::vector<Batch> samples = tiny_samples(4);
      for (size_t k = 0; producer.push(samples[k % 4]); ++k) {
      }
      EXPECT_TRUE(producer.is_closed());
    });
    TinyModule module;
    module.on_training_step = [](int64_t batch_idx) {
      if (batch_idx == 3) throw std::runtime_error("the step failed");
    };
    Trainer(quiet(1, {})).fit(module, queue);
  };
  EXPECT_TRUE(has(error_of(fails), "the step failed"));
}

// A loader that reads ahead would wait for the second batch before the first is trained.
TEST(OnlineData, ALoopOverAQueueMakesEachBatchFromTheWeightsOfTheStepBefore) {
  FabricNet net;
  QueueLoader queue;
  Fabric fabric;
  (void)fabric.setup(net, SGD(net.parameters(), {.lr = 0.1}));
  const QueueProducer producer = queue.producer();
  FabricLoader loader = fabric.setup_dataloaders(queue);
  const auto push_batch = [&] {
    const torch::NoGradGuard no_grad;
    const at::Tensor x = fixed_batch()[0];
    EXPECT_TRUE(producer.push_batch({x, net.layers->forward(x) + 1}));
  };
  push_batch();
  int64_t batches = 0;
  for (const Batch& batch : loader.epoch(0)) {
    EXPECT_NEAR(net.loss(batch).item<double>(), 1, 1e-6);  // every target is the present prediction plus one
    (void)fabric.step(batch, [&](const Batch& each) { return net.loss(each); });
    if (++batches < 5) push_batch();
    if (batches == 5) producer.close();
  }
  EXPECT_EQ(batches, 5);
  EXPECT_EQ(fabric.global_step(), 5);
}

// ---- a replay buffer -----------------------------------------------------------------------------------------------

constexpr int64_t kEpochs = 3;
constexpr int64_t kBatches = 7;

// Row k of a task: x (4) and y (1).
Batch row_of(int64_t k) {
  const at::Tensor x = (torch::arange(4) + 4 * k).to(at::kFloat).sin();
  return {x, x.sum(0, /*keepdim=*/true)};
}

std::shared_ptr<ReplayLoader> replay_loader(const ReplayBufferOptions& options, int64_t rows) {
  auto buffer = std::make_shared<ReplayBuffer>(options);
  for (int64_t k = 0; k < rows; ++k) buffer->add(row_of(k));
  return std::make_shared<ReplayLoader>(buffer, ReplayLoaderOptions{.batch_size = 4, .batches_per_epoch = kBatches});
}

at::Tensor errors_of(FabricNet& net, const Batch& batch) {
  return (net.layers->forward(batch[0]) - batch[1]).squeeze(1);
}

at::Tensor replay_loss(FabricNet& net, const Batch& batch) {
  const at::Tensor squares = errors_of(net, batch).square();
  return batch.has("weights") ? (squares * batch["weights"]).mean() : squares.mean();
}

// What an agent does between two steps.
void change_buffer(ReplayBuffer& buffer, FabricNet& net, const Batch& batch) {
  const torch::NoGradGuard no_grad;
  if (buffer.options().prioritized) buffer.update_priorities(batch["ids"], errors_of(net, batch));
  buffer.add(row_of(buffer.added()));
}

// A loop that learns from a buffer to which it adds.
struct ReplayLoop {
  ReplayBufferOptions options = {};
  bool by_steps = true;
  std::string load_from = "";                          // "": from the start
  std::string save_to = "";                            // with `killed_after`
  std::optional<int64_t> killed_after = std::nullopt;  // batches of this process

  std::vector<at::Tensor> run() const;

 private:
  void train(Fabric& fabric, FabricOptimizer& optimizer, FabricNet& net, const Batch& batch) const;
};

void ReplayLoop::train(Fabric& fabric, FabricOptimizer& optimizer, FabricNet& net, const Batch& batch) const {
  if (by_steps) {
    (void)fabric.step(batch, [&](const Batch& each) { return replay_loss(net, each); });
    return;
  }
  optimizer.zero_grad();
  at::Tensor loss;
  {
    const auto autocast = fabric.autocast();
    loss = replay_loss(net, batch);
  }
  fabric.backward(loss);
  optimizer.step();
}

std::vector<at::Tensor> ReplayLoop::run() const {
  FabricNet net;
  Fabric fabric({.num_threads = 1});
  FabricOptimizer optimizer = fabric.setup(net, AdamW(net.parameters(), {.lr = 0.05}));
  const auto replay = replay_loader(options, load_from.empty() ? 6 : 1);
  FabricLoader loader = fabric.setup_dataloaders(replay);
  if (!load_from.empty()) (void)fabric.load(load_from);
  int64_t here = 0;
  for (int64_t epoch = fabric.current_epoch(); epoch < kEpochs; ++epoch) {
    for (const Batch& batch : loader.epoch(epoch)) {
      train(fabric, optimizer, net, batch);
      change_buffer(*replay->buffer(), net, batch);
      if (killed_after != ++here) continue;
      fabric.save(save_to);
      return {};
    }
  }
  return weights_of(net);
}

TEST(OnlineData, AKilledReplayLoopContinuesBitwise) {
  const TemporaryFolder folder;
  const std::string path = folder / "killed.ckpt";
  for (const bool prioritized : {false, true}) {
    const ReplayBufferOptions options{.capacity = 12, .prioritized = prioritized, .seed = 5};
    for (const bool by_steps : {true, false}) {
      const std::vector<at::Tensor> whole = ReplayLoop{.options = options, .by_steps = by_steps}.run();
      for (const int64_t batches : {3, 7, 10}) {
        (void)ReplayLoop{.options = options, .by_steps = by_steps, .save_to = path, .killed_after = batches}.run();
        expect_equal_weights(ReplayLoop{.options = options, .by_steps = by_steps, .load_from = path}.run(), whole);
      }
    }
  }
}

// The same loop in a module.
class Agent : public LightningModule {
 public:
  explicit Agent(std::shared_ptr<ReplayBuffer> buffer) : buffer_(std::move(buffer)) {}
  at::Tensor training_step(const Batch& batch, int64_t) override { return replay_loss(*net, batch); }
  void on_train_batch_end(const at::Tensor&, const Batch& batch, int64_t) override {
    change_buffer(*buffer_, *net, batch);
    if (after_batch) after_batch();
  }
  OptimizerConfig configure_optimizers() override { return AdamW(parameters(), {.lr = 0.05}); }

  std::shared_ptr<FabricNet> net = register_module("net", std::make_shared<FabricNet>());
  std::function<void()> after_batch;

 private:
  std::shared_ptr<ReplayBuffer> buffer_;
};

TEST(OnlineData, AFitWithAReplayBufferResumesBitwise) {
  const TemporaryFolder folder;
  const std::string path = folder / "saved.ckpt";
  const ReplayBufferOptions options{.capacity = 12, .prioritized = true, .seed = 5};
  const auto replay = replay_loader(options, 6);
  Agent whole(replay->buffer());
  Trainer trainer(quiet(kEpochs, {}));
  whole.after_batch = [&] {
    if (trainer.global_step() == 10) trainer.save_checkpoint(path);
  };
  trainer.fit(whole, replay);
  EXPECT_EQ(trainer.global_step(), kEpochs * kBatches);

  const auto empty = replay_loader(options, 0);
  Agent resumed(empty->buffer());
  Trainer(quiet(kEpochs, {})).fit(resumed, empty, path);
  expect_equal_weights(weights_of(resumed), weights_of(whole));
  EXPECT_EQ(empty->buffer()->added(), replay->buffer()->added());
}

TEST(OnlineData, ACheckpointOfADifferentBufferIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "saved.ckpt";
  (void)ReplayLoop{.options = {.capacity = 12, .seed = 5}, .save_to = path, .killed_after = 3}.run();
  expect_parts(error_of<CheckpointError>(
                   [&] { (void)ReplayLoop{.options = {.capacity = 20, .seed = 5}, .load_from = path}.run(); }),
               {"ReplayBuffer: ", "capacity of 12", "capacity of 20"});
}

}  // namespace
}  // namespace levin::online_data_test
