#include "levin/recompute/surroundings.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace levin {

namespace {

at::Generator cpu_generator() {
  static at::Generator generator = at::detail::getDefaultCPUGenerator();
  return generator;
}

std::vector<c10::DeviceIndex> gpus_of(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::DeviceIndex> gpus;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.is_cuda()) continue;
    if (std::find(gpus.begin(), gpus.end(), tensor.get_device()) == gpus.end()) gpus.push_back(tensor.device().index());
  }
  return gpus;
}

// Segments between which nothing was drawn share one tensor: a state is 5 KB on the CPU. The generator's mutex is held.
at::Tensor state_of(const at::Generator& generator) {
  static std::mutex mutex;
  static std::unordered_map<at::Device, at::Tensor> last;
  at::Tensor state = generator.get_state();
  const std::lock_guard lock(mutex);
  at::Tensor& known = last[generator.device()];
  const bool same =
      known.defined() && known.nbytes() == state.nbytes() &&
      std::memcmp(known.const_data_ptr(), state.const_data_ptr(), static_cast<size_t>(state.nbytes())) == 0;
  if (!same) known = std::move(state);
  return known;
}

}  // namespace

// A thread with its own generator does not touch the process's, which others may be using.
std::vector<Surroundings::Generator> Surroundings::generators_of(const std::vector<c10::DeviceIndex>& gpus,
                                                                 bool with_cpu) {
  std::vector<Generator> list;
  const auto add = [&](at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    list.push_back({generator, state_of(generator)});
  };
  if (with_cpu) add(cpu_generator());
  for (const auto gpu : gpus) add(at::globalContext().defaultGenerator(at::Device(at::kCUDA, gpu)));
  return list;
}

void Surroundings::restore(const std::vector<Generator>& generators) {
  for (const Generator& one : generators) {
    at::Generator generator = one.generator;  // a handle
    const std::lock_guard lock(generator.mutex());
    generator.set_state(one.state);
  }
}

Surroundings::Surroundings(const std::vector<at::Tensor>& tensors)
    : gpus_(gpus_of(tensors)),
      thread_random_(mark_thread_random()),
      generators_(generators_of(gpus_, !thread_random_)),
      casts_{
          Casts{at::kCPU, at::autocast::is_autocast_enabled(at::kCPU), at::autocast::get_autocast_dtype(at::kCPU)},
          Casts{at::kCUDA, at::autocast::is_autocast_enabled(at::kCUDA), at::autocast::get_autocast_dtype(at::kCUDA)}},
      cache_enabled_(at::autocast::is_autocast_cache_enabled()) {}

void Surroundings::Scope::set_casts(const Surroundings& surroundings) {
  for (const Casts& casts : surroundings.casts_) {
    at::autocast::set_autocast_enabled(casts.device, casts.enabled);
    at::autocast::set_autocast_dtype(casts.device, casts.dtype);
  }
  at::autocast::set_autocast_cache_enabled(surroundings.cache_enabled_);
}

Surroundings::Scope::Scope(const Surroundings& surroundings) : outer_({}) {
  outer_.generators_ = generators_of(surroundings.gpus_, !surroundings.thread_random_);
  restore(surroundings.generators_);
  if (surroundings.thread_random_) thread_random_ = surroundings.thread_random_();
  set_casts(surroundings);
  at::autocast::increment_nesting();
}

Surroundings::Scope::~Scope() {
  // The cache contains casts of weights, which the next optimizer step changes.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  set_casts(outer_);
  thread_random_.reset();
  restore(outer_.generators_);
}

}  // namespace levin
