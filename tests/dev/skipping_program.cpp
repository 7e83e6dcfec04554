// Suites that skip, fail and crash, for check_test.py: what the summary reads is what GoogleTest really prints.
#include <gtest/gtest.h>

#include <csignal>

namespace levin::skipping_program {

TEST(SkipsOne, Runs) {}
TEST(SkipsOne, SkipsWithAReason) {
  GTEST_SKIP() << "this machine has\nno turntable";
}

TEST(SkipsTwo, Runs) {}
TEST(SkipsTwo, First) {
  GTEST_SKIP() << "no needle";
}
TEST(SkipsTwo, Second) {
  GTEST_SKIP() << "no needle";
}

TEST(SkipsAll, First) {
  GTEST_SKIP() << "no record";
}
TEST(SkipsAll, Second) {
  GTEST_SKIP() << "no sleeve";
}

TEST(SkipsWithoutAWord, Runs) {}
TEST(SkipsWithoutAWord, Skips) {
  GTEST_SKIP();
}

TEST(Fails, Skips) {
  GTEST_SKIP() << "no amplifier";
}
TEST(Fails, IsWrong) {
  FAIL() << "a scratch";
}

TEST(Crashes, Always) {
  std::raise(SIGSEGV);
}

}  // namespace levin::skipping_program
