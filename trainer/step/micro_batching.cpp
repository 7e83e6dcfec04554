#include "levin/trainer/step/micro_batching.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/trainer/step/out_of_memory.h"
#include "levin/trainer/step/pass.h"
#include "levin/trainer/step/undo_scope.h"
#include "levin/trainer/step/window_verdict.h"

namespace levin {

namespace {

constexpr int64_t kFits = int64_t{1} << 52;  // exact as float64, and larger than any batch
constexpr int64_t kNothingFits = 0;

[[noreturn]] void refuse_micro_batches(const std::string& why) {
  throw ConfigError("TrainerOptions.micro_batch_size: " + why);
}

// Parts of `size` samples, the last with the rest; 0: one part.
std::vector<int64_t> part_sizes(int64_t samples, int64_t size) {
  if (size == 0 || samples <= size) return {samples};
  std::vector<int64_t> sizes(static_cast<size_t>(samples / size), size);
  if (samples % size > 0) sizes.push_back(samples % size);
  return sizes;
}

std::string samples_text(int64_t samples) {
  return count_of(samples, "sample");
}

}  // namespace

MicroBatching::MicroBatching(StepCore& core)
    : core_(core),
      automatic_(core.settings.micro_batch_size == kAutoMicroBatch),
      size_(automatic_ ? 0 : core.settings.micro_batch_size) {
  if (core.strategy.gradients().micro_batches() > 1) {
    refuse_micro_batches(core.strategy.name() + " cuts batches into micro-batches itself. Drop one of the two.");
  }
  if (core.settings.record_steps == RecordSteps::yes) {
    refuse_micro_batches("recorded steps take full batches. Turn TrainerOptions.record_steps off.");
  }
  if (!core.optimizers.empty() && core.optimizers[0].optimizer().needs_closure()) {
    refuse_micro_batches(core.optimizers[0].optimizer().name() +
                         " evaluates its batch several times in one step. Use another optimizer.");
  }
  if (!automatic_ || !core.has_peers()) return;
  const std::string ask = " Give a number, e.g. what a run of one rank finds.";
  if (core.strategy.sharding().is_sharded()) {
    refuse_micro_batches(
        "auto is not possible with " + core.strategy.name() +
        ", whose ranks wait for each other inside their passes, and a rank that is out of memory leaves its pass." +
        ask);
  }
  if (core.settings.sync_batchnorm) {
    refuse_micro_batches(
        "auto is not possible with sync_batchnorm, whose ranks wait for each other inside their passes." + ask);
  }
}

void MicroBatching::continue_with(int64_t size) {
  if (automatic_) size_ = size;
}

at::Tensor MicroBatching::step(const Batch& batch, int64_t batch_idx, const WindowPart& window, bool skipped) {
  if (window.first) zero_gradients(core_);
  const at::Tensor loss =
      automatic_ ? step_that_fits(batch, batch_idx, window, skipped) : step_of_size(batch, batch_idx, window, skipped);
  core_.time_split.enter(StepPart::callbacks);
  core_.hooks.on_after_backward();
  return loss;
}

BatchParts MicroBatching::cut(const Batch& batch) const {
  const DeviceSlot home{0, core_.strategy.placement().device()};
  const auto sizes = part_sizes(batch.size(), size_);
  if (sizes.size() == 1) return {batch, home};
  return {batch, sizes, std::vector<DeviceSlot>(sizes.size(), home)};
}

at::Tensor MicroBatching::step_of_size(const Batch& batch, int64_t batch_idx, const WindowPart& window, bool skipped) {
  BatchParts parts = cut(batch);
  run_passes(parts, batch_idx, window.last, skipped);
  return finish_parts(core_, parts);
}

at::Tensor MicroBatching::step_that_fits(const Batch& batch, int64_t batch_idx, const WindowPart& window,
                                         bool skipped) {
  UndoScope undo(core_.module, {});
  const LossWeights weights = core_.loss_weights;
  const WindowWeights window_weights = core_.window.weights;
  std::optional<BatchParts> parts;
  while (true) {
    const int64_t tried = size_ == 0 ? batch.size() : std::min(size_, batch.size());
    parts.emplace(cut(batch));
    std::optional<std::string> failure;
    try {
      run_passes(*parts, batch_idx, /*sync=*/false, skipped);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      failure = error.what();
    }
    const int64_t fits = agreed_size(failure.has_value(), tried);
    if (fits == kFits) break;
    parts.reset();
    undo.restore();
    core_.loss_weights = weights;
    core_.window.weights = window_weights;
    free_cached_memory(core_.strategy.placement().device());
    const std::string place = "epoch " + std::to_string(core_.place.epoch) + ", batch " + std::to_string(batch_idx);
    if (fits == kNothingFits) {
      throw OutOfMemoryError("training_step, " + place + ": out of memory with micro-batches of 1 sample" +
                             (failure ? ". " + failure->substr(0, failure->find('\n')) : " on another rank.") +
                             " Use precision: bf16-mixed, recompute, or an optimizer with less state.");
    }
    size_ = fits;
    Console::instance().print("micro_batch_size: out of memory with " + samples_text(tried) + " in one pass (" + place +
                              "); from here on batches are computed in parts of " + samples_text(size_) + ".");
  }
  const at::Tensor mean = finish_parts(core_, *parts);
  if (!judge(*parts)) return mean;
  // Reduces the gradients accumulated by the passes, with a backward of zeros.
  if (core_.has_peers() && window.last) (void)run_pass(core_, {.batch_idx = batch_idx});
  return mean;
}

// Returns whether the batch's loss counts, if that is known yet (WindowVerdict::add).
bool MicroBatching::judge(const BatchParts& parts) {
  const at::Tensor mean = mean_loss(core_, parts);
  return !mean.defined() || core_.verdict->add(mean);
}

// kFits if the passes succeeded on all ranks; else the next size to try, the smallest that any rank proposes.
int64_t MicroBatching::agreed_size(bool failed, int64_t largest) {
  const int64_t own = !failed ? kFits : largest <= 1 ? kNothingFits : (largest + 1) / 2;
  if (!core_.has_peers()) return own;
  core_.time_split.enter(StepPart::communication);
  const at::Tensor number = at::scalar_tensor(static_cast<double>(own), at::kDouble);
  return static_cast<int64_t>(core_.strategy.ranks().reduce(number, ReduceOp::min).item().toDouble());
}

// A pass for each part; gradients of the last are reduced if `sync`. Without `auto`, the last pass has no backward
// where the batch's loss is not finite.
void MicroBatching::run_passes(BatchParts& parts, int64_t batch_idx, bool sync, bool skipped) {
  for (size_t k = 0; k < parts.count(); ++k) {
    const bool last = k + 1 == parts.count();
    Pass pass{.batch = skipped ? nullptr : &parts.batches[k],
              .batch_idx = batch_idx,
              .sync = sync && last,
              .has_hooks = false,
              .parts = static_cast<int64_t>(parts.count()),
              .share = parts.share_of(k),
              .part = &parts.shares[k]};
    pass.judge = [&](const at::Tensor& loss) {
      if (loss.defined()) parts.losses[k] = loss.detach();
      return automatic_ || !last || judge(parts);
    };
    (void)run_pass(core_, pass);
  }
}

}  // namespace levin
