#include "levin/metrics/auroc.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/trapezoid.h>

namespace levin::metrics {

// The curve begins in (0, 0), also where scores reach the highest threshold. torchmetrics: with thresholds it begins
// there, and the area of scores that are 1 is lost.
at::Tensor AUROC::exact_area(const Points& points) const {
  const at::Tensor tp = at::constant_pad_nd(points.tp, {1, 0});
  const at::Tensor fp = at::constant_pad_nd(points.fp, {1, 0});
  return at::trapezoid(tp.div(points.positives.clamp_min(1)), fp.div(points.negatives.clamp_min(1)));
}

}  // namespace levin::metrics
