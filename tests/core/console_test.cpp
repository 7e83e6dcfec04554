// The Console as a person sees it: a separate program runs under a real pseudo-terminal, or with pipes.
#include "levin/core/process/console.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <map>

#include "support/paths.h"
#include "support/temporary_folder.h"
#include "support/terminal.h"

namespace levin::console_test {
namespace {

using Arguments = std::vector<std::string>;
using Lines = std::vector<std::string>;

const std::string kProgram = test::binary_dir() + "/bin/console_program";

[[noreturn]] void become_program(const Arguments& arguments, const std::map<std::string, std::string>& environment) {
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "xterm", 1);
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv{const_cast<char*>(kProgram.c_str())};
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execv(kProgram.c_str(), argv.data());
  ::_exit(127);
}

// Runs the program under a terminal of `columns` and gives all that arrived there, control characters and all.
std::string run_in_terminal(int columns, const Arguments& arguments,
                            const std::map<std::string, std::string>& environment = {}) {
  const winsize size{24, static_cast<unsigned short>(columns), 0, 0};
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) become_program(arguments, environment);
  std::string arrived;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(terminal, buffer, sizeof buffer)) > 0;) arrived.append(buffer, got);
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  return arrived;
}

class ConsoleOnTerminal : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::terminals_can_be_had()) GTEST_SKIP() << "this machine has no pseudo-terminals";
  }
};

// What a terminal shows in the end: understands \r, \n, clear-line and colours, and wraps as terminals do.
Lines screen_of(const std::string& arrived, size_t columns) {
  Lines lines{""};
  size_t column = 0;  // in characters; the tests that draw over old text use ASCII
  for (size_t i = 0; i < arrived.size(); ++i) {
    const char c = arrived[i];
    if (c == '\r') {
      column = 0;
    } else if (c == '\n') {
      lines.emplace_back();
    } else if (c == '\x1b') {
      const size_t end = arrived.find_first_of("mK", i);
      if (arrived.substr(i, end - i + 1) == "\x1b[2K") lines.back().clear();
      i = end;
    } else if ((static_cast<unsigned char>(c) & 0xC0) == 0x80) {
      lines.back() += c;  // the rest of a character
    } else {
      if (column == columns) {
        lines.emplace_back();
        column = 0;
      }
      column < lines.back().size() ? lines.back()[column] = c : *lines.back().insert(lines.back().end(), c);
      ++column;
    }
  }
  return lines;
}

struct Output {
  std::string out;
  std::string err;
};

