// Files that try to exhaust time or memory: each must be rejected (or read) quickly and within a bound.
// The bound on memory is a real one: a child process with a limited address space reads the file.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <functional>

#include "cli/config_files.h"
#include "levin/cli/config/merge.h"
#include "levin/cli/config/run_config.h"
#include "levin/yaml/yaml_file.h"
#include "support/sanitized.h"

namespace levin::hostile_yaml_test {
namespace {

using test::expect_parts;
using test::kSanitized;  // a sanitizer's shadow memory does not fit under an address limit
using testing::ConfigFiles;
using testing::lines;

constexpr double kMaxSeconds = kSanitized ? 30.0 : 1.0;
constexpr size_t kMaxMegabytes = 200;

// Returns processor time, so that a busy machine does not affect it.
double seconds_used() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

size_t address_space_megabytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) >> 20;
}

// Runs `work` in a child with 200 MB more address space than it has; whether it came back with `true`.
bool in_bounded_child(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = (address_space_megabytes() + kMaxMegabytes) << 20;
    if (!kSanitized) setrlimit(RLIMIT_AS, &limit);
    bool good = false;
    try {
      good = work();
    } catch (...) {
      good = false;
    }
    _exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The problems of reading `text` as a run file; fails if it takes too long or too much memory.
std::string bounded_errors(const std::string& text) {
  const ConfigFiles files;
  const std::string path = files.write("hostile.yaml", text);
  const auto read_all = [&] {
    Problems problems;
    const ConfigNode config = assemble_config({ConfigFile{path}}, problems);
    (void)read_run_config(config, problems);
    return problems;
  };
  EXPECT_TRUE(in_bounded_child([&] { return !read_all().empty(); })) << "more than 200 MB";
  const double start = seconds_used();
  const Problems problems = read_all();
  EXPECT_LT(seconds_used() - start, kMaxSeconds);
  EXPECT_LT(lines(problems).size(), 20000u);
  return lines(problems);
}

TEST(HostileYaml, ABillionLaughsAreRefused) {
  std::string text = "a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string below = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + below;
    for (int k = 1; k < 10; ++k) text += ", " + below;
    text += "]\n";
  }
  expect_parts(bounded_errors(text), {"hostile.yaml:", "too large: more than 100000 values", "Use fewer aliases"});
}

TEST(HostileYaml, ALongTextRepeatedByAliasesIsRefused) {
  std::string text = "a: &a " + std::string(450'000, 'x') + "\nb:\n";
  for (int i = 0; i < 10'000; ++i) text += "- *a\n";
  expect_parts(bounded_errors(text), {"too large", "bytes of text"});
}

TEST(HostileYaml, AnAnchorThatHoldsItselfIsRefused) {
  expect_parts(bounded_errors("a: &a {b: {c: *a}}\n"), {"hostile.yaml:1:15: a.b.c: this alias is inside"});
}

TEST(HostileYaml, AnchorsWithinAnchorsAreCharged) {
  std::string text = "a: ";
  for (int i = 0; i < 90; ++i) text += "&x" + std::to_string(i) + " [";
  for (int i = 0; i < 20'000; ++i) text += "1,";
  text += "1" + std::string(90, ']') + "\n";
  expect_parts(bounded_errors(text), {"too large"});
}

TEST(HostileYaml, DeepNestingIsRefusedInEveryStyle) {
  for (const int depth : {101, 500, 100'000}) {
    const auto count = static_cast<size_t>(depth);
    expect_parts(bounded_errors("a: " + std::string(count, '[')), {"hostile.yaml:1:", "more than 100 lists and maps"});
    std::string maps = "a: ";
    std::string block;
    for (size_t i = 0; i < count; ++i) {
      maps += "{a: ";
      if (block.size() < 500'000) block += "- ";
    }
    expect_parts(bounded_errors(maps), {"more than 100 lists and maps"});
    expect_parts(bounded_errors(block + "x\n"), {"more than 100 lists and maps"});
  }
  std::string text = "a: ";
  for (int i = 0; i < 98; ++i) text += "[";
  text += std::string(98, ']') + "\n";
  EXPECT_EQ(bounded_errors("trainer: {}\nwrong: 1\n" + text).find("more than 100"), std::string::npos);
}

TEST(HostileYaml, AHugeFileIsRefusedBySize) {
  expect_parts(bounded_errors("a: " + std::string(50u << 20, 'x')), {"hostile.yaml", "holds more than", "bytes"});
}

TEST(HostileYaml, ManyKeysCostLittleAndSayLittle) {
  std::string text;
  for (int i = 0; i < 28'000; ++i) text += "trainor_" + std::to_string(i) + ": 1\n";
  expect_parts(bounded_errors(text), {"unknown key \"trainor_0\"", "27980 more unknown keys"});
  std::string twice = "a: {";
  for (int i = 0; i < 100'000; ++i) twice += "b: 1,";
  expect_parts(bounded_errors(twice + "}\n"), {"duplicate key \"b\"", "reading stopped after 50 problems"});
}

TEST(HostileYaml, OddStringsOfHalfAMegabyteCostLittle) {
  const size_t most = 500'000;
  const std::vector<std::string> pieces{"{",   "? ",    "- - ",  "[{",    "*",    "&a ", "!!x ", "'",   "\"", "a: |\n",
                                        "%\n", "---\n", "...\n", "a:\n ", ": ",   ",",   "#",    "\t",  "é",  "a",
                                        "a ",  "a\n",   "\r",    "{? ",   "[a: ", "|",   "> ",   "\"\\"};
  for (const auto& piece : pieces) {
    std::string text = "a: ";
    while (text.size() + piece.size() < most) text += piece;
    const auto read = [&] {
      Problems problems;
      (void)read_yaml_text(text, "odd.yaml", problems);
      return true;
    };
    EXPECT_TRUE(in_bounded_child(read)) << "more than 200 MB for " << piece;
    const double start = seconds_used();
    read();
    EXPECT_LT(seconds_used() - start, kMaxSeconds) << piece;
  }
}

}  // namespace
}  // namespace levin::hostile_yaml_test
