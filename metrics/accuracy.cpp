#include "levin/metrics/accuracy.h"

namespace levin::metrics {

at::Tensor Accuracy::compute() const {
  const Counts c = counts();
  if (spec().task == Task::multiclass) return averaged(c.tp, c.tp.add(c.fn), c, absent_by_top_k());
  const at::Tensor right = c.tp.add(c.tn);
  return averaged(right, right.add(c.fp).add(c.fn), c, absent_by_top_k());
}

}  // namespace levin::metrics
