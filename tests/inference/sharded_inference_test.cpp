// Models of sharded checkpoints, and of files that need their run's config.yaml.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "inference/served_net.h"
#include "levin/callbacks/lora.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/core/files/files.h"
#include "levin/inference/load_for_inference.h"
#include "levin/levin.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::sharded_inference_test {
namespace {

namespace fs = std::filesystem;
using test::by_hand;
using test::holds;
using test::load_error;
using test::make_net;
using test::quiet_run;
using test::some_rows;
using test::TemporaryFolder;
using test::write_net;

// What one of `ranks` writes of a checkpoint, as fsdp shards it: flat pieces of equal size of all tensors of the model
// and the optimizer, the rest on rank 0.
State shard_of(const State& whole, int64_t rank, int64_t ranks) {
  State shard;
  ConfigNode parts = ConfigNode::map();
  if (rank == 0) shard.values = whole.values;
  for (const auto& [name, tensor] : whole.tensors) {
    const bool is_shared = name.ends_with("running_mean") || name.starts_with("rng.");
    if (is_shared && rank == 0) shard.tensors[name] = tensor;
    const int64_t each = (tensor.numel() + ranks - 1) / ranks;
    const int64_t begin = std::min(rank * each, tensor.numel()), end = std::min(begin + each, tensor.numel());
    if (is_shared || begin == end) continue;
    shard.tensors[name] = tensor.reshape({-1}).slice(0, begin, end).contiguous();
    ConfigNode part = ConfigNode::map();
    part.set("begin", ValueType<int64_t>::write(begin));
    part.set("shape", ValueType<std::vector<int64_t>>::write(tensor.sizes().vec()));
    parts.set(name, part);
  }
  shard.values.set("parts", parts);
  return shard;
}

void write_shards(const std::string& folder, const State& whole, int64_t ranks = 3) {
  std::vector<std::jthread> others;
  for (int64_t rank = 1; rank < ranks; ++rank) {
    others.emplace_back([&, rank] {
      write_sharded_checkpoint(folder, shard_of(whole, rank, ranks), {rank, ranks, "a"});
    });
  }
  write_sharded_checkpoint(folder, shard_of(whole, 0, ranks), {0, ranks, "a"});
}

TEST(ShardedInference, AFolderOfShardsPredictsAsTheFile) {
  const TemporaryFolder folder;
  const auto net = make_net(7);
  const std::string whole = write_net(folder, *net);
  fs::create_directories(folder / "run/checkpoints");
  write_shards(folder / "run/checkpoints/last.ckpt", read_checkpoint(whole));
  const at::Tensor expected = by_hand(*net, some_rows(5));
  for (const char* path : {"run/checkpoints/last.ckpt", "run/checkpoints/last.ckpt/", "run/checkpoints", "run"}) {
    EXPECT_TRUE(load_for_inference(folder / path).predict(some_rows(5)).equal(expected)) << path;
  }
  folder.write("run/run.json", R"({"monitor": {"best_path": "checkpoints/last.ckpt"}})");
  EXPECT_TRUE(load_for_inference(folder / "run").predict(some_rows(5)).equal(expected));
}

TEST(ShardedInference, AdaptersAreFoundInShardsToo) {
  const TemporaryFolder folder;
  const auto net = make_net(16);
  TrainerOptions run = quiet_run(folder, 2);
  run.callbacks = {LoRA({.target_modules = {"0"}, .r = 2, .lora_alpha = 3.0})};
  Trainer trainer(std::move(run));
  trainer.fit(*net, test::tiny_loader(24));
  trainer.save_checkpoint(folder / "whole.ckpt");
  write_shards(folder / "last.ckpt", read_checkpoint(folder / "whole.ckpt"));
  EXPECT_TRUE(load_for_inference(folder / "last.ckpt").predict(some_rows(5)).equal(by_hand(*net, some_rows(5))));
}

TEST(ShardedInference, OfOneFileAndOneFolderTheNewerIsTaken) {
  const TemporaryFolder folder;
  const auto net = make_net();
  const State newer = read_checkpoint(write_net(folder, *net));
  State older = newer;
  older.set<int64_t>("global_step", newer.get<int64_t>("global_step") - 1);
  for (auto& [name, tensor] : older.tensors) {
    if (name.starts_with("model.net.0")) tensor = tensor * 2;
  }
  fs::create_directories(folder / "one");
  fs::create_directories(folder / "two");
  (void)write_checkpoint(folder / "one/older.ckpt", older);
  write_shards(folder / "one/newer.ckpt", newer);
  (void)write_checkpoint(folder / "two/newer.ckpt", newer);
  write_shards(folder / "two/older.ckpt", older);
  for (const char* each : {"one", "two"}) {
    EXPECT_TRUE(load_for_inference(folder / each).predict(some_rows(5)).equal(by_hand(*net, some_rows(5)))) << each;
  }
}

TEST(ShardedInference, WeightsOfADifferentFileMayBeShards) {
  const TemporaryFolder folder;
  const auto net = make_net();
  const std::string path = write_net(folder, *net);
  State other = read_checkpoint(path);
  other.tensors["model.net.4.bias"].fill_(2.0);
  write_shards(folder / "other.ckpt", other);
  const InferenceModel model = load_for_inference(path, {.weights = WeightsOptions{.path = folder / "other.ckpt"}});
  EXPECT_TRUE(model.module().named_parameters()["net.4.bias"].eq(2.0).all().item<bool>());
}

TEST(ShardedInference, AShardThatIsMissingOrDamagedAndASaveWithoutRecordAreNamed) {
  const TemporaryFolder folder;
  const auto net = make_net();
  const State whole = read_checkpoint(write_net(folder, *net));
  const std::string path = folder / "last.ckpt", shard = path + "/shard-1-of-3.a.safetensors";
  write_shards(path, whole);
  const std::string bytes = read_file(shard);
  fs::remove(shard);
  EXPECT_TRUE(holds(load_error(path), {path, "its shard shard-1-of-3.a.safetensors is missing"}));
  std::string flipped = bytes;
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  for (size_t k = 8 + header; k < bytes.size(); ++k) flipped[k] = static_cast<char>(flipped[k] ^ 1);  // all tensors
  std::ofstream(shard, std::ios::binary) << flipped;
  EXPECT_TRUE(holds(load_error(path), {"shard-1-of-3.a.safetensors", "is damaged"})) << load_error(path);
  std::ofstream(shard, std::ios::binary) << bytes;
  EXPECT_TRUE(load_for_inference(path).predict(some_rows(2)).equal(by_hand(*net, some_rows(2))));
  fs::remove(path + "/commit.safetensors");
  EXPECT_TRUE(holds(load_error(path), {path, "a folder without commit.safetensors", "never finished"}));
}

// ---- config.yaml
// -----------------------------------------------------------------------------------------------------

// A run's folder with a checkpoint of an older Levin: neither class nor precision.
std::string write_older(const TemporaryFolder& folder, LightningModule& net, bool keeps_hparams = true) {
  const std::string path = write_net(folder, net, [&](State& state) {
    state.values.erase("model_class");
    state.values.erase("model_precision");
    if (!keeps_hparams) state.values.erase("hyper_parameters");
  });
  fs::create_directories(folder / "run/checkpoints");
  fs::rename(path, folder / "run/checkpoints/a.ckpt");
  return folder / "run/checkpoints/a.ckpt";
}

constexpr const char* kConfig =
    "seed_everything: 3\n"
    "trainer: {max_epochs: 1, precision: bf16-mixed}\n"
    "model:\n  class_path: examples.ServedNet\n  init_args: {width: 6, dropout: 0.25}\n"
    "data: {class_path: Unknown}\n";

TEST(ConfigOfInference, SaysClassOptionsAndPrecisionOfAnOlderCheckpoint) {
  for (const bool keeps_hparams : {true, false}) {
    const TemporaryFolder folder;
    const auto net = make_net(6);
    const std::string path = write_older(folder, *net, keeps_hparams);
    folder.write("run/config.yaml", kConfig);
    for (const std::string& given : {path, folder / "run", folder / "run/checkpoints"}) {
      const InferenceModel model = load_for_inference(given, {.device = "cpu"});
      const auto& served = dynamic_cast<const test::ServedNet&>(model.module());
      EXPECT_EQ(served.options().width, 6);
      EXPECT_EQ(served.options().dropout, 0.25);
      EXPECT_EQ(model.precision(), "bf16-mixed");
    }
    const InferenceModel exact = load_for_inference(path, {.precision = "32-true"});
    EXPECT_TRUE(exact.predict(some_rows(4)).equal(by_hand(*net, some_rows(4))));
  }
}

TEST(ConfigOfInference, OneNextToTheCheckpointCountsFirst) {
  const TemporaryFolder folder;
  const auto net = make_net(6);
  const std::string path = write_older(folder, *net);
  folder.write("run/config.yaml", "model: Nonsense\n");
  folder.write("run/checkpoints/config.yaml", kConfig);
  EXPECT_EQ(load_for_inference(path, {.device = "cpu"}).precision(), "bf16-mixed");
  EXPECT_TRUE(holds(load_error(folder / "run"), {"its model is a Nonsense"}));  // the folder that was given
}

TEST(ConfigOfInference, IsNotReadWhereTheCheckpointSaysAll) {
  const TemporaryFolder folder;
  const auto net = make_net(6);
  const std::string path = write_net(folder, *net);
  folder.write("config.yaml", "model: {this is not a run file");
  EXPECT_TRUE(load_for_inference(path).predict(some_rows(4)).equal(by_hand(*net, some_rows(4))));
}

TEST(ConfigOfInference, ADifferentClassThanTheOneAskedForLendsNoOptions) {
  const TemporaryFolder folder;
  const auto net = make_net(6);
  const std::string path = write_older(folder, *net);
  folder.write("run/config.yaml", "model: {class_path: Other, init_args: {depth: 3}}\n");
  const InferenceModel model = load_for_inference(path, {.class_path = "ServedNet"});
  EXPECT_TRUE(model.predict(some_rows(4)).equal(by_hand(*net, some_rows(4))));
}

TEST(ConfigOfInference, WhatWasLookedForAndMistakesInItAreNamed) {
  const TemporaryFolder folder;
  const auto net = make_net(6);
  const std::string path = write_older(folder, *net);
  const std::string run = folder / "run";
  EXPECT_TRUE(holds(load_error(path), {path, "does not name the class",
                                       "no config.yaml has a model (looked for " + run + "/checkpoints/config.yaml, " +
                                           run + "/config.yaml)",
                                       "class_path"}))
      << load_error(path);
  folder.write("run/config.yaml", "trainer: {max_epochs: 1}\n");
  EXPECT_TRUE(holds(load_error(path), {"does not name the class", run + "/config.yaml has no model"}))
      << load_error(path);
  folder.write("run/config.yaml", "model: {class_path: [\n");
  EXPECT_TRUE(holds(load_error(path), {"run/config.yaml:"})) << load_error(path);
  folder.write("run/config.yaml", "model: {class: ServedNet}\n");
  EXPECT_TRUE(holds(load_error(path), {"run/config.yaml:1:", "class_path"})) << load_error(path);
  folder.write("run/config.yaml", "model: {class_path: ServedNet, init_args: {widht: 6}}\n");
  EXPECT_TRUE(holds(load_error(path), {"run/config.yaml:1:", "widht", "Did you mean \"width\""})) << load_error(path);
  folder.write("run/config.yaml", "model: {class_path: ServedNet}\ntrainer: {precision: 8-true}\n");
  EXPECT_TRUE(holds(load_error(path, {.init_args = {{"width", "6"}}}), {"precision", "8-true"})) << load_error(path);
}

}  // namespace
}  // namespace levin::sharded_inference_test
