#include "levin/trainer/loops/measure_chain.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "levin/core/process/console.h"
#include "levin/core/process/progress_line.h"
#include "levin/core/tensors.h"
#include "levin/data/batch_rows.h"
#include "levin/recompute/chain_blocks.h"
#include "levin/recompute/chain_figures.h"
#include "levin/recompute/chain_recorder.h"
#include "levin/recompute/recomputation.h"
#include "levin/recompute/sequential_calls.h"
#include "levin/strategies/gradient_sync.h"
#include "levin/trainer/averages_weights.h"
#include "levin/trainer/module_access.h"
#include "levin/trainer/plan/rank_plan.h"
#include "levin/trainer/run/batch_stream.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/step/pass.h"
#include "levin/trainer/step/undo_scope.h"

namespace levin {

namespace {

constexpr size_t kMinPasses = 3;
constexpr size_t kMaxPasses = 15;
constexpr double kEnoughSeconds = 1;  // of timed passes

void check_measurable(const Run& run) {
  if (!run.entry.module->automatic_optimization()) refuse_plan("a step with manual optimization cannot be planned.");
  if (const std::string why = why_not_planned(*run.strategy); !why.empty()) {
    refuse_plan(why + ", and the planner knows steps on one device only.");
  }
  if (run.plan.micro_batch_size == kAutoMicroBatch) {
    refuse_plan("micro_batch_size: auto finds its size by the memory that the segments leave. Give it a number.");
  }
  for (const auto& wrapped : run.fit.optimizers()) {
    if (wrapped.shared()->needs_closure())
      refuse_plan(wrapped.shared()->name() + " runs several passes a step, which is not planned.");
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

// Restores everything that the trial steps change.
class Restored {
 public:
  explicit Restored(Run& run)
      : undo_(*run.entry.module, {.saves_weights = true, .sets_gradients_aside = true, .copies_to_host = true}),
        run_(run),
        metrics_(std::exchange(run.entry.train_metrics, MetricStore())),
        place_(run.entry.place),
        phase_(std::exchange(run.entry.phase, Phase::train)) {
    run.entry.module->train();
  }
  /// It must not throw while another exception propagates.
  ~Restored() {
    try {
      if (!done_) restore();
    } catch (const std::exception& error) {
      Console::instance().warn(std::string("putting the weights back after measuring failed: ") + error.what());
    }
  }
  /// Called once, at the end; may throw.
  void restore() {
    done_ = true;
    undo_.end();
    run_.entry.train_metrics = std::move(metrics_);
    run_.entry.place = place_;
    run_.entry.phase = phase_;
  }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  UndoScope undo_;
  Run& run_;
  MetricStore metrics_;
  MetricStore::Place place_;
  Phase phase_;
  bool done_ = false;
};

void drop_gradients(Run& run) {
  for (at::Tensor& parameter : run.entry.module->parameters()) parameter.mutable_grad() = at::Tensor();
}

// training_step and backward; the gradients remain. Unset if backward does not go through the blocks as a chain's does.
std::optional<Stations> try_pass(Run& run, ChainBlocks& blocks, MemoryMeter& meter, const Batch& batch) {
  std::vector<at::Tensor> known = weights_of(*run.entry.module);
  known.insert(known.end(), batch.tensors.begin(), batch.tensors.end());
  if (has_values(batch)) {
    Batch seen = batch;
    visit_values(seen, [&known](at::Tensor& tensor) { known.push_back(tensor); });
  }
  ChainRecorder recorder(meter, known);
  run.entry.place = {.batch_size = std::max<int64_t>(1, batch.size())};
  blocks.set_recorder(&recorder);
  run.entry.outputs.clear();
  recorder.begin_forward();
  const at::Tensor loss = run.fit.engine->forward(batch, 0);
  recorder.end_forward(loss);
  blocks.set_recorder(nullptr);
  check_loss(loss);
  LossGradient gradient;  // on this thread as in the run: cuBLAS keeps a workspace for each thread
  gradient.reuse_nothing();
  recorder.begin_backward();
  if (loss.defined()) gradient.backward(loss);
  recorder.end_backward();
  if (recorder.out_of_order()) return std::nullopt;
  return recorder.stations();
}

Stations pass(Run& run, ChainBlocks& blocks, MemoryMeter& meter, const Batch& batch) {
  auto stations = try_pass(run, blocks, meter, batch);
  if (!stations) refuse_plan("backward does not go through the blocks one by one in the reverse order of forward.");
  return *std::move(stations);
}

int64_t kept_by(const Station& station) {
  return std::max<int64_t>(0, station.forward.after - station.forward.before);
}

int64_t kept_by_blocks(const Stations& stations) {
  int64_t bytes = 0;
  for (const Station& station : stations) bytes += station.module != nullptr ? kept_by(station) : 0;
  return bytes;
}

// A block with others within that keeps more than half of what all stations keep; null: none.
const torch::nn::Module* wrapper_among(const Stations& stations) {
  int64_t all = 0;
  for (const Station& station : stations) all += kept_by(station);
  const auto found = std::find_if(stations.begin(), stations.end(), [&](const Station& station) {
    return station.module != nullptr && station.blocks_within > 1 && 2 * kept_by(station) > all;
  });
  return found != stations.end() ? found->module : nullptr;
}

// Finds the blocks to measure, those within wrappers among them, as long as these keep most of what the wrapper did.
std::set<const torch::nn::Module*> find_blocks(Run& run, ChainBlocks& blocks, MemoryMeter& meter, const Batch& batch) {
  Stations stations = pass(run, blocks, meter, batch);
  drop_gradients(run);
  while (const torch::nn::Module* wrapper = wrapper_among(stations)) {
    blocks.open(wrapper);
    auto inner = try_pass(run, blocks, meter, batch);
    drop_gradients(run);
    if (!inner || 4 * kept_by_blocks(*inner) < 3 * kept_by_blocks(stations)) {
      blocks.close(wrapper);
      break;
    }
    stations = *std::move(inner);
  }
  std::set<const torch::nn::Module*> found;
  for (const Station& station : stations) found.insert(station.module);
  return found;
}

double seconds_of(const Stations& pass) {
  double seconds = 0;
  for (const Station& station : pass) seconds += station.forward.seconds + station.backward.seconds;
  return seconds;
}

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
  ProgressTask progress("Measure", ProgressUnit::items, "passes");
  while (plain.size() < kMinPasses || (seconds < kEnoughSeconds && plain.size() < kMaxPasses)) {
    plain.push_back(pass(run, blocks, meter, batch));
    drop_gradients(run);
    const RecomputeOptions options = each_of(blocks, plain.back());
    std::optional<Recomputation> segments;
    if (!options.modules.empty()) segments.emplace(*run.entry.module, options);
    again.push_back(pass(run, blocks, meter, batch));
    drop_gradients(run);
    seconds += seconds_of(plain.back()) + seconds_of(again.back());
    const auto done = static_cast<double>(plain.size());
    const double expected = std::clamp(std::ceil(done * kEnoughSeconds / seconds), done, double{kMaxPasses});
    progress.update(2 * static_cast<int64_t>(done), 2 * std::max<int64_t>(kMinPasses, static_cast<int64_t>(expected)));
  }
  return typical_passes(plain, again);
}

// The samples of the first share or micro-batch; no other one is larger.
int64_t samples_of_pass(const Run& run, const Batch& batch, int64_t replicas) {
  const int64_t all = (std::max<int64_t>(1, batch.size()) + replicas - 1) / replicas;
  return run.plan.micro_batch_size > 0 ? std::min(all, run.plan.micro_batch_size) : all;
}

// Measures an update by new optimizers of the same kind; the run's do not change.
void measure_update(Run& run, MemoryMeter& meter, ChainCost& cost) {
  const int64_t before = meter.held();
  OptimizerConfig config = call_module(run.entry, Hook::configure_optimizers, &ModuleAccess::wanted_optimizers);
  std::vector<double> seconds;
  for (int round = 0; round < 4; ++round) {  // the first creates the state
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
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
    cost.optimizer_peak = meter.peak() - std::max(held, meter.held());
  }
  cost.optimizer_state = meter.held() - before;
  std::sort(seconds.begin() + 1, seconds.end());
  cost.optimizer_s = seconds[2];  // the middle one of three
}

// Measures a batch, or the part of it in one pass, and half as many samples.
MeasuredChain measure(Run& run, const Batch& batch, int64_t replicas) {
  const auto meter = MemoryMeter::make(run.strategy->placement().device());
  ChainBlocks blocks(*run.entry.module);
  const SequentialCalls calls(*run.entry.module);
  const int64_t samples = samples_of_pass(run, batch, replicas);
  const Batch part = samples < batch.size() ? first_samples(batch, samples) : batch;
  const int64_t before = meter->held();
  blocks.keep_only(find_blocks(run, blocks, *meter, part));
  const int64_t workspaces =
      run.strategy->placement().device().is_cpu() ? 0 : std::max<int64_t>(0, meter->held() - before);
  MeasuredChain measured;
  measured.cost = chain_cost(blocks, measure_passes(run, blocks, *meter, part));
  measured.cost.inputs = batch_bytes(batch);
  if (samples >= 2) {
    const Batch half = first_samples(batch, samples / 2);
    measured.smaller = chain_cost(blocks, measure_passes(run, blocks, *meter, half));
    measured.smaller.batch = samples / 2;
    if (replicas > 1) {
      measured.smaller.inputs = measured.cost.inputs * (samples / 2) / samples;
    } else {
      measured.smaller.inputs = samples < batch.size() ? measured.cost.inputs : batch_bytes(half);
    }
  } else {
    measured.smaller = without_samples(measured.cost);
  }
  measured.cost.batch = samples;
  (void)pass(run, blocks, *meter, part);  // gradients to update with
  for (ChainCost* cost : {&measured.cost, &measured.smaller}) {
    cost->parameters = bytes_of(weights_of(*run.entry.module));
    cost->gradients = bytes_of(gradients_of(run.entry.module->parameters()));
    cost->gradients_stay = run.has_peers() || run.fit.planned_accumulation > 1 ||
                           (run.plan.micro_batch_size > 0 && run.plan.micro_batch_size < batch.size());
    cost->gradients_apart =
        replicas > 1 && run.strategy->placement().device().is_cpu();  // see strategies/device/parallel_backward
    cost->workspaces = workspaces;
    for (const auto& callback : run.entry.callbacks) cost->callbacks += held_bytes(*callback, *run.entry.module);
  }
  measure_update(run, *meter, measured.cost);
  measured.smaller.optimizer_state = measured.cost.optimizer_state;
  measured.smaller.optimizer_peak = measured.cost.optimizer_peak;
  measured.smaller.optimizer_s = measured.cost.optimizer_s;
  return measured;
}

}  // namespace

std::optional<MeasuredChain> measure_chain(Run& run, int64_t replicas) {
  check_measurable(run);
  Restored restored(run);
  std::optional<MeasuredChain> measured;
  if (const auto largest = largest_of_next_batches(run)) {
    measured = measure(run, largest->batch, replicas);
    measured->batches_seen = largest->batches_seen;
    measured->samples = std::max<int64_t>(1, largest->batch.size());
  }
  restored.restore();
  return measured;
}

namespace {

constexpr int64_t kMaxBatches = 32;

}  // namespace

int64_t batch_bytes(const Batch& batch) {
  int64_t bytes = 0;
  const auto add = [&bytes](const at::Tensor& tensor) { bytes += static_cast<int64_t>(tensor.nbytes()); };
  for (const at::Tensor& tensor : batch.tensors) add(tensor);
  if (has_values(batch)) {
    Batch seen = batch;
    visit_values(seen, add);
  }
  return bytes;
}

Batch first_samples(const Batch& batch, int64_t samples) {
  const int64_t all = batch.size();
  return cut_rows(batch, 0, samples, [&](size_t place) {
    const at::Tensor& tensor = batch.tensors[place];
    return tensor.dim() > 0 && tensor.size(0) == all ? tensor.narrow(0, 0, samples).clone() : tensor;
  });
}

std::optional<BatchToMeasure> largest_of_next_batches(Run& run) {
  Loader& loader = *run.fit.train.loaders[0];
  const State loader_state = loader.state_dict();
  BatchStream stream(loader, run.fit.train.num_batches[0]);
  stream.start(run.progress.epoch, run.fit.epoch.next_batch);
  BatchToMeasure largest;
  Batch fetched;
  while (largest.batches_seen < kMaxBatches && stream.next(fetched)) {
    if (largest.batches_seen++ == 0 || batch_bytes(fetched) > batch_bytes(largest.batch))
      largest.batch = std::move(fetched);
    fetched = Batch();
  }
  if (!loader_state.empty()) loader.load_state_dict(loader_state);  // training takes these batches too
  // Allocations of their threads would be counted, and the process's allocator is replaced meanwhile.
  for (const LoaderSet* set : {&run.fit.train, &run.entry.eval}) {
    for (const auto& each : set->loaders) each->stop();
  }
  if (largest.batches_seen == 0) return std::nullopt;
  run.entry.place = {.batch_size = std::max<int64_t>(1, largest.batch.size())};
  largest.batch = transfer_batch(run, std::move(largest.batch), 0);
  return largest;
}

}  // namespace levin
