#include "levin/recompute/recomputed_call.h"

#include <utility>

namespace levin {

RecomputedCall::RecomputedCall(SegmentOptions options, TensorList buffers)
    : options_(std::move(options)), buffers_(std::move(buffers)) {}

TensorList RecomputedCall::around(const ModuleForward& forward, const TensorList& inputs, ChainPlace) {
  if (!recomputation_applies()) return forward(inputs, nullptr);
  if (!is_recomputing()) ++counts_->calls;
  detail::SegmentScope scope(options_, inputs, buffers_, [forward, counts = counts_](const TensorList& given) {
    ++counts->recomputed;
    (void)forward(given, nullptr);
  });
  TensorList outputs = forward(inputs, nullptr);
  scope.finish();
  return outputs;
}

std::shared_ptr<RecomputedCall> RecomputedCall::for_copy(TensorList buffers) const {
  auto copy = std::make_shared<RecomputedCall>(options_, std::move(buffers));
  copy->counts_ = counts_;
  return copy;
}

}  // namespace levin
