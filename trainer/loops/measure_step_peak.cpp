#include "levin/trainer/loops/measure_step_peak.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/step/pass.h"

namespace levin {

void drop_gradients(Run& run) {
  for (at::Tensor& parameter : run.entry.module->parameters()) parameter.mutable_grad() = at::Tensor();
}

namespace {

// Like the loop: the previous step's gradients are kept until forward is done.
void forward_and_backward(Run& run, const Batch& batch, bool gradients_stay) {
  run.entry.place = {Hook::none, std::max<int64_t>(1, batch.size()), 0, 1};
  at::Tensor loss;
  {
    const ForwardScope forward(*run.precision, run.strategy->device().type());
    loss = call_module(run.entry, Hook::training_step, [&](LightningModule& m) { return m.training_step(batch, 0); });
  }
  check_loss(loss);
  if (!gradients_stay) drop_gradients(run);
  if (loss.defined()) loss.backward();
}

}  // namespace

StepPeak measure_step_peak(Run& run, MemoryMeter& meter, const Batch& batch, const ChainCost& cost) {
  const int64_t fixed = cost.parameters + cost.optimizer_state + cost.callbacks + cost.inputs;
  StepPeak measured;
  std::vector<double> seconds;
  for (int round = 0; round < 4; ++round) {  // the first leaves gradients
    meter.wait();
    meter.mark();
    const int64_t held = meter.held();
    const auto begun = std::chrono::steady_clock::now();
    forward_and_backward(run, batch, cost.gradients_stay);
    meter.wait();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
    measured.peak = fixed + cost.gradients + meter.peak() - held;
  }
  drop_gradients(run);
  measured.peak = std::max(measured.peak, fixed + cost.gradients + cost.optimizer_peak);
  std::sort(seconds.begin() + 1, seconds.end());
  measured.seconds = seconds[2] + cost.optimizer_s;  // the middle one of three
  return measured;
}

}  // namespace levin
