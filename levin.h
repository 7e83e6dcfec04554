// All of Levin, and LibTorch with it, except torch/data.h, whose place data/ takes, torch/jit.h, torch/mps.h and
// torch/xpu.h. In the order of the layers:
//
//   core/        errors, options, registry, console        data/         batches, loaders, data modules
//   optim/       optimizers, learning-rate schedulers      precision/    number formats of a run
//   strategies/  devices and ranks                         loggers/      where numbers go
//   recompute/   forward passes computed again             profilers/    where time goes
//   metrics/     accuracy, F1, AUROC, … over an epoch
//   checkpoint/  files of a run                            callbacks/    what runs at the hooks
//   trainer/     LightningModule, Callback, Trainer         models/       models of other programs
//   adapters/    LoRA                                       inference/    predictions without a trainer
//
// Fabric (trainer/fabric.h) is for training loops of your own.
// Above it is levin/cli/run_cli.h: a program that is the `levin` tool with your classes. Start with
// trainer/lightning_module.h and trainer/trainer.h.
#pragma once

#include <torch/autograd.h>
#include <torch/cuda.h>
#include <torch/enum.h>
#include <torch/fft.h>
#include <torch/nested.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/serialize.h>
#include <torch/sparse.h>
#include <torch/special.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include "levin/adapters/lora.h"
#include "levin/callbacks/batch_size_finder.h"
#include "levin/callbacks/device_stats_monitor.h"
#include "levin/callbacks/finetuning.h"
#include "levin/callbacks/gradient_accumulation_scheduler.h"
#include "levin/callbacks/gradient_centralization.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/learning_rate_finder.h"
#include "levin/callbacks/learning_rate_monitor.h"
#include "levin/callbacks/lora.h"
#include "levin/callbacks/mixed_batches.h"
#include "levin/callbacks/model_summary.h"
#include "levin/callbacks/on_exception_checkpoint.h"
#include "levin/callbacks/prediction_writer.h"
#include "levin/callbacks/progress_bar.h"
#include "levin/callbacks/spike_detection.h"
#include "levin/callbacks/stochastic_weight_averaging.h"
#include "levin/callbacks/throughput_monitor.h"
#include "levin/callbacks/timer.h"
#include "levin/callbacks/weight_averaging.h"
#include "levin/checkpoint/checkpoint_writer.h"
#include "levin/core/options/random_engine.h"
#include "levin/core/options/registry.h"
#include "levin/core/process/log.h"
#include "levin/data/columns/parquet_data.h"
#include "levin/data/columns/table_csv.h"
#include "levin/data/files/npy.h"
#include "levin/data/files/token_file.h"
#include "levin/data/images/image_transforms.h"
#include "levin/data/loading/combined_loader.h"
#include "levin/data/loading/length_batch_sampler.h"
#include "levin/data/loading/queue_loader.h"
#include "levin/data/loading/replay_loader.h"
#include "levin/data/loading/sequence_length_warmup.h"
#include "levin/data/loading/skipped_sample.h"
#include "levin/data/loading/stratified.h"
#include "levin/data/loading/weighted_sampler.h"
#include "levin/data/loading/wrapped_loader.h"
#include "levin/data/sets/augment.h"
#include "levin/data/sets/csv.h"
#include "levin/data/sets/hdf5_data.h"
#include "levin/data/sets/idx.h"
#include "levin/data/sets/image_folder.h"
#include "levin/data/sets/image_folder_data.h"
#include "levin/data/sets/npy_data.h"
#include "levin/data/sets/text.h"
#include "levin/data/sets/text_csv.h"
#include "levin/data/sets/token_file_data.h"
#include "levin/data/text/make_tokenizer.h"
#include "levin/inference/json_tensor.h"
#include "levin/inference/load_for_inference.h"
#include "levin/loggers/csv_logger.h"
#include "levin/loggers/histogram.h"
#include "levin/loggers/image.h"
#include "levin/loggers/json_lines_logger.h"
#include "levin/loggers/mlflow_logger.h"
#include "levin/loggers/prometheus_logger.h"
#include "levin/loggers/sqlite_logger.h"
#include "levin/loggers/tensorboard_logger.h"
#include "levin/metrics/aggregation.h"
#include "levin/metrics/classification.h"
#include "levin/metrics/image.h"
#include "levin/metrics/metric_collection.h"
#include "levin/metrics/regression.h"
#include "levin/metrics/segmentation.h"
#include "levin/metrics/text.h"
#include "levin/models/compiled_module.h"
#include "levin/models/exported/exported_program.h"
#include "levin/models/exported_model.h"
#include "levin/models/huggingface/auto_model.h"
#include "levin/models/huggingface_classifier.h"
#include "levin/models/huggingface_lm.h"
#include "levin/models/onnx_export.h"
#include "levin/models/tabular_model.h"
#include "levin/models/token_sampling.h"
#include "levin/optim/adafactor.h"
#include "levin/optim/adagrad.h"
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
#include "levin/optim/select_rows.h"
#include "levin/optim/step_schedulers.h"
#include "levin/optim/swa_lr.h"
#include "levin/precision/autocast.h"
#include "levin/precision/full_precision.h"
#include "levin/precision/grad_scaler.h"
#include "levin/precision/mixed_precision.h"
#include "levin/profilers/flop_counter.h"
#include "levin/profilers/nvtx_profiler.h"
#include "levin/profilers/simple_profiler.h"
#include "levin/profilers/time_split.h"
#include "levin/profilers/trace_profiler.h"
#include "levin/recompute/recompute.h"
#include "levin/strategies/accelerator.h"
#include "levin/strategies/device/data_parallel.h"
#include "levin/strategies/device/dp.h"
#include "levin/strategies/device/model_parallel.h"
#include "levin/strategies/launch/init_method.h"
#include "levin/strategies/process/ddp.h"
#include "levin/strategies/process/fsdp.h"
#include "levin/train.h"
#include "levin/trainer/accumulation_schedule.h"
#include "levin/trainer/changes_batches.h"
#include "levin/trainer/fabric.h"
#include "levin/trainer/found_option.h"
#include "levin/trainer/held_memory.h"
#include "levin/trainer/load_from_checkpoint.h"
#include "levin/trainer/measured_metrics.h"
#include "levin/trainer/param_groups.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/predict_outputs.h"
#include "levin/trainer/step_output.h"
#include "levin/trainer/stochastic_depth.h"
#include "levin/trainer/takes_skipped_samples.h"
