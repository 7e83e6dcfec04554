// The device that InferenceOptions.device names.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace levin {

/// `device`: auto (a GPU where there is one, else the CPU), cpu, gpu, cuda, or LibTorch's name of another backend, as
/// TrainerOptions::accelerator takes it, those that a library has added included; all but auto and cpu with an index
/// or without (0). The device becomes the calling thread's current one. Throws ConfigError that lists what there is.
[[nodiscard]] at::Device inference_device(const std::string& device);

}  // namespace levin
