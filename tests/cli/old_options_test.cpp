// The articles' flags of the trainer, and their present names.
#include "levin/cli/config/old_options.h"

#include <gtest/gtest.h>

#include "cli/config_files.h"
#include "levin/cli/config/merge.h"
#include "levin/core/options/registry.h"
#include "levin/trainer/trainer_options.h"
#include "levin/yaml/yaml_file.h"

namespace levin::old_options_test {
namespace {

using test::expect_parts;
using testing::lines;

struct Read {
  TrainerOptions options = {};
  std::string tree = "";     // the trainer's part as YAML, with today's options
  std::string notices = "";  // one a line
  std::string problems = "";
};

Read read(const std::string& trainer, const std::vector<std::string>& overrides = {}) {
  add_builtins();
  Problems problems;
  ConfigNode config = read_yaml_text("trainer:\n" + trainer, "run.yaml", problems);
  for (const auto& text : overrides) {
    const size_t equals = text.find('=');
    apply_override(config, {.path = text.substr(0, equals), .value = text.substr(equals + 1)}, problems);
  }
  Read result;
  ConfigNode& node = *config.find("trainer");
  for (const auto& notice : translate_old_options(node, problems)) result.notices += notice + "\n";
  result.tree = to_yaml(node);
  if (problems.empty()) read_options(node, result.options, "trainer", problems);
  result.problems = lines(problems);
  return result;
}

TEST(OldOptions, GpusAreAcceleratorAndDevices) {
  const Read list = read("  gpus: [0, 1]\n");
  EXPECT_EQ(list.problems, "");
  EXPECT_EQ(list.options.accelerator, "gpu");
  EXPECT_EQ(std::get<std::vector<int64_t>>(list.options.devices), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(list.notices,
            "run.yaml:2:3: trainer.gpus: [0, 1] is an old spelling; today: accelerator: gpu, devices: [0, 1].\n");
  EXPECT_EQ(std::get<int64_t>(read("  gpus: 2\n").options.devices), 2);
  EXPECT_EQ(std::get<int64_t>(read("  gpus: -1\n").options.devices), -1);
  EXPECT_EQ(std::get<std::vector<int64_t>>(read("  gpus: '0, 3'\n").options.devices), (std::vector<int64_t>{0, 3}));
}

TEST(OldOptions, NoGpusIsTheCpu) {
  for (const char* text : {"  gpus: 0\n", "  gpus: []\n"}) {
    const Read none = read(text);
    EXPECT_EQ(none.options.accelerator, "cpu") << text;
    EXPECT_EQ(std::get<std::string>(none.options.devices), "auto") << text;
  }
  const Read unset = read("  gpus: null\n");
  EXPECT_EQ(unset.options.accelerator, "auto");
  EXPECT_EQ(unset.notices, "");
}

TEST(OldOptions, NodesAndBackend) {
  const Read both = read("  nb_gpu_nodes: 128\n  distributed_backend: ddp\n");
  EXPECT_EQ(both.problems, "");
  EXPECT_EQ(both.options.num_nodes, 128);
  EXPECT_TRUE(both.options.strategy.is_name("ddp"));
  EXPECT_EQ(both.notices,
            "run.yaml:2:3: trainer.nb_gpu_nodes: 128 is an old spelling; today: num_nodes: 128.\n"
            "run.yaml:3:3: trainer.distributed_backend: ddp is an old spelling; today: strategy: ddp.\n");
  const Read cpu = read("  distributed_backend: ddp_cpu\n");
  EXPECT_EQ(cpu.options.accelerator, "cpu");
  EXPECT_TRUE(cpu.options.strategy.is_name("ddp"));
}

TEST(OldOptions, AmpIsAPrecision) {
  auto precision = [](const std::string& text) { return read(text).tree; };
  EXPECT_EQ(precision("  use_amp: true\n"), "precision: 16-mixed\n");
  EXPECT_EQ(precision("  use_amp: true\n  amp_level: O1\n"), "precision: 16-mixed\n");
  EXPECT_EQ(precision("  amp_level: O2\n  use_amp: true\n"), "precision: 16-mixed\n");
  EXPECT_EQ(precision("  use_amp: true\n  amp_level: O0\n"), "precision: 32-true\n");
  EXPECT_EQ(precision("  use_amp: true\n  amp_level: O3\n"), "precision: 16-true\n");
  EXPECT_EQ(precision("  use_amp: false\n"), "precision: 32-true\n");
  const Read off = read("  amp_level: O2\n  use_amp: false\n");  // as an article has it
  EXPECT_EQ(off.tree, "precision: 32-true\n");
  expect_parts(off.notices, {"trainer.amp_level: O2 says nothing without use_amp: true."});
}

TEST(OldOptions, MayBeWrittenOnTheCommandLine) {
  const Read over = read("  max_epochs: 3\n", {"trainer.gpus=[0,1]", "trainer.use_amp=true"});
  EXPECT_EQ(over.problems, "");
  EXPECT_EQ(over.options.max_epochs, 3);
  EXPECT_EQ(over.options.accelerator, "gpu");
  expect_parts(over.notices, {"--trainer.gpus=[0,1]: an old spelling; today: ", "precision: 16-mixed"});
}

TEST(OldOptions, BothSpellingsMustAgree) {
  EXPECT_EQ(read("  gpus: [0, 1]\n  devices: [0, 1]\n  accelerator: gpu\n").problems, "");
  EXPECT_EQ(read("  gpus: 2\n  accelerator: auto\n  devices: auto\n").problems, "");
  EXPECT_EQ(
      read("  nb_gpu_nodes: 2\n  devices: 4\n  gpus: [0, 1]\n").problems,
      "run.yaml:4:9: trainer.gpus: [0, 1] means devices: [0, 1], but trainer.devices is 4 (run.yaml:3:12). Keep one "
      "of the two.\n");
  expect_parts(read("  use_amp: true\n  precision: bf16-mixed\n").problems,
               {"trainer.use_amp: true means precision: 16-mixed, but trainer.precision is bf16-mixed"});
  expect_parts(read("  distributed_backend: ddp\n", {"trainer.strategy=single_device"}).problems,
               {"trainer.distributed_backend: ddp means strategy: ddp, but trainer.strategy is single_device "
                "(--trainer.strategy=single_device)"});
  expect_parts(read("  gpus: 1\n  accelerator: cpu\n").problems,
               {"means accelerator: gpu, but trainer.accelerator is cpu"});
}

TEST(OldOptions, ValuesThatCannotBeAreReported) {
  expect_parts(read("  use_amp: maybe\n").problems,
               {"run.yaml:2:12: trainer.use_amp: expected true or false, got maybe."});
  expect_parts(read("  use_amp: true\n  amp_level: O7\n").problems,
               {"trainer.amp_level: expected O0, O1, O2 or O3, got O7."});
  expect_parts(read("  nb_gpu_nodes: many\n").problems, {"run.yaml:2:17: trainer.num_nodes: expected"});
}

TEST(OldOptions, LeaveTodaysAlone) {
  const Read today = read("  devices: 2\n  precision: 16-mixed\n");
  EXPECT_EQ(today.notices, "");
  EXPECT_EQ(today.tree, "devices: 2\nprecision: 16-mixed\n");
}

}  // namespace
}  // namespace levin::old_options_test
