#include "levin/metrics/precision_recall.h"

namespace levin::metrics {

at::Tensor Precision::compute() const {
  const Counts c = counts();
  return averaged(c.tp, c.tp.add(c.fp), c, absent_by_top_k());
}

at::Tensor Recall::compute() const {
  const Counts c = counts();
  return averaged(c.tp, c.tp.add(c.fn), c, absent_by_top_k());
}

at::Tensor Specificity::compute() const {
  const Counts c = counts();
  return averaged(c.tn, c.tn.add(c.fp), c, Absent::unseen);
}

}  // namespace levin::metrics
