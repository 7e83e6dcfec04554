// Suites that skip, fail, crash and wait, for check_test.py, so that the summary reads GoogleTest's real output.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "support/run_suites.h"

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

TEST(Waits, DISABLED_Forever) {
  ::pause();
}

}  // namespace levin::skipping_program

int main(int argc, char** argv) {
  return levin::test::run_suites(argc, argv);
}
