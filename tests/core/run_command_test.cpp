#include "levin/core/process/run_command.h"

#include <gtest/gtest.h>

#include "levin/core/options/error.h"

namespace levin::run_command_test {
namespace {

TEST(RunCommand, ReadsALongOutputToItsEndAndKeepsItsBegin) {
  const CommandResult result = run_command({"sh", "-c", "echo begin; head -c 3000000 /dev/zero; exit 5"});
  EXPECT_EQ(result.status, 5);
  EXPECT_EQ(result.output.size(), kMaxCommandOutput);
  EXPECT_EQ(result.output.substr(0, 6), "begin\n");
}

TEST(RunCommand, ReturnsBothStreamsAndTheStatus) {
  const CommandResult result = run_command({"sh", "-c", "echo one; echo two >&2; exit 3"});
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.output, "one\ntwo\n");
  EXPECT_EQ(run_command({"sh", "-c", "kill -TERM $$"}).status, 128 + 15);
}

TEST(RunCommand, PassesArgumentsUnchanged) {
  EXPECT_EQ(run_command({"printf", "[%s]", "a b", "$(id)", "'", ";ls", ""}).output, "[a b][$(id)]['][;ls][]");
  const std::vector<std::string> hostile = {"-x",           "--", "`id`", "a\nb", "%s%n",
                                            "\xe2\x80\xae", "*",  "~",    "\\",   "\x1b[2J"};
  std::vector<std::string> words = {"printf", "[%s]"};
  std::string expected;
  for (const auto& word : hostile) {
    words.push_back(word);
    expected += "[" + word + "]";
  }
  EXPECT_EQ(run_command(words).output, expected);
}

TEST(RunCommand, TakesMoreThanAPipeHolds) {
  EXPECT_EQ(run_command({"head", "-c", "300000", "/dev/zero"}).output.size(), 300000u);
}

TEST(RunCommand, GivesNoInput) {
  EXPECT_EQ(run_command({"cat"}).output, "");
}

TEST(RunCommand, NamesAProgramThatIsNotThere) {
  try {
    (void)run_command({"no_such_program_of_levin", "x"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "no_such_program_of_levin cannot be started: No such file or directory.");
  }
}

}  // namespace
}  // namespace levin::run_command_test
