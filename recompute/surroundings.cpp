#include "levin/recompute/surroundings.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "levin/libtorch/generator_state.h"

namespace levin {

namespace {

at::Generator cpu_generator() {
  static at::Generator generator = at::detail::getDefaultCPUGenerator();
  return generator;
}

std::vector<at::Device> devices_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Device> devices;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.is_cpu()) continue;
    if (std::find(devices.begin(), devices.end(), tensor.device()) == devices.end()) devices.push_back(tensor.device());
  }
  return devices;
}

// Segments between which nothing was drawn share one tensor: a state is 5 KB on the CPU.
at::Tensor state_of(const at::Generator& generator) {
  static std::mutex mutex;
  static std::unordered_map<at::Device, at::Tensor> last;
  at::Tensor state = generator_state(generator);
  const std::lock_guard lock(mutex);
  at::Tensor& known = last[generator.device()];
  const bool same =
      known.defined() && known.nbytes() == state.nbytes() &&
      std::memcmp(known.const_data_ptr(), state.const_data_ptr(), static_cast<size_t>(state.nbytes())) == 0;
  if (!same) known = std::move(state);
  return known;
}

}  // namespace

std::optional<at::Generator> generator_of(at::Device device) {
  try {
    return at::globalContext().defaultGenerator(device);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

// A thread with its own generator does not touch the process's, which others may be using.
std::vector<Surroundings::Generator> Surroundings::generators_of(const std::vector<at::Device>& devices,
                                                                 bool with_cpu) {
  std::vector<Generator> list;
  const auto add = [&](const at::Generator& generator) { list.push_back({generator, state_of(generator)}); };
  if (with_cpu) add(cpu_generator());
  for (const at::Device device : devices) {
    if (const auto generator = generator_of(device)) add(*generator);
  }
  return list;
}

// Of the CPU and of CUDA always: a segment may use a GPU that none of its inputs is on.
std::vector<Surroundings::Casts> Surroundings::casts_of(const std::vector<at::Device>& devices) {
  std::vector<at::DeviceType> types{at::kCPU, at::kCUDA};
  for (const at::Device device : devices) {
    const bool is_new = std::find(types.begin(), types.end(), device.type()) == types.end();
    if (is_new && at::autocast::is_autocast_available(device.type())) types.push_back(device.type());
  }
  std::vector<Casts> casts;
  for (const at::DeviceType type : types) {
    casts.push_back({type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)});
  }
  return casts;
}

void Surroundings::restore(const std::vector<Generator>& generators) {
  for (const Generator& one : generators) set_generator_state(one.generator, one.state);
}

Surroundings::Surroundings(const std::vector<at::Tensor>& tensors)
    : devices_(devices_of(tensors)),
      thread_random_(mark_thread_random()),
      generators_(generators_of(devices_, !thread_random_)),
      casts_(casts_of(devices_)),
      cache_enabled_(at::autocast::is_autocast_cache_enabled()) {}

void Surroundings::Scope::set_casts(const Surroundings& surroundings) {
  for (const Casts& casts : surroundings.casts_) {
    at::autocast::set_autocast_enabled(casts.device, casts.enabled);
    at::autocast::set_autocast_dtype(casts.device, casts.dtype);
  }
  at::autocast::set_autocast_cache_enabled(surroundings.cache_enabled_);
}

Surroundings::Scope::Scope(const Surroundings& surroundings) : outer_({}) {
  outer_.generators_ = generators_of(surroundings.devices_, !surroundings.thread_random_);
  outer_.casts_ = casts_of(surroundings.devices_);
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
