// `levin checkpoint …` and `weights:` as users run them: the program, its output on both streams, its exit status.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "cli/config_files.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/core/files/files.h"
#include "support/error_text.h"
#include "support/levin_runs.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::checkpoint_tool_test {
namespace {

using test::expect_parts;
using test::has;
using test::Ran;
using test::run_levin;
using test::TemporaryFolder;

State run_state() {
  State state;
  state.set<std::string>("levin_version", "0.1.0");
  state.set<int64_t>("epoch", 2);
  state.set<int64_t>("global_step", 18);
  State progress;
  progress.set<int64_t>("epochs", 3);
  progress.set<int64_t>("next_batch", 5);
  state.values.set("progress", progress.values);
  State hparams;
  hparams.values.set("lr", ConfigNode::scalar("1e-3"));
  state.values.set("hyper_parameters", hparams.values);
  state.tensors["model.weight"] = torch::arange(6, at::kFloat).view({2, 3});
  state.tensors["model.flags"] = torch::tensor({true, false});
  state.tensors["optimizers.0.0.exp_avg"] = torch::zeros({2, 3});
  state.tensors["optimizers.1.0.exp_avg"] = torch::zeros({300});
  return state;
}

TEST(CheckpointTool, InspectTellsWhatACheckpointHolds) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "a.ckpt", run_state());
  const Ran ran = run_levin("checkpoint inspect " + folder / "a.ckpt");
  EXPECT_EQ(ran.status, 0);
  expect_parts(
      ran.output,
      {folder / "a.ckpt: a Levin checkpoint", "4 tensors", "levin_version:   0.1.0", "epoch:           2",
       "global_step:     18", "continues:       epoch 3, batch 5", "hyper_parameters:\n  lr: 1e-3",
       "\n  model                    2     26\n", "\n  optimizers.0             1     24\n",
       "\n  optimizers.1             1   1200  1.2 KiB\n", "\n  model.weight            F32    (2, 3)     24\n",
       "\n  model.flags             BOOL   (2)         2\n"});
}

TEST(CheckpointTool, InspectReadsOtherProgramsFilesAndShowsNoControlCharacters) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a.safetensors", {{"w\x1b[31m", torch::ones({2}, at::kBFloat16)}},
                    {{"format", "pt\n\x1b[2J"}});
  const Ran ran = run_levin("checkpoint inspect " + folder / "a.safetensors");
  EXPECT_EQ(ran.status, 0);
  expect_parts(ran.output, {"a safetensors file, not Levin's", "metadata format:", "BF16", "(2)"});
  EXPECT_FALSE(has(ran.output, "\x1b")) << ran.output;
}

TEST(CheckpointTool, VerifyContinuesAfterFilesThatCannotBeRead) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "good.ckpt", run_state());
  std::filesystem::create_symlink("loop.ckpt", folder / "loop.ckpt");
  std::filesystem::create_directories(folder / "shards.ckpt/commit.safetensors");
  std::filesystem::create_directories(folder / "empty.ckpt");
  const Ran ran = run_levin("checkpoint verify " + folder / "loop.ckpt " + folder / "shards.ckpt " +
                            folder / "empty.ckpt " + folder / "loop.ckpt/below " + folder / "good.ckpt");
  EXPECT_EQ(ran.status, 1);
  expect_parts(ran.output, {folder / "loop.ckpt: bad: cannot be read: Too many levels of symbolic links",
                            folder / "shards.ckpt: bad: ", folder / "empty.ckpt: bad: ",
                            folder / "loop.ckpt/below: bad: ", folder / "good.ckpt: good, 4 tensors"});
}

