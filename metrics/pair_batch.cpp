#include "levin/metrics/pair_batch.h"

#include <c10/util/StringUtil.h>

#include "levin/core/options/error.h"

namespace levin::metrics {

namespace {

at::ScalarType type_that_holds(at::ScalarType a, at::ScalarType b) {
  const auto is_small = [](at::ScalarType type) {
    return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
  };
  return is_small(a) && is_small(b) ? at::kFloat : at::kDouble;
}

at::Tensor plain(const at::Tensor& tensor, at::ScalarType type) {
  const at::Tensor typed = tensor.scalar_type() == type ? tensor : tensor.to(type);
  return typed.is_cpu() && !typed.is_contiguous() ? typed.contiguous() : typed;
}

}  // namespace

std::string shape_of(const at::Tensor& tensor) {
  return c10::str(tensor.sizes());
}

void check_same_device(const std::string& metric, const at::Tensor& preds, const at::Tensor& target) {
  if (preds.device() == target.device()) return;
  throw Error(metric + ": preds is on " + preds.device().str() + " and target on " + target.device().str() +
              ". Move both to one device.");
}

PairBatch pair_batch(const std::string& metric, const at::Tensor& preds, const at::Tensor& target) {
  if (preds.sizes() != target.sizes()) {
    throw Error(metric + ": preds has the shape " + shape_of(preds) + " and target " + shape_of(target) +
                ". Give both the same shape.");
  }
  check_same_device(metric, preds, target);
  const at::ScalarType type = type_that_holds(preds.scalar_type(), target.scalar_type());
  return {plain(preds, type), plain(target, type)};
}

OutputShape output_shape(const std::string& metric, const at::Tensor& preds, int64_t num_outputs, bool one_dimension) {
  const auto sizes = preds.sizes();
  if (num_outputs == 1) {
    const bool fits = !one_dimension || sizes.size() == 1 || (sizes.size() == 2 && sizes[1] == 1);
    if (fits) return {preds.numel(), 1};
  } else if (sizes.size() == 2 && sizes[1] == num_outputs) {
    return {sizes[0], num_outputs};
  }
  const std::string wanted = num_outputs == 1 ? "(N) or (N, 1)" : "(N, " + std::to_string(num_outputs) + ")";
  throw Error(metric + ": preds and target have the shape " + shape_of(preds) + ", and num_outputs is " +
              std::to_string(num_outputs) + ". Give them the shape " + wanted + ", or set .num_outputs.");
}

}  // namespace levin::metrics
