#include "levin/strategies/device/parallel_apply.h"

#include <exception>
#include <optional>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/random.h"
#include "levin/libtorch/thread_state.h"
#include "levin/strategies/device/op_threads.h"
#include "levin/strategies/device/random_scope.h"
#include "levin/strategies/device/worker_thread.h"

namespace levin {

ParallelApply::ParallelApply(std::vector<DeviceSlot> slots) : slots_(std::move(slots)) {
  if (slots_.empty()) throw ConfigError("ParallelApply.slots: it is empty. Give at least one device.");
}

ParallelApply::~ParallelApply() = default;

void ParallelApply::operator()(size_t count, const std::function<void(size_t)>& task) {
  seed_ = count > 1 && slots_[0].device.is_cpu() ? draw_seed() : 0;
  run(count, seed_, task);
}

void ParallelApply::resume(size_t count, const std::function<void(size_t)>& task) {
  run(count, mix_seed(~seed_, count), task);
}

void ParallelApply::run(size_t count, uint64_t seed, const std::function<void(size_t)>& task) {
  while (workers_.size() + 1 < count) workers_.push_back(std::make_unique<WorkerThread>());
  const ThreadLocalState state;
  const int threads = op_threads_share(count);
  std::vector<std::exception_ptr> errors(count);
  const auto guarded = [&](size_t k) {
    try {
      const SlotScope scope(slots_[k]);
      std::optional<RandomScope> random;
      std::optional<OpThreads> share;
      if (count > 1 && slots_[k].device.is_cpu()) {
        random.emplace(mix_seed(seed, k));
        share.emplace(threads);
      }
      task(k);
    } catch (...) {
      errors[k] = std::current_exception();
    }
  };
  for (size_t k = 1; k < count; ++k) {
    workers_[k - 1]->start([&, k] {
      const ThreadLocalStateGuard guard(state);
      guarded(k);
    });
  }
  if (count > 0) guarded(0);
  for (size_t k = 1; k < count; ++k) workers_[k - 1]->wait();
  rethrow(errors);
}

void ParallelApply::rethrow(const std::vector<std::exception_ptr>& errors) const {
  for (size_t k = 0; k < errors.size(); ++k) {
    if (!errors[k]) continue;
    const std::string place =
        "replica " + std::to_string(k) + " of " + std::to_string(errors.size()) + " on " + slots_[k].text() + ": ";
    try {
      std::rethrow_exception(errors[k]);
    } catch (const Interrupted&) {
      throw;
    } catch (const ConfigError& error) {
      throw ConfigError(place + error.what());
    } catch (const std::exception& error) {
      throw Error(place + exception_text(error));
    }
  }
}

}  // namespace levin
