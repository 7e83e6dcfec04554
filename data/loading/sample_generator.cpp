#include "levin/data/loading/sample_generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <optional>

#include "levin/core/random.h"

namespace levin {

namespace {

// Seeding a Mersenne twister takes a microsecond or two, so it is delayed until the first draw.
thread_local std::optional<uint64_t> pending_seed;

}  // namespace

at::Generator& sample_generator() {
  thread_local at::Generator generator = at::detail::createCPUGenerator(default_seed());
  if (pending_seed) {
    generator.set_current_seed(*pending_seed);
    pending_seed.reset();
  }
  return generator;
}

void seed_sample_generator(uint64_t seed) {
  pending_seed = seed;
}

}  // namespace levin
