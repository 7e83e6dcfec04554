#include "levin/callbacks/batch_size_finder.h"

#include <algorithm>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

constexpr const char* kName = "BatchSizeFinder";

std::string named(const std::string& text) {
  return "BatchSizeFinder: " + text;
}

}  // namespace

BatchSizeFinder::BatchSizeFinder(BatchSizeFinderOptions options)
    : options_(checked(options, "BatchSizeFinderOptions")) {
  if (options_.init_val <= options_.max_val) return;
  throw ConfigError("BatchSizeFinderOptions.init_val: " + std::to_string(options_.init_val) +
                    " is more than max_val, " + std::to_string(options_.max_val) + ". Begin with fewer samples.");
}

void BatchSizeFinder::setup(Trainer&, LightningModule&, Stage stage) {
  if (stage == Stage::fit || found_) return;
  throw ConfigError(
      named("it runs training steps, and this stage does not train. Call fit first, or drop the callback."));
}

void BatchSizeFinder::on_fit_start(Trainer& trainer, LightningModule&) {
  if (trainer.plan().fast_dev_run) return;
  if (trainer.plan().micro_batch_size == kAutoMicroBatch) {
    throw ConfigError(named("with micro_batch_size: auto every batch fits, in parts. Drop one of the two."));
  }
  if (!found_) {
    TrialRuns trials(trainer, kName);
    configured_ = trials.batch_size();
    found_ = search(trials);
  }
  TrialRuns::keep_batch_size(trainer, *found_, configured_);
}

int64_t BatchSizeFinder::search(TrialRuns& trials) const {
  Bounds bounds;
  int64_t size = options_.init_val;
  for (int64_t trial = 0; trial < options_.max_trials; ++trial) {
    const auto outcome = trials.try_batch_size(size, options_.steps_per_trial);
    if (outcome == TrialRuns::Outcome::fits) {
      bounds.fits = std::max(bounds.fits, size);
    } else {
      bounds.too_large = size;
      bounds.by_memory = outcome == TrialRuns::Outcome::out_of_memory;
    }
    if (outcome == TrialRuns::Outcome::larger_than_data && bounds.fits == 0) {
      throw ConfigError("BatchSizeFinderOptions.init_val: " + count_of(size, "sample") +
                        " are more than the training data have. Begin with fewer.");
    }
    const auto next = next_size(bounds, size);
    if (!next) break;
    size = *next;
  }
  return result(bounds);
}

// Lightning's power mode tries the whole data set if doubling exceeds it; here it stays a power of two (times
// init_val), because that was requested.
std::optional<int64_t> BatchSizeFinder::next_size(const Bounds& bounds, int64_t tried) const {
  if (bounds.too_large == 0) {
    return tried < options_.max_val ? std::optional(std::min(2 * tried, options_.max_val)) : std::nullopt;
  }
  if (bounds.fits == 0) return tried > 1 ? std::optional(tried / 2) : std::nullopt;
  if (options_.mode == BatchSizeSearch::power || bounds.too_large - bounds.fits <= 1) return std::nullopt;
  return bounds.fits + (bounds.too_large - bounds.fits) / 2;
}

int64_t BatchSizeFinder::result(const Bounds& bounds) const {
  if (bounds.fits == 0) {
    throw Error(
        named("not even " + count_of(bounds.too_large, "sample") +
              " of a batch fit into memory. Use precision: bf16-mixed, recompute, a smaller model, or begin with a "
              "smaller init_val."));
  }
  int64_t found = bounds.fits;
  if (options_.mode == BatchSizeSearch::binsearch && bounds.by_memory) {
    found = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(found) * (1 - options_.margin)));
  }
  const std::string limit = bounds.too_large == 0 ? "no more were tried"
                            : bounds.by_memory    ? count_of(bounds.too_large, "sample") + " run out of memory"
                                                  : count_of(bounds.too_large, "sample") + " are more than there are";
  Console::instance().print(named(count_of(bounds.fits, "sample") + " fit, " + limit + ". Batches have " +
                                  count_of(found, "sample") + "; the configured size was " +
                                  std::to_string(configured_) + "."));
  return found;
}

State BatchSizeFinder::state_dict() const {
  State state;
  if (!found_) return state;
  state.set("found", *found_);
  state.set("configured", configured_);
  return state;
}

void BatchSizeFinder::load_state_dict(const State& saved) {
  found_ = saved.get<int64_t>("found");
  configured_ = saved.get<int64_t>("configured");
}

}  // namespace levin
