#include "levin/callbacks/throughput_monitor.h"

#include <ATen/Context.h>

#include <algorithm>

#include "levin/callbacks/monitor.h"
#include "levin/callbacks/nvml.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/libtorch/device_memory.h"
#include "levin/profilers/peak_flops.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

constexpr std::array kNames{"train", "validate", "test", "predict"};

MatmulType matmul_type(const std::string& precision) {
  if (precision.rfind("64", 0) == 0) return MatmulType::float64;
  if (precision.rfind("bf16", 0) == 0) return MatmulType::bfloat16;
  if (precision.rfind("16", 0) == 0) return MatmulType::half;
  return at::globalContext().allowTF32CuBLAS() ? MatmulType::tf32 : MatmulType::float32;
}

std::optional<double> peak_of(const Trainer& trainer) {
  if (!trainer.device().is_cuda()) return std::nullopt;
  std::string why;
  try {
    const std::string name = Nvml(trainer.device().has_index() ? trainer.device().index() : 0).name();
    if (const auto peak = peak_flops(name, matmul_type(trainer.plan().precision))) return peak;
    why = "the peak of " + name + " in " + trainer.plan().precision + " is not known.";
  } catch (const Error& error) {
    why = error.what();
  }
  Console::instance().warn("ThroughputMonitor: no MFU: " + why + " Set ThroughputMonitorOptions.available_flops.");
  return std::nullopt;
}

}  // namespace

Throughput::Throughput(int64_t window_size, std::string separator, int64_t world_size,
                       std::optional<double> available_flops)
    : window_size_(window_size),
      separator_(std::move(separator)),
      world_size_(world_size),
      available_flops_(available_flops) {}

void Throughput::update(const ThroughputPoint& point) {
  window_.push_back(point);
  if (static_cast<int64_t>(window_.size()) > window_size_) window_.pop_front();
}

Metrics Throughput::compute() const {
  if (window_.empty()) return {};
  const ThroughputPoint& first = window_.front();
  const ThroughputPoint& last = window_.back();
  Metrics metrics{{"time", last.seconds},
                  {"batches", static_cast<double>(last.batches)},
                  {"samples", static_cast<double>(last.samples)}};
  if (last.lengths) metrics["lengths"] = static_cast<double>(*last.lengths);
  const double seconds = last.seconds - first.seconds;
  if (seconds <= 0) return metrics;
  const std::string device = "device" + separator_;
  auto add_rate = [&](const std::string& name, double rate) {
    metrics[device + name] = rate;
    if (world_size_ > 1) metrics[name] = rate * static_cast<double>(world_size_);
  };
  const auto batches = static_cast<double>(last.batches - first.batches);
  const auto samples = static_cast<double>(last.samples - first.samples);
  add_rate("batches_per_sec", batches / seconds);
  add_rate("samples_per_sec", samples / seconds);
  if (last.lengths && first.lengths && batches > 0) {
    const double items_in_a_sample = static_cast<double>(*last.lengths - *first.lengths) / batches;
    add_rate("items_per_sec", samples / seconds * items_in_a_sample);
  }
  if (last.flops && first.flops) {
    const double flops = (*last.flops - *first.flops) / seconds;
    add_rate("flops_per_sec", flops);
    if (available_flops_) metrics[device + "mfu"] = flops / *available_flops_;
  }
  return metrics;
}

ThroughputMonitor::ThroughputMonitor(ThroughputMonitorOptions options, BatchCount batch_size_fn, BatchCount length_fn)
    : options_(checked(std::move(options), "ThroughputMonitorOptions")),
      batch_size_(std::move(batch_size_fn)),
      length_(std::move(length_fn)) {
  if (!batch_size_) batch_size_ = [](const Batch& batch) { return batch.size(); };
  if (length_ || !options_.length_dim) return;
  length_ = [dim = *options_.length_dim](const Batch& batch) {
    if (dim < batch[0].dim()) return batch[0].size(dim);
    throw Error("ThroughputMonitor: length_dim is " + std::to_string(dim) + ", and the batch's first tensor has " +
                count_of(batch[0].dim(), "dimension") + ". Set ThroughputMonitorOptions.length_dim below that.");
  };
}

void ThroughputMonitor::setup(Trainer& trainer, LightningModule&, Stage stage) {
  if (stage == Stage::fit) (void)has_logger(trainer, "ThroughputMonitor");
  available_flops_ = options_.available_flops ? options_.available_flops : peak_of(trainer);
  meters_ = {};
  fits_ = stage == Stage::fit;
}

