#include "levin/metrics/auroc.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/trapezoid.h>

namespace levin::metrics {

// Through all points, of one class, the curve begins in (0, 0). torchmetrics: at fixed thresholds, of all classes, it
// begins at the highest one.
at::Tensor AUROC::exact_area(const Points& points) const {
  const int64_t added = points.tp.dim() == 1 ? 1 : 0;
  const at::Tensor tp = at::constant_pad_nd(points.tp, {added, 0});
  const at::Tensor fp = at::constant_pad_nd(points.fp, {added, 0});
  return at::trapezoid(tp.div(points.positives.clamp_min(1)), fp.div(points.negatives.clamp_min(1)));
}

}  // namespace levin::metrics
