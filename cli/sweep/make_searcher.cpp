#include "levin/cli/sweep/make_searcher.h"

#include <algorithm>
#include <limits>

#include "levin/cli/sweep/halving.h"

namespace levin {

namespace {

// Each trial runs to its end, in the order of their numbers.
class WholeRuns final : public Searcher {
 public:
  WholeRuns(SweepOptions options, Space space) : options_(std::move(options)), space_(std::move(space)) {}

  [[nodiscard]] SearchStep next(const std::vector<Trial>& trials) const override {
    const auto count = static_cast<int64_t>(trials.size());
    if (count < total() && options_.search.method != SearchMethod::ask) {
      return {.kind = SearchStep::Kind::begin, .parameters = parameters_of(options_, space_, count)};
    }
    const bool all_ended = std::all_of(trials.begin(), trials.end(), [](const Trial& trial) {
      return trial.state == TrialState::completed || trial.state == TrialState::failed;
    });
    return {.kind = all_ended && count >= total() ? SearchStep::Kind::finished : SearchStep::Kind::wait};
  }

  [[nodiscard]] int64_t total() const override {
    const int64_t most = options_.max_trials.value_or(std::numeric_limits<int64_t>::max());
    return options_.search.method == SearchMethod::grid ? std::min(most, grid_size(space_)) : most;
  }

 private:
  SweepOptions options_;
  Space space_;
};

}  // namespace

std::unique_ptr<Searcher> make_searcher(const SweepOptions& options, const Space& space, int64_t max_resource) {
  switch (options.search.method) {
    case SearchMethod::asha: return std::make_unique<Asha>(options, space, max_resource);
    case SearchMethod::hyperband: return std::make_unique<Hyperband>(options, space, max_resource);
    default: return std::make_unique<WholeRuns>(options, space);
  }
}

}  // namespace levin