TEST(CheckpointTool, VerifyHasALineForEachFileAndFailsIfOneIsDamaged) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "good.ckpt", run_state());
  write_safetensors(folder / "other.safetensors", {{"w", torch::ones({2})}});
  std::string bytes = read_file(folder / "good.ckpt");
  const CheckpointFile file(folder / "good.ckpt");
  for (const auto& entry : file.file().entries()) {
    if (entry.name == "model.weight" || entry.name == "optimizers.1.0.exp_avg") bytes[entry.begin] ^= 4;
  }
  write_file_durably(folder / "bad.ckpt", bytes);
  bytes[20] ^= 1;
  write_file_durably(folder / "header.ckpt", bytes);
  const std::string at = folder.path() + "/";
  const Ran good = run_levin("checkpoint verify " + at + "good.ckpt " + at + "other.safetensors");
  EXPECT_EQ(good.status, 0) << good.output;
  expect_parts(good.output,
               {at + "good.ckpt: good, 4 tensors", at + "other.safetensors: good, 1 tensor", "no checksums"});
  const Ran bad =
      run_levin("checkpoint verify " + at + "bad.ckpt " + at + "good.ckpt " + at + "header.ckpt " + at + "god.ckpt");
  EXPECT_EQ(bad.status, 1);
  expect_parts(bad.output,
               {at + "bad.ckpt: damaged: tensor \"", "model.weight", "; tensor \"", "optimizers.1.0.exp_avg",
                at + "good.ckpt: good", at + "header.ckpt: bad: ", at + "god.ckpt: bad: cannot be read: No such file",
                "Did you mean \"" + at + "good.ckpt\"?"});
  EXPECT_FALSE(has(bad.output, "model.flags")) << bad.output;
  EXPECT_EQ(std::count(bad.output.begin(), bad.output.end(), '\n'), 4) << bad.output;
}

// As ModelCheckpoint writes it, with its paths among values and keys; `written` is where it was.
State state_with_paths(const std::string& written) {
  State state = run_state();
  ConfigNode callback = ConfigNode::map();
  callback.set("dirpath", ConfigNode::scalar(written + "/checkpoints", true));
  ConfigNode scores = ConfigNode::map();
  scores.set(written + "/checkpoints/best.ckpt", ConfigNode::scalar("0.5"));
  callback.set("best_k_models", scores);
  ConfigNode callbacks = ConfigNode::map();
  callbacks.set("ModelCheckpoint", callback);
  state.values.set("callbacks", callbacks);
  return state;
}

TEST(CheckpointTool, DiffComparesPathsFromEachRunsFolder) {
  const TemporaryFolder folder;
  for (const char* run : {"a", "b", "moved"}) {
    std::filesystem::create_directories(folder / run + "/checkpoints");
    const std::string written = std::string(run) == "moved" ? "/elsewhere/version_3" : folder / run;
    write_checkpoint(folder / run + "/checkpoints/last.ckpt", state_with_paths(written));
  }
  const std::string a = folder / "a/checkpoints/last.ckpt", b = folder / "b/checkpoints/last.ckpt";
  EXPECT_EQ(run_levin("checkpoint diff " + a + " " + b).output, "equal: 4 tensors\n");
  EXPECT_EQ(run_levin("checkpoint diff " + a + " " + folder / "moved/checkpoints/last.ckpt").status, 0);
  State other = state_with_paths(folder / "b");
  other.values.find("callbacks")->find("ModelCheckpoint")->set("last", ConfigNode::scalar("/tmp/x.ckpt", true));
  write_checkpoint(b, other);
  const Ran differs = run_levin("checkpoint diff " + a + " " + b);
  EXPECT_EQ(differs.status, 1);
  EXPECT_EQ(differs.output, "value callbacks.ModelCheckpoint.last: only in the second, \"/tmp/x.ckpt\"\n");
}

