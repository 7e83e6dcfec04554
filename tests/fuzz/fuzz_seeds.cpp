// fuzz_seeds FOLDER: writes the inputs that fuzzing starts from to FOLDER/checkpoint,
// FOLDER/exported, FOLDER/tokenizer, FOLDER/yaml and FOLDER/c_api.
#include <ATen/ops/ones.h>

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <random>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/files/files.h"
#include "models/forged_archive.h"
#include "models/hostile_calls.h"
#include "support/paths.h"

namespace levin::fuzz {
namespace {

void write_checkpoints(const std::string& folder) {
  make_folder(folder);
  State state;
  write_checkpoint(folder + "/empty", state);
  state.set<int64_t>("epoch", 3);
  state.set("rate", 1e-3);
  state.set<std::string>("name", "run");
  ConfigNode odd = ConfigNode::map();
  odd.set("plain", ConfigNode::list({ConfigNode::scalar("1e-3"), ConfigNode(), ConfigNode::scalar("x", true)}));
  state.values.set("odd", odd);
  write_checkpoint(folder + "/values", state);
  State files;  // paths in checkpoints: see WatchedFolders
  files.set<std::string>("dirpath", "/ck");
  files.set<std::vector<std::string>>("point_removed", {"/ck/a.ckpt", "/ck/sub/a.ckpt", "/ck/../outside/victim.ckpt",
                                                        "/ck/out/victim.ckpt", "/ck/sub/../../outside/victim.ckpt"});
  State callback;
  callback.put("callbacks.ModelCheckpoint", files);
  State shards;
  ConfigNode shard = ConfigNode::map();
  shard.set("file", ConfigNode::scalar("shard-0-of-1.a.safetensors", true));
  shard.set("bytes", ConfigNode::scalar("8"));
  shard.set("checksum", ConfigNode::scalar("0123456789abcdef", true));
  shards.values.set("shards", ConfigNode::list({shard}));
  shards.values.set("layout", ConfigNode::map());
  callback.put("sharded", shards);
  write_checkpoint(folder + "/files", callback);
  for (const auto type : {at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kShort, at::kByte, at::kBool}) {
    state.tensors[c10::toString(type)] = at::ones({2, 3}, at::TensorOptions(type));
  }
  state.tensors["empty"] = at::ones({0, 4}, at::TensorOptions(at::kFloat));
  state.tensors["scalar"] = at::ones({}, at::TensorOptions(at::kInt));
  write_checkpoint(folder + "/tensors", state);
}

// %%%% parts the files and overrides of one run: see fuzz_yaml.cpp.
constexpr const char* kYaml[] = {
    "",
    "seed_everything: 1\ntrainer:\n  max_epochs: 3\n  callbacks:\n    - class_path: Timer\n      init_args: {duration: "
    "1h}\n",
    "model: {class_path: A, init_args: {x: 1.5, y: [a, 'b', \"c\\n\"]}}\noptimizer: SGD\n",
    "lr_scheduler: {class_path: StepLR, interval: step, frequency: 2, init_args: {gamma: .1}}\n",
    "a: &x [1, ~, true]\nb: *x\nc: |\n  text\n  more\nd: >-\n  folded\n  text\n",
    "{\"trainer\": {\"max_epochs\": 3, \"min_epochs\": null}, \"data\": \"\\u00e9\"}\n",
    "? key\n: - 1\n  - {a: b}\n!!str 3: !!int 4\n# comment\n...\n",
    "trainer: {a: 1, b: [1, 2]}\nmodel: A\n%%%%\ntrainer: {b: [3]}\nmodel: {class_path: B}\n%%%%\ntrainer.b[0]=4%%%%\n"
    "trainer.callbacks+=Timer%%%%\nmodel.init_args.x={a: 'b'}",
    "a: 1\n%%%%\nb: 1\nb: 2\n",
};

// See fuzz_exported.cpp for the first byte. Leaves out the programs' references to Python source, most of their bytes.
void write_programs(const std::string& folder) {
  make_folder(folder);
  for (const std::string name : {"mlp", "mlp_eval", "mlp_functional", "state", "branch", "modes", "norms"}) {
    const std::string path = test::source_dir() + "/tests/models/data/" + name + ".pt2";
    test::ForgedArchive archive(path);
    auto model = nlohmann::json::parse(archive["models/model.json"]);
    for (auto& node : model["graph_module"]["graph"]["nodes"]) node["metadata"] = nlohmann::json::object();
    write_file_durably(folder + "/" + name + "_model", "m" + model.dump());
    write_file_durably(folder + "/" + name + "_weights", "w" + archive["data/weights/model_weights_config.json"]);
    write_file_durably(folder + "/" + name, "a" + read_file(path));
  }
  int number = 0;
  for (const test::HostileCall& hostile : test::kHostileCalls) {
    write_file_durably(folder + "/case_" + std::to_string(number++), std::string("c") + hostile.calls);
  }
  std::mt19937 engine(1);
  for (int k = 0; k < 6; ++k) {
    std::string bytes = "o";
    for (int n = 0; n < 60; ++n) bytes += static_cast<char>(engine() % 256);
    write_file_durably(folder + "/operators_" + std::to_string(k), bytes);
  }
}

// One tokenizer of each kind, with a string from its test.
void write_tokenizers(const std::string& folder) {
  make_folder(folder);
  const auto cases =
      nlohmann::json::parse(read_file(test::source_dir() + "/tests/data/reference/huggingface_tokenizer.json"));
  int number = 0;
  for (const auto& one : cases) {
    const std::string text = one["rows"].empty() ? "a b" : one["rows"][0]["text"].get<std::string>();
    write_file_durably(folder + "/" + std::to_string(number++), one["tokenizer"].dump() + "\n%%%%\n" + text);
  }
}

void write_yaml(const std::string& folder) {
  make_folder(folder);
  int number = 0;
  for (const char* text : kYaml) write_file_durably(folder + "/" + std::to_string(number++), std::string(text));
}

// Calls by chance; each begins with a run and two tensors of a batch (fuzz_c_api.cpp).
void write_calls(const std::string& folder) {
  make_folder(folder);
  const std::string tensor_x{0, 4, 1, 1, 1, 4, 1, 1, 1, 1, 1, 2, 1, 1, 1, 0, 1};  // (4, 4) float32
  const std::string tensor_y{0, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 0, 1};  // (4, 1)
  std::mt19937 engine(1);
  for (int k = 0; k < 3; ++k) {
    std::string bytes = std::string{4, static_cast<char>(k), 1} + tensor_x + tensor_y;
    for (int n = 0; n < 250; ++n) bytes += static_cast<char>(engine() % 256);
    write_file_durably(folder + "/" + std::to_string(k), bytes);
  }
}

}  // namespace
}  // namespace levin::fuzz

int main(int argc, char** argv) {
  try {
    const std::string folder = argc == 2 ? argv[1] : "";
    if (folder.empty()) throw levin::Error("usage: fuzz_seeds FOLDER");
    levin::fuzz::write_checkpoints(folder + "/checkpoint");
    levin::fuzz::write_programs(folder + "/exported");
    levin::fuzz::write_tokenizers(folder + "/tokenizer");
    levin::fuzz::write_yaml(folder + "/yaml");
    levin::fuzz::write_calls(folder + "/c_api");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_seeds: %s\n", error.what());
    return 1;
  }
}
