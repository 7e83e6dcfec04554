#include "levin/core/count_of.h"

namespace levin {

std::string count_of(int64_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many.empty() ? one + "s" : many);
}

}  // namespace levin
