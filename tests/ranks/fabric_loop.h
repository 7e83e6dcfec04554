// The same training by Fabric.step, by a loop with backward, and by the Trainer, for several ranks: fabric=steps, hand
// or trainer; fabric=mistakes: the errors of a loop; fabric=other_rows: selections of rows that differ; fabric=buffers:
// a module with buffers. With save=N the process ends after N batches, leaving fabric.ckpt in the folder `out`; with
// resume it continues from there. With rows=N the last layer has a third output after N batches.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "levin/levin.h"
#include "ranks/loaders.h"
#include "ranks/run_arguments.h"

namespace levin::test {

struct FabricLoopNet : torch::nn::Module {
  FabricLoopNet() {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) {
      parameter.copy_(torch::linspace(-0.3, 0.4, parameter.numel()).view_as(parameter));
    }
  }
  at::Tensor loss(const Batch& batch) { return layers->forward(batch[0]).square().mean(); }
  [[nodiscard]] OptimizerConfig optimizers() { return AdamW(parameters(), {.lr = 0.05}); }

  torch::nn::Sequential layers = register_module(
      "layers", torch::nn::Sequential(torch::nn::Linear(8, 6), torch::nn::Tanh(), torch::nn::Linear(6, 2)));
};

struct FabricLoopModule : LightningModule {
  at::Tensor training_step(const Batch& batch, int64_t) override { return net->loss(batch); }
  OptimizerConfig configure_optimizers() override { return net->optimizers(); }
  std::shared_ptr<FabricLoopNet> net = register_module("net", std::make_shared<FabricLoopNet>());
};

