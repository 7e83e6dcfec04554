#include "levin/core/version.h"

namespace levin {

const char* version() {
  return LEVIN_VERSION;  // CMakeLists.txt
}

}  // namespace levin
