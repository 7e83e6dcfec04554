#include "levin/optim/tensor_pack.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cstring>

#include "levin/libtorch/grain_size.h"

namespace levin::detail {

namespace {

static_assert(TensorPack::kCapacity < kGrainSize, "ATen would split operators among threads");

// Note [Gaps between packed tensors]
// ATen processes two vectors at a time, 128 bytes with AVX-512, and the remainder one by one, which may round
// differently. Every tensor begins at such a boundary, so there is no remainder, and a tensor's numbers do not depend
// on the others in its pack.
constexpr int64_t kBorderBytes = 128;

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() && !tensor.is_neg() &&
         !tensor._is_zerotensor();
}

int64_t with_gap(const at::Tensor& tensor) {
  const int64_t step = kBorderBytes / static_cast<int64_t>(tensor.itemsize());
  return (tensor.numel() + step - 1) / step * step;
}

}  // namespace

bool TensorPack::takes(const at::Tensor& tensor) {
  return tensor.numel() <= kLargest && is_plain(tensor);
}

bool TensorPack::has_room_for(const at::Tensor& param) const {
  return size_ + with_gap(param) <= kCapacity;
}

void TensorPack::add(const at::Tensor& param) {
  places_.push_back({param.unsafeGetTensorImpl(), static_cast<size_t>(size_) * param.itemsize(), param.nbytes()});
  size_ += with_gap(param);
  type_ = param.scalar_type();
}

void TensorPack::make() {
  params_ = make_flat(0);
  grads_ = make_flat(0);
}

at::Tensor TensorPack::make_flat(double value) const {
  return at::full({size_}, value, at::TensorOptions(type_));
}

at::Tensor TensorPack::part(const at::Tensor& flat, size_t i) const {
  const Place& place = places_[i];
  const auto first = static_cast<int64_t>(place.first / flat.itemsize());
  return flat.narrow(0, first, static_cast<int64_t>(place.bytes / flat.itemsize())).view(place.param->sizes());
}

bool TensorPack::holds(size_t i) const {
  const c10::TensorImpl& param = *places_[i].param;
  return param.dtype() == params_.dtype() && param.is_cpu() && param.is_contiguous() &&
         static_cast<size_t>(param.numel()) * params_.itemsize() == places_[i].bytes;
}

bool TensorPack::put_gradient(size_t i, const at::Tensor& grad) const {
  const Place& place = places_[i];
  if (grad.dtype() != params_.dtype() || !is_plain(grad) || grad.nbytes() != place.bytes) return false;
  if (place.bytes > 0) {
    std::memcpy(static_cast<char*>(grads_.mutable_data_ptr()) + place.first, grad.const_data_ptr(), place.bytes);
  }
  return true;
}

void TensorPack::read_params() const {
  auto* to = static_cast<char*>(params_.mutable_data_ptr());
  for (const Place& place : places_) {
    if (place.bytes > 0) std::memcpy(to + place.first, place.param->data(), place.bytes);
  }
}

void TensorPack::write_params() const {
  const auto* from = static_cast<const char*>(params_.const_data_ptr());
  for (const Place& place : places_) {
    if (place.bytes > 0) std::memcpy(place.param->mutable_data(), from + place.first, place.bytes);
  }
}

}  // namespace levin::detail
