// What most of the library's files include; torch/torch.h is not among it (20 s and 1.3 GB a file).
#pragma once
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
