// JPEGs with as much detail as photographs, made of random numbers.
#pragma once

#include <torch/torch.h>
// jpeglib.h needs it.
#include <cstdio>
// clang-format off
#include <jpeglib.h>
// clang-format on

#include <filesystem>
#include <stdexcept>
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
  return sum.add_(128).clamp_(0, 255).to(torch::kByte)[0].permute({1, 2, 0}).contiguous();  // (height, width, 3)
}

inline void write_jpeg(const std::filesystem::path& path, const at::Tensor& pixels) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) throw std::runtime_error("cannot write " + path.string());
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  jpeg_stdio_dest(&info, file);
  info.image_width = static_cast<JDIMENSION>(pixels.size(1));
  info.image_height = static_cast<JDIMENSION>(pixels.size(0));
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 90, TRUE);
  jpeg_start_compress(&info, TRUE);
  auto* row = pixels.data_ptr<uint8_t>();
  for (int64_t y = 0; y < pixels.size(0); ++y, row += 3 * pixels.size(1)) jpeg_write_scanlines(&info, &row, 1);
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::fclose(file);
}

}  // namespace bench
