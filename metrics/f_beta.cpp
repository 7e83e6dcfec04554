#include "levin/metrics/f_beta.h"

namespace levin::metrics {

at::Tensor FBetaScore::compute() const {
  const Counts c = counts();
  const double square = options().beta * options().beta;
  const at::Tensor right = c.tp.mul(1 + square);
  return averaged(right, right.add(c.fn.mul(square)).add(c.fp), c, Absent::unseen);
}

}  // namespace levin::metrics
