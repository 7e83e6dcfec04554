// The state that a computation depends on besides its inputs: random numbers and autocast. Internal.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "levin/core/random.h"

namespace levin {

/// The generator of the device's operators; unset for a backend that draws from the CPU's.
[[nodiscard]] std::optional<at::Generator> generator_of(at::Device device);

/// The present generators and autocast state of the calling thread: the CPU's generator, or the thread's
/// own (core/random.h), and the generators of the other devices that `tensors` are on.
class Surroundings {
 public:
  explicit Surroundings(const std::vector<at::Tensor>& tensors);

  class Scope;

 private:
  struct Generator {
    at::Generator generator;
    at::Tensor state;
  };
  struct Casts {
    at::DeviceType device;
    bool enabled;
    at::ScalarType dtype;
  };
  static std::vector<Generator> generators_of(const std::vector<at::Device>& devices, bool with_cpu);
  static std::vector<Casts> casts_of(const std::vector<at::Device>& devices);
  static void restore(const std::vector<Generator>& generators);

  std::vector<at::Device> devices_;  // besides the CPU
  RandomMark thread_random_;         // empty: the thread draws from the process's generator
  std::vector<Generator> generators_;
  std::vector<Casts> casts_;
  bool cache_enabled_;
};

/// During its lifetime, the calling thread uses this state; then its own again, unchanged.
class Surroundings::Scope {
 public:
  explicit Scope(const Surroundings& surroundings);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  static void set_casts(const Surroundings& surroundings);

  Surroundings outer_;
  std::shared_ptr<void> thread_random_;
};

}  // namespace levin
