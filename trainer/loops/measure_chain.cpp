#include "levin/trainer/loops/measure_chain.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "levin/core/console.h"
#include "levin/core/gradients.h"
#include "levin/recompute/chain_blocks.h"
#include "levin/recompute/chain_recorder.h"
#include "levin/recompute/recomputation.h"
#include "levin/recompute/sequential_calls.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/run/batch_stream.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/step/automatic_step.h"
#include "levin/trainer/step/pass.h"

namespace levin {

namespace {

constexpr size_t kFewestPasses = 3;
constexpr size_t kMostPasses = 15;
constexpr double kEnoughSeconds = 0.3;  // of passes to take times from

[[noreturn]] void refuse(const std::string& why) {
  throw ConfigError("TrainerOptions.recompute.budget: " + why +
                    " Write the segments yourself: recompute: {modules: [NAMES]}.");
}

void check_measurable(const Run& run) {
  const std::string strategy = run.strategy->name();
  if (!run.entry.module->automatic_optimization()) refuse("a step with manual optimization cannot be planned.");
  if (run.strategy->is_sharded())
    refuse("with strategy " + strategy + " ranks share the weights out, which is not planned.");
  if (run.strategy->takes_several_devices())
    refuse("strategy " + strategy + " computes on several devices, which is not planned.");
  for (const auto& wrapped : run.fit.optimizers) {
    if (wrapped.shared()->needs_closure())
      refuse(wrapped.shared()->name() + " runs several passes a step, which is not planned.");
  }
}

std::vector<at::Tensor> weights_of(const LightningModule& module) {
  std::vector<at::Tensor> all = module.parameters();
  for (const at::Tensor& buffer : module.buffers()) all.push_back(buffer);
  return all;
}

int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  std::map<const c10::StorageImpl*, int64_t> storages;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.has_storage()) continue;
    storages[tensor.storage().unsafeGetStorageImpl()] = static_cast<int64_t>(tensor.storage().nbytes());
  }
  int64_t bytes = 0;
  for (const auto& [storage, size] : storages) bytes += size;
  return bytes;
}

// Puts everything back that the trial steps change.
class Restored {
 public:
  explicit Restored(Run& run)
      : run_(run),
        metrics_(std::exchange(run.entry.train_metrics, MetricStore())),
        place_(run.entry.place),
        phase_(std::exchange(run.entry.phase, Phase::train)),
        training_(run.entry.module->is_training()) {
    for (const at::Tensor& tensor : weights_of(*run.entry.module)) {
      const at::Tensor own = tensor.detach();
      // A copy on the host leaves a GPU's memory to the step.
      copies_.emplace_back(own, own.is_cpu() ? own.clone() : own.to(at::kCPU));
    }
    for (at::Tensor& parameter : run.entry.module->parameters()) {
      gradients_.emplace_back(parameter, parameter.mutable_grad());
      parameter.mutable_grad() = at::Tensor();
    }
    run.entry.module->train();
  }
  /// On the way of an exception it must not throw one of its own.
  ~Restored() {
    try {
      if (!done_) restore();
    } catch (const std::exception& error) {
      Console::instance().warn(std::string("putting the weights back after measuring failed: ") + error.what());
    }
  }
  /// Once, at the end; throws what goes wrong.
  void restore() {
    done_ = true;
    const at::AutoGradMode no_gradients(false);
    for (const auto& [tensor, copy] : copies_) tensor.copy_(copy);
    for (auto& [parameter, gradient] : gradients_) parameter.mutable_grad() = gradient;
    run_.entry.train_metrics = std::move(metrics_);
    run_.entry.place = place_;
    run_.entry.phase = phase_;
    run_.entry.module->train(training_);
  }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  const RandomState random_ = {};
  Run& run_;
  MetricStore metrics_;
  MetricStore::Place place_;
  Phase phase_;
  bool training_;
  bool done_ = false;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_ = {};
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients_ = {};
};

void drop_gradients(Run& run) {
  for (at::Tensor& parameter : run.entry.module->parameters()) parameter.mutable_grad() = at::Tensor();
}

