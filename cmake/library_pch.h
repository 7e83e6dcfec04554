// The headers that most of the library's files include, without torch/torch.h (20 s and 1.3 GB per file).
#pragma once
// Each header of ATen/ops includes those of ATen/: 3 s for each file that calls an operator.
#include <ATen/Context.h>
#include <ATen/DeviceGuard.h>
#include <ATen/TensorUtils.h>
#include <ATen/TracerMode.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

#include "standard_pch.h"
