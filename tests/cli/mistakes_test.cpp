// Mistakes in a run are reported once, with position and remedy: the real tool on bad files.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <sstream>

#include "levin/core/files/files.h"
#include "levin/core/process/main_guard.h"
#include "support/error_text.h"
#include "support/levin_runs.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::mistakes_test {
namespace {

using test::expect_parts;

const std::string kConfig = " --config " + test::source_dir() +
                            "/configs/fashion_mnist.yaml --trainer.accelerator=cpu --trainer.limit_train_batches=3 "
                            "--trainer.limit_val_batches=1 --trainer.oversubscribe=true ";

class Mistakes : public ::testing::Test {
 protected:
  test::Ran levin(const std::string& arguments) const { return test::run_levin(arguments, folder_.path()); }
  test::Ran fit(const std::string& run_file) const {
    write_file_durably(folder_.path() + "/run.yaml", run_file);
    return levin("fit --config run.yaml");
  }
  static int64_t count(const std::string& text, const std::string& part) {
    int64_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  }

  test::TemporaryFolder folder_;
};

TEST_F(Mistakes, ATabIsNamedWithItsPlace) {
  for (const auto& [text, place] : std::map<std::string, std::string>{
           {"trainer:\n\tmax_epochs: 3\n", "run.yaml:2:1"},
           {"trainer:\n  callbacks:\n  \t- EarlyStopping\n", "run.yaml:3:3"},
           {"trainer:\n  max_epochs: 3\n\tmin_epochs: 1\n", "run.yaml:3:1"},
           {"model: Classifier\ntrainer:\n  logger:\n    \tclass_path: CSVLogger\n", "run.yaml:4:5"}}) {
    const auto done = fit(text);
    EXPECT_EQ(done.status, kExitBadConfig);
    expect_parts(done.output,
                 {place + ": not YAML: a tab in the indentation, and YAML takes spaces only. Replace the tab",
                  "1 problem; nothing was run"});
  }
}

TEST_F(Mistakes, ATabThatIsNotIndentationIsAllowed) {
  expect_parts(fit("trainer: {max_epochs: 3,\n\tmin_epochs:\t1}\nmodel: Classifier\t# a note\nturbo: 1\n").output,
               {"run.yaml:4:1: turbo: unknown key", "1 problem;"});
}

TEST_F(Mistakes, AFileThatCannotBeReadIsOneProblem) {
  const auto absent = levin("fit --config absent.yaml");
  EXPECT_EQ(absent.status, kExitBadConfig);
  expect_parts(absent.output, {"error: cannot read absent.yaml: No such file or directory.", "error: 1 problem;"});
  expect_parts(fit("trainer: [\n").output, {"run.yaml:1:10: ", "error: 1 problem;"});
  expect_parts(levin("fit").output, {"no model was given", "error: 1 problem;"});
}

TEST_F(Mistakes, ConsequencesOfAMistakeAreNotReportedToo) {
  expect_parts(fit("trainer:\n  - a\nmodel: Classifier\n").output,
               {"run.yaml:2:3: trainer: expected a map, got a list.", "error: 1 problem;"});
  expect_parts(fit("model: {class_pth: Classifier}\n").output,
               {"run.yaml:1:9: model.class_pth: unknown key", "error: 1 problem;"});
  const auto precision = fit("trainer:\n  precision: bf17\nmodel: Classifier\n");
  expect_parts(precision.output, {"run.yaml:2:14: trainer.precision: unknown precision \"bf17\"", "error: 1 problem;"});
  EXPECT_EQ(count(precision.output, "bf17"), 1) << precision.output;
  expect_parts(fit("trainer:\n  strategy: dpd\n  max_epochs: 1.5\nmodel: Classifier\n").output,
               {"trainer.strategy: unknown strategy", "trainer.max_epochs: expected", "error: 2 problems;"});
}

TEST_F(Mistakes, NullInAListOfCallbacksOrLoggersIsRefused) {
  const auto in_file =
      fit("trainer: {callbacks: [~, Timer], logger: [null]}\nmodel: EightWeights\ndata: EightNumbers\n");
  EXPECT_EQ(in_file.status, kExitBadConfig) << in_file.output;
  expect_parts(in_file.output,
               {"callbacks[0]: null where a callback belongs", "logger[0]: null where a logger belongs"});
  const auto in_words = levin("fit --model EightWeights --data EightNumbers --trainer.callbacks+=null");
  EXPECT_EQ(in_words.status, kExitBadConfig) << in_words.output;
  expect_parts(in_words.output, {"callbacks[0]: null where a callback belongs"});
}

TEST_F(Mistakes, AnErrorOfAllRanksIsReportedOnce) {
  for (const char* arguments : {"--trainer.strategy=ddp --ckpt_path=absent.ckpt", "--weights.path=absent.ckpt"}) {
    const auto done = levin("fit" + kConfig + "--trainer.devices=2 " + arguments);
    EXPECT_EQ(done.status, kExitRunFailed) << done.output;
    EXPECT_EQ(count(done.output, "absent.ckpt"), 1) << done.output;
    EXPECT_EQ(count("\n" + done.output, "\nerror: "), 1) << done.output;
    EXPECT_TRUE(std::regex_search(done.output, std::regex("rank [01] on \\S+ \\(process \\d+\\) ended with status 1")))
        << done.output;
  }
}

TEST_F(Mistakes, AnErrorOfOneRankIsReportedOnce) {
  const auto done = levin("fit" + kConfig + "--trainer.devices=2 --data.root=/proc/nowhere");
  EXPECT_EQ(done.status, kExitRunFailed) << done.output;
  EXPECT_EQ(count(done.output, "Its error: "), 1) << done.output;
  EXPECT_EQ(count("\n" + done.output, "\nerror: "), 1) << done.output;
}

TEST_F(Mistakes, HelpShowsTheTrainersOptions) {
  const auto all = levin("help Trainer");
  EXPECT_EQ(all.status, kExitOk);
  EXPECT_LE(count(all.output, "\n"), 100);
  expect_parts(all.output, {"  max_epochs  ", "levin help trainer.NAME"});
  expect_parts(levin("help trainer.precision").output, {"bf16-mixed", "default: ", "--trainer.precision=…"});
}

}  // namespace
}  // namespace levin::mistakes_test