inline void write_fabric_report(const RunArguments& arguments, const FabricLoopNet& net, int64_t rank, int64_t ranks) {
  std::vector<double> weights;
  for (const auto& parameter : net.parameters()) {
    const auto flat = parameter.detach().to(torch::kCPU, torch::kDouble).flatten().contiguous();
    weights.insert(weights.end(), flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
  }
  std::ofstream(arguments.text("out", ".") + "/rank" + std::to_string(rank) + ".json")
      << nlohmann::json{{"weights", weights}, {"world_size", ranks}}.dump();
}

inline FabricOptions fabric_options(const RunArguments& arguments, const TrainerOptions& options) {
  FabricOptions own;
  own.accelerator = options.accelerator;
  own.strategy = options.strategy;
  own.devices = options.devices;
  own.num_threads = 1;
  own.oversubscribe = options.oversubscribe;
  if (arguments.text("fabric", "") == "steps") own.accumulate_grad_batches = arguments.number("accumulate", 1);
  return own;
}

// Trains on one batch with backward() and the optimizer's step. `k`: the index of the batch, from 0.
inline void train_by_hand(Fabric& fabric, FabricOptimizer& optimizer, FabricLoopNet& net, const Batch& batch, int64_t k,
                          int64_t accumulate) {
  const bool steps = (k + 1) % accumulate == 0;
  const auto unsynced = fabric.no_backward_sync(!steps);
  at::Tensor loss;
  {
    const auto autocast = fabric.autocast();
    loss = net.loss(batch);
  }
  if (k % accumulate == 0) optimizer.zero_grad();
  fabric.backward(accumulate == 1 ? loss : loss / accumulate);
  if (steps) optimizer.step();
}

inline void train_with_fabric(const RunArguments& arguments, const TrainerOptions& options, const Batch& data) {
  const std::string path = arguments.text("out", ".") + "/fabric.ckpt";
  FabricLoopNet net;
  Fabric fabric(fabric_options(arguments, options));
  fabric.launch();
  FabricOptimizer optimizer = fabric.setup(net, net.optimizers());
  FabricLoader loader = fabric.setup_dataloaders(make_loader(arguments, data));
  const bool continues = arguments.has("continue");
  if (arguments.has("resume") || (continues && std::filesystem::exists(path))) (void)fabric.load(path);
  int64_t k = 0;
  for (int64_t epoch = fabric.current_epoch(); epoch < 2; ++epoch) {
    for (const Batch& batch : loader.epoch(epoch)) {
      if (k == arguments.number("rows", -1)) {
        const std::vector<at::Tensor> all = net.parameters();
        optimizer.select_rows({all[2], all[3]}, torch::tensor({0, 1, 1}), 2);
      }
      if (arguments.text("fabric", "") == "steps") {
        (void)fabric.step(batch, [&](const Batch& each) { return net.loss(each); });
      } else {
        train_by_hand(fabric, optimizer, net, batch, k, arguments.number("accumulate", 1));
      }
      ++k;
      if (continues && k % 4 == 0) fabric.save(path);
      if (k != arguments.number("save", -1)) continue;
      fabric.save(path);
      return write_fabric_report(arguments, net, fabric.global_rank(), fabric.world_size());
    }
  }
  const int64_t rank = fabric.global_rank(), ranks = fabric.world_size();
  fabric.finish();  // gives the module its full weights
  write_fabric_report(arguments, net, rank, ranks);
}

inline std::string error_text(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// What loops of one's own get wrong with several ranks: each is an error. A good step follows.
inline void make_mistakes(const RunArguments& arguments, const TrainerOptions& options, const Batch& data) {
  FabricLoopNet net;
  Fabric fabric(fabric_options(arguments, options));
  fabric.launch();
  FabricOptimizer optimizer = fabric.setup(net, net.optimizers());
  const auto forward = [&] {
    const auto autocast = fabric.autocast();
    return net.loss(data);
  };
  nlohmann::json errors;
  net.loss(data).backward();
  errors["plain"] = error_text([&] { optimizer.step(); });
  optimizer.zero_grad();
  {
    const at::Tensor loss = forward();
    const auto unsynced = fabric.no_backward_sync();
    errors["outside"] = error_text([&] { fabric.backward(loss); });
  }
  {
    auto unsynced = fabric.no_backward_sync();
    const at::Tensor loss = forward();
    unsynced.reset();
    errors["inside"] = error_text([&] { fabric.backward(loss); });
  }
  {
    const auto unsynced = fabric.no_backward_sync();
    fabric.backward(forward());
  }
  errors["unreduced"] = error_text([&] { optimizer.step(); });
  optimizer.zero_grad();
  fabric.backward(forward());
  optimizer.step();
  const std::string path = arguments.text("out", ".") + "/rank" + std::to_string(fabric.global_rank()) + ".json";
  std::ofstream(path) << nlohmann::json{
      {"errors", errors},
      {"steps", fabric.global_step()},
      {"world_size",
       fabric.world_size()}}.dump();
}

/// Selections of rows that not all ranks can do, or that differ, between two steps. With `clean`: the steps alone.
inline void select_other_rows(const RunArguments& arguments, const TrainerOptions& options, const Batch& data) {
  FabricLoopNet net;
  Fabric fabric(fabric_options(arguments, options));
  fabric.launch();
  FabricOptimizer optimizer = fabric.setup(net, net.optimizers());
  const int64_t rank = fabric.global_rank();
  const auto step = [&] { (void)fabric.step(data, [&](const Batch& each) { return net.loss(each) * (1 + rank); }); };
  const std::vector<at::Tensor> last = {net.parameters()[2], net.parameters()[3]};
  const auto error_of = [&](const std::vector<at::Tensor>& params, const at::Tensor& rows, int64_t kept) {
    return error_text([&] { optimizer.select_rows(params, rows, kept); });
  };
  step();
  nlohmann::json errors;
  if (!arguments.has("clean")) {
    errors["values"] = error_of(last, torch::arange(2) * rank, 2);
    errors["count"] = error_of(last, torch::zeros({2 + rank}, torch::kLong), 2);
    errors["kept"] = error_of(last, torch::zeros({2}, torch::kLong), rank);
    errors["tensors"] = error_of({last[rank]}, torch::zeros({2}, torch::kLong), 2);
    errors["one_rank"] = error_of(last, torch::full({1}, 9 * rank, torch::kLong), 1);
  }
  step();
  optimizer.select_rows(last, torch::tensor({0, 1, 1}), 2);
  step();
  std::vector<double> weights;
  for (const auto& parameter : net.parameters()) {
    const auto flat = parameter.detach().to(torch::kDouble).flatten();
    weights.insert(weights.end(), flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
  }
  std::ofstream(arguments.text("out", ".") + "/rank" + std::to_string(rank) + ".json")
      << nlohmann::json{{"errors", errors}, {"weights", weights}, {"world_size", fabric.world_size()}}.dump();
}

struct FabricBuffersModule : LightningModule {
  explicit FabricBuffersModule(int64_t outputs) : last(register_module("last", torch::nn::Linear(8, outputs))) {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.fill_(0.1);
  }
  at::Tensor forward(const at::Tensor& x) override { return last->forward(norm->forward(x)); }
  at::Tensor training_step(const Batch& batch, int64_t) override { return forward(batch[0]).square().mean(); }
  at::Tensor predict_step(const Batch& batch, int64_t) override { return forward(batch[0]); }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.1}); }

  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(8));
  torch::nn::Linear last;
};

