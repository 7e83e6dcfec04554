#include "levin/data/sets/augment.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "levin/data/loading/sample_generator.h"

namespace levin {

namespace {
const at::TensorOptions kIndices = at::TensorOptions().dtype(at::kLong);
}

// A single gather suffices: pixel (i, j) of the result is pixel (i - dy, j - dx), or its mirror, of the padded image.
at::Tensor shift_and_flip(const at::Tensor& images, const at::Tensor& dy, const at::Tensor& dx, const at::Tensor& flip,
                          double fill) {
  const int64_t batch = images.size(0), height = images.size(2), width = images.size(3);
  const at::Tensor rows = at::arange(height, kIndices).unsqueeze(0).sub(dy.unsqueeze(1));  // (batch, height)
  at::Tensor columns = at::arange(width, kIndices).unsqueeze(0).sub(dx.unsqueeze(1));      // (batch, width)
  columns = at::where(flip.unsqueeze(1), columns.neg().add_(width - 1), columns);
  // A frame of one pixel of `fill` around the image: everything outside is read from there.
  const at::Tensor framed = at::constant_pad_nd(images, {1, 1, 1, 1}, fill);
  const c10::List<std::optional<at::Tensor>> index({at::arange(batch, kIndices).view({-1, 1, 1, 1}),
                                                    at::arange(images.size(1), kIndices).view({1, -1, 1, 1}),
                                                    rows.add(1).clamp_(0, height + 1).view({batch, 1, height, 1}),
                                                    columns.add(1).clamp_(0, width + 1).view({batch, 1, 1, width})});
  return at::index(framed, index);
}

Batch AugmentedImages::get_batch(const at::Tensor& indices) const {
  Batch batch = images_->get_batch(indices);
  at::Generator& generator = sample_generator();
  const int64_t count = indices.size(0), most = options_.crop_padding;
  const at::Tensor moves = at::randint(-most, most + 1, {2, count}, generator, kIndices);
  const at::Tensor flip =
      options_.flip ? at::randint(0, 2, {count}, generator, kIndices).to(at::kBool) : at::zeros({count}, at::kBool);
  batch[0] = shift_and_flip(batch[0], moves.select(0, 0), moves.select(0, 1), flip, options_.fill);
  return batch;
}

}  // namespace levin