using Stations = std::vector<Station>;

// training_step and backward; the gradients are left behind.
Stations pass(Run& run, ChainBlocks& blocks, MemoryMeter& meter, const Batch& batch) {
  std::vector<at::Tensor> known = weights_of(*run.entry.module);
  known.insert(known.end(), batch.tensors.begin(), batch.tensors.end());
  ChainRecorder recorder(meter, known);
  run.entry.place = {Hook::none, std::max<int64_t>(1, batch.size()), 0, 1};
  blocks.set_recorder(&recorder);
  recorder.begin_forward();
  at::Tensor loss;
  {
    const ForwardScope forward(*run.precision, run.strategy->device().type());
    loss = call_module(run.entry, Hook::training_step, [&](LightningModule& m) { return m.training_step(batch, 0); });
  }
  recorder.end_forward(loss);
  blocks.set_recorder(nullptr);
  check_loss(loss);
  recorder.begin_backward();
  if (loss.defined()) loss.backward();
  recorder.end_backward();
  if (recorder.out_of_order()) {
    refuse("backward does not come to the blocks one after another, in the order of forward turned round.");
  }
  return recorder.stations();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// The middle of what several passes took.
void take_times(const std::vector<Stations>& passes, Stations& into) {
  for (size_t k = 0; k < into.size(); ++k) {
    std::vector<double> forward, backward;
    for (const Stations& pass : passes) {
      if (pass.size() != into.size()) refuse("the module calls other blocks in one step than in the next.");
      forward.push_back(pass[k].forward.seconds);
      backward.push_back(pass[k].backward.seconds);
    }
    into[k].forward.seconds = median(forward);
    into[k].backward.seconds = median(backward);
  }
}

double seconds_of(const Stations& pass) {
  double seconds = 0;
  for (const Station& station : pass) seconds += station.forward.seconds + station.backward.seconds;
  return seconds;
}

struct Passes {
  Stations plain = {};
  Stations again = {};  // every block a segment
};

RecomputeOptions each_of(const ChainBlocks& blocks, const Stations& stations) {
  RecomputeOptions options;
  std::set<const torch::nn::Module*> seen;
  for (const Station& station : stations) {
    if (station.module == nullptr || station.changes_input || !seen.insert(station.module).second) continue;
    options.modules.push_back(blocks.place_of(station.module).name);
  }
  return options;
}

Passes measure_passes(Run& run, ChainBlocks& blocks, MemoryMeter& meter, const Batch& batch) {
  std::vector<Stations> plain, again;
  double seconds = 0;
  while (plain.size() < kFewestPasses || (seconds < kEnoughSeconds && plain.size() < kMostPasses)) {
    plain.push_back(pass(run, blocks, meter, batch));
    drop_gradients(run);
    const RecomputeOptions options = each_of(blocks, plain.back());
    std::optional<Recomputation> segments;
    if (!options.modules.empty()) segments.emplace(*run.entry.module, options);
    again.push_back(pass(run, blocks, meter, batch));
    drop_gradients(run);
    seconds += seconds_of(plain.back());
  }
  Passes passes{plain.back(), again.back()};
  take_times(plain, passes.plain);
  take_times(again, passes.again);
  if (passes.plain.size() != passes.again.size()) refuse("the module calls other blocks where they are recomputed.");
  return passes;
}

// Note [What a station's figures say]
// A station that writes into its input, or returns a view of it, passes memory on: that border's bytes count as its
// output, and its input is not kept besides. What is held at the end of a station and was not at its beginning is its
// output, and what its graph keeps; borders that went meanwhile are added back. One that changes its input cannot be a
// segment alone: that it is computed again at the end of one is taken to cost its whole forward pass.
void fill_block(const Stations& whole, const Station& again, size_t k, BlockCost& block) {
  const Station& station = whole[k];
  const bool passes_on = station.output == 0 && station.passed_on > 0;
  const bool before_keeps = k > 0 && whole[k - 1].output_there;
  block.output = passes_on && !before_keeps ? station.passed_on : station.output;
  block.keeps_output = station.output_there && !(passes_on && before_keeps);
  const bool holds = station.module != nullptr && before_keeps ? station.holds_input : true;
  block.keeps_input = !passes_on && station.input_there && holds;
  const Stretch& forward = station.forward;
  const Stretch& backward = station.backward;
  block.kept = std::max<int64_t>(0, forward.after - forward.before - station.output + forward.freed);
  block.forward_peak = std::max(block.kept + station.output, forward.peak - forward.before + forward.late);
  block.forward_s = forward.seconds;
  block.backward_s = backward.seconds;
  block.segment_forward_peak =
      std::max<int64_t>(station.output, again.forward.peak - again.forward.before + again.forward.late);
  block.segment_forward_s = std::max(forward.seconds, again.forward.seconds);
  block.begins_segments = !station.changes_input;
  block.again_s = block.begins_segments ? std::max(0.0, again.backward.seconds - backward.seconds) : block.forward_s;
  if (!station.has_backward) return;
  const int64_t sent = k > 0 && whole[k - 1].has_backward ? whole[k - 1].output_gradient : 0;
  block.output_gradient = station.output_gradient;
  block.backward_peak = std::max<int64_t>(0, backward.peak - backward.before);
  const int64_t own = block.kept + (block.keeps_output ? block.output : 0);
  block.again_peak = std::max(own, block.begins_segments ? again.backward.peak - again.backward.before
                                                         : std::max(block.forward_peak, own + block.backward_peak));
  block.gradients = std::max<int64_t>(
      0, backward.after - backward.before + block.kept + block.output_gradient - sent + backward.freed);
}

// What a segment holds besides its input: generators' states.
int64_t kept_by_segments(const Passes& passes) {
  std::vector<int64_t> bytes;
  for (const Station& station : passes.again) {
    const Stretch& forward = station.forward;
    if (station.module == nullptr || station.changes_input) continue;
    bytes.push_back(std::max<int64_t>(0, forward.after - forward.before - station.output + forward.freed));
  }
  if (bytes.empty()) return 0;
  std::nth_element(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2), bytes.end());
  return bytes[bytes.size() / 2];
}

