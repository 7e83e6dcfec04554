// levin convert: the real tool on files as "python trainer.py fit --print_config" writes them.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/config_files.h"
#include "cli/printed_by_lightning.h"
#include "levin/cli/config/commented_yaml.h"
#include "levin/core/files/files.h"
#include "levin/core/process/main_guard.h"
#include "levin/yaml/yaml_file.h"
#include "support/levin_runs.h"
#include "support/temporary_folder.h"

namespace levin::convert_test {
namespace {

using test::expect_parts;
using test::has;

class Convert : public ::testing::Test {
 protected:
  test::Ran levin(const std::string& arguments) const { return test::run_levin(arguments, folder_.path()); }
  test::Ran convert(const std::string& text, const std::string& arguments = "") const {
    write("lightning.yaml", text);
    std::filesystem::remove(folder_.path() + "/run.yaml");
    return levin("convert lightning.yaml --output run.yaml " + arguments);
  }
  void write(const std::string& name, const std::string& text) const {
    write_file_durably(folder_.path() + "/" + name, text);
  }
  [[nodiscard]] std::string written() const { return read_file(folder_.path() + "/run.yaml"); }
  // The new file as a tree; what was left out is a comment in it.
  [[nodiscard]] ConfigNode tree() const {
    Problems problems;
    ConfigNode node = read_yaml_file(folder_.path() + "/run.yaml", problems);
    EXPECT_TRUE(problems.empty()) << testing::lines(problems);
    return node;
  }
  void expect_loads() const {
    const auto shown = levin("fit --config run.yaml --print_config");
    EXPECT_EQ(shown.status, kExitOk) << shown.output << written();
  }

