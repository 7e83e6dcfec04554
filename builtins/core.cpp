// Registers every built-in class of levin_core, one line each, under its name in YAML; those of other parts are in the
// other files of this folder. Explicit, because a linker drops files to which nothing refers, and classes would be
// missing silently.
#include <mutex>

#include "levin/callbacks/batch_size_finder.h"
#include "levin/callbacks/device_stats_monitor.h"
#include "levin/callbacks/early_stopping.h"
#include "levin/callbacks/finetuning.h"
#include "levin/callbacks/gradient_accumulation_scheduler.h"
#include "levin/callbacks/gradient_centralization.h"
#include "levin/callbacks/learning_rate_finder.h"
#include "levin/callbacks/learning_rate_monitor.h"
#include "levin/callbacks/mixed_batches.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/callbacks/model_summary.h"
#include "levin/callbacks/on_exception_checkpoint.h"
#include "levin/callbacks/prediction_writer.h"
#include "levin/callbacks/progress_bar.h"
#include "levin/callbacks/spike_detection.h"
#include "levin/callbacks/stochastic_weight_averaging.h"
#include "levin/callbacks/throughput_monitor.h"
#include "levin/callbacks/timer.h"
#include "levin/callbacks/weight_averaging.h"
#include "levin/core/process/parts.h"
#include "levin/data/columns/parquet_data.h"
#include "levin/data/columns/table_csv.h"
#include "levin/data/sets/csv.h"
#include "levin/loggers/csv_logger.h"
#include "levin/loggers/json_lines_logger.h"
#include "levin/loggers/tensorboard_logger.h"
#include "levin/optim/adafactor.h"
#include "levin/optim/adagrad.h"
#include "levin/optim/adam.h"
#include "levin/optim/composed_schedulers.h"
#include "levin/optim/cosine_schedulers.h"
#include "levin/optim/cyclic_schedulers.h"
#include "levin/optim/lars.h"
#include "levin/optim/lbfgs.h"
#include "levin/optim/lookahead.h"
#include "levin/optim/muon.h"
#include "levin/optim/reduce_lr_on_plateau.h"
#include "levin/optim/sam.h"
#include "levin/optim/schedule_free_adamw.h"
#include "levin/optim/sgd.h"
#include "levin/optim/step_schedulers.h"
#include "levin/optim/swa_lr.h"
#include "levin/precision/full_precision.h"
#include "levin/precision/mixed_precision.h"
#include "levin/profilers/nvtx_profiler.h"
#include "levin/profilers/simple_profiler.h"
#include "levin/profilers/trace_profiler.h"
#include "levin/strategies/device/dp.h"
#include "levin/strategies/device/model_parallel.h"
#include "levin/strategies/device/single_device.h"
#include "levin/strategies/process/ddp.h"
#include "levin/strategies/process/fsdp.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

