// main() of every test program: GoogleTest's, with the number of threads that CTest sets too (with num_threads: auto a
// trainer would choose it by time), with a fixed seed for every test, and with the default actions of signals.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "levin/core/process/program_start.h"
#include "support/run_suites.h"

namespace {

// Seeds the CPU's generator before each test (a GPU may not be touched before Levin's component is opened), so that a
// test draws the same numbers alone, after others, and in every process. LEVIN_TEST_SEED selects a different seed; a
// failed test names the one that it was run with.
class SeedListener : public testing::EmptyTestEventListener {
 public:
  explicit SeedListener(uint64_t seed) : seed_(seed) {}

  void OnTestStart(const testing::TestInfo&) override {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed_);
  }

  void OnTestEnd(const testing::TestInfo& test) override {
    if (test.result()->Failed()) std::printf("The seed was %" PRIu64 " (LEVIN_TEST_SEED=%" PRIu64 ").\n", seed_, seed_);
  }

 private:
  uint64_t seed_;
};

}  // namespace

int main(int argc, char** argv) {
  levin::leave_static_objects();
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    std::signal(number, SIG_DFL);  // not as nohup has left them
  setenv("OMP_NUM_THREADS", "2", /*overwrite=*/0);
  const char* seed = std::getenv("LEVIN_TEST_SEED");
  testing::UnitTest::GetInstance()->listeners().Append(new SeedListener(seed ? std::strtoull(seed, nullptr, 10) : 1));
  return levin::test::run_suites(argc, argv);
}
