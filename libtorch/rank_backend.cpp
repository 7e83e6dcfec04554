// c10d's headers declare Gloo only if this macro is defined; Gloo itself is part of libtorch_cpu.
#define USE_C10D_GLOO
#include "levin/libtorch/rank_backend.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

namespace levin {

namespace {

using Milliseconds = std::chrono::milliseconds;

template <class Target>
concept HasTimeout = requires(Target& target, Milliseconds timeout) {
  target.setTimeout(timeout);
};
template <class Target>
concept HasAbort = requires(Target& target) {
  target.abort();
};

// What c10d's own setTimeout does, which LibTorch 2.8 and older lack.
class TimedGloo final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  void use_timeout(Milliseconds timeout) {
    options_->timeout = timeout;
    for (const auto& context : contexts_) context->setTimeout(timeout);
  }
};

template <class Backend>
bool set_backend_timeout(Backend& backend, Milliseconds timeout) {
  if constexpr (HasTimeout<Backend>) {
    backend.setTimeout(timeout);
    return true;
  } else if (auto* own = dynamic_cast<RankBackend*>(&backend)) {
    own->setTimeout(timeout);
    return true;
  } else if (auto* gloo = dynamic_cast<TimedGloo*>(&backend)) {
    gloo->use_timeout(timeout);
    return true;
  } else {
    return false;
  }
}

template <class Group>
bool set_group_timeout(Group& group, Milliseconds timeout) {
  if constexpr (HasTimeout<Group>) {
    group.setTimeout(timeout);
    return true;
  } else {
    return set_timeout(*group.getBackend(group.getBackendType()), timeout);
  }
}

template <class Backend>
void abort_backend(Backend& backend) {
  if constexpr (HasAbort<Backend>) {
    backend.abort();
  } else if (auto* own = dynamic_cast<RankBackend*>(&backend)) {
    own->abort();
  }
}

template <class Group>
void close(Group& group, bool has_failed) {
  if constexpr (HasAbort<Group>) has_failed ? group.abort() : group.shutdown();
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    const std::string& address, int threads, Milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(address.empty() ? c10d::ProcessGroupGloo::createDefaultDevice()
                                             : c10d::ProcessGroupGloo::createDeviceForHostname(address));
  options->threads = threads;
  using Gloo = std::conditional_t<HasTimeout<c10d::Backend>, c10d::ProcessGroupGloo, TimedGloo>;
  return c10::make_intrusive<Gloo>(store, rank, size, options);
}

bool set_timeout(c10d::Backend& backend, Milliseconds timeout) {
  return set_backend_timeout(backend, timeout);
}

bool set_timeout(c10d::ProcessGroup& group, Milliseconds timeout) {
  return set_group_timeout(group, timeout);
}

void abort_calls(c10d::Backend& backend) {
  abort_backend(backend);
}

void close_group(c10d::ProcessGroup& group, bool has_failed) {
  close(group, has_failed);
}

void broadcast_from_rank_zero(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                              const std::vector<at::Tensor>& tensors, size_t bytes) {
  c10d::broadcast_coalesced(group, tensors, bytes);
}

}  // namespace levin