namespace {

void add_callbacks() {
  auto& all = Registry<Callback>::instance();
  all.add<BackboneFinetuning>("BackboneFinetuning", "trains a head first, and its backbone from a later epoch on");
  all.add<BatchSizeFinder>("BatchSizeFinder", "finds the batch size that fits into memory, and trains with it");
  all.add<CutMix>("CutMix", "pastes a part of another image into each, and mixes their labels");
  all.add<DeviceStatsMonitor>("DeviceStatsMonitor", "logs CPU, memory and GPU usage");
  all.add<EarlyStopping>("EarlyStopping", "ends a run when a metric stops improving");
  all.add<EMAWeightAveraging>("EMAWeightAveraging", "keeps an exponential moving average of the weights");
  all.add<GradientAccumulationScheduler>("GradientAccumulationScheduler",
                                         "changes accumulate_grad_batches at given epochs");
  all.add<GradientCentralization>("GradientCentralization", "subtracts the mean from each output's gradient");
  all.add<LearningRateFinder>("LearningRateFinder", "finds a learning rate by a range test, and trains with it");
  all.add<LearningRateMonitor>("LearningRateMonitor", "logs the learning rates");
  all.add<MixUp>("MixUp", "trains on weighted means of two samples and of their labels");
  all.add<ModelCheckpoint>("ModelCheckpoint", "saves the newest, the best and the last checkpoints");
  all.add<ModelSummary>("ModelSummary", "prints the layers before training");
  all.add<OnExceptionCheckpoint>("OnExceptionCheckpoint", "saves a checkpoint when training fails");
  all.add<PredictionWriter>("PredictionWriter", "writes predictions to a file: CSV, JSON lines or safetensors");
  all.add<ProgressBar>("ProgressBar", "shows the progress of a run");
  all.add<SpikeDetection>("SpikeDetection", "ends a run when the training loss jumps");
  all.add<StochasticWeightAveraging>("StochasticWeightAveraging", "averages the weights of the last epochs");
  all.add<ThroughputMonitor>("ThroughputMonitor", "logs samples, tokens and FLOPs per second");
  all.add<Timer>("Timer", "ends a run after a given time");
  all.add<WeightAveraging>("WeightAveraging", "averages the weights of all steps");
}

void add_data() {
  auto& all = Registry<DataModule>::instance();
  all.add<CsvData>("CsvData", "samples from the columns of a CSV file");
  all.add<ParquetData>("ParquetData", "numbers and categories from a Parquet or Arrow file");
  all.add<TableCsv>("TableCsv", "numbers and categories from a CSV file");
}

void add_parts() {
  auto& loggers = Registry<Logger>::instance();
  loggers.add<CSVLogger>("CSVLogger", "metrics.csv and hparams.yaml");
  loggers.add<JSONLinesLogger>("JSONLinesLogger", "metrics.jsonl: one line of JSON per event");
  loggers.add<TensorBoardLogger>("TensorBoardLogger", "event files for TensorBoard");
  auto& profilers = Registry<Profiler>::instance();
  profilers.add<NvtxProfiler>("nvtx", "NVTX ranges around the parts of a run, for NVIDIA's Nsight");
  profilers.add<SimpleProfiler>("simple", "how often each part of a run was called, and its time");
  profilers.add<TraceProfiler>("trace", "records every operator of some steps as Chrome JSON, for Perfetto");
  auto& strategies = Registry<Strategy>::instance();
  strategies.add<DDP>("ddp", "one process per device; gradients are averaged during backward");
  strategies.add<DataParallelStrategy>("dp", "one process, replicas on several devices, outputs on the first");
  strategies.add<BalancedDataParallelStrategy>("dp_balanced", "dp whose outputs stay on their devices");
  strategies.add<FSDP>("fsdp",
                       "like ddp, with optimizer state, gradients and weights sharded over ranks (ZeRO 1 to 3)");
  strategies.add<ModelParallel>("ModelParallel", "one process, parts of the module on different devices");
  strategies.add<SingleDeviceStrategy>("single_device", "one process on one device");
}

void add_precisions() {
  auto& all = Registry<Precision>::instance();
  all.add<SinglePrecision>("32-true", "float32");
  all.add<DoublePrecision>("64-true", "float64 for weights, inputs and arithmetic");
  all.add<Bfloat16Precision>("bf16-true", "bfloat16 for weights, inputs and arithmetic");
  all.add<HalfPrecision>("16-true", "float16 for weights, inputs and arithmetic");
  all.add<Bfloat16Mixed>("bf16-mixed", "float32 weights, matrix products in bfloat16");
  all.add<Float16Mixed>("16-mixed", "float32 weights, matrix products in float16, a scaled loss; on a CPU bf16-mixed");
  all.add<MixedPrecision>("MixedPrecision", "bf16-mixed or 16-mixed with options, on any device");
  all.add<SinglePrecision>("32", "short for 32-true");
  all.add<DoublePrecision>("64", "short for 64-true");
  all.add<Bfloat16Mixed>("bf16", "short for bf16-mixed");
  all.add<Float16Mixed>("16", "short for 16-mixed");
}

void add_optimizers() {
  auto& all = Registry<Optimizer>::instance();
  all.add<Adadelta>("Adadelta", "steps scaled by the size of past steps");
  all.add<Adafactor>("Adafactor", "row and column factors instead of one mean per weight: little state");
  all.add<Adagrad>("Adagrad", "gradients over the root of the sum of their squares");
  all.add<Adam>("Adam", "steps from running means of the gradients and their squares");
  all.add<AdamW>("AdamW", "Adam with decoupled weight decay");
  all.add<Adamax>("Adamax", "Adam with the largest gradient as its scale");
  all.add<LAMB>("LAMB", "AdamW for large batches: steps scaled to each layer's weights");
  all.add<LARS>("LARS", "momentum SGD for large batches: steps scaled to each layer's weights");
  all.add<LBFGS>("LBFGS", "quasi-Newton steps; evaluates the model several times a step");
  all.add<Lookahead>("Lookahead", "wraps another optimizer: every few steps goes half the way back");
  all.add<Muon>("Muon", "orthogonalized steps for matrices, AdamW for other parameters");
  all.add<NAdam>("NAdam", "Adam with Nesterov momentum");
  all.add<RAdam>("RAdam", "Adam with a rectified start");
  all.add<RMSprop>("RMSprop", "gradients over the root of their mean square");
  all.add<SAM>("SAM", "wraps another optimizer: gradients at the highest loss nearby, for flat minima");
  all.add<ScheduleFreeAdamW>("ScheduleFreeAdamW", "AdamW with an average of the weights instead of a schedule");
  all.add<SGD>("SGD", "stochastic gradient descent, with momentum and Nesterov momentum");
}

void add_lr_schedulers() {
  auto& all = Registry<LRScheduler>::instance();
  all.add<ChainedScheduler>("ChainedScheduler", "several schedulers stepped together");
  all.add<ConstantLR>("ConstantLR", "scales lr for the first steps");
  all.add<CosineAnnealingLR>("CosineAnnealingLR", "decreases lr along a cosine");
  all.add<CosineAnnealingWarmRestarts>("CosineAnnealingWarmRestarts", "a cosine with warm restarts");
  all.add<CosineWithWarmup>("CosineWithWarmup", "a linear warm-up, then a cosine to the end of the run");
  all.add<CyclicLR>("CyclicLR", "cycles lr between two bounds");
  all.add<ExponentialLR>("ExponentialLR", "decays lr every step");
  all.add<LinearLR>("LinearLR", "changes lr linearly, e.g. for a warm-up");
  all.add<MultiStepLR>("MultiStepLR", "decays lr at milestones");
  all.add<OneCycleLR>("OneCycleLR", "one rise of lr, then one long fall");
  all.add<PolynomialLR>("PolynomialLR", "decreases lr to 0 as a polynomial");
  all.add<ReduceLROnPlateau>("ReduceLROnPlateau", "lowers lr when a metric stops improving");
  all.add<SWALR>("SWALR", "moves lr to a constant, for weight averaging");
  all.add<SequentialLR>("SequentialLR", "several schedulers one after the other");
  all.add<StepLR>("StepLR", "decays lr every step_size steps");
}

ConfigNode option(const std::string& name, const std::string& value) {
  ConfigNode options = ConfigNode::map();
  options.set(name, ConfigNode::scalar(value));
  return options;
}

// Aliases from PyTorch Lightning.
void add_lightning_names() {
  auto& strategies = Registry<Strategy>::instance();
  for (const char* name : {"DDPStrategy", "ddp_spawn", "ddp_fork", "ddp_notebook"}) strategies.add_alias(name, "ddp");
  strategies.add_alias("ddp_find_unused_parameters_true", "ddp", option("find_unused_parameters", "true"));
  strategies.add_alias("ddp_find_unused_parameters_false", "ddp", option("find_unused_parameters", "false"));
  strategies.add_alias("FSDPStrategy", "fsdp");
  strategies.add_alias("SingleDeviceStrategy", "single_device");
  auto& callbacks = Registry<Callback>::instance();
  callbacks.add_alias("TQDMProgressBar", "ProgressBar");
  callbacks.add_alias("RichProgressBar", "ProgressBar");
  callbacks.add_alias("RichModelSummary", "ModelSummary");
  auto& profilers = Registry<Profiler>::instance();
  profilers.add_alias("pytorch", "trace");
  profilers.add_alias("PyTorchProfiler", "trace");
  profilers.add_alias("SimpleProfiler", "simple");
}

// A class that the program has already added under the name of one in another part: opening that part reports both.
template <class Interface>
void check_names_of_parts() {
  for (const PartClass& each : part_classes()) {
    if (std::string(each.kind) != Interface::registry_name()) continue;
    if (Registry<Interface>::instance().find_added(each.name) != nullptr) (void)open_part(each.part, each.name);
  }
}

}  // namespace

void add_builtins() {
  static std::once_flag once;
  std::call_once(once, [] {
    add_callbacks();
    add_data();
    add_parts();
    add_precisions();
    add_optimizers();
    add_lr_schedulers();
    add_lightning_names();
    check_names_of_parts<Callback>();
    check_names_of_parts<DataModule>();
    check_names_of_parts<LightningModule>();
    check_names_of_parts<Logger>();
    detail::open_part = &open_part_with;
  });
}

}  // namespace levin
