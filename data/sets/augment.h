// Random crops and flips of batches of images, bitwise identical on any thread: a function of the seed,
// the epoch and the number of the batch.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "levin/data/loading/dataset.h"

namespace levin {

struct AugmentOptions {
  int64_t crop_padding = 0;  // pixels; a crop moves the image by up to this many in each direction
  bool flip = false;         // mirror every second image left to right
  double fill = 0;           // the value of pixels outside of the image
};

/// Returns `images` (batch, channels, height, width), first mirrored left to right where `flip` (batch) bool is true,
/// then moved down by `dy` and right by `dx` pixels, (batch) int64 each. Pixels that move in have the value `fill`.
[[nodiscard]] at::Tensor shift_and_flip(const at::Tensor& images, const at::Tensor& dy, const at::Tensor& dx,
                                        const at::Tensor& flip, double fill);

/// A data set whose first tensor, (batch, channels, height, width) float, comes augmented. The other data set must have
/// get_batch(); get() returns its samples unchanged.
class AugmentedImages final : public Dataset {
 public:
  AugmentedImages(std::shared_ptr<const Dataset> images, AugmentOptions options)
      : images_(std::move(images)), options_(options) {}

  [[nodiscard]] int64_t size() const override { return images_->size(); }
  [[nodiscard]] Batch get(int64_t index) const override { return images_->get(index); }
  [[nodiscard]] bool has_get_batch() const override { return true; }
  [[nodiscard]] Batch get_batch(const at::Tensor& indices) const override;

 private:
  std::shared_ptr<const Dataset> images_;
  AugmentOptions options_;
};

}  // namespace levin
