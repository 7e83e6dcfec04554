#include "levin/trainer/random_state.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/random.h"
#include "levin/libtorch/generator_state.h"
#include "levin/strategies/accelerator.h"

namespace levin {

namespace {

at::Generator& cpu_generator() {
  static at::Generator generator = at::detail::getDefaultCPUGenerator();
  return generator;
}

// A generator of a device, with the name under which its state is saved.
struct DeviceGenerator {
  std::string kind;  // "cuda"
  int64_t index;
  at::Generator generator;
};

std::vector<DeviceGenerator> device_generators() {
  std::vector<DeviceGenerator> all;
  for (const at::DeviceType type : used_accelerators()) {
    Accelerator& kind = accelerator(type);
    for (int64_t k = 0; k < kind.device_count(); ++k) {
      if (auto generator = kind.generator(k)) all.push_back({accelerator_name(type), k, std::move(*generator)});
    }
  }
  return all;
}

}  // namespace

State random_state() {
  State state;
  state.tensors["cpu"] = generator_state(cpu_generator());
  for (const auto& [kind, index, generator] : device_generators()) {
    state.tensors[kind + "." + std::to_string(index)] = generator_state(generator);
  }
  return state;
}

void restore_random_state(const State& saved, int64_t rank) {
  const auto of_cpu = saved.tensors.find("cpu.rank" + std::to_string(rank));
  set_generator_state(cpu_generator(), of_cpu != saved.tensors.end() ? of_cpu->second : saved.tensor("cpu"));
  for (const auto& [kind, index, generator] : device_generators()) {
    const auto own = saved.tensors.find(kind + ".rank" + std::to_string(rank));
    const auto found = own != saved.tensors.end() ? own : saved.tensors.find(kind + "." + std::to_string(index));
    if (found != saved.tensors.end()) set_generator_state(generator, found->second);
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
  seed_accelerators(seed);
  set_default_seed(seed);
}

void seed_accelerators(uint64_t seed) {
  for (auto& [kind, index, generator] : device_generators()) {
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

}  // namespace levin
