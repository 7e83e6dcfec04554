#include "levin/cli/sweep/searcher.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

namespace levin {

namespace {

struct Direction {
  uint32_t degree;      // of the primitive polynomial
  uint32_t polynomial;  // its inner coefficients as bits
  std::array<uint32_t, 7> first;
};

// Joe and Kuo, "Constructing Sobol sequences with better two-dimensional projections" (2008): dimensions 2 to 21.
constexpr std::array<Direction, kSobolDimensions - 1> kDirections{{
    {1, 0, {1}},
    {2, 1, {1, 3}},
    {3, 1, {1, 3, 1}},
    {3, 2, {1, 1, 1}},
    {4, 1, {1, 1, 3, 3}},
    {4, 4, {1, 3, 5, 13}},
    {5, 2, {1, 1, 5, 5, 17}},
    {5, 4, {1, 1, 5, 5, 5}},
    {5, 7, {1, 1, 7, 11, 19}},
    {5, 11, {1, 1, 5, 1, 1}},
    {5, 13, {1, 1, 1, 3, 11}},
    {5, 14, {1, 3, 5, 5, 31}},
    {6, 1, {1, 3, 3, 9, 7, 49}},
    {6, 13, {1, 1, 1, 15, 21, 21}},
    {6, 16, {1, 3, 1, 13, 27, 49}},
    {6, 19, {1, 1, 1, 15, 7, 5}},
    {6, 22, {1, 3, 1, 15, 13, 25}},
    {6, 25, {1, 1, 5, 5, 19, 61}},
    {7, 1, {1, 3, 7, 11, 23, 15, 103}},
    {7, 4, {1, 3, 7, 13, 13, 15, 69}},
}};

constexpr uint32_t kBits = 32;

std::array<uint32_t, kBits> direction_numbers(int dimension) {
  std::array<uint32_t, kBits> v{};
  if (dimension == 0) {
    for (uint32_t k = 0; k < kBits; ++k) v[k] = 1U << (kBits - 1 - k);
    return v;
  }
  const Direction& d = kDirections[static_cast<size_t>(dimension - 1)];
  for (uint32_t k = 0; k < kBits; ++k) {
    if (k < d.degree) {
      v[k] = d.first[k] << (kBits - 1 - k);
      continue;
    }
    v[k] = v[k - d.degree] ^ (v[k - d.degree] >> d.degree);
    for (uint32_t j = 1; j < d.degree; ++j) {
      if (((d.polynomial >> (d.degree - 1 - j)) & 1U) != 0) v[k] ^= v[k - j];
    }
  }
  return v;
}

// SplitMix64's finalizer (Steele, Lea, Flood 2014).
uint64_t mixed(uint64_t bits) {
  bits += 0x9e3779b97f4a7c15ULL;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
  return bits ^ (bits >> 31);
}

uint64_t random_bits(int64_t seed, int64_t trial, size_t dimension) {
  return mixed(mixed(mixed(static_cast<uint64_t>(seed)) + static_cast<uint64_t>(trial)) + dimension);
}

Parameters grid_point(const Space& space, int64_t index) {
  Parameters parameters(space.size());
  for (size_t k = space.size(); k-- > 0;) {  // the last key is the fastest
    const auto values = space[k].all_values();
    const auto count = static_cast<int64_t>(values.size());
    parameters[k] = {space[k].path, values[static_cast<size_t>(index % count)]};
    index /= count;
  }
  return parameters;
}

// Ids of the trials with a result at rung `rung`, the best first; of equal ones the first. A trial that fails later
// keeps its rank.
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

bool is_unfinished(const Trial& trial) {
  return trial.state == TrialState::waiting || trial.state == TrialState::running;
}

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

double sobol(uint32_t index, int dimension, uint32_t shift) {
  const auto v = direction_numbers(dimension);
  uint32_t gray = index ^ (index >> 1);
  uint32_t bits = shift;
  for (uint32_t k = 0; gray != 0; ++k, gray >>= 1) {
    if ((gray & 1U) != 0) bits ^= v[k];
  }
  return static_cast<double>(bits) / 4294967296.0;
}

int64_t grid_size(const Space& space) {
  int64_t size = 1;
  for (const auto& range : space) {
    const auto count = static_cast<int64_t>(range.all_values().size());
    if (size > (int64_t{1} << 62) / std::max<int64_t>(1, count)) return int64_t{1} << 62;
    size *= count;
  }
  return size;
}

Parameters parameters_of(const SweepOptions& options, const Space& space, int64_t trial) {
  if (options.search.method == SearchMethod::grid) return grid_point(space, trial);
  Parameters parameters;
  for (size_t k = 0; k < space.size(); ++k) {
    const double u = options.search.method == SearchMethod::sobol
                         ? sobol(static_cast<uint32_t>(trial), static_cast<int>(k),
                                 static_cast<uint32_t>(random_bits(options.seed, -1, k) >> 32))
                         : static_cast<double>(random_bits(options.seed, trial, k) >> 11) * 0x1p-53;
    parameters.emplace_back(space[k].path, space[k].value_at(u));
  }
  return parameters;
}

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
  const bool waits = std::any_of(trials.begin(), trials.end(), is_unfinished);
  return {.kind = waits ? SearchStep::Kind::wait : SearchStep::Kind::finished};
}

Hyperband::Hyperband(SweepOptions options, Space space, int64_t max_resource)
    : options_(std::move(options)), space_(std::move(space)) {
  constexpr int64_t kMostTrials = int64_t{1} << 55;  // of a bracket; there are fewer than 64
  const int64_t factor = options_.search.reduction_factor;
  const auto rungs = rungs_between(options_.search.min_resource, factor, max_resource);
  const auto most = static_cast<int64_t>(rungs.size());
  int64_t first = 0;
  for (int64_t bracket = most; bracket > 0; --bracket) {  // the number of its rungs
    Bracket made;
    int64_t power = 1;
    for (int64_t k = 1; k < bracket; ++k) power = power > kMostTrials / factor ? kMostTrials : power * factor;
    int64_t count = power > kMostTrials / most ? kMostTrials : (most * power + bracket - 1) / bracket;
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

std::unique_ptr<Searcher> make_searcher(const SweepOptions& options, const Space& space, int64_t max_resource) {
  switch (options.search.method) {
    case SearchMethod::asha: return std::make_unique<Asha>(options, space, max_resource);
    case SearchMethod::hyperband: return std::make_unique<Hyperband>(options, space, max_resource);
    default: return std::make_unique<WholeRuns>(options, space);
  }
}

}  // namespace levin
