#include "levin/data/batch_memory.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <utility>

#include "levin/core/pinned_memory.h"
#include "levin/data/batch_rows.h"

namespace levin {

namespace {

thread_local bool pins = false;

}  // namespace

PinnedBatches::PinnedBatches(bool pinned) : before_(std::exchange(pins, pinned)) {}

PinnedBatches::~PinnedBatches() {
  pins = before_;
}

at::Tensor empty_batch(at::IntArrayRef sizes, const at::TensorOptions& options) {
  if (pins && options.device().is_cpu()) {
    try {
      return at::empty(sizes, options.pinned_memory(true));
    } catch (const c10::Error&) {  // such memory is limited: copies from ordinary memory are correct, but slower
      pins = false;
    }
  }
  return at::empty(sizes, options);
}

void pin_tensors(Batch& batch) {
  const auto pin = [](at::Tensor& tensor) {
    if (tensor.defined() && tensor.is_cpu()) tensor = pinned(tensor);
  };
  try {
    for (at::Tensor& tensor : batch.tensors) pin(tensor);
    visit_values(batch, pin);
  } catch (const c10::Error&) {  // the rest stays where it is
  }
}

}  // namespace levin
