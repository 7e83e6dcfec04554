// The arguments of levin submit and the script that they become. tests/slurm hands scripts to a real Slurm.
#include <gtest/gtest.h>

#include "cli/config_files.h"
#include "levin/cli/commands/submit_job.h"
#include "levin/cli/config/text_layout.h"
#include "levin/core/options/error.h"
#include "support/run_program.h"

namespace levin::submit_test {
namespace {

using test::expect_parts;
using testing::lines;

SubmitOptions read(const std::vector<std::string>& arguments) {
  Problems problems;
  SubmitOptions options = read_submit_options(arguments, problems);
  EXPECT_TRUE(problems.empty()) << lines(problems);
  return options;
}

std::string errors(const std::vector<std::string>& arguments) {
  Problems problems;
  (void)read_submit_options(arguments, problems);
  return lines(problems);
}

using Points = std::vector<std::vector<std::string>>;

TEST(SubmitOptions, TakeTheJobsOptionsAndLeaveTheRuns) {
  const SubmitOptions options =
      read({"--config", "a.yaml", "--nodes", "2", "--time=04:00:00", "--trainer.max_epochs=5", "--ntasks_per_node=4",
            "--job-name", "x y", "--slurm", "partition=gpu", "--slurm=exclusive", "--no-requeue", "--dry-run",
            "--signal-before=30", "--model", "Net"});
  EXPECT_EQ(options.nodes, 2);
  EXPECT_EQ(options.tasks_per_node, 4);
  EXPECT_EQ(options.time, "04:00:00");
  EXPECT_EQ(options.job_name, "x y");
  EXPECT_EQ(options.signal_seconds, 30);
  EXPECT_FALSE(options.requeue);
  EXPECT_TRUE(options.dry_run);
  EXPECT_EQ(options.slurm, (std::vector<std::pair<std::string, std::string>>{{"partition", "gpu"}, {"exclusive", ""}}));
  EXPECT_EQ(options.run, (std::vector<std::string>{"--config", "a.yaml", "--trainer.max_epochs=5", "--model", "Net"}));
}

TEST(SubmitOptions, MakeEveryCombinationOfAGrid) {
  EXPECT_EQ(grid_points({}), Points{});
  const SubmitOptions options = read({"--grid", "trainer.max_epochs=1,2", "--grid=model.lr=0.1,1e-3"});
  EXPECT_EQ(grid_points(options.grid), (Points{{"--trainer.max_epochs=1", "--model.lr=0.1"},
                                               {"--trainer.max_epochs=1", "--model.lr=1e-3"},
                                               {"--trainer.max_epochs=2", "--model.lr=0.1"},
                                               {"--trainer.max_epochs=2", "--model.lr=1e-3"}}));
}

TEST(SubmitOptions, PartValuesOutsideOfBracketsAndQuotes) {
  const SubmitOptions options = read({"--grid", "optimizer.betas=[0.9,0.99],[0.8,0.9]", "--grid", "data.name='a,b',c"});
  EXPECT_EQ(options.grid[0].values, (std::vector<std::string>{"[0.9,0.99]", "[0.8,0.9]"}));
  EXPECT_EQ(options.grid[1].values, (std::vector<std::string>{"'a,b'", "c"}));
}

TEST(SubmitOptions, TakeSlurmsTimesAndNoOthers) {
  for (const char* time : {"90", "1:30", "04:00:00", "1-12", "2-00:30", "2-00:30:15", "UNLIMITED"}) {
    EXPECT_EQ(read({"--time", time}).time, time);
  }
  for (const char* time : {"4h", "0", "00:00:00", "1-", "1:2:3:4", "-5", "", "soon", "04:00:00 "}) {
    expect_parts(errors({"--time=" + std::string(time)}),
                 {"--time: \"" + std::string(time) + "\" is not a time that Slurm accepts. Write 04:00:00"});
  }
}

TEST(SubmitOptions, TellEveryMistake) {
  expect_parts(errors({"--nodes", "0", "--ntasks-per-node=two", "--time", "--grid", "lr", "--grid=a.b=1,,2"}),
               {"--nodes: expected a whole number from 1 to 65535, got 0.", "--ntasks-per-node: expected", "got two",
                "--time: no value follows", "--grid: \"lr\" has no option with values",
                "--grid: a.b has an empty value in \"a.b=1,,2\""});
  expect_parts(errors({"--grid=a.b=1", "--grid=a.b=2"}), {"--grid: a.b is given twice"});
  expect_parts(errors({"--slurm", "array=1-5"}), {"--slurm: array is written by levin submit itself"});
  expect_parts(errors({"--slurm", "two words"}), {"--slurm: \"two words\" is not an option of sbatch"});
  expect_parts(errors({"--slurm", "-p=x"}), {"is not an option of sbatch"});
  expect_parts(errors({"--job-name=a\nb"}), {"--job-name: \"a\\nb\" contains a newline"});
  expect_parts(errors({"--dry-run=yes"}), {"--dry-run: takes no value"});
  std::string many = "--grid=a.b=1";
  for (int k = 2; k <= 1001; ++k) many += "," + std::to_string(k);
  expect_parts(errors({many}), {"--grid: more than 1000 combinations"});
}

SubmitJob job() {
  SubmitJob job;
  job.name = "run";
  job.folder = "/data/my runs";
  job.time = "04:00:00";
  job.nodes = 2;
  job.tasks_per_node = 4;
  job.command = {"/usr/bin/levin", "fit", "--config", "run.yaml"};
  return job;
}

TEST(SubmitScript, SaysAllThatSbatchNeeds) {
  EXPECT_EQ(job_script(job()),
            "#!/usr/bin/env bash\n"
            "#SBATCH --job-name=run\n"
            "#SBATCH --nodes=2\n"
            "#SBATCH --ntasks-per-node=4\n"
            "#SBATCH --time=04:00:00\n"
            "#SBATCH --chdir=\"/data/my runs\"\n"
            "#SBATCH --signal=SIGUSR1@90\n"
            "#SBATCH --requeue\n"
            "#SBATCH --open-mode=append\n"
            "\n"
            "set -eu\n"
            "exec srun /usr/bin/levin fit --config run.yaml\n");
}

TEST(SubmitScript, HasFurtherOptionsAndNoRequeue) {
  SubmitJob one = job();
  one.requeue = false;
  one.gpus_per_node = 4;
  one.output = "out-%j.txt";
  one.slurm = {{"partition", "gpu"}, {"exclusive", ""}, {"cpus-per-task", "8"}, {"comment", "a \"b\" \\c"}};
  const std::string script = job_script(one);
  expect_parts(script, {"--gpus-per-node=4\n", "--output=out-%j.txt\n", "--no-requeue\n", "--partition=gpu\n",
                        "#SBATCH --exclusive\n", "#SBATCH --comment=\"a \\\"b\\\" \\\\c\"\n",
                        "\nexport SRUN_CPUS_PER_TASK=8\nexec srun"});
  EXPECT_EQ(script.find("--signal"), std::string::npos);
  EXPECT_EQ(script.find("--time=\n"), std::string::npos);
}

TEST(SubmitScript, ChoosesAPointOfTheGridByTheTask) {
  SubmitJob one = job();
  one.points = {{"--model.lr=0.1", "--x=a b"}, {"--model.lr=1e-3", "--x=c"}};
  expect_parts(job_script(one), {"#SBATCH --array=0-1\n",
                                 "case $SLURM_ARRAY_TASK_ID in\n"
                                 "  0) point=(--model.lr=0.1 '--x=a b') ;;\n"
                                 "  1) point=(--model.lr=1e-3 --x=c) ;;\n"
                                 "esac\n"
                                 "exec srun /usr/bin/levin fit --config run.yaml \"${point[@]}\"\n"});
}

// A shell reads the arguments back unchanged.
TEST(SubmitScript, QuotesForTheShell) {
  const std::vector<std::string> words = {"plain",      "two words", "it's",  "$HOME", "`id`", "a;b",
                                          "\"quoted\"", "*",         "~",     "a\\b",  "",     "#x",
                                          "--x={a: 1}", "tab\tbed",  "!bang", "a\nb",  "&&",   "é"};
  std::string command = "printf '<%s>'", expected;
  for (const auto& word : words) {
    command += " " + shell_argument(word);
    expected += "<" + word + ">";
  }
  EXPECT_EQ(test::run_program(command).output, expected);
}

std::string refusal(const SubmitJob& job) {
  try {
    (void)job_script(job);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SubmitScript, RefusesWhatWouldEndALine) {
  SubmitJob one = job();
  one.name = "ok\ntouch x";
  expect_parts(refusal(one), {"--job-name: \"ok\\ntouch x\" holds a line's end", "give another"});
  one = job();
  one.folder = "/data/a\ntouch x";
  expect_parts(refusal(one),
               {"submit: \"/data/a\\ntouch x\" holds a line's end", "submit from a folder with a different name"});
  one = job();
  one.time = "90\r";
  one.output = "out\x7f";
  one.slurm = {{"comment", "a\nb"}, {"part\nition", ""}};
  expect_parts(refusal(one), {"--time: \"90\\x0d\"", "--output: \"out\\x7f\"", "--slurm: \"comment=a\\nb\"",
                              "--slurm: \"part\\nition=\""});
}

}  // namespace
}  // namespace levin::submit_test
