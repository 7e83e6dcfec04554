#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "levin/core/process/process_memory.h"

namespace levin::freed_memory_test {
namespace {

constexpr int64_t kBlock = int64_t{96} << 20;

// Page faults of allocating a block, writing to each of its pages, and freeing it.
int64_t faults_of_a_block() {
  const int64_t before = page_faults();
  const std::unique_ptr<char, void (*)(void*)> block(static_cast<char*>(std::malloc(kBlock)), std::free);
  for (int64_t at = 0; at < kBlock; at += page_bytes()) static_cast<volatile char*>(block.get())[at] = 1;
  return page_faults() - before;
}

TEST(FreedMemory, IsKeptInsideAScopeAndReturnedOutside) {
  if (!can_set_freed_memory()) GTEST_SKIP() << "not glibc's malloc, or its variables are set";
  const int64_t pages = kBlock / page_bytes();
  EXPECT_GE(faults_of_a_block(), pages);
  EXPECT_GE(faults_of_a_block(), pages);
  {
    const FreedMemoryScope kept({.largest_block = int64_t{1} << 30, .kept = int64_t{1} << 30});
    (void)faults_of_a_block();
    EXPECT_LT(faults_of_a_block(), pages / 10);
  }
  EXPECT_GE(faults_of_a_block(), pages);
  EXPECT_GE(faults_of_a_block(), pages);
}

TEST(FreedMemory, IsKeptUpToItsBoundOnly) {
  if (!can_set_freed_memory()) GTEST_SKIP() << "not glibc's malloc, or its variables are set";
  const FreedMemoryScope kept({.largest_block = kBlock / 2, .kept = int64_t{1} << 30});
  (void)faults_of_a_block();
  EXPECT_GE(faults_of_a_block(), kBlock / page_bytes());
}

TEST(FreedMemory, IsLeftToTheUsersVariables) {
  if (!can_set_freed_memory()) GTEST_SKIP() << "not glibc's malloc, or its variables are set";
  ::setenv("MALLOC_TRIM_THRESHOLD_", "1000000", 1);
  EXPECT_FALSE(can_set_freed_memory());
  ::unsetenv("MALLOC_TRIM_THRESHOLD_");
  EXPECT_TRUE(can_set_freed_memory());
}

}  // namespace
}  // namespace levin::freed_memory_test
