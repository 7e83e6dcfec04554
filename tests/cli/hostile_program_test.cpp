// Malicious run files, given to the real program: `levin fit --config FILE` must refuse each with a clear message
// in under a second and under 200 MB more than a run with a harmless mistake takes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "cli/config_files.h"
#include "levin/core/files/files.h"
#include "support/paths.h"
#include "support/sanitized.h"

constexpr double kMaxSeconds = levin::test::kSanitized ? 30.0 : 1.0;
constexpr double kMaxMegabytes = levin::test::kSanitized ? 2000 : 200;

namespace levin::hostile_program_test {
namespace {

using test::expect_parts;
using testing::ConfigFiles;

struct Finished {
  int status = -1;       // exit status, or minus the signal that ended it
  std::string errors;    // the text on stderr
  double seconds = 0;    // of the processor, so that a busy machine does not count
  double megabytes = 0;  // resident at most
};

Finished run_tool(const ConfigFiles& files, const std::string& config) {
  const std::string errors_path = files.write("errors.txt", "");
  const std::string program = test::binary_dir() + "/bin/levin";
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::dup2(::open("/dev/null", O_RDWR), STDIN_FILENO);
    ::dup2(::open("/dev/null", O_RDWR), STDOUT_FILENO);
    ::dup2(::open(errors_path.c_str(), O_WRONLY), STDERR_FILENO);
    ::execl(program.c_str(), "levin", "fit", "--config", config.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  rusage usage{};
  ::wait4(child, &status, 0, &usage);
  Finished done;
  done.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  done.errors = read_file(errors_path);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  done.seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  done.megabytes = static_cast<double>(usage.ru_maxrss) / 1024;  // the kernel counts KiB
  return done;
}

struct Hostile {
  const char* what;
  std::string text;
  std::vector<std::string> expected_parts;  // parts of the message; "FILE" stands for the file's path
};

std::string repeated(const std::string& part, size_t times) {
  std::string text;
  text.reserve(part.size() * times);
  for (size_t i = 0; i < times; ++i) text += part;
  return text;
}

std::string billion_laughs() {
  std::string text = "a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string below = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + below + repeated(", " + below, 8) + "]\n";
  }
  return text;
}

std::vector<Hostile> hostile_files() {
  const std::string nul(1, '\0');
  return {
      {"an alias bomb", billion_laughs(), {"FILE:5:", "too large", "Use fewer aliases"}},
      {"an anchor that holds itself", "a: &a [*a]\n", {"FILE:1:8: a[0]: this alias is inside", "only outside"}},
      {"a map that holds itself", "trainer: &t\n  max_epochs: *t\n", {"FILE:2:15: trainer.max_epochs: this alias"}},
      {"500 lists within one another", "a: " + repeated("[", 500) + repeated("]", 500), {"FILE:1:", "more than 100"}},
      {"500 maps within one another", "a: " + repeated("{b: ", 500) + repeated("}", 500), {"FILE:1:", "Nest less"}},
      {"500 block lists within one another", repeated("- ", 500) + "x\n", {"FILE:1:", "more than 100"}},
      {"half a megabyte of opening brackets", repeated("[", 500'000), {"FILE:1:", "more than 100"}},
      {"a file of 100 MB", "a: " + std::string(100'000'000, 'x') + "\n", {"FILE", "more than 524291 bytes"}},
      {"NUL bytes",
       "trainer:\n  max_epochs: 1" + nul + "0\n",
       {"FILE:2:16: a control character (byte 0x00)", "Remove"}},
      {"a file of NUL bytes", std::string(500'000, '\0'), {"FILE:1:1: a control character"}},
      {"a key twice",
       "trainer:\n  max_epochs: 1\n  max_epochs: 2\n",
       {"FILE:3:3: trainer.max_epochs: duplicate key", "first at FILE:2:3", "Remove one"}},
      {"a second document",
       "seed_everything: 1\n---\nseed_everything: 2\n",
       {"FILE:2:1: a second document", "--config"}},
      {"text that is not UTF-8", "trainer:\n  max_epochs: \xff\n", {"FILE:2:15: not UTF-8 (byte 0xff)", "as UTF-8"}},
      {"a key of half a megabyte", std::string(500'000, 'k') + ": 1\n", {"FILE:1:", "no value can start"}},
      {"a quoted key of half a megabyte",
       "? \"" + std::string(500'000, 'k') + "\"\n: 1\n",
       {"FILE:1:", "unknown key", "…"}},
      {"a value of half a megabyte",
       "trainer: {max_epochs: " + std::string(500'000, '9') + "}\n",
       {"FILE:1:23: trainer.max_epochs:", "…"}},
      {"forty thousand keys",
       [] {
         std::string text;
         for (int i = 0; i < 40'000; ++i) text += "key" + std::to_string(i) + ": 1\n";
         return text;
       }(),
       {"FILE:", "unknown key \"key0\"", "39980 more unknown keys"}},
      {"tags that other tools would run",
       "model: !!python/object/apply:os.system [ls]\n",
       {"FILE:1:8: model: unknown tag"}},
      {"an open quote", "trainer: 'x\n", {"FILE:1:10: trainer: not YAML", "closing quote"}},
  };
}

TEST(HostileProgram, RefusesEveryFileClearlyQuicklyAndInLittleMemory) {
  const ConfigFiles files;
  const Finished harmless = run_tool(files, files.write("harmless.yaml", "trainor: {}\n"));
  ASSERT_EQ(harmless.status, 2) << harmless.errors;
  ASSERT_GT(harmless.megabytes, 20) << "LibTorch is not even loaded: what was measured?";
  for (const Hostile& hostile : hostile_files()) {
    SCOPED_TRACE(hostile.what);
    const std::string path = files.write("stranger.yaml", hostile.text);
    const Finished done = run_tool(files, path);
    EXPECT_EQ(done.status, 2);
    for (std::string part : hostile.expected_parts) {
      for (size_t at; (at = part.find("FILE")) != std::string::npos;) part.replace(at, 4, path);
      EXPECT_NE(done.errors.find(part), std::string::npos)
          << "no \"" << part << "\" in: " << done.errors.substr(0, 1000);
    }
    EXPECT_LT(done.errors.size(), 20'000U) << "floods the terminal";
    EXPECT_EQ(done.errors.find('\x1b'), std::string::npos) << "passes escape sequences on";
    EXPECT_LT(done.seconds - harmless.seconds, kMaxSeconds);
    EXPECT_LT(done.megabytes - harmless.megabytes, kMaxMegabytes);
  }
}

TEST(HostileProgram, RefusesADeviceWithoutEnd) {
  const ConfigFiles files;
  const Finished done = run_tool(files, "/dev/zero");
  EXPECT_EQ(done.status, 2);
  expect_parts(done.errors, {"/dev/zero", "more than 524291 bytes"});
  EXPECT_LT(done.seconds, kMaxSeconds + 2);
}

}  // namespace
}  // namespace levin::hostile_program_test
