#include "levin/cli/sweep/halving.h"

#include <algorithm>
#include <limits>

namespace levin {

namespace {

// Ids of the trials with a result at rung `rung`, the best first; of equal ones the first. A trial that fails later
// keeps its place.
std::vector<int64_t> ranked(const std::vector<Trial>& trials, size_t rung, bool higher_is_better) {
  std::vector<int64_t> ids;
  for (const Trial& trial : trials) {
    if (trial.rungs.size() > rung) ids.push_back(trial.id);
  }
  std::stable_sort(ids.begin(), ids.end(), [&](int64_t a, int64_t b) {
    return is_better(trials[static_cast<size_t>(a)].rungs[rung].value, trials[static_cast<size_t>(b)].rungs[rung].value,
                     higher_is_better);
  });
  return ids;
}

bool is_active(const Trial& trial) {
  return trial.state == TrialState::waiting || trial.state == TrialState::running;
}

}  // namespace

std::vector<int64_t> rungs_between(int64_t min_resource, int64_t factor, int64_t max_resource) {
  std::vector<int64_t> rungs;
  for (int64_t resource = min_resource; resource < max_resource; resource *= factor) {
    rungs.push_back(resource);
    if (resource > std::numeric_limits<int64_t>::max() / factor) break;
  }
  rungs.push_back(max_resource);
  return rungs;
}

Asha::Asha(SweepOptions options, Space space, int64_t max_resource)
    : options_(std::move(options)),
      space_(std::move(space)),
      rungs_(rungs_between(options_.search.min_resource, options_.search.reduction_factor, max_resource)) {}

int64_t Asha::total() const {
  return options_.max_trials.value_or(std::numeric_limits<int64_t>::max());
}

SearchStep Asha::next(const std::vector<Trial>& trials) const {
  for (size_t rung = rungs_.size() - 1; rung-- > 0;) {
    const auto ids = ranked(trials, rung, options_.mode == SweepMode::max);
    const size_t best = ids.size() / static_cast<size_t>(options_.search.reduction_factor);
    for (size_t k = 0; k < best; ++k) {
      const Trial& trial = trials[static_cast<size_t>(ids[k])];
      if (trial.state != TrialState::paused || trial.rungs.size() != rung + 1) continue;
      return {.kind = SearchStep::Kind::continue_, .trial = trial.id, .target = rungs_[rung + 1]};
    }
  }
  const auto count = static_cast<int64_t>(trials.size());
  if (count < total()) {
    return {.kind = SearchStep::Kind::begin, .parameters = parameters_of(options_, space_, count), .target = rungs_[0]};
  }
  const bool waits = std::any_of(trials.begin(), trials.end(), is_active);
  return {.kind = waits ? SearchStep::Kind::wait : SearchStep::Kind::finished};
}

Hyperband::Hyperband(SweepOptions options, Space space, int64_t max_resource)
    : options_(std::move(options)), space_(std::move(space)) {
  const int64_t factor = options_.search.reduction_factor;
  const auto rungs = rungs_between(options_.search.min_resource, factor, max_resource);
  const auto most = static_cast<int64_t>(rungs.size());
  int64_t first = 0;
  for (int64_t bracket = most; bracket > 0; --bracket) {  // the number of its rungs
    Bracket made;
    int64_t power = 1;
    for (int64_t k = 1; k < bracket; ++k) power *= factor;
    int64_t count = (most * power + bracket - 1) / bracket;
    for (int64_t k = most - bracket; k < most; ++k) {
      made.resources.push_back(rungs[static_cast<size_t>(k)]);
      made.trials.push_back(count);
      count = std::max<int64_t>(1, count / factor);
    }
    made.first = first;
    first += made.trials[0];
    brackets_.push_back(std::move(made));
  }
}

int64_t Hyperband::total() const {
  const int64_t all = brackets_.back().first + brackets_.back().trials[0];
  return std::min(all, options_.max_trials.value_or(all));
}

SearchStep Hyperband::next_in(const Bracket& bracket, const std::vector<Trial>& trials) const {
  const int64_t end = std::min(total(), bracket.first + bracket.trials[0]);
  if (end > std::ssize(trials)) return {.kind = SearchStep::Kind::wait};
  std::vector<int64_t> members;  // of the rung
  for (int64_t id = bracket.first; id < end; ++id) members.push_back(id);
  for (size_t rung = 0; rung < bracket.resources.size(); ++rung) {
    bool waits = false;
    for (const int64_t id : members) {
      const Trial& trial = trials[static_cast<size_t>(id)];
      if (trial.rungs.size() > rung || trial.state == TrialState::failed) continue;
      if (trial.state == TrialState::paused) {
        return {.kind = SearchStep::Kind::continue_, .trial = id, .target = bracket.resources[rung]};
      }
      waits = true;
    }
    if (waits) return {.kind = SearchStep::Kind::wait};
    if (rung + 1 == bracket.resources.size()) break;
    auto best = ranked(trials, rung, options_.mode == SweepMode::max);
    std::erase_if(best, [&](int64_t id) { return std::find(members.begin(), members.end(), id) == members.end(); });
    best.resize(std::min(best.size(), static_cast<size_t>(bracket.trials[rung + 1])));
    members = std::move(best);
  }
  return {.kind = SearchStep::Kind::finished};
}

SearchStep Hyperband::next(const std::vector<Trial>& trials) const {
  bool waits = false;
  for (const Bracket& bracket : brackets_) {
    if (bracket.first >= std::ssize(trials)) break;
    SearchStep step = next_in(bracket, trials);
    if (step.kind == SearchStep::Kind::continue_) return step;
    waits = waits || step.kind == SearchStep::Kind::wait;
  }
  const int64_t begun = std::ssize(trials);
  if (begun < total()) {
    int64_t at = 0;
    while (at + 1 < std::ssize(brackets_) && brackets_[static_cast<size_t>(at + 1)].first <= begun) ++at;
    return {.kind = SearchStep::Kind::begin,
            .parameters = parameters_of(options_, space_, begun),
            .target = brackets_[static_cast<size_t>(at)].resources[0],
            .bracket = at};
  }
  return {.kind = waits ? SearchStep::Kind::wait : SearchStep::Kind::finished};
}

}  // namespace levin
