// How a process ends while Levin is in use. Each way ends with status 7, but the static ones with 0.
//   exit_program FOLDER WAY
#include <ATen/ops/ones.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <iostream>
#include <string>
#include <thread>

#include "embedding/small_training.h"
#include "levin/loggers/csv_logger.h"

namespace levin::test {
namespace {

std::atomic<int64_t> steps = 0;

[[noreturn]] void exit_after(int64_t count) {
  while (steps < count) std::this_thread::yield();
  std::exit(7);
}

// Until the process ends.
void train_by_steps() {
  SmallNet net;
  Fabric fabric({.accumulate_grad_batches = 2, .gradient_clip_val = 1.0});
  (void)fabric.setup(net, net.optimizers());
  const Batch batch = small_batch();
  for (;; ++steps) (void)fabric.step(batch, [&](const Batch& each) { return net.loss(each); });
}

void train_recorded() {
  SmallNet net;
  Fabric fabric({.record_steps = true});
  (void)fabric.setup(net, net.optimizers());
  const Batch batch = small_batch();
  for (;; ++steps) (void)fabric.step(batch, [&](const Batch& each) { return net.loss(each); });
}

void train_over_a_loader(const std::string& folder) {
  SmallNet net;
  Fabric fabric({.loggers = CSVLogger({.save_dir = folder, .name = "", .version = "run"})});
  (void)fabric.setup(net, net.optimizers());
  FabricLoader loader = fabric.setup_dataloaders(small_loader());
  for (int64_t epoch = 0;; ++epoch) {
    for (const Batch& batch : loader.epoch(epoch)) {
      fabric.log("loss", fabric.step(batch, [&](const Batch& each) { return net.loss(each); }));
      ++steps;
    }
  }
}

// exit() is called by the loss of a step.
void exit_inside() {
  SmallNet net;
  Fabric fabric;
  (void)fabric.setup(net, net.optimizers());
  (void)fabric.step(small_batch(), [](const Batch&) -> at::Tensor { std::exit(7); });
}

// A step that never ends.
void train_stuck() {
  SmallNet net;
  Fabric fabric;
  (void)fabric.setup(net, net.optimizers());
  std::promise<void> never;
  (void)fabric.step(small_batch(), [&](const Batch& batch) {
    ++steps;
    never.get_future().wait();
    return net.loss(batch);
  });
}

void train_with(Fabric& fabric) {
  const auto net = std::make_shared<SmallNet>();
  (void)fabric.setup(net, net->optimizers());
  for (int k = 0; k < 4; ++k) {
    fabric.log("loss", fabric.step(small_batch(), [&](const Batch& each) { return net->loss(each); }));
  }
}

FabricOptions logged(const std::string& folder) {
  return {.loggers = CSVLogger({.save_dir = folder, .name = "", .version = "run"})};
}

int run(const std::string& folder, const std::string& way) {
  if (way == "static-first") {
    static Fabric fabric(logged(folder));  // what LibTorch makes at its first use is destroyed before
    train_with(fabric);
    return 0;
  }
  if (way == "static-last") {
    SmallNet net;
    net.loss(small_batch()).backward();
    static Fabric fabric(logged(folder));
    train_with(fabric);
    return 0;
  }
  if (way == "inside") exit_inside();
  std::thread([&] {
    if (way == "step") train_by_steps();
    if (way == "recorded") train_recorded();
    if (way == "loader") train_over_a_loader(folder);
    if (way == "stuck") train_stuck();
  }).detach();
  exit_after(way == "stuck" ? 1 : 50);
}

}  // namespace
}  // namespace levin::test

int main(int, char** argv) {
  return levin::test::run(argv[1], argv[2]);
}