TEST(CheckpointTool, DiffOfTensorsLeavesTheValuesOut) {
  const TemporaryFolder folder;
  State b = run_state();
  b.set<int64_t>("global_step", 20);
  write_checkpoint(folder / "a.ckpt", run_state());
  write_checkpoint(folder / "b.ckpt", b);
  const std::string files = folder / "a.ckpt " + folder / "b.ckpt";
  EXPECT_EQ(run_levin("checkpoint diff " + files).status, 1);
  const Ran equal = run_levin("checkpoint diff --tensors " + files);
  EXPECT_EQ(equal.status, 0);
  EXPECT_EQ(equal.output, "equal: 4 tensors\n");
  b.tensors["optimizers.0.0.exp_avg"] = torch::ones({2, 3});
  write_checkpoint(folder / "b.ckpt", b);
  const Ran differs = run_levin("checkpoint diff --tensors " + files);
  EXPECT_EQ(differs.status, 1);
  EXPECT_EQ(differs.output, "tensor optimizers.0.0.exp_avg: F32 (2, 3), largest difference 1.0, 6 of 6 differ\n");
  const Ran wrong = run_levin("checkpoint verify --tensors " + folder / "a.ckpt");
  EXPECT_EQ(wrong.status, 2);
  expect_parts(wrong.output, {"checkpoint verify takes no --tensors; checkpoint diff does."});
}

TEST(CheckpointTool, DiffTellsTensorsAndValuesThatDiffer) {
  const TemporaryFolder folder;
  State a = run_state(), b = run_state();
  b.set<int64_t>("global_step", 20);
  b.set<std::string>("note", "new");
  b.values.find("progress")->set("next_batch", ConfigNode::scalar("6"));
  b.tensors["model.weight"] = a.tensors["model.weight"].clone();
  b.tensors["model.weight"][1][2] += 0.25;
  b.tensors["model.weight"][0][0] -= 0.125;
  b.tensors["optimizers.0.0.exp_avg"] = a.tensors["optimizers.0.0.exp_avg"].to(at::kDouble);
  b.tensors["model.zero"] = torch::zeros({1});
  b.tensors.erase("optimizers.1.0.exp_avg");
  write_checkpoint(folder / "a.ckpt", a);
  write_checkpoint(folder / "b.ckpt", b);
  write_checkpoint(folder / "c.ckpt", a);
  const Ran same = run_levin("checkpoint diff " + folder / "a.ckpt" + " " + folder / "c.ckpt");
  EXPECT_EQ(same.status, 0);
  EXPECT_EQ(same.output, "equal: 4 tensors\n");
  const Ran ran = run_levin("checkpoint diff " + folder / "a.ckpt" + " " + folder / "b.ckpt");
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(ran.output,
            "value global_step: 18 and 20\n"
            "value progress.next_batch: 5 and 6\n"
            "value note: only in the second, \"new\"\n"
            "tensor model.weight: F32 (2, 3), largest difference 0.25, 2 of 6 differ\n"
            "tensor optimizers.0.0.exp_avg: F32 (2, 3) and F64 (2, 3), the same numbers\n"
            "tensor optimizers.1.0.exp_avg: only in the first, F32 (300)\n"
            "tensor model.zero: only in the second, F32 (1)\n");
}

TEST(CheckpointTool, DiffComparesNanInfinityAndLargeIntegers) {
  const TemporaryFolder folder;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  write_safetensors(folder / "a", {{"x", torch::tensor({nan, 1.0F, inf, 2.0F})},
                                   {"i", torch::tensor({(int64_t{1} << 62) + 1})},
                                   {"z", torch::tensor({0.0F})},
                                   {"f", torch::tensor({inf})}});
  write_safetensors(folder / "b", {{"x", torch::tensor({nan, nan, inf, 2.5F})},
                                   {"i", torch::tensor({int64_t{1} << 62})},
                                   {"z", torch::tensor({-0.0F})},
                                   {"f", torch::tensor({-inf})}});
  const Ran ran = run_levin("checkpoint diff " + folder / "a" + " " + folder / "b");
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(ran.output,
            "tensor f: F32 (1), largest difference .inf, 1 of 1 differ\n"
            "tensor i: I64 (1), largest difference 1.0, 1 of 1 differ\n"
            "tensor x: F32 (4), largest difference 0.5, 2 of 4 differ, NaN on one side in 1\n"
            "tensor z: F32 (1), the numbers are equal, their bits differ (-0.0, NaN)\n");
}