// Names, and which blocks may share a segment.
void name_blocks(const ChainBlocks& blocks, const Stations& stations, ChainCost& cost) {
  std::map<const torch::nn::Module*, int> calls;
  for (const Station& station : stations) ++calls[station.module];
  std::string last = "";
  int64_t chain = kFixedBlock;
  ChainBlocks::Place before;
  for (size_t k = 0; k < stations.size(); ++k) {
    BlockCost& block = cost.blocks[k];
    if (stations[k].module == nullptr) {
      block.name = last.empty() ? "what comes before the blocks" : "what follows " + last;
      continue;
    }
    const ChainBlocks::Place place = blocks.place_of(stations[k].module);
    block.name = last = place.name;
    if (calls[stations[k].module] > 1) continue;  // of a block used twice, one use cannot be chosen
    const bool joined = stations[k].takes_previous && place.parent != nullptr && place.parent == before.parent &&
                        place.index == before.index + 1 && cost.blocks[k - 1].chain != kFixedBlock;
    block.chain = joined ? chain : ++chain;
    before = place;
  }
}

ChainCost chain_cost(const ChainBlocks& blocks, const Passes& passes, const Batch& batch) {
  ChainCost cost;
  cost.batch = std::max<int64_t>(1, batch.size());
  for (const at::Tensor& tensor : batch.tensors) cost.inputs += static_cast<int64_t>(tensor.nbytes());
  cost.blocks.resize(passes.plain.size());
  for (size_t k = 0; k < cost.blocks.size(); ++k) fill_block(passes.plain, passes.again[k], k, cost.blocks[k]);
  cost.segment_bytes = kept_by_segments(passes);
  name_blocks(blocks, passes.plain, cost);
  return cost;
}

// The first half of the samples.
Batch half_of(const Batch& batch) {
  const int64_t samples = batch.size();
  Batch half = batch;
  for (at::Tensor& tensor : half.tensors) {
    if (tensor.dim() > 0 && tensor.size(0) == samples) tensor = tensor.narrow(0, 0, samples / 2).clone();
  }
  return half;
}