/// Trains a module with buffers, which are different on each rank; with `misfit` loads its checkpoint into another
/// module instead.
inline void train_buffers(const RunArguments& arguments, const TrainerOptions& options, const Batch& data) {
  const std::string path = arguments.text("out", ".") + "/buffers.ckpt";
  FabricBuffersModule module(arguments.has("misfit") ? 2 : 1);
  FabricOptions own = fabric_options(arguments, options);
  own.nonfinite_loss = NonFiniteLoss::rollback;
  Fabric fabric(own);
  fabric.launch();
  (void)fabric.setup(module, module.configure_optimizers());
  const int64_t rank = fabric.global_rank();
  const auto part = [&](int64_t k) { return Batch({data[0].slice(0, 4 * k, 4 * k + 4) * (1 + rank)}); };
  const auto numbers = [](const at::Tensor& tensor) {
    const at::Tensor flat = tensor.detach().to(torch::kCPU, torch::kDouble).flatten().contiguous();
    return std::vector<double>(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
  };
  nlohmann::json report{{"world_size", fabric.world_size()}};
  if (arguments.has("misfit")) {
    try {
      (void)fabric.load(path);
    } catch (const CheckpointError& error) {
      report["error"] = error.what();
    }
  } else {
    (void)fabric.step(part(0));
    report["own"] = numbers(module.norm->running_mean);
    report["predicted"] = numbers(fabric.predict(Batch({data[0].slice(0, 0, 4)})));
    report["after_predict"] = numbers(module.norm->running_mean);
    fabric.save(path);
    (void)fabric.step(part(1));
    (void)fabric.load(path);
    report["loaded"] = numbers(module.norm->running_mean);
    (void)fabric.step(Batch({part(2)[0] * NAN}));
    report["rolled_back"] = numbers(module.norm->running_mean);
  }
  std::ofstream(arguments.text("out", ".") + "/rank" + std::to_string(rank) + ".json") << report.dump();
}

inline void train_as_fabric(const RunArguments& arguments, TrainerOptions options) {
  const Batch data = make_data(arguments);
  if (arguments.text("fabric", "") == "mistakes") return make_mistakes(arguments, options, data);
  if (arguments.text("fabric", "") == "other_rows") return select_other_rows(arguments, options, data);
  if (arguments.text("fabric", "") == "buffers") return train_buffers(arguments, options, data);
  if (arguments.text("fabric", "") != "trainer") return train_with_fabric(arguments, options, data);
  options.max_epochs = 2;
  options.num_threads = 1;
  options.accumulate_grad_batches = arguments.number("accumulate", 1);
  FabricLoopModule module;
  Trainer trainer(options);
  trainer.fit(module, make_loader(arguments, data));
  write_fabric_report(arguments, *module.net, trainer.global_rank(), trainer.world_size());
}

}  // namespace levin::test
