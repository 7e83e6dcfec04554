#include "operator_random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>

#include "memory.h"

namespace simulated {

namespace {

constexpr uint64_t kDrawn = 4;  // numbers that a call may draw at most in each thread, as far as the offset goes

std::optional<size_t> generator_of(const c10::FunctionSchema& schema) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (schema.arguments()[i].type()->str().find("Generator") != std::string::npos) return i;
  }
  return std::nullopt;
}

template <class Number>
uint64_t value_of(const Number& number, bool captured) {
  if (!captured) return number.val;
  return *static_cast<uint64_t*>(DeviceMemory::instance().on_host(number.ptr));
}

at::Generator generator_from(const at::PhiloxCudaState& state) {
  const uint64_t seed = value_of(state.seed_, state.captured_);
  const uint64_t offset = value_of(state.offset_, state.captured_) + (state.captured_ ? state.offset_intragraph_ : 0);
  return at::detail::createCPUGenerator(seed * 1000003 + offset);
}

}  // namespace

Random Random::of(const c10::FunctionSchema& schema, const Stack& arguments) {
  Random random;
  random.argument_ = generator_of(schema);
  if (!random.argument_ && schema.name() != "aten::native_dropout") return random;
  std::optional<at::Generator> given;
  if (random.argument_ && !arguments[*random.argument_].isNone()) given = arguments[*random.argument_].toGenerator();
  auto* generator =
      at::get_generator_or_default<at::CUDAGeneratorImpl>(given, at::cuda::detail::getDefaultCUDAGenerator());
  const std::lock_guard lock(generator->mutex_);
  random.state_ = generator->philox_cuda_state(kDrawn);
  return random;
}

std::optional<at::Generator> Random::generator() const {
  return state_ ? std::optional(generator_from(*state_)) : std::nullopt;
}

}  // namespace simulated
