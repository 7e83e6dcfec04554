// What most of the library's files include; torch/torch.h is not among it (20 s and 1.3 GB a file).
#pragma once
// The second group is what each header of ATen/ops includes: 3 s for each file that calls one.
#include <ATen/Context.h>
#include <ATen/DeviceGuard.h>
#include <ATen/TensorUtils.h>
#include <ATen/TracerMode.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>