void ThroughputMonitor::start(Trainer& trainer, Mode mode) {
  off_ = trainer.sanity_checking();
  Meter& m = meter(mode);
  m.throughput.emplace(options_.window_size, options_.separator, trainer.world_size(), available_flops_);
  if (mode != Mode::train) m.totals = {};  // the totals of training are empty, or from a checkpoint
  m.started =
      Clock::now() - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(m.totals.seconds));
  m.evaluated_before = m.evaluated;
  if (mode == Mode::validate) validation_started_ = m.started;
}

// Lightning uses the module's flops_per_batch; here FLOPs are counted in the first batch unless given.
void ThroughputMonitor::start_batch(Mode mode) {
  Meter& m = meter(mode);
  if (off_ || m.counted || options_.flops_per_batch) return;
  counter_.reset();  // of a batch that was cut short
  counter_ = std::make_shared<FlopCounter>();
}

void ThroughputMonitor::add_flops(Meter& m, int64_t samples) {
  if (counter_ != nullptr) {
    m.counted = true;
    m.flops_per_sample = static_cast<double>(counter_->flops()) / static_cast<double>(std::max<int64_t>(1, samples));
    counter_.reset();
  }
  const double flops = options_.flops_per_batch.value_or(m.flops_per_sample * static_cast<double>(samples));
  if (flops > 0) m.totals.flops = m.totals.flops.value_or(0) + flops;
}

// Between two rows nothing waits for the GPU: a batch's end is then noticed when it is launched, some steps early.
void ThroughputMonitor::end_batch(Trainer& trainer, Mode mode, const Batch& batch, bool writes) {
  Meter& m = meter(mode);
  const int64_t samples = batch_size_(batch);
  add_flops(m, samples);
  ++m.totals.batches;
  m.totals.samples += samples;
  if (length_) m.totals.lengths = m.totals.lengths.value_or(0) + length_(batch);
  const at::Device device = trainer.device();
  if (writes && !device.is_cpu()) synchronize(device);
  m.totals.seconds = std::chrono::duration<double>(Clock::now() - m.started).count();
  m.throughput->update(m.totals);
}

void ThroughputMonitor::write(Trainer& trainer, Mode mode, int64_t step) {
  const std::string stage = kNames[static_cast<size_t>(mode)];
  Metrics row;
  for (const auto& [name, value] : metrics(stage)) row[stage + options_.separator + name] = value;
  trainer.log_now(row, step);
}

void ThroughputMonitor::on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch& batch,
                                           int64_t) {
  const bool writes = trainer.ends_logged_window() && !trainer.loggers().empty();
  end_batch(trainer, Mode::train, batch, writes);
  if (writes) write(trainer, Mode::train, trainer.logging_step());
}

void ThroughputMonitor::end_evaluation_batch(Trainer& trainer, Mode mode, const Batch& batch) {
  if (off_) return;
  const int64_t step = meter(mode).evaluated++;
  const bool writes = trainer.plan().is_logged_step(step) && !trainer.loggers().empty();
  end_batch(trainer, mode, batch, writes);
  if (writes) write(trainer, mode, step);
}

// Validations do not count as training time.
void ThroughputMonitor::on_validation_end(Trainer&, LightningModule&) {
  meter(Mode::train).started += Clock::now() - validation_started_;
  meter(Mode::validate).evaluated_before = meter(Mode::validate).evaluated;
  off_ = false;
}

// FLOPs have no total of their own, so they count from the resumption on.
State ThroughputMonitor::state_dict() const {
  const Meter& train = meters_[static_cast<size_t>(Mode::train)];
  State state;
  state.set("seconds", train.totals.seconds);
  state.set("batches", train.totals.batches);
  state.set("samples", train.totals.samples);
  if (train.totals.lengths) state.set("lengths", *train.totals.lengths);
  state.set("evaluated", meters_[static_cast<size_t>(Mode::validate)].evaluated_before);
  return state;
}

void ThroughputMonitor::load_state_dict(const State& saved) {
  if (!fits_) return;
  ThroughputPoint& totals = meter(Mode::train).totals;
  totals = {.seconds = saved.get<double>("seconds"),
            .batches = saved.get<int64_t>("batches"),
            .samples = saved.get<int64_t>("samples")};
  if (saved.has("lengths")) totals.lengths = saved.get<int64_t>("lengths");
  Meter& validation = meter(Mode::validate);
  validation.evaluated = validation.evaluated_before = saved.get<int64_t>("evaluated");
}

Metrics ThroughputMonitor::metrics(const std::string& stage) const {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (stage == kNames[i]) return meters_[i].throughput ? meters_[i].throughput->compute() : Metrics();
  }
  throw Error("ThroughputMonitor: \"" + stage + "\" is not a stage. Use train, validate, test or predict.");
}

}  // namespace levin