// Runs the program with its streams going to files.
Output run_into_files(const Arguments& arguments, const std::map<std::string, std::string>& environment = {}) {
  const test::TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    if (std::freopen((folder / "out").c_str(), "w", stdout) == nullptr) ::_exit(126);
    if (std::freopen((folder / "err").c_str(), "w", stderr) == nullptr) ::_exit(126);
    become_program(arguments, environment);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  const auto read = [&](const std::string& name) {
    std::ifstream file(folder / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  return {read("out"), read("err")};
}

TEST(Console, PutsLinesOnStandardOutputAndWarningsOnStandardError) {
  const Output output = run_into_files({"print", "hello", "warn", "odd", "error", "bad", "print", ""});
  EXPECT_EQ(output.out, "hello\n\n");
  EXPECT_EQ(output.err, "warning: odd\nerror: bad\n");
}

TEST(Console, ReportsTheSameWarningOnce) {
  const Output output = run_into_files({"warn", "odd", "warn", "other", "warn", "odd", "error", "bad", "error", "bad"});
  EXPECT_EQ(output.err, "warning: odd\nwarning: other\nerror: bad\nerror: bad\n");
}

// A list of all warnings would grow forever in a run that warns of each step.
TEST(Console, RemembersTheLatestThousandWarnings) {
  Arguments arguments{"warn", "first"};
  for (int step = 1; step <= 999; ++step) arguments.insert(arguments.end(), {"warn", "step " + std::to_string(step)});
  arguments.insert(arguments.end(), {"warn", "first", "warn", "step 1000", "warn", "first", "warn", "step 1000"});
  const std::string errors = run_into_files(arguments).err;
  EXPECT_TRUE(errors.ends_with("step 999\nwarning: step 1000\nwarning: first\n")) << errors.substr(errors.size() - 100);
}

TEST(Console, PrintsBracesAndPercentSignsUnchanged) {
  const Output output = run_into_files({"print", "100 %d {}", "warn", "{0} %s {", "error", "}{"});
  EXPECT_EQ(output.out, "100 %d {}\n");
  EXPECT_EQ(output.err, "warning: {0} %s {\nerror: }{\n");
}

TEST(Console, EscapesWhatATerminalWouldObey) {
  const Output output =
      run_into_files({"print", "a\x1b[2Jb\a\r\x7f\tc\nd", "warn", "\xc2\x9b[31m", "error", "bad \xff\xc3(", "print",
                      "\xe2\x80\xae"
                      "abc \xe2\x81\xa6 \xef\xbb\xbf ü █ 😀"});
  EXPECT_EQ(output.out, "a\\x1b[2Jb\\x07\\x0d\\x7f\tc\nd\n\\u202eabc \\u2066 \\ufeff ü █ 😀\n");
  EXPECT_EQ(output.err, "warning: \\u009b[31m\nerror: bad \\xff\\xc3(\n");
}

TEST_F(ConsoleOnTerminal, SendsNoSequenceOfAStrangersText) {
  const std::string text =
      "loss\x1b]0;title\a\x1b[31m\xc2\x9b"
      "2J";
  const std::string arrived = run_in_terminal(80, {"live", text, "finish", "print", text, "error", text});
  for (const char* part : {"\x1b]0", "\a", "\xc2\x9b"}) EXPECT_EQ(arrived.find(part), std::string::npos) << part;
  EXPECT_NE(arrived.find("loss\\x1b]0;title\\x07\\x1b[31m\\u009b2J"), std::string::npos) << arrived;
}

TEST(Console, LeavesLiveLinesOutOfFiles) {
  const Output output = run_into_files({"live", "epoch 1", "print", "hello", "live", "epoch 2", "finish"});
  EXPECT_EQ(output.out, "hello\n");
  EXPECT_EQ(output.err, "");
}

TEST(Console, IsQuietOnOtherRanksButWarnsWithTheRank) {
  const Output output = run_into_files({"rank", "3", "print", "hello", "live", "x", "warn", "odd", "error", "bad"});
  EXPECT_EQ(output.out, "");
  EXPECT_EQ(output.err, "warning: rank 3: odd\nerror: rank 3: bad\n");
}

TEST_F(ConsoleOnTerminal, DrawsALiveLineInPlaceOfTheLast) {
  const std::string arrived = run_in_terminal(40, {"live", "epoch 1 long", "live", "epoch 2"});
  EXPECT_NE(arrived.find("epoch 1 long"), std::string::npos);
  EXPECT_EQ(screen_of(arrived, 40), Lines{"epoch 2"});
}

TEST_F(ConsoleOnTerminal, KeepsTheLiveLineBelowWhatIsPrinted) {
  const std::string arrived = run_in_terminal(40, {"live", "epoch 1", "print", "one", "print", "two"});
  EXPECT_EQ(screen_of(arrived, 40), (Lines{"one", "two", "epoch 1"}));
}

TEST_F(ConsoleOnTerminal, KeepsTheLiveLineBelowAWarning) {
  const std::string arrived = run_in_terminal(40, {"live", "epoch 1", "warn", "odd", "live", "epoch 2"});
  EXPECT_EQ(screen_of(arrived, 40), (Lines{"warning: odd", "epoch 2"}));
}

TEST_F(ConsoleOnTerminal, RemovesTheLiveLineWhenAskedForNothing) {
  EXPECT_EQ(screen_of(run_in_terminal(40, {"live", "epoch 1", "live", "", "print", "end"}), 40), (Lines{"end", ""}));
}

TEST_F(ConsoleOnTerminal, LeavesAFinishedLiveLineStanding) {
  const std::string arrived = run_in_terminal(40, {"live", "epoch 1", "finish", "print", "end", "finish"});
  EXPECT_EQ(screen_of(arrived, 40), (Lines{"epoch 1", "end", ""}));
}

TEST_F(ConsoleOnTerminal, CutsALiveLineToTheTerminalSoThatItNeverWraps) {
  const std::string text = "abcdefghijklmnopqrstuvwxyz";
  EXPECT_EQ(screen_of(run_in_terminal(10, {"live", text, "live", text}), 10), Lines{"abcdefghi"});
  EXPECT_EQ(screen_of(run_in_terminal(10, {"live", "one\ntwo"}), 10), Lines{"one"});
}

TEST_F(ConsoleOnTerminal, CountsCharactersNotBytes) {
  // Each block is three bytes of UTF-8 and one column.
  const std::string arrived = run_in_terminal(6, {"live", "████████"});
  EXPECT_EQ(arrived, "█████");
}

TEST_F(ConsoleOnTerminal, ShowsNoLiveLineWhereTheTerminalCannot) {
  EXPECT_EQ(run_in_terminal(40, {"live", "epoch 1", "print", "end", "finish"}, {{"TERM", "dumb"}}), "end\r\n");
}

TEST_F(ConsoleOnTerminal, NoColorTakesTheColourAwayAndLeavesTheLiveLine) {
  const std::vector<std::string> arguments{"live", "epoch 1", "warn", "odd", "finish"};
  const std::string coloured = run_in_terminal(40, arguments),
                    plain = run_in_terminal(40, arguments, {{"NO_COLOR", "1"}});
  EXPECT_NE(coloured.find("\x1b[33m"), std::string::npos) << coloured;
  EXPECT_EQ(plain.find("\x1b[3"), std::string::npos) << plain;
  EXPECT_NE(plain.find("warning: odd"), std::string::npos) << plain;
  EXPECT_EQ(screen_of(plain, 40).back().empty() || plain.find("epoch 1") != std::string::npos, true);
}

TEST(Console, GivesEverythingToACapturingSink) {
  Lines captured;
  Console& console = Console::instance();
  console.capture([&](const std::string& text) { captured.push_back(text); });
  console.print("hello");
  console.warn("odd");
  console.warn("odd");
  console.error("bad");
  console.live("epoch 1");
  console.capture({});
  EXPECT_EQ(captured, (Lines{"hello", "warning: odd", "warning: odd", "error: bad"}));
}

TEST(Console, LetsASinkPrint) {
  Lines captured;
  Console& console = Console::instance();
  console.capture([&](const std::string& text) {
    captured.push_back(text);
    if (text == "one") console.print("two");
  });
  console.print("one");
  console.capture({});
  EXPECT_EQ(captured, (Lines{"one", "two"}));
}

}  // namespace
}  // namespace levin::console_test
