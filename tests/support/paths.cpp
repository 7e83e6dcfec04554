#include "support/paths.h"

namespace levin::test {

const std::string& source_dir() {
  static const std::string path = LEVIN_SOURCE_DIR;
  return path;
}

const std::string& binary_dir() {
  static const std::string path = LEVIN_BINARY_DIR;
  return path;
}

std::string stand_in_nvidia() {
  return binary_dir() + "/tests/nvidia/liblevin_stand_in_nvidia.so";
}

}  // namespace levin::test
