// Images with as much detail as photographs, made of random numbers.
#pragma once

#include <torch/torch.h>

#include <utility>
#include <vector>

namespace bench {

// An image with as much detail as a photograph, about 100 KB at quality 90: coarse shapes, finer ones and noise.
inline at::Tensor made_pixels(int64_t height, int64_t width) {
  at::Tensor sum = torch::zeros({1, 3, height, width});
  const std::vector<int64_t> size = {height, width};
  for (const auto& [cells, strength] : {std::pair{5, 120.0}, std::pair{40, 60.0}, std::pair{240, 25.0}}) {
    const at::Tensor coarse = torch::rand({1, 3, 3 * cells / 4 + 1, cells}).sub_(0.5);
    sum += torch::upsample_bicubic2d(coarse, size, false).mul_(strength);
  }
  return sum.add_(128).clamp_(0, 255).to(torch::kByte)[0];  // (3, height, width)
}

}  // namespace bench
