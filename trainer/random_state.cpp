#include "levin/trainer/random_state.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "levin/core/seed.h"

namespace levin {

namespace {

at::Generator& cpu_generator() {
  static at::Generator generator = at::detail::getDefaultCPUGenerator();
  return generator;
}

}  // namespace

RandomState::RandomState() {
  const std::lock_guard lock(cpu_generator().mutex());
  cpu_ = cpu_generator().get_state();
}

RandomState::~RandomState() {
  const std::lock_guard lock(cpu_generator().mutex());
  cpu_generator().set_state(cpu_);
}

void seed_everything(uint64_t seed) {
  {
    const std::lock_guard lock(cpu_generator().mutex());
    cpu_generator().set_current_seed(seed);
  }
  set_default_seed(seed);
}

}  // namespace levin
