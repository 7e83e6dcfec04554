#include "levin/cli/sweep/searcher.h"

#include <algorithm>

#include "levin/cli/sweep/sobol.h"

namespace levin {

namespace {

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

}  // namespace

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

}  // namespace levin
