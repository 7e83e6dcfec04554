// All of Levin, and LibTorch with it. In the order of the layers:
//
//   core/        errors, options, registry, console        data/         batches, loaders, data modules
//   optim/       optimizers, learning-rate schedulers      precision/    number formats of a run
//   strategies/  devices and ranks                         loggers/      where numbers go
//   profilers/   where time goes                           trainer/      LightningModule, Callback, Trainer
//   callbacks/   what runs at the hooks
//
// Above it stands levin/cli/run_cli.h: a program that is the `levin` tool with your classes. Start with
// trainer/lightning_module.h and trainer/trainer.h.
#pragma once

#include <torch/torch.h>

#include "levin/callbacks/backbone_finetuning.h"
#include "levin/callbacks/device_stats_monitor.h"
#include "levin/callbacks/early_stopping.h"
#include "levin/callbacks/ema_weight_averaging.h"
#include "levin/callbacks/gradient_accumulation_scheduler.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/learning_rate_monitor.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/callbacks/model_summary.h"
#include "levin/callbacks/on_exception_checkpoint.h"
#include "levin/callbacks/progress_bar.h"
#include "levin/callbacks/spike_detection.h"
#include "levin/callbacks/stochastic_weight_averaging.h"
#include "levin/callbacks/throughput_monitor.h"
#include "levin/callbacks/timer.h"
#include "levin/callbacks/weight_averaging.h"
#include "levin/core/register.h"
#include "levin/data/csv.h"
#include "levin/data/dataloader.h"
#include "levin/data/dataset.h"
#include "levin/data/idx.h"
#include "levin/data/mnist.h"
#include "levin/data/text.h"
#include "levin/loggers/csv_logger.h"
#include "levin/optim/adadelta.h"
#include "levin/optim/adagrad.h"
#include "levin/optim/adam.h"
#include "levin/optim/adamax.h"
#include "levin/optim/adamw.h"
#include "levin/optim/composed_schedulers.h"
#include "levin/optim/cosine_schedulers.h"
#include "levin/optim/cyclic_schedulers.h"
#include "levin/optim/lbfgs.h"
#include "levin/optim/nadam.h"
#include "levin/optim/radam.h"
#include "levin/optim/reduce_lr_on_plateau.h"
#include "levin/optim/rmsprop.h"
#include "levin/optim/sgd.h"
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
#include "levin/strategies/data_parallel.h"
#include "levin/strategies/ddp.h"
#include "levin/strategies/dp.h"
#include "levin/strategies/fsdp.h"
#include "levin/strategies/init_method.h"
#include "levin/strategies/model_parallel.h"
#include "levin/trainer/held_memory.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/param_groups.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/trainer.h"