  test::TemporaryFolder folder_;
};

TEST_F(Convert, TranslatesAPrintedFileWhole) {
  const auto done = convert(kPrinted, "--model Classifier --data=FashionMnist");
  EXPECT_EQ(done.status, kExitOk) << done.output;
  expect_loads();
  const std::string text = written();
  expect_parts(text, {"seed_everything: 42", "class_path: ModelCheckpoint", "class_path: ProgressBar",
                      "version: version_3", "train_time_interval: \"00:00:30:00\"", "max_time: \"01:02:30:00\"",
                      "limit_train_batches: 20", "class_path: AdamW", "eps: 1.0e-08", "class_path: Classifier",
                      "class_path: FashionMnist", "batch_size: 32"});
  for (const char* gone : {"null", "lightning.pytorch", "torch.optim", "max_steps", "inference_mode", "enable_autolog",
                           "foreach", "left out", "refresh_rate", "log_rank_zero_only"})
    EXPECT_FALSE(has(text, gone)) << gone << "\n" << text;
  const ConfigNode run = tree();
  EXPECT_EQ(run.find("lr_scheduler")->find("monitor")->text, "val_loss");
  EXPECT_EQ(run.find("lr_scheduler")->find("init_args")->find("monitor"), nullptr);
}

TEST_F(Convert, AConvertedFileTrains) {
  ASSERT_EQ(convert(kPrinted, "--model=Classifier --data=FashionMnist").status, kExitOk);
  const auto ran = levin(
      "fit --config run.yaml --trainer.accelerator=cpu --trainer.limit_train_batches=4 --trainer.limit_val_batches=2");
  EXPECT_EQ(ran.status, kExitOk) << ran.output;
  EXPECT_TRUE(std::filesystem::exists(folder_.path() + "/logs/mnist/version_3/metrics.csv")) << ran.output;
}

TEST_F(Convert, NamesClassesThatOnlyPythonKnows) {
  const auto done = convert(kPrinted);
  EXPECT_EQ(done.status, kExitPartly) << done.output;
  expect_parts(
      done.output,
      {"run.yaml is written",
       "lightning.yaml:86:1: model: these are options of a model whose class LightningCLI was given in Python. "
       "Write it in C++ and register it (LEVIN_REGISTER_MODEL); see docs/from_lightning.md. Then convert with "
       "--model NAME.",
       "lightning.yaml:88:1: data: these are options of a data module", "LEVIN_REGISTER_DATA",
       "2 things were left out"});
  expect_loads();
  expect_parts(written(), {"# left out: lightning.yaml:86:1: model: ", "# model:\n#   hidden: 64\n"});
  EXPECT_EQ(tree().find("model"), nullptr);
}

TEST_F(Convert, KeepsAnMLFlowLogger) {
  const auto done = convert(R"(trainer:
  logger:
    class_path: lightning.pytorch.loggers.MLFlowLogger
    init_args:
      experiment_name: digits
      run_name: null
      tracking_uri: http://127.0.0.1:5000
      tags: {team: vision}
      save_dir: ./mlruns
      log_model: all
      checkpoint_path_prefix: ''
      prefix: ''
      artifact_location: null
      run_id: null
      synchronous: null
  max_epochs: 3
)");
  EXPECT_EQ(done.status, kExitOk) << done.output;
  const ConfigNode file = tree();
  const ConfigNode& logger = file.find("trainer")->find("logger")->items.at(0);
  EXPECT_EQ(logger.find("class_path")->text, "MLFlowLogger");
  const ConfigNode& args = *logger.find("init_args");
  EXPECT_EQ(args.find("experiment_name")->text, "digits");
  EXPECT_EQ(args.find("tracking_uri")->text, "http://127.0.0.1:5000");
  EXPECT_EQ(args.find("tags")->find("team")->text, "vision");
  EXPECT_EQ(args.find("log_model")->text, "all");
  EXPECT_EQ(args.find("run_name"), nullptr);
}

TEST_F(Convert, ReportsWhatAnMLFlowLoggerNeedsInsteadOfAFolder) {
  const auto done = convert(R"(trainer:
  logger:
    class_path: pytorch_lightning.loggers.mlflow.MLFlowLogger
    init_args: {tracking_uri: "file:./ml-runs"}
)");
  EXPECT_EQ(done.status, kExitPartly) << done.output;
  expect_parts(
      done.output,
      {"lightning.yaml:4:17: trainer.logger",
       "tracking_uri: must be the http or https URL of an MLflow server (mlflow server starts one on a folder or "
       "a database), got"});
}

TEST_F(Convert, ListsWhatItCannotTranslateWithPlaceAndRemedy) {
  const auto done = convert(R"(trainer:
  accelerator: tpu
  strategy: deepspeed_stage_2
  logger:
  - class_path: lightning.pytorch.loggers.CSVLogger
    init_args: {save_dir: logs}
  - class_path: my.loggers.Slack
    init_args: {channel: runs}
  callbacks:
  - class_path: my.callbacks.Fireworks
    init_args: {colour: red}
  - class_path: pytorch_lightning.callbacks.EarlyStopping
    init_args: {monitor: val_loss, patience: many, patiense: 3, log_rank_zero_only: true}
  - class_path: lightning.pytorch.callbacks.EarlyStopping
    init_args: {monitor: null}
  plugins: [lightning.pytorch.plugins.environments.SLURMEnvironment]
  max_epochs: ${oc.env:EPOCHS}
  gradient_clip_val: much
  profiler: advanced
  turbo: 2
model:
  class_path: project.models.Unheard
  init_args: {lr: 0.1}
optimizer:
  class_path: torch.optim.Adam
  init_args: {lr: 0.1, fused: true}
ckpt_path: runs/epoch=3.ckpt
my_link: 5
)");
  EXPECT_EQ(done.status, kExitPartly) << done.output;
  for (const char* line : {
           "lightning.yaml:2:3: trainer.accelerator: tpu is not supported. Known: auto, cpu, gpu, cuda.",
           "lightning.yaml:3:3: trainer.strategy: unknown strategy \"deepspeed_stage_2\"",
           "lightning.yaml:7:5: trainer.logger[1]: unknown logger \"my.loggers.Slack\"",
           "lightning.yaml:10:5: trainer.callbacks[0]: unknown callback \"my.callbacks.Fireworks\"",
           "register it (LEVIN_REGISTER_CALLBACK), or do without it.",
           "lightning.yaml:13:36: trainer.callbacks[1].init_args.patience: expected a whole number, got many.",
           "trainer.callbacks[1].init_args.patiense: Levin's EarlyStopping has no option \"patiense\". Did you mean "
           "\"patience\"?",
           "trainer.callbacks[1].init_args.log_rank_zero_only: Levin's EarlyStopping has no option",
           "trainer.callbacks[2]: init_args.monitor: must be set",
           "lightning.yaml:16:3: trainer.plugins: The trainer has no plugins: precision is trainer.precision",
           "trainer.max_epochs: Levin does not expand ${…}: write the value itself.",
           "trainer.gradient_clip_val: expected a number, got much.",
           "trainer.profiler: unknown profiler \"advanced\"",
           "lightning.yaml:20:3: trainer.turbo: Levin has no such option.",
           "model: unknown model \"project.models.Unheard\"",
           "Write it in C++ and register it (LEVIN_REGISTER_MODEL)",
           "optimizer.init_args.fused: Levin's Adam has no option \"fused\"",
           "ckpt_path: Lightning's checkpoints are pickled files, which Levin does not read.",
           "lightning.yaml:28:1: my_link: Levin has no such key.",
           "things were left out, and are comments in the new file.",
       })
    EXPECT_TRUE(test::holds(done.output, {line}));
  expect_loads();
  const std::string text = written();
  expect_parts(text, {"    # - class_path: my.callbacks.Fireworks\n    #   init_args:\n    #     colour: red\n",
                      "  # accelerator: tpu\n", "        # patience: many\n", "# ckpt_path: runs/epoch=3.ckpt\n"});
  const ConfigNode run = tree();
  EXPECT_EQ(run.find("trainer")->find("callbacks")->items.size(), 1u) << text;
  EXPECT_EQ(run.find("trainer")->find("logger")->items.size(), 1u) << text;
  EXPECT_EQ(run.find("optimizer")->find("init_args")->find("lr")->text, "0.1");
}

TEST_F(Convert, KeepsTheTensorBoardLogger) {
  const auto done = convert(R"(trainer:
  logger:
    class_path: lightning.pytorch.loggers.TensorBoardLogger
    init_args: {save_dir: logs, name: mine, version: 3, log_graph: false, default_hp_metric: false, prefix: a, sub_dir: null,
                flush_secs: 30, max_queue: 10}
)");
  EXPECT_EQ(done.status, kExitOk) << done.output;
  expect_loads();
  const ConfigNode run = tree();
  const ConfigNode& logger = run.find("trainer")->find("logger")->items.at(0);
  EXPECT_EQ(logger.find("class_path")->text, "TensorBoardLogger");
  const ConfigNode& options = *logger.find("init_args");
  EXPECT_EQ(options.find("version")->text, "version_3");
  EXPECT_EQ(options.find("default_hp_metric")->text, "false");
  EXPECT_EQ(options.find("prefix")->text, "a");
  EXPECT_EQ(options.find("flush_secs")->text, "30");
  EXPECT_EQ(options.find("log_graph"), nullptr);
}

TEST_F(Convert, NamesTensorBoardOptionsThatLevinDoesNotHave) {
  const auto done = convert(R"(trainer:
  logger:
    class_path: lightning.pytorch.loggers.TensorBoardLogger
    init_args: {save_dir: logs, log_graph: true}
)");
  EXPECT_EQ(done.status, kExitPartly) << done.output;
  EXPECT_TRUE(
      test::holds(done.output, {"init_args.log_graph: Levin's TensorBoardLogger has no option \"log_graph\"."}));
}

TEST_F(Convert, TranslatesNamesOldOptionsAndOtherForms) {
  const auto done = convert(R"(trainer:
  gpus: 0
  strategy: ddp_find_unused_parameters_true
  max_time: {hours: 2, minutes: 30}
  callbacks:
    class_path: lightning.pytorch.callbacks.LearningRateMonitor
    init_args: {logging_interval: step}
    dict_kwargs: {log_momentum: true}
  logger: true
)");
  EXPECT_EQ(done.status, kExitOk) << done.output;
  expect_parts(done.output,
               {"is called ddp with find_unused_parameters: true here", "trainer.gpus: 0 is an old spelling"});
  expect_loads();
  const ConfigNode run = tree();
  const ConfigNode& trainer = *run.find("trainer");
  EXPECT_EQ(trainer.find("accelerator")->text, "cpu");
  EXPECT_EQ(trainer.find("strategy")->find("class_path")->text, "ddp");
  EXPECT_EQ(trainer.find("strategy")->find("init_args")->find("find_unused_parameters")->text, "true");
  EXPECT_EQ(trainer.find("max_time")->text, "00:02:30:00");
  EXPECT_EQ(trainer.find("logger"), nullptr);
  const ConfigNode& monitor = trainer.find("callbacks")->items.at(0);
  EXPECT_EQ(monitor.find("init_args")->find("log_momentum")->text, "true");
}

TEST_F(Convert, ReadsAFileForTheSubcommandFit) {
  const auto done = convert("seed_everything: 7\nfit:\n  trainer: {max_epochs: 3}\n  turbo: 1\ntest:\n  trainer: {}\n");
  EXPECT_EQ(done.status, kExitPartly) << done.output;
  expect_parts(done.output,
               {"lightning.yaml:4:3: fit.turbo: Levin has no such key", "lightning.yaml:5:1: test: a run file"});
  expect_loads();
  EXPECT_EQ(tree().find("trainer")->find("max_epochs")->text, "3");
  EXPECT_EQ(tree().find("seed_everything")->text, "7");
}

TEST_F(Convert, ReportsWhichRegisteredClassTakesTheUsersName) {
  const auto done = convert("model: {class_path: project.nets.Classifier, init_args: {hidden: 64}}\ntrainer: {}\n");
  EXPECT_EQ(done.status, kExitOk) << done.output;
  expect_parts(done.output,
               {"model: project.nets.Classifier is taken as the class Classifier that is registered here"});
}

TEST_F(Convert, RefusesWhatIsNotAFileOfLightningCLI) {
  const auto other = convert("services: {web: {image: nginx}}\nversion: '3'\n");
  EXPECT_EQ(other.status, kExitBadConfig);
  expect_parts(other.output, {"error: lightning.yaml: no run file of LightningCLI", "Its keys: services, version.",
                              "nothing was written"});
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/run.yaml"));
  EXPECT_EQ(convert("trainer: [\n").status, kExitBadConfig);
  EXPECT_EQ(levin("convert absent.yaml").status, kExitBadConfig);
  expect_parts(levin("convert").output, {"no file was given. Write levin convert FILE."});
  expect_parts(levin("convert a.yaml b.yaml").output, {"a second file. Convert one at a time."});
  expect_parts(levin("convert a.yaml --outptu=b.yaml").output, {"--outptu=b.yaml", "unknown option"});
  write("kept.yaml", "mine");
  expect_parts(levin("convert lightning.yaml --output kept.yaml").output, {"kept.yaml exists"});
  EXPECT_EQ(read_file(folder_.path() + "/kept.yaml"), "mine");
}

TEST_F(Convert, PrintsTheFileWithoutOutput) {
  write("lightning.yaml", "trainer: {max_epochs: 3}\n");
  const auto done = levin("convert lightning.yaml");
  EXPECT_EQ(done.status, kExitOk);
  EXPECT_EQ(done.output,
            "# Made by levin convert of lightning.yaml. Options with their default are not written.\n"
            "trainer:\n  max_epochs: 3\n");
}

}  // namespace
}  // namespace levin::convert_test
