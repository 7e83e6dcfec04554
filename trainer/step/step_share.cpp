#include "levin/trainer/step/step_share.h"

#include <ATen/ops/empty.h>

#include <utility>

namespace levin {

namespace {

StepShare*& thread_share() {
  thread_local StepShare* share = nullptr;
  return share;
}

}  // namespace

void StepShare::log(std::string_view name, const at::Tensor& value, const LogOptions& options) {
  StepShare::Logged entry{std::string(name), {}, 0, static_cast<double>(options.batch_size.value_or(samples)), options};
  if (value.defined() && value.numel() == 1 && value.is_cpu()) {
    entry.number = value.item().toDouble();
  } else {
    entry.value = value.defined() ? value.detach().to(at::kDouble) : at::empty({0});
  }
  logged.push_back(std::move(entry));
}

void StepShare::log(std::string_view name, double value, const LogOptions& options) {
  logged.push_back({std::string(name), {}, value, static_cast<double>(options.batch_size.value_or(samples)), options});
}

void StepShare::log(std::string_view name, metrics::Metric& metric, const LogOptions& options) {
  logged.push_back({std::string(name), {}, 0, 1, options, &metric});
}

StepShare* this_share() {
  return thread_share();
}

ShareScope::ShareScope(StepShare& share)
    : outer_(std::exchange(thread_share(), &share)), outer_updates_(metrics::exchange_update_records(share.updates)) {}

ShareScope::~ShareScope() {
  metrics::exchange_update_records(std::move(outer_updates_));
  thread_share() = outer_;
}

}  // namespace levin
