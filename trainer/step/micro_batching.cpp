#include "levin/trainer/step/micro_batching.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "levin/core/console.h"
#include "levin/precision/grad_scaler.h"
#include "levin/strategies/device/scatter_gather.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/memory_report.h"
#include "levin/trainer/run/out_of_memory.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/step/backward.h"
#include "levin/trainer/step/log_value.h"
#include "levin/trainer/step/loss_weights.h"
#include "levin/trainer/step/nonfinite_loss.h"
#include "levin/trainer/step/step_state.h"

namespace levin {

namespace {

constexpr int64_t kFits = int64_t{1} << 52;  // exact as a float64, and more than any batch has
constexpr int64_t kNothingFits = 0;

[[noreturn]] void refuse_micro_batches(const std::string& why) {
  throw ConfigError("TrainerOptions.micro_batch_size: " + why);
}

// Of `size` samples each, the last with what is left; 0: one part.
std::vector<int64_t> part_sizes(int64_t samples, int64_t size) {
  if (size == 0 || samples <= size) return {samples};
  std::vector<int64_t> sizes(static_cast<size_t>(samples / size), size);
  if (samples % size > 0) sizes.push_back(samples % size);
  return sizes;
}

std::vector<Batch> cut(const Batch& batch, const std::vector<int64_t>& sizes, const DeviceSlot& home) {
  if (sizes.size() == 1) return {batch};
  const std::vector<DeviceSlot> slots(sizes.size(), home);
  std::vector<Batch> parts(sizes.size());
  for (const at::Tensor& tensor : batch.tensors) {
    const auto shares = scatter(tensor, sizes, slots);
    for (size_t k = 0; k < sizes.size(); ++k) parts[k].tensors.push_back(shares[k]);
  }
  return parts;
}

std::string samples_text(int64_t samples) {
  return std::to_string(samples) + (samples == 1 ? " sample" : " samples");
}

}  // namespace

MicroBatching::MicroBatching(Run& run)
    : run_(run),
      automatic_(run.plan.micro_batch_size == kAutoMicroBatch),
      size_(automatic_ ? 0 : run.plan.micro_batch_size) {
  if (run.strategy->micro_batches() > 1) {
    refuse_micro_batches(run.strategy->name() + " cuts batches into micro-batches itself. Drop one of the two.");
  }
  if (run.plan.cuda_graph)
    refuse_micro_batches("recorded steps take whole batches. Turn TrainerOptions.cuda_graph off.");
  if (!run.optimizers.empty() && run.optimizers[0].optimizer().needs_closure()) {
    refuse_micro_batches(run.optimizers[0].optimizer().name() +
                         " evaluates its batch several times in one step. Use another optimizer.");
  }
  if (!automatic_ || !run.has_peers()) return;
  const std::string ask = " Give a number, e.g. what a run of one rank finds.";
  if (run.strategy->is_sharded()) {
    refuse_micro_batches(
        "auto is not possible with " + run.strategy->name() +
        ", whose ranks wait for each other inside their passes, and a rank that is out of memory leaves its pass." +
        ask);
  }
  if (run.options.sync_batchnorm) {
    refuse_micro_batches(
        "auto is not possible with sync_batchnorm, whose ranks wait for each other inside their passes." + ask);
  }
}

void MicroBatching::continue_with(int64_t size) {
  if (automatic_) size_ = size;
}

at::Tensor MicroBatching::step(const Batch& batch, int64_t batch_idx, const Window& window, bool skipped) {
  if (window.first) zero_gradients(run_);
  const at::Tensor loss =
      automatic_ ? step_that_fits(batch, batch_idx, window, skipped) : step_of_size(batch, batch_idx, window, skipped);
  run_.time_split.enter(StepPart::callbacks);
  call_plain(run_, Hook::on_after_backward, &Callback::on_after_backward, &LightningModule::on_after_backward);
  return loss;
}

at::Tensor MicroBatching::step_of_size(const Batch& batch, int64_t batch_idx, const Window& window, bool skipped) {
  Passes passes;
  const bool judged = run_passes(batch, batch_idx, window.last, skipped, passes);
  log_parts(passes);
  return judged ? finish(passes) : at::Tensor();
}

at::Tensor MicroBatching::step_that_fits(const Batch& batch, int64_t batch_idx, const Window& window, bool skipped) {
  StepState before(run_);
  std::optional<Passes> passes;
  while (true) {
    const int64_t tried = size_ == 0 ? batch.size() : std::min(size_, batch.size());
    passes.emplace();
    std::optional<std::string> failure;
    try {
      (void)run_passes(batch, batch_idx, /*sync=*/false, skipped, *passes);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      failure = error.what();
    }
    const int64_t fits = agreed_size(failure.has_value(), tried);
    if (fits == kFits) break;
    passes.reset();
    before.restore();
    free_cached_memory(run_.strategy->device());
    const std::string place = "epoch " + std::to_string(run_.progress.epoch) + ", batch " + std::to_string(batch_idx);
    if (fits == kNothingFits) {
      throw OutOfMemoryError("training_step, " + place + ": out of memory with micro-batches of 1 sample" +
                             (failure ? ". " + failure->substr(0, failure->find('\n')) : " on another rank.") +
                             " Use precision: bf16-mixed, recompute, or an optimizer with less state.");
    }
    size_ = fits;
    Console::instance().print("micro_batch_size: out of memory with " + samples_text(tried) + " in one pass (" + place +
                              "); from here on batches are computed in parts of " + samples_text(size_) + ".");
  }
  log_parts(*passes);
  const at::Tensor mean = mean_of_shares(run_, passes->losses, passes->shares, /*note=*/false);
  if (mean.defined() && !keep_or_note(run_, mean)) return {};
  reduce(window);
  return finish(*passes);
}

// kFits if the passes of all ranks went well; else what to try next, the smallest that any rank proposes.
int64_t MicroBatching::agreed_size(bool failed, int64_t largest) {
  const int64_t own = !failed ? kFits : largest <= 1 ? kNothingFits : (largest + 1) / 2;
  if (!run_.has_peers()) return own;
  run_.time_split.enter(StepPart::communication);
  const at::Tensor number = at::scalar_tensor(static_cast<double>(own), at::kDouble);
  return static_cast<int64_t>(run_.strategy->reduce(number, ReduceOp::min).item().toDouble());
}

// A backward of zeros, which adds up what the ranks' passes have left.
void MicroBatching::reduce(const Window& window) {
  if (!run_.has_peers() || !window.last) return;
  agree_on_weights(run_, true);
  run_.time_split.enter(StepPart::backward);
  run_.strategy->before_forward(true);
  send_notes(run_);
  run_.strategy->backward_without_loss();
  hear_notes(run_);
}

// Forward and backward of each part; gradients of the last are reduced if `sync`. False: the batch's loss is not finite
// and its last gradients are not needed (see keep_or_note).
bool MicroBatching::run_passes(const Batch& batch, int64_t batch_idx, bool sync, bool skipped, Passes& passes) {
  const DeviceSlot home{0, run_.strategy->device()};
  const auto sizes = part_sizes(batch.size(), size_);
  const auto parts = cut(batch, sizes, home);
  const size_t count = parts.size();
  passes.shares.resize(count);
  passes.losses.resize(count);
  for (size_t k = 0; k < count; ++k) {
    const bool reduces = sync && k + 1 == count;
    StepShare& share = passes.shares[k];
    share.slot = home;
    share.samples = sizes[k];
    if (run_.has_peers()) run_.strategy->before_forward(reduces);
    at::Tensor loss;
    if (!skipped) {
      const ShareScope scope(share);
      loss = run_training_step(run_, parts[k], batch_idx);
    }
    check_loss(loss);
    loss = weigh(run_, loss, share.loss_weight, static_cast<int64_t>(count));
    agree_on_weights(run_, reduces);
    if (loss.defined()) passes.losses[k] = loss.detach();
    if (!automatic_ && k + 1 == count) {
      const at::Tensor mean = mean_of_shares(run_, passes.losses, passes.shares, /*note=*/false);
      if (mean.defined() && !keep_or_note(run_, mean)) return false;
    }
    if (loss.defined()) {
      const auto samples = static_cast<double>(std::max<int64_t>(1, batch.size()));
      backward(loss, share.loss_weight, static_cast<double>(sizes[k]) / samples, reduces);
    } else if (run_.has_peers() && (reduces || run_.strategy->has_sharded_weights())) {
      if (reduces) send_notes(run_);
      run_.strategy->backward_without_loss();
      if (reduces) hear_notes(run_);
    }
  }
  return true;
}

void MicroBatching::backward(const at::Tensor& loss, const at::Tensor& weight, double share, bool sync) {
  run_.time_split.enter(StepPart::backward);
  const ProfilerScope profile(run_.profiler.get(), "backward");
  const HookScope scope(run_, Hook::backward);
  const at::Tensor counted = counted_loss(run_, loss, weight, share);
  GradScaler* scaler = run_.precision->scaler();
  if (sync) send_notes(run_);
  run_.strategy->backward(scaler == nullptr ? counted : scaler->scale(counted), sync);
  if (sync) hear_notes(run_);
}

// As the whole batch's training_step would have.
void MicroBatching::log_parts(const Passes& passes) {
  const HookScope scope(run_, Hook::training_step);
  log_shares(run_, passes.shares);
}

at::Tensor MicroBatching::finish(const Passes& passes) {
  const at::Tensor mean = mean_of_shares(run_, passes.losses, passes.shares, /*note=*/false);
  const int64_t window = run_.progress.window_size;
  return mean.defined() && window > 1 ? mean / window : mean;
}

}  // namespace levin
