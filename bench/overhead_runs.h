// The runs that bench_overhead compares: a step of MLP 784-64-10, batch 64, on Fashion-MNIST in memory, and a step
// with a tiny model, in hand-written loops and by the Trainer. All functions return microseconds per step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace bench {

enum class Kind { sgd, adamw };

struct Data {
  at::Tensor x;  // (60000, 784) float32
  at::Tensor y;  // (60000) int64
};

[[nodiscard]] Data load_fashion_mnist();

/// The length of a run: the number of epochs, and the maximum number of batches per epoch.
struct Length {
  int64_t epochs = 1;
  int64_t batches = 938;
};

/// index_select, zero_grad, forward, backward, step, with LibTorch's own optimizer.
[[nodiscard]] double hand_written_loop(const Data& data, Kind kind, Length length);

/// The Trainer with its defaults, `logs` logged values per step, a batch on each of `ranks`. More than one: starts
/// them, returns in the ranks only, and leaves the folder levin_bench_overhead in the one for temporary files.
[[nodiscard]] double trained_by_levin(const Data& data, Kind kind, int logs, Length length, bool barebones = false,
                                      int64_t ranks = 1, bool record = false);

/// A loop over Fabric::step, without loggers.
[[nodiscard]] double fabric_loop(const Data& data, Kind kind, Length length);

/// The time of one log call, measured where it happens: in the training_step of a real fit.
[[nodiscard]] double log_call(const Data& data, int64_t batches);

/// A hand-written loop over a model of one weight and a batch of 64 numbers, with Levin's SGD: the rest is LibTorch's
/// time.
[[nodiscard]] double tiny_loop(int64_t steps);

/// The same model trained by the Trainer, with default progress and logger but without the checkpoint, which is saved
/// once per epoch: the difference to tiny_loop is the Trainer's overhead.
[[nodiscard]] double tiny_trainer(int64_t steps, int logs);

/// Like tiny_trainer, with values written in every step to the named loggers (none: logger = false), without progress
/// bar.
[[nodiscard]] double tiny_logging(int64_t steps, int logs, const std::vector<std::string>& loggers);

}  // namespace bench
