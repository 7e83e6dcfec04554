#include <gtest/gtest.h>

#include "levin/core/options/error.h"

namespace levin::known_names_test {
namespace {

TEST(KnownNames, AreInAlphabeticalOrderRegardlessOfCase) {
  EXPECT_EQ(sorted_names({"lr", "AdamW", "beta", "Adam", "adam", "Lr2"}), "Adam, adam, AdamW, beta, lr, Lr2");
  EXPECT_EQ(sorted_names({}), "none");
}

TEST(KnownNames, FollowTheNearestOne) {
  EXPECT_EQ(known_names("Dogg", {"Snake", "Dog", "cat"}), " Did you mean \"Dog\"? Known: cat, Dog, Snake.");
  EXPECT_EQ(known_names("elephant", {"Snake", "Dog"}), " Known: Dog, Snake.");
}

}  // namespace
}  // namespace levin::known_names_test
