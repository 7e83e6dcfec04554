#include "levin/libtorch/version.h"

#include "levin/core/options/error.h"

namespace levin {

std::string needs_torch_text(const std::string& what, int major, int minor) {
  return what + " needs LibTorch " + std::to_string(major) + "." + std::to_string(minor) +
         " or newer; this is Levin with LibTorch " + torch_version() + ".";
}

void report_old_torch(const std::string& what, int major, int minor) {
  throw Error(needs_torch_text(what, major, minor));
}

}  // namespace levin
