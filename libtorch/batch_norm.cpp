#include "levin/libtorch/batch_norm.h"

#include <ATen/ops/batch_norm_native.h>
#include <ATen/ops/batch_norm_ops.h>
#include <ATen/ops/instance_norm_native.h>
#include <ATen/ops/instance_norm_ops.h>
#include <torch/library.h>

#include <mutex>
#include <shared_mutex>
#include <type_traits>
#include <utility>
#include <vector>

namespace levin {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

// Of the open scopes, the latest one last. Read by threads that train, and by backward's threads, which recompute
// segments.
struct OpenScopes {
  std::shared_mutex mutex = {};
  std::vector<const BatchNormFunction*> functions = {};
};

OpenScopes& open_scopes() {
  static auto* const all = new OpenScopes;  // never destroyed: threads may be in a call when the process ends
  return *all;
}

// Whether this thread is inside instance_norm, which is one batch_norm over all its instances' channels.
thread_local bool in_instance_norm = false;

at::Tensor call_batch_norm(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                           const OptionalTensor& running_mean, const OptionalTensor& running_var, bool training,
                           double momentum, double eps, bool cudnn_enabled) {
  if (training && !in_instance_norm) {
    OpenScopes& scopes = open_scopes();
    const std::shared_lock lock(scopes.mutex);
    for (auto compute = scopes.functions.rbegin(); compute != scopes.functions.rend(); ++compute) {
      auto result = (**compute)({input, weight, bias, running_mean, running_var, momentum, eps});
      if (result) return *std::move(result);
    }
  }
  return at::native::batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
}

class InstanceNormScope {
 public:
  InstanceNormScope() : before_(std::exchange(in_instance_norm, true)) {}
  ~InstanceNormScope() { in_instance_norm = before_; }
  InstanceNormScope(const InstanceNormScope&) = delete;
  InstanceNormScope& operator=(const InstanceNormScope&) = delete;

 private:
  bool before_;
};

at::Tensor call_instance_norm(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                              const OptionalTensor& running_mean, const OptionalTensor& running_var,
                              bool use_input_stats, double momentum, double eps, bool cudnn_enabled) {
  const InstanceNormScope scope;
  return at::native::instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps,
                                   cudnn_enabled);
}

static_assert(std::is_same_v<decltype(call_batch_norm), at::_ops::batch_norm::schema> &&
                  std::is_same_v<decltype(call_instance_norm), at::_ops::instance_norm::schema>,
              "This LibTorch has changed the arguments of batch_norm or instance_norm: adapt libtorch/batch_norm.cpp.");

// Registered from the first use to the end of the process, above the operators' own kernels.
void register_kernels() {
  static const auto kernels = [] {
    std::vector<torch::Library> made;
    for (const auto key : {c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA}) {
      made.emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
      made.back().impl("batch_norm", TORCH_FN(call_batch_norm));
      made.back().impl("instance_norm", TORCH_FN(call_instance_norm));
    }
    return made;
  }();
}

}  // namespace

BatchNormScope::BatchNormScope(BatchNormFunction compute) : compute_(std::move(compute)) {
  register_kernels();
  OpenScopes& scopes = open_scopes();
  const std::unique_lock lock(scopes.mutex);
  scopes.functions.push_back(&compute_);
}

BatchNormScope::~BatchNormScope() {
  OpenScopes& scopes = open_scopes();
  const std::unique_lock lock(scopes.mutex);
  std::erase(scopes.functions, &compute_);
}

}  // namespace levin
