// What a first program needs, without the rest of Levin and of LibTorch, for a program without a precompiled header.
// It includes the headers of its layers and losses itself:
//
//   #include <levin/train.h>
//   #include <torch/nn/functional/loss.h>
//   #include <torch/nn/modules/linear.h>
#pragma once

#include "levin/callbacks/early_stopping.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/core/process/main_guard.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/dataset.h"
#include "levin/data/sets/mnist.h"
#include "levin/optim/adam.h"
#include "levin/optim/sgd.h"
#include "levin/trainer/fit.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/trainer.h"
