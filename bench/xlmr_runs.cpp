#include "xlmr_runs.h"

#include <ATen/Context.h>

#include <chrono>
#include <stdexcept>

#include "levin/core/gpu.h"
#include "levin/recompute/memory_meter.h"

namespace bench::xlmr {

namespace {

constexpr int64_t kWarmupSteps = 2;  // the first makes the optimizer's state, and pages are new to the process

// Time and memory of the steps after the first ones.
class StepWatch : public levin::Callback {
 public:
  explicit StepWatch(levin::MemoryMeter& meter) : meter_(meter) {}
  void on_train_batch_end(levin::Trainer&, levin::LightningModule&, const at::Tensor&, const levin::Batch&,
                          int64_t batch_idx) override {
    if (batch_idx + 1 != kWarmupSteps) return;
    meter_.wait();
    meter_.mark();
    start_ = Clock::now();
  }
  void on_train_end(levin::Trainer& trainer, levin::LightningModule&) override {
    meter_.wait();
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    cost.ms_a_step = seconds * 1e3 / static_cast<double>(trainer.global_step() - kWarmupSteps);
    cost.peak_mib = static_cast<double>(meter_.peak()) / (1 << 20);
  }
  Cost cost;

 private:
  using Clock = std::chrono::steady_clock;
  levin::MemoryMeter& meter_;
  Clock::time_point start_;
};

}  // namespace

const std::vector<Column>& columns() {
  using enum Architecture;
  static const std::vector<Column> all = {
      {"base-8", xlmr_base, 8, false, false},        {"base-8-mixed", xlmr_base, 8, true, false},
      {"base-16-mixed", xlmr_base, 16, true, false}, {"large-8", xlmr_large, 8, false, false},
      {"large-8-mixed", xlmr_large, 8, true, false}, {"large-8-mixed-recompute", xlmr_large, 8, true, true}};
  return all;
}

const Column& column_called(const std::string& name) {
  std::string known;
  for (const Column& one : columns()) {
    if (one.name == name) return one;
    known += " " + one.name;
  }
  throw std::runtime_error("no column is called \"" + name + "\". Columns:" + known);
}

TextClassifierOptions model_options(const Column& column, const Size& size) {
  TextClassifierOptions options;
  options.architecture = column.architecture;
  options.num_hidden_layers = size.layers;
  options.vocab_size = size.vocabulary;
  return options;
}

levin::TrainerOptions trainer_options(const Column& column, const Size& size) {
  levin::TrainerOptions options;
  options.accelerator = size.gpu ? "gpu" : "cpu";
  options.devices = int64_t{1};
  if (column.mixed) options.precision = size.gpu ? "16-mixed" : "bf16-mixed";
  if (column.recompute) options.recompute = levin::RecomputeOptions{.modules = {"roberta.encoder.layer.*"}};
  options.logger = false;
  options.enable_checkpointing = false;
  return options;
}

levin::TextCsvOptions data_options(const Column& column, const Size& size) {
  return {.label = "testament", .max_length = size.tokens, .batch_size = column.batch, .val_fraction = 0};
}

Cost train(const Column& column, const Size& size, int64_t steps) {
  if (size.gpu) (void)levin::open_gpu();  // before LibTorch is asked for anything
  at::globalContext().setSDPUseFlash(size.fused);
  at::globalContext().setSDPUseMemEfficient(size.fused);
  at::globalContext().setSDPUseCuDNN(size.fused);
  const auto meter = levin::MemoryMeter::make(size.gpu ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU));
  levin::seed_everything(0);
  TextClassifier model(model_options(column, size));
  BibleVerses data(data_options(column, size));
  const auto watch = std::make_shared<StepWatch>(*meter);
  levin::TrainerOptions options = trainer_options(column, size);
  options.max_steps = kWarmupSteps + steps;
  options.callbacks.push_back(watch);
  levin::Trainer(std::move(options)).fit(model, data);
  return watch->cost;
}

}  // namespace bench::xlmr
