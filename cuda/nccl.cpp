#include "levin/strategies/process/nccl.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "levin/core/process/rank_status.h"

using levin::World;

namespace {

// Note [Collectives that fail on a GPU]
// A collective that times out, or whose peer is gone, is found by a thread of c10d's, while the thread that trains
// waits for the device, or has launched what uses the result. c10d then ends the process by an exception that nobody
// catches: no step, and no checkpoint, may follow a reduction that was not finished. Here that end becomes an error
// like errors of the other backends: one line, which the launcher reports, and exit status 1.
std::terminate_handler& earlier_handler() {
  static std::terminate_handler handler = nullptr;
  return handler;
}

std::string& self() {
  static std::string text;  // "rank 0 of 2"
  return text;
}

// "… terminated with exception: [Rank 0] Watchdog caught …: WorkNCCL(…) ran for 2023 milliseconds before timing out."
std::string reason_of(const c10::Error& error) {
  std::string text = error.what_without_backtrace();
  const std::string before = "with exception: ";
  if (const size_t found = text.find(before); found != std::string::npos) text.erase(0, found + before.size());
  if (text.rfind("[Rank ", 0) == 0) text.erase(0, text.find("] ") + 2);
  text.erase(std::min(text.find('\n'), text.size()));
  return text.ends_with('.') ? text : text + ".";
}

[[noreturn]] void end_process() {
  try {
    if (const auto current = std::current_exception()) std::rethrow_exception(current);
  } catch (const c10::DistBackendError& error) {
    levin::end_rank(self() + ": a collective failed: " + reason_of(error) +
                    " Another rank ended or hangs; see its output.");
  } catch (...) {  // the program's own
  }
  if (earlier_handler() != nullptr) earlier_handler()();
  std::abort();
}

// Once, before the first group: the thread that watches over a group reads both when it is made.
void end_with_an_error(const World& world) {
  if (!self().empty()) return;
  self() = levin::rank_text(world);
  // Between its finding and its end c10d gives a minute to the record of all collectives ("flight recorder").
  if (std::getenv("TORCH_NCCL_TRACE_BUFFER_SIZE") == nullptr && std::getenv("TORCH_FR_BUFFER_SIZE") == nullptr) {
    ::setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", /*overwrite=*/0);
    ::setenv("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "100", /*overwrite=*/0);
  }
  earlier_handler() = std::set_terminate(&end_process);
}

}  // namespace

// The name and the type that strategies/process/nccl.h gives.
extern "C" c10::intrusive_ptr<c10d::ProcessGroup> levin_make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                                        const World& world,
                                                                        std::chrono::milliseconds timeout,
                                                                        at::Device device) {
  end_with_an_error(world);
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
