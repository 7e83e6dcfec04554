#include "levin/data/loading/skipped_sample.h"

#include <utility>

namespace levin {

namespace {

thread_local std::string last_reason;

}  // namespace

Batch skipped_sample(std::string reason) {
  last_reason = std::move(reason);
  return {};
}

std::string detail::take_skip_reason() {
  return std::exchange(last_reason, "");
}

}  // namespace levin