ChainCost without_samples(ChainCost cost) {
  cost.batch = cost.inputs = 0;
  for (BlockCost& block : cost.blocks) {
    BlockCost none;
    none.name = block.name;
    none.chain = block.chain;
    none.keeps_input = block.keeps_input;
    none.keeps_output = block.keeps_output;
    none.gradients = block.gradients;
    block = none;
  }
  return cost;
}

// An update by optimizers of the same kind as the run's, which stay as they are.
void measure_update(Run& run, MemoryMeter& meter, ChainCost& cost) {
  const int64_t before = meter.held();
  OptimizerConfig config =
      call_module(run.entry, Hook::configure_optimizers, [](LightningModule& m) { return m.wanted_optimizers(); });
  for (int round = 0; round < 2; ++round) {  // the first makes the state
    meter.wait();
    meter.mark();
    const int64_t held = meter.held();
    const auto begun = std::chrono::steady_clock::now();
    for (const auto& optimizer : config.optimizers()) {
      run.entry.module->configure_gradient_clipping(*optimizer, run.plan.gradient_clip_val,
                                                    run.plan.gradient_clip_algorithm);
      optimizer->step();
    }
    meter.wait();
    cost.optimizer_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    cost.optimizer_peak = meter.peak() - std::max(held, meter.held());
  }
  cost.optimizer_state = meter.held() - before;
}

std::optional<Batch> next_batch(Run& run) {
  BatchStream stream(*run.fit.train.loaders[0], run.fit.train.num_batches[0]);
  stream.start(run.progress.epoch, run.fit.epoch.next_batch);
  Batch fetched;
  const bool found = stream.next(fetched);
  // What their threads allocate would be counted, while the process's allocator is changed under them.
  for (const LoaderSet* set : {&run.fit.train, &run.entry.eval}) {
    for (const auto& loader : set->loaders) loader->stop();
  }
  if (!found) return std::nullopt;
  run.entry.place = {Hook::none, std::max<int64_t>(1, fetched.size()), 0, 1};
  return transfer_batch(run, std::move(fetched), 0);
}

MeasuredChain measure(Run& run, const Batch& batch) {
  const auto meter = MemoryMeter::make(run.strategy->device());
  ChainBlocks blocks(*run.entry.module);
  const SequentialCalls calls(*run.entry.module);
  std::set<const torch::nn::Module*> seen;
  for (const Station& station : pass(run, blocks, *meter, batch)) seen.insert(station.module);
  drop_gradients(run);
  blocks.keep_only(seen);
  MeasuredChain measured;
  measured.cost = chain_cost(blocks, measure_passes(run, blocks, *meter, batch), batch);
  if (batch.size() >= 2) {
    const Batch half = half_of(batch);
    measured.smaller = chain_cost(blocks, measure_passes(run, blocks, *meter, half), half);
  } else {
    measured.smaller = without_samples(measured.cost);
  }
  (void)pass(run, blocks, *meter, batch);  // gradients to update with
  for (ChainCost* cost : {&measured.cost, &measured.smaller}) {
    cost->parameters = bytes_of(weights_of(*run.entry.module));
    cost->gradients = bytes_of(gradients_of(run.entry.module->parameters()));
    cost->gradients_stay = run.has_peers() || run.fit.accumulate_grad_batches > 1;
  }
  measure_update(run, *meter, measured.cost);
  measured.smaller.optimizer_state = measured.cost.optimizer_state;
  measured.smaller.optimizer_peak = measured.cost.optimizer_peak;
  measured.smaller.optimizer_s = measured.cost.optimizer_s;
  return measured;
}

}  // namespace

std::optional<MeasuredChain> measure_chain(Run& run) {
  check_measurable(run);
  Restored restored(run);
  std::optional<MeasuredChain> measured;
  if (const std::optional<Batch> batch = next_batch(run)) measured = measure(run, *batch);
  restored.restore();
  return measured;
}

}  // namespace levin
