// Errors of load_for_inference for files, classes, weights and options that are wrong.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "inference/served_net.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/files/files.h"
#include "levin/inference/load_for_inference.h"
#include "levin/levin.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::inference_errors_test {
namespace {

namespace fs = std::filesystem;
using test::by_hand;
using test::holds;
using test::load_error;
using test::make_net;
using test::some_rows;
using test::TemporaryFolder;
using test::write_net;

TEST(LoadForInferenceErrors, FilesThatAreMissingOrDamagedAreNamed) {
  const TemporaryFolder folder;
  EXPECT_TRUE(holds(load_error(folder / "gone.ckpt"), {"no such file or folder", "gone.ckpt"}));
  fs::create_directory(folder / "empty");
  EXPECT_TRUE(holds(load_error(folder / "empty"), {"empty", "holds no checkpoint", "config.json"}));
  EXPECT_TRUE(
      holds(load_error(folder.write("text.ckpt", "no checkpoint at all, just some text")), {"text.ckpt", "damaged"}));
  const auto net = make_net();
  const std::string path = write_net(folder, *net);
  std::string bytes = read_file(path);
  bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 1);
  const std::string cut = folder.write("cut.ckpt", bytes.substr(0, bytes.size() / 2));
  EXPECT_TRUE(holds(load_error(cut), {"cut.ckpt"}));
  // A damaged optimizer does not matter, a damaged weight does.
  State state = read_checkpoint(path);
  std::erase_if(state.tensors, [](const auto& entry) { return !entry.first.starts_with("model."); });
  (void)write_checkpoint(folder / "small.ckpt", state);
  bytes = read_file(folder / "small.ckpt");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  EXPECT_TRUE(
      holds(load_error(folder.write("flipped.ckpt", bytes)), {"flipped.ckpt", "is damaged: the checksum differs"}));
}

TEST(LoadForInferenceErrors, OfSeveralCheckpointsADamagedOneIsPassedOverWithAWarning) {
  const TemporaryFolder folder;
  const auto net = make_net();
  const std::string path = write_net(folder, *net);
  fs::create_directory(folder / "run");
  fs::copy(path, folder / "run/good.ckpt");
  folder.write("run/last.ckpt", "broken");
  const test::CapturedConsole console;
  EXPECT_TRUE(load_for_inference(folder / "run").predict(some_rows(2)).equal(by_hand(*net, some_rows(2))));
  EXPECT_TRUE(console.has("last.ckpt")) << console.text();
}

TEST(LoadForInferenceErrors, ARecordThatNestsWithoutEndCountsAsAbsent) {
  const TemporaryFolder folder;
  const auto net = make_net();
  const std::string path = write_net(folder, *net);
  fs::create_directory(folder / "run");
  fs::copy(path, folder / "run/good.ckpt");
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  folder.write("run/run.json", "{\"monitor\": {\"best_path\": " + deep + "}}");
  EXPECT_TRUE(load_for_inference(folder / "run").predict(some_rows(2)).equal(by_hand(*net, some_rows(2))));
}

TEST(LoadForInferenceErrors, ABestCheckpointThatIsGoneAndAShardedOneThatIsDamagedAreExplained) {
  const TemporaryFolder folder;
  folder.write("run.json", R"({"monitor": {"best_path": "checkpoints/best.ckpt"}})");
  EXPECT_TRUE(holds(load_error(folder.path()), {"checkpoints/best.ckpt", "does not exist", "last"}));
  fs::create_directories(folder / "checkpoints/best.ckpt");
  const State commit;
  (void)write_checkpoint(folder / "checkpoints/best.ckpt/commit.safetensors", commit);
  for (const std::string& path : {folder.path(), folder / "checkpoints/best.ckpt"}) {
    EXPECT_TRUE(holds(load_error(path), {"best.ckpt/commit.safetensors", "no \"layout\""})) << path << load_error(path);
  }
  const test::CapturedConsole console;
  EXPECT_TRUE(holds(load_error(folder / "checkpoints"), {"holds no checkpoint that can be read"}));
  EXPECT_TRUE(console.has("best.ckpt/commit.safetensors")) << console.text();
}

TEST(LoadForInferenceErrors, AClassThatIsNotKnownIsNamed) {
  const TemporaryFolder folder;
  const auto net = make_net();
  const std::string older = write_net(folder, *net, [](State& state) { state.values.erase("model_class"); });
  EXPECT_TRUE(holds(load_error(older), {"a.ckpt", "does not name the class", "class_path in InferenceOptions"}));
  EXPECT_TRUE(
      load_for_inference(older, {.class_path = "ServedNet"}).predict(some_rows(2)).equal(by_hand(*net, some_rows(2))));
  EXPECT_TRUE(holds(load_error(older, {.class_path = "ServedNte"}), {"ServedNte", "Did you mean \"ServedNet\""}));
  const std::string other = write_net(folder, *net, [](State& state) { state.set<int64_t>("model_class", 3); });
  EXPECT_NE(load_error(other), "");
}

TEST(LoadForInferenceErrors, WeightsThatDoNotFitAreListed) {
  const TemporaryFolder folder;
  const auto net = make_net();
  const std::string path = write_net(folder, *net, [](State& state) {
    state.tensors["model.extra"] = torch::ones({2});
    state.tensors.erase("model.net.0.bias");
  });
  EXPECT_TRUE(holds(load_error(path), {"the model is a ServedNet", "missing net.0.bias (8)", "unexpected extra (2)"}));
}

TEST(LoadForInferenceErrors, AnOptionThatIsWrongIsNamed) {
  const TemporaryFolder folder;
  const auto net = make_net();
  const std::string path = write_net(folder, *net);
  for (const char* device : {"tpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", ":1"}) {
    EXPECT_TRUE(holds(load_error(path, {.device = device}), {"InferenceOptions.device", device}));
  }
  EXPECT_TRUE(holds(load_error(path, {.device = "cdua:1"}),
                    {"\"cdua:1\" is not known", "Did you mean \"cuda\"", "Known: auto, cpu, gpu, cuda"}));
  EXPECT_TRUE(holds(load_error(path, {.device = "xpu:0"}),
                    {"InferenceOptions.device: xpu:0: this LibTorch has no backend for xpu", "device: cpu"}));
  EXPECT_TRUE(holds(load_error(path, {.device = "cuda"}), {"InferenceOptions.device: cuda: "}));  // no test sees a GPU
  EXPECT_TRUE(holds(load_error(path, {.precision = "8-true"}), {"InferenceOptions.precision", "8-true", "bf16-true"}));
  const std::string odd =
      write_net(folder, *net, [](State& state) { state.set<std::string>("model_precision", "my-own"); });
  EXPECT_TRUE(holds(load_error(odd), {"model_precision", "my-own"}));
}

}  // namespace
}  // namespace levin::inference_errors_test
