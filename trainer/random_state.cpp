#include "levin/trainer/random_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>

#include "levin/core/gpu.h"
#include "levin/core/seed.h"

namespace levin {

namespace {

at::Generator& cpu_generator() {
  static at::Generator generator = at::detail::getDefaultCPUGenerator();
  return generator;
}

// LibTorch must not be asked before the CUDA component is loaded: it would conclude that there is no GPU (core/gpu.h).
int64_t cuda_devices() {
  return gpu_is_open() ? static_cast<int64_t>(at::getNumGPUs()) : 0;
}

at::Generator cuda_generator(int64_t index) {
  return at::globalContext().defaultGenerator(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index)));
}

}  // namespace

State random_state() {
  State state;
  {
    const std::lock_guard lock(cpu_generator().mutex());
    state.tensors["cpu"] = cpu_generator().get_state();
  }
  for (int64_t k = 0; k < cuda_devices(); ++k) {
    at::Generator generator = cuda_generator(k);
    const std::lock_guard lock(generator.mutex());
    state.tensors["cuda." + std::to_string(k)] = generator.get_state();
  }
  return state;
}

void restore_random_state(const State& saved, int64_t rank) {
  {
    const std::lock_guard lock(cpu_generator().mutex());
    const auto own = saved.tensors.find("cpu.rank" + std::to_string(rank));
    cpu_generator().set_state(own != saved.tensors.end() ? own->second : saved.tensor("cpu"));
  }
  const auto own_gpu = saved.tensors.find("cuda.rank" + std::to_string(rank));
  for (int64_t k = 0; k < cuda_devices(); ++k) {
    const auto found = own_gpu != saved.tensors.end() ? own_gpu : saved.tensors.find("cuda." + std::to_string(k));
    if (found == saved.tensors.end()) continue;
    at::Generator generator = cuda_generator(k);
    const std::lock_guard lock(generator.mutex());
    generator.set_state(found->second);
  }
}

RandomState::RandomState() : saved_(random_state()) {}

RandomState::~RandomState() {
  restore_random_state(saved_);
}

void seed_everything(uint64_t seed) {
  {
    const std::lock_guard lock(cpu_generator().mutex());
    cpu_generator().set_current_seed(seed);
  }
  seed_gpus(seed);
  set_default_seed(seed);
}

void seed_gpus(uint64_t seed) {
  for (int64_t k = 0; k < cuda_devices(); ++k) {
    at::Generator generator = cuda_generator(k);
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

}  // namespace levin
