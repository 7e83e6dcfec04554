#include "levin/libtorch/version.h"

#include <gtest/gtest.h>

#include "levin/core/options/error.h"

namespace levin::version_test {
namespace {

static_assert(LEVIN_TORCH_AT_LEAST(1, 99) && LEVIN_TORCH_AT_LEAST(2, 6));
static_assert(LEVIN_TORCH_AT_LEAST(TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR));
static_assert(!LEVIN_TORCH_AT_LEAST(TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR + 1));
static_assert(!LEVIN_TORCH_AT_LEAST(TORCH_VERSION_MAJOR + 1, 0));

TEST(TorchVersion, IsNamedWhereAFeatureNeedsANewerOne) {
  const std::string text =
      "record_steps needs LibTorch 99.1 or newer; this is Levin with LibTorch " + torch_version() + ".";
  EXPECT_EQ(needs_torch_text("record_steps", 99, 1), text);
  try {
    report_old_torch("record_steps", 99, 1);
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), text);
  }
}

TEST(TorchVersion, BeginsWithMajorAndMinor) {
  const std::string expected = std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR) + ".";
  EXPECT_EQ(torch_version().substr(0, expected.size()), expected);
}

}  // namespace
}  // namespace levin::version_test
