#include "levin/strategies/process/nccl.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

using levin::World;

// The name and the type that strategies/process/nccl.h gives.
extern "C" c10::intrusive_ptr<c10d::ProcessGroup> levin_make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                                        const World& world,
                                                                        std::chrono::milliseconds timeout,
                                                                        at::Device device) {
  const int rank = static_cast<int>(world.rank);
  const int size = static_cast<int>(world.size);
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  const auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, std::move(options));
  nccl->setBoundDeviceId(device);
  group->setBackend(at::kCUDA, c10d::ProcessGroup::BackendType::NCCL, nccl);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::NCCL);
  return group;
}

namespace {
[[maybe_unused]] constexpr levin::MakeNcclGroup kSameType = levin_make_nccl_group;
}
