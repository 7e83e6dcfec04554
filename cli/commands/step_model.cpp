#include "levin/cli/commands/step_model.h"

#include <algorithm>
#include <cmath>

namespace levin {

namespace {

// (n - 1) messages of 1/n each.
double ring_seconds(double bytes, int64_t n, const Link& link) {
  const auto messages = static_cast<double>(n - 1);
  return n < 2 ? 0 : messages * (bytes / static_cast<double>(n) / link.bandwidth + link.latency);
}

// Parts of equal size become ready one after another while `computing` goes on, and are sent one after another: either
// the last part is sent after the computation, or the link has been busy since the first one was ready.
double beside(double computing, double sending, double parts) {
  return std::max(computing + sending / parts, computing / parts + sending);
}

StepPrediction predicted(double step, double communication, const StepCost& cost) {
  return {step, communication, cost.alone() / step};
}

}  // namespace

double all_gather_seconds(double bytes, const Cluster& cluster) {
  return ring_seconds(bytes, cluster.devices_per_node, cluster.inside) +
         ring_seconds(bytes, cluster.nodes, cluster.between);
}

double all_reduce_seconds(double bytes, const Cluster& cluster) {
  return 2 * all_gather_seconds(bytes, cluster);
}

StepPrediction predict_ddp(const StepCost& cost, const Cluster& cluster) {
  const double buckets = std::max(1.0, std::ceil(cost.bytes / cost.bucket_bytes));
  const double sending = buckets * all_reduce_seconds(cost.bytes / buckets, cluster);
  const double backward = cluster.devices() == 1 ? cost.backward : beside(cost.backward, sending, buckets);
  return predicted(cost.forward + backward + cost.optimizer + cost.other, sending, cost);
}

StepPrediction predict_fsdp(const StepCost& cost, const Cluster& cluster, int stage) {
  if (cluster.devices() == 1) return predicted(cost.alone(), 0, cost);
  const double optimizer = cost.optimizer / static_cast<double>(cluster.devices());
  if (stage < 3) {
    const double buckets = std::max(1.0, std::ceil(cost.bytes / cost.bucket_bytes));
    const double scattering = buckets * all_gather_seconds(cost.bytes / buckets, cluster);
    const double gathering = all_gather_seconds(cost.bytes, cluster);
    const double backward = beside(cost.backward, scattering, buckets);
    return predicted(cost.forward + backward + optimizer + gathering + cost.other, scattering + gathering, cost);
  }
  const auto units = static_cast<double>(cost.units);
  const double gathering = units * all_gather_seconds(cost.bytes / units, cluster);
  // Forward waits for its first unit, as a part that is sent waits for the first one to be ready.
  const double forward = beside(cost.forward, gathering, units);
  // In backward the next unit's parameters and the last one's gradients share the link.
  const double backward = beside(cost.backward, 2 * gathering, units);
  return predicted(forward + backward + optimizer + cost.other, 3 * gathering, cost);
}

}  // namespace levin
