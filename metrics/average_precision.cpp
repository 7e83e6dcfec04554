#include "levin/metrics/average_precision.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/diff.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/ones_like.h>

namespace levin::metrics {

namespace {

// The dimension of thresholds is the last; the recall is 0 before the first.
at::Tensor sum_of_steps(const at::Tensor& precision, const at::Tensor& recall) {
  return precision.mul(at::diff(at::constant_pad_nd(recall, {1, 0}))).sum(-1);
}

}  // namespace

at::Tensor AveragePrecision::exact_area(const Points& points) const {
  at::Tensor recall = points.tp.div(points.positives);
  // torchmetrics: if no label but 0 was seen, the recall is 1 for every class.
  if (points.no_label_but_zero) recall = at::ones_like(recall);
  return sum_of_steps(points.tp.div(points.tp.add(points.fp)), recall);
}

at::Tensor AveragePrecision::binned_area(const Points& points) const {
  return sum_of_steps(at::nan_to_num(points.tp.div(points.tp.add(points.fp)), 0.0),
                      at::nan_to_num(points.tp.div(points.positives), 0.0));
}

}  // namespace levin::metrics
