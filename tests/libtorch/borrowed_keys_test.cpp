#include "levin/libtorch/borrowed_keys.h"

#include <gtest/gtest.h>

#include "support/error_text.h"

namespace levin::borrowed_keys_test {
namespace {

constexpr auto kSpareKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

void run_below(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kSpareKey), stack);
}

std::string error_of_registration() {
  return test::error_of<Error>([] { (void)register_fallback<&run_below>(kSpareKey); });
}

TEST(BorrowedKey, IsRefusedWhileAnotherFallbackHasIt) {
  {
    const torch::Library first = register_fallback<&run_below>(kSpareKey);
    EXPECT_TRUE(test::holds(error_of_registration(),
                            {"LibTorch's dispatch key TESTING_ONLY_GenericMode", "has a fallback already",
                             torch_version(), "Run Levin in a process without that library"}));
  }
  EXPECT_EQ(error_of_registration(), "");
}

}  // namespace
}  // namespace levin::borrowed_keys_test
