#include "levin/trainer/loops/keep_memory.h"

#include <algorithm>
#include <string>

#include "levin/core/options/units.h"
#include "levin/core/process/console.h"
#include "levin/core/process/log.h"
#include "levin/core/process/this_process.h"
#include "levin/core/tensors.h"
#include "levin/recompute/memory_meter.h"

namespace levin {

namespace {

constexpr double kSecondsOfFault = 0.5e-6;  // 0.5 to 1.5 were measured, most of it for filling the page with zeros
constexpr double kLeastShare = 0.05;        // of a step
constexpr int64_t kLeastBytes = int64_t{256} << 10;
constexpr int64_t kLeastReported = int64_t{32} << 20;  // less than this nobody misses
constexpr int64_t kMaxKept = (int64_t{2} << 30) - 1;   // mallopt takes an int

}  // namespace

bool FetchedMemory::is_worth_keeping(int64_t available) const {
  const int64_t bytes = faults * page_bytes();
  return bytes >= kLeastBytes && static_cast<double>(faults) * kSecondsOfFault >= kLeastShare * seconds &&
         bytes < available / 2;
}

std::unique_ptr<MemoryKeeping> MemoryKeeping::of(Run& run) {
  if (run.plan.device != "cpu" || !can_set_freed_memory() || freed_memory_is_set()) return nullptr;
  if (process_variables()("LEVIN_KEEP_FREED_MEMORY").value_or("1") == "0") return nullptr;
  return std::unique_ptr<MemoryKeeping>(new MemoryKeeping(run));
}

void MemoryKeeping::begin_batch() {
  if (decided()) return;
  faults_before_ = page_faults();
  began_ = std::chrono::steady_clock::now();
}

bool MemoryKeeping::end_batch() {
  if (decided()) {
    if (kept_ && peak_resident_bytes() > most_resident_) give_up();
    return false;
  }
  if (batches_++ >= kFirst) {
    time_ += std::chrono::steady_clock::now() - began_;
    faults_ += page_faults() - faults_before_;
  }
  return decided() && decide();
}

bool MemoryKeeping::decide() {
  constexpr int kSteps = kLast - kFirst;
  const FetchedMemory fetched{faults_ / kSteps, time_.count() / kSteps};
  const int64_t available = free_memory(at::kCPU) / run_.strategy->ranks().world_size();
  if (!fetched.is_worth_keeping(available)) return false;
  const int64_t most = std::min(available / 2, kMaxKept);
  most_resident_ = peak_resident_bytes() + available / 2;
  kept_.emplace(FreedMemory{most, most});
  const std::string text = "memory that a batch frees is kept for the next one, up to " +
                           bytes_text(static_cast<uint64_t>(most)) + ": each fetched " +
                           bytes_text(static_cast<uint64_t>(fetched.faults * page_bytes())) +
                           " from the system (LEVIN_KEEP_FREED_MEMORY=0 prevents it)";
  log::trainer.info("{}", text);
  const bool is_large = fetched.faults * page_bytes() >= kLeastReported;
  if (is_large && run_.plan.model_summary && run_.strategy->ranks().rank() == 0) Console::instance().print(text);
  return true;
}

// Free blocks that lie apart do not make a larger one, so the heap may grow.
void MemoryKeeping::give_up() {
  kept_.reset();
  log::trainer.info("memory that a batch frees is returned to the system again: the process has grown to {}",
                    bytes_text(static_cast<uint64_t>(peak_resident_bytes())));
}

}  // namespace levin