TEST(CheckpointTool, WrongUseIsReportedWithTheRightUse) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "last.ckpt", run_state());
  const auto expect = [](const std::string& arguments, int status, std::initializer_list<std::string> parts) {
    const Ran ran = run_levin("checkpoint " + arguments);
    EXPECT_EQ(ran.status, status) << arguments << ": " << ran.output;
    expect_parts(ran.output, parts);
  };
  expect("", 2, {"what to do is missing", "inspect, verify, diff"});
  expect("inspct x", 2, {"unknown subcommand \"inspct\"", "Did you mean \"inspect\"?"});
  expect("inspect", 2, {"got 0 files", "levin checkpoint inspect FILE"});
  expect("inspect a b", 2, {"got 2 files"});
  expect("diff a", 2, {"got 1 file.", "levin checkpoint diff [--tensors] A B"});
  expect("verify --deep x", 2, {"\"--deep\": unknown option", "--tensors"});
  expect("inspect " + folder / "lats.ckpt", 1,
         {"lats.ckpt: cannot be read: No such file", "Did you mean \"" + folder / "last.ckpt"});
  expect("diff " + folder / "last.ckpt" + " " + folder / "none", 2, {folder / "none: cannot be read"});
  expect("--help", 0, {"levin checkpoint inspect FILE", "levin checkpoint diff [--tensors] A B", "exit status 1"});
  EXPECT_EQ(run_levin("help checkpoint").output, run_levin("checkpoint --help").output);
  expect_parts(run_levin("help").output, {"checkpoint ACTION FILE"});
  expect_parts(run_levin("chekpoint").output, {"Did you mean \"checkpoint\"?"});
}

// One fit writes a checkpoint; weights: of it give what ckpt_path gives, and nothing else does.
TEST(Weights, OfARunFileAreWhatTheModelStartsFrom) {
  const TemporaryFolder folder;
  const std::string common =
      " --config " + test::source_dir() +
      "/configs/fashion_mnist.yaml --trainer.callbacks=[] --trainer.logger=false "
      "--trainer.enable_progress_bar=false --trainer.limit_val_batches=2 --trainer.limit_train_batches=3 "
      "--trainer.max_epochs=1 --test_after_fit=false --trainer.default_root_dir=" +
      folder.path();
  const Ran fit = run_levin(
      "fit" + common + " --trainer.callbacks+='{class_path: ModelCheckpoint, init_args: {dirpath: " + folder.path() +
      ", filename: w}}'");
  ASSERT_EQ(fit.status, 0) << fit.output;
  const std::string file = folder / "w.ckpt";
  const auto metrics = [&](const std::string& arguments) {
    const Ran ran = run_levin("validate" + common + " --seed_everything=7 " + arguments);
    EXPECT_EQ(ran.status, 0) << ran.output;
    const size_t begin = ran.output.find("validate metrics:");
    return begin == std::string::npos ? ran.output : ran.output.substr(begin);
  };
  const std::string from_checkpoint = metrics("--ckpt_path=" + file);
  EXPECT_EQ(metrics("--weights.path=" + file), from_checkpoint);
  EXPECT_NE(metrics(""), from_checkpoint);
  EXPECT_EQ(metrics("--weights.path=/absent --ckpt_path=" + file), from_checkpoint);
  const Ran absent = run_levin("validate" + common + " --weights.path=/absent");
  EXPECT_EQ(absent.status, 1);
  expect_parts(absent.output, {"weights.path: there is no file or folder /absent"});
  const Ran misfit = run_levin("validate" + common + " --weights='{path: " + file + ", map: [{from: \"\", to: x}]}'");
  EXPECT_EQ(misfit.status, 1);
  expect_parts(misfit.output, {"none of them fits the module", "unexpected x."});
  const Ran wrong = run_levin("validate" + common + " --weights='{pth: x, strict: 3, map: [{from: a.*, to: b}]}'");
  EXPECT_EQ(wrong.status, 2);
  expect_parts(wrong.output, {"Did you mean \"path\"?", "weights.strict: expected true or false, got 3",
                              "as many * as its from", "weights.path: must be set"});
}

}  // namespace
}  // namespace levin::checkpoint_tool_test
