#include "levin/metrics/auroc.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/trapezoid.h>

namespace levin::metrics {

at::Tensor AUROC::exact_area(const Points& points) const {
  const at::Tensor tp = at::constant_pad_nd(points.tp, {1, 0});  // the curve begins in (0, 0)
  const at::Tensor fp = at::constant_pad_nd(points.fp, {1, 0});
  return at::trapezoid(tp.div(points.positives.clamp_min(1)), fp.div(points.negatives.clamp_min(1)));
}

// torchmetrics: the curve begins at the highest threshold, not in (0, 0).
at::Tensor AUROC::binned_area(const Points& points) const {
  return at::trapezoid(points.tp.div(points.positives.clamp_min(1)), points.fp.div(points.negatives.clamp_min(1)));
}

}  // namespace levin::metrics
