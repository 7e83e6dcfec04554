#include "levin/trainer/plan/backend_settings.h"

#include <ATen/Context.h>

namespace levin {

namespace {

MatmulPrecision matmul_precision() {
  switch (at::globalContext().float32MatmulPrecision()) {
    case at::Float32MatmulPrecision::HIGH: return MatmulPrecision::high;
    case at::Float32MatmulPrecision::MEDIUM: return MatmulPrecision::medium;
    default: return MatmulPrecision::highest;
  }
}

void set_matmul_precision(MatmulPrecision precision) {
  for (const auto& [name, value] : EnumNames<MatmulPrecision>::names) {
    if (value == precision) at::globalContext().setFloat32MatmulPrecision(name);
  }
}

}  // namespace

BackendSettings::BackendSettings(const TrainerOptions& options, const RunPlan& plan)
    : sets_deterministic_(options.deterministic != std::variant<bool, std::string>(false)),
      outer_deterministic_(at::globalContext().deterministicAlgorithms()),
      outer_warns_only_(at::globalContext().deterministicAlgorithmsWarnOnly()),
      sets_benchmark_(plan.benchmark.has_value()),
      outer_benchmark_(at::globalContext().benchmarkCuDNN()),
      sets_precision_(plan.float32_matmul_precision.has_value()),
      outer_precision_(sets_precision_ ? matmul_precision() : MatmulPrecision::highest) {
  if (sets_deterministic_) {
    const bool warns = std::holds_alternative<std::string>(options.deterministic);
    at::globalContext().setDeterministicAlgorithms(true, warns);
  }
  if (sets_benchmark_) at::globalContext().setBenchmarkCuDNN(*plan.benchmark);
  if (sets_precision_) set_matmul_precision(*plan.float32_matmul_precision);
  if (plan.num_threads > 0) threads_.emplace(static_cast<int>(plan.num_threads));
}

BackendSettings::~BackendSettings() {
  if (sets_deterministic_) at::globalContext().setDeterministicAlgorithms(outer_deterministic_, outer_warns_only_);
  if (sets_benchmark_) at::globalContext().setBenchmarkCuDNN(outer_benchmark_);
  if (sets_precision_) set_matmul_precision(outer_precision_);
}

}  // namespace levin
