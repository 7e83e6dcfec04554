#include "levin/callbacks/throughput.h"

namespace levin {

Throughput::Throughput(int64_t window_size, std::string separator, int64_t world_size,
                       std::optional<double> available_flops)
    : window_size_(window_size),
      separator_(std::move(separator)),
      world_size_(world_size),
      available_flops_(available_flops) {}

void Throughput::update(const ThroughputPoint& point) {
  window_.push_back(point);
  if (static_cast<int64_t>(window_.size()) > window_size_) window_.pop_front();
}

Metrics Throughput::compute() const {
  if (window_.empty()) return {};
  const ThroughputPoint& first = window_.front();
  const ThroughputPoint& last = window_.back();
  Metrics metrics{{"time", last.seconds},
                  {"batches", static_cast<double>(last.batches)},
                  {"samples", static_cast<double>(last.samples)}};
  if (last.lengths) metrics["lengths"] = static_cast<double>(*last.lengths);
  const double seconds = last.seconds - first.seconds;
  if (seconds <= 0) return metrics;
  const std::string device = "device" + separator_;
  auto add_rate = [&](const std::string& name, double rate) {
    metrics[device + name] = rate;
    if (world_size_ > 1) metrics[name] = rate * static_cast<double>(world_size_);
  };
  const auto batches = static_cast<double>(last.batches - first.batches);
  const auto samples = static_cast<double>(last.samples - first.samples);
  add_rate("batches_per_sec", batches / seconds);
  add_rate("samples_per_sec", samples / seconds);
  if (last.lengths && first.lengths && batches > 0) {
    const double items_in_a_sample = static_cast<double>(*last.lengths - *first.lengths) / batches;
    add_rate("items_per_sec", samples / seconds * items_in_a_sample);
  }
  if (last.flops && first.flops) {
    const double flops = (*last.flops - *first.flops) / seconds;
    add_rate("flops_per_sec", flops);
    if (available_flops_) metrics[device + "mfu"] = flops / *available_flops_;
  }
  return metrics;
}

}  // namespace levin
