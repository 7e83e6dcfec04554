// How a program ends that does not destroy the static objects made before its main().
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "levin/core/process/program_start.h"
#include "support/sanitized.h"

namespace levin::process_end_test {
namespace {

// What a child writes to its standard output until it has ended, and its status.
template <class Child>
std::pair<std::string, int> output_of(const Child& child) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t process = ::fork();
  if (process == 0) {
    ::dup2(ends[1], 1);
    ::close(ends[0]);
    ::close(ends[1]);
    child();
  }
  ::close(ends[1]);
  std::string output;
  char part[100];
  for (ssize_t got; (got = ::read(ends[0], part, sizeof part)) > 0;) output.append(part, got);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(process, &status, 0);
  return {output, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

TEST(ProcessEnd, LeavesOutWhatWasThereBeforeAndCallsWhatCameLater) {
  if (test::kSanitized) GTEST_SKIP() << "with sanitizers everything is destroyed";
  const auto [output, status] = output_of([] {
    std::atexit([] { std::fputs("before ", stdout); });
    leave_static_objects();
    std::atexit([] { std::fputs("after ", stdout); });
    std::fputs("unflushed ", stdout);
    std::exit(7);
  });
  EXPECT_EQ(output, "unflushed after ");
  EXPECT_EQ(status, 7);
}

}  // namespace
}  // namespace levin::process_end_test
