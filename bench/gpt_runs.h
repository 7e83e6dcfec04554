// Training a small GPT (examples/models/gpt.h) on the bytes of the King James Bible: 4 layers, 128 wide. All return
// tokens per second of one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "levin/trainer/trainer_options.h"
#include "models/gpt.h"

namespace bench::gpt {

/// A model, a batch and its device.
struct Work {
  int64_t batch = 12;
  int64_t block = 64;  // bytes of a sample
  bool gpu = false;    // in bf16-mixed
  bool record_steps = false;
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;
  int64_t vocab = 256;  // rows of the embedding; the text has bytes only

  [[nodiscard]] int64_t tokens() const { return batch * block; }
};

[[nodiscard]] GPTOptions model_options(const Work& work = {});

/// The number of trainable parameters.
[[nodiscard]] int64_t count_parameters(const Work& work = {});

/// (bytes) uint8
[[nodiscard]] at::Tensor load_bytes();

/// The loss at random positions of the text, drawn as BibleText does.
[[nodiscard]] torch::Tensor random_loss(GPT& model, const at::Tensor& bytes, const Work& work = {});

/// Stock torch::optim::AdamW. On a GPU the first kSkippedSteps steps are not measured.
[[nodiscard]] double hand_written_loop(const Work& work, const at::Tensor& bytes, int64_t steps);

/// The Trainer with its defaults and `options` on the data module BibleText. For several devices, see trained_by_levin
/// in overhead_runs.h. On a GPU, SteadyStopwatch measures the time.
[[nodiscard]] double trained_by_levin(const Work& work, int64_t steps, levin::TrainerOptions options = {});

}  // namespace bench::gpt
