// fuzz_seeds FOLDER: writes the inputs that fuzzing starts from to FOLDER/TARGET for each target.
#include <ATen/ops/ones.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <span>

#include "levin/adapters/lora.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/cli/sweep/sweep_store.h"
#include "levin/core/files/files.h"
#include "levin/core/files/sqlite.h"
#include "levin/core/files/wire_message.h"
#include "levin/libtorch/version.h"
#include "levin/loggers/event_records.h"
#include "levin/loggers/sqlite_logger.h"
#include "levin/models/huggingface/auto_model.h"
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

constexpr const char* kLightning[] = {
    "# pytorch_lightning==2.5\nseed_everything: 3\ntrainer:\n  accelerator: gpu\n  devices: auto\n  precision: "
    "16-mixed\n"
    "  callbacks:\n  - class_path: lightning.pytorch.callbacks.ModelCheckpoint\n    init_args: {monitor: val_loss, "
    "save_top_k: 2}\n  max_epochs: 3\n  barebones: false\nmodel:\n  class_path: a.b.Net\n  init_args: {lr: 0.1}\n"
    "optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 1e-3}}\nckpt_path: null\n",
    "fit:\n  trainer: {logger: {class_path: TensorBoardLogger, init_args: {save_dir: logs}}, strategy: ddp, devices: "
    "2}\n"
    "  data: {class_path: MNISTDataModule, init_args: {batch_size: 32}}\n  model: {hidden: 3}\n",
    "trainer:\n  callbacks: [EarlyStopping, {class_path: RichProgressBar}]\n  gradient_clip_val: 0.5\n  "
    "sync_batchnorm: true\n"
    "lr_scheduler: {class_path: torch.optim.lr_scheduler.StepLR, init_args: {step_size: 2}}\n",
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

void write_yaml(const std::string& folder, std::span<const char* const> texts) {
  make_folder(folder);
  int number = 0;
  for (const char* text : texts) write_file_durably(folder + "/" + std::to_string(number++), std::string(text));
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

void write_texts(const std::string& folder, const std::vector<std::string>& texts) {
  make_folder(folder);
  int number = 0;
  for (const std::string& text : texts) {
    write_file_durably(folder + "/" + std::to_string(number++), text);
  }
}

// The files of a run's folder: see fuzz_runs.cpp.
void write_runs(const std::string& folder) {
  const std::string record =
      R"(run.json
{"command": "fit", "argv": ["levin", "fit"], "host": "node1", "pid": 4711, "version": "0.2", "strategy": "ddp",
 "precision": "32-true", "device": "cpu", "world_size": 2, "status": "failed", "error": "loss is nan\nat step 3",
 "stop_reason": "max_epochs", "started": 1764000000.5, "updated": 1764000100, "ended": 1764000200, "epoch": 2,
 "max_epochs": 3, "step": 200, "max_steps": -1, "total_batches": 100, "progress": 0.66, "remaining_seconds": 50,
 "skipped_steps": 1, "nonfinite_losses": 2, "rates": {"batches_per_second": 1.5, "samples_per_second": 48},
 "sessions": [{"started": 1764000000.5, "first_step": 0, "status": "killed"}, {"started": 1764000090,
 "ended": 1764000200, "first_step": 90, "status": "failed"}], "metrics": {"val_loss": {"last": 0.5, "min": 0.25,
 "max": "inf", "last_step": 200, "min_step": 150, "max_step": 3}}, "monitor": {"name": "val_loss", "mode": "min",
 "best": 0.25, "best_path": "checkpoints/a.ckpt"}, "time_split": {"data": 3.5, "forward": 20, "backward": 30,
 "other": 1}, "clock": [[0, 0], [90, 45], [200, 100]], "checkpoints": [{"path": "checkpoints/a.ckpt", "step": 150,
 "epoch": 1, "time": 1764000150, "score": 0.25}], "ranks": [{"rank": 0, "host": "node1", "pid": 4711,
 "memory_bytes": 1e9, "peak_memory_bytes": 2000000000, "stage": "train"}]}
)";
  std::string rows = "metrics.csv\nepoch,step,train_loss,\"a,\"\"b\"\"\",val_acc\n", lines = "metrics.jsonl\n";
  for (int step = 0; step < 70; ++step) {
    const std::string value = step % 23 == 22 ? "nan" : std::to_string(1.0 / (1 + step));
    rows += "0," + std::to_string(step) + "," + value + (step % 10 == 9 ? ",1e300,0.5" : ",,") + "\n";
    if (step % 7 == 0) {
      lines += R"({"step": )" + std::to_string(step) + R"(, "time": 176400000)" + std::to_string(step) +
               R"(.5, "metrics": {"epoch": 0, "train/loss": )" + std::to_string(0.1 * step) + R"(, "lr-SGD": "nan"}})" +
               "\n";
    }
  }
  const std::string options = "hparams.yaml\nlr: 0.1\nlayers: [1, 2]\nmodel: {width: 8, names: [{a: 1}]}\n";
  const std::string config =
      "config.yaml\ntrainer:\n  max_epochs: 3\n  callbacks:\n    - class_path: ModelCheckpoint\n      init_args: "
      "{monitor: val_acc, mode: max}\nmodel: {class_path: A, init_args: {lr: 0.1}}\n";
  const std::string border = "%%%%\n";
  write_texts(folder, {record, record + border + rows + border + options, rows + border + options + border + config,
                       record + border + lines + border + config, options + border + "metrics.csv\nstep\r\n1\r\n",
                       "run.json\n{}" + border + lines});
}

// What an MLflow server answers to the requests of a run: see fuzz_mlflow.cpp.
void write_mlflow(const std::string& folder) {
  const auto answer = [](const std::string& status, const std::string& body, const std::string& headers = "") {
    return "HTTP/1.1 " + status +
           "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + headers +
           "\r\n" + body;
  };
  const std::string border = "%%%%\n",
                    missing = R"({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "No such one"})";
  const std::string experiment =
      answer("200 OK", R"({"experiment": {"experiment_id": "7", "lifecycle_stage": "active"}})");
  const std::string info = R"({"info": {"run_id": "0a1b", "artifact_uri": "mlflow-artifacts:/7/0a1b/artifacts"}})";
  const std::string made = answer("404 NOT FOUND", missing) + border + answer("200 OK", R"({"experiment_id": "7"})") +
                           border + answer("200 OK", "{}") + border + answer("200 OK", "{\"run\": " + info + "}");
  const std::string found = experiment + border + answer("200 OK", "{\"runs\": [" + info + "]}");
  const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: y\r\n\r\n";
  write_texts(
      folder,
      {"<?xml version=\"1.0\"?>\n<s3:L xmlns=\"u\" a='b'><!-- c "
       "--><Key>a&amp;b&#233;&#x41;</Key><E/><K><![CDATA[<&]]></K></s3:L>",
       "<Error><Code>NoSuchKey</Code><Message>no</Message></Error>", made + border + answer("200 OK", "{}"),
       found + border + chunked,
       found + border + answer("400 BAD REQUEST", R"({"error_code": "INVALID_PARAMETER_VALUE", "message": "no"})"),
       found + border + answer("429 TOO MANY REQUESTS", "", "Retry-After: 120\r\n"),
       found + border + answer("503 SERVICE UNAVAILABLE", "<html>", "Retry-After: Fri, 31 Dec 2027 23:59:59 GMT\r\n"),
       answer("302 FOUND", "", "Location: http://user:secret@127.0.0.1:9/a\r\n"), answer("401 UNAUTHORIZED", ""),
       answer("200 OK", R"({"experiment": {"experiment_id": "7", "lifecycle_stage": "deleted"}})"),
       "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9999999999999999999\r\n\r\n", "HTTP/0.9", ""});
}

// See fuzz_ranks.cpp for the first byte.
void write_rank_messages(const std::string& folder) {
  write_texts(
      folder,
      {"px",
       std::string("p\0\0\0\0", 5),
       "p\xff",
       "pin train",
       std::string("s\x10\x00\x05\x20\x00\xff\x00\x10\x40\x10\x10\x10\x20\x10\x01", 16),
       "s000111222333444",
       "o/proc/self/fd/0 1 2",
       "o/dev/null 18446744073709551615 0",
       "g",
       "gLEVIN 1\n",
       "gLEVIN 1\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
       "eRANK=1\nWORLD_SIZE=2\nMASTER_ADDR=10.0.0.1\nMASTER_PORT=29500\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2",
       "eTORCHELASTIC_RUN_ID=a\nRANK=3\nWORLD_SIZE=4\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nGROUP_RANK=1",
       "eSLURM_NTASKS=5\nSLURM_PROCID=4\nSLURM_LOCALID=0\nSLURM_NODEID=2\nSLURM_JOB_NUM_NODES=3\n"
       "SLURM_TASKS_PER_NODE=2(x2),1\nSLURM_JOB_NODELIST=node[5-9,12],gpu1\nSLURM_JOB_ID=123456\nSLURM_STEP_ID=2",
       "eLSB_JOBID=77\nJSM_NAMESPACE_RANK=0\nJSM_NAMESPACE_SIZE=2\nJSM_NAMESPACE_LOCAL_RANK=0",
       "eOMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_LOCAL_RANK=1\n"
       "OMPI_COMM_WORLD_LOCAL_SIZE=2\nMASTER_ADDR=a\nPMIX_NAMESPACE=x",
       "ePMI_RANK=1\nPMI_SIZE=2\nMPI_LOCALRANKID=1\nMPI_LOCALNRANKS=2",
       "ePET_NNODES=2\nPET_NODE_RANK=1\nPET_NPROC_PER_NODE=1\nPET_MASTER_ADDR=a\nPET_MASTER_PORT=1234",
       "eJOB_COMPLETION_INDEX=1\nJOB_COMPLETIONS=2\nMASTER_ADDR=a",
       "eLEVIN_LAUNCHED=1\nRANK=0\nWORLD_SIZE=1",
       "i--init-method\ntcp://10.0.0.1:23456\n--rank=0\n--world_size\n2\nother",
       "i--init-method=file:///tmp/x\n--rank=0\n--world-size=2",
       "lbatch\nnode1\nnode1\nnode2\n",
       "l\n\n",
       std::string("q\0", 2),
       "q\1Job/step already completing or completed\nslurm_requeue: error",
       "a\n\n\n\n",
       "a\n\n",
       "aLEVIN 1\n",
       "aSSH-2.0-OpenSSH_9.2\r\n",
       "knode1\n4711\n2026-11-28 12:00:00\n",
       "k"});
}

nlohmann::json reference(const std::string& name) {
  return nlohmann::json::parse(read_file(test::source_dir() + "/tests/data/reference/" + name));
}

std::string bytes_of(const nlohmann::json& digits) {
  const auto text = digits.get<std::string>();
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

void write_images(const std::string& folder) {
  make_folder(folder);
  const nlohmann::json images = reference("images.json");
  int number = 0;
  for (const auto& image : images.at("files")) {
    write_file_durably(folder + "/" + std::to_string(number), static_cast<char>(number) + bytes_of(image.at("file")));
    ++number;
  }
}

// The first shard of each data set in tests/data/streams, with an index of this shard alone: see fuzz_streams.cpp.
void write_streams(const std::string& folder) {
  make_folder(folder);
  const std::string root = test::source_dir() + "/tests/data/streams/";
  for (const std::string name :
       {"mds", "mds_gz", "mds_zstd", "mosaic_csv", "mosaic_json", "mosaic_tsv", "litdata", "litdata_chunk",
        "litdata_frames", "litdata_sample", "litdata_leaf", "litdata_tokens"}) {
    auto index = nlohmann::json::parse(read_file(root + name + "/index.json"));
    auto& shards = index.contains("shards") ? index["shards"] : index["chunks"];
    shards.erase(shards.begin() + 1, shards.end());
    const auto& shard = shards[0];
    std::string file = shard.contains("filename") ? shard["filename"] : shard["raw_data"]["basename"];
    if (shard.contains("zip_data") && !shard["zip_data"].is_null()) file = shard["zip_data"]["basename"];
    write_file_durably(folder + "/" + name, "i" + index.dump() + "%%%%\n" + read_file(root + name + "/" + file));
  }
  for (const std::string name : {"data-000000.tar", "data-000002.tar", "data-000003.tar"}) {
    write_file_durably(folder + "/" + name, "t" + read_file(root + "webdataset/" + name));
  }
  write_file_durably(folder + "/packed_tar", "g" + read_file(root + "webdataset/data-000004.tar.gz"));
  write_file_durably(folder + "/lines", "j" + read_file(root + "jsonl/a.jsonl"));
  write_file_durably(folder + "/packed_lines", "z" + read_file(root + "jsonl/c.jsonl.zst"));
  write_file_durably(folder + "/pattern", std::string("pa-{000..012}-{x,y{1..3}}.tar"));
}

// A file of SentencePiece with a unigram model of a few pieces.
std::string sentence_pieces() {
  const auto piece = [](const std::string& text, float score, uint64_t kind) {
    WireMessage message;
    message.text(1, text).real32(2, score).number(3, kind);
    return message;
  };
  WireMessage model;
  model.message(1, piece("<unk>", 0, 2)).message(1, piece("<s>", 0, 3)).message(1, piece("</s>", 0, 3));
  float score = 0;
  for (const char* text : {"\u2581", "a", "b", "ab", "\u2581a", "<0x0A>"}) {
    model.message(1, piece(text, --score, *text == '<' ? 6 : 1));
  }
  WireMessage trainer, normalizer;
  model.message(2, trainer.number(3, 1)).message(3, normalizer.text(1, "identity").number(3, 1));
  return model.encoded();
}

// See fuzz_data.cpp for the first byte.
void write_data(const std::string& folder) {
  const std::string tokens{1, 0, 2, 0, 3, 0, 4, 0};
  std::string ranks = "r";  // a token for each byte, and two that are joined
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t byte = 0; byte < 256; ++byte) {
    ranks += std::string{digits[byte >> 2], digits[(byte & 3) << 4]} + "== " + std::to_string(byte) + "\n";
  }
  write_texts(folder, {"cid,x,y\n1,0.5,\"a\"\n2,nan,\"b \"\"c\"\"\"\r\n", "c1,2\n3,4\n", "c", "tsome text\n",
                       std::string("t\x1f\x8b\x08\0\0\0\0\0\0\x03\xcb\x48\x04\0\x47\x8c\x15\x8a\x02\0\0\0", 24),
                       std::string("t\x1f\x9d\x90\x61\xc4\x8c\x01", 8), "k" + tokens,
                       std::string("i\0\0\x08\x02\0\0\0\x02\0\0\0\x03\1\2\3\4\5\6", 19),
                       std::string("i\0\0\x0d\x01\0\0\0\x01\x3f\x80\0\0", 13), ranks + "YWE= 256\nYWFh 257\n",
                       "s" + sentence_pieces(), "xtext,label\na b,1\n\"c,\nd\",2\ne,1\n", "x0,1\na,b\n"});
  const nlohmann::json arrays = reference("arrays.json");
  int number = 100;
  for (const char* list : {"good", "bad"}) {
    for (const auto& array : arrays.at(list)) {
      for (const char* kind : {"n", "k"}) {
        write_file_durably(folder + "/" + std::to_string(number++), kind + bytes_of(array.at("file")));
        if (number % 6 != 0) break;
      }
    }
  }
}

// Programs for fuzz_onnx.cpp; the second byte selects the version of the operators.
void write_onnx(const std::string& folder) {
  make_folder(folder);
  int number = 0;
  const auto write = [&](char kind, const std::string& rest) {
    const char choice = static_cast<char>(7 * number + 8);
    write_file_durably(folder + "/" + std::to_string(number++), std::string{kind, choice} + rest);
  };
  for (const std::string name : {"mlp_eval", "state", "norms"}) {
    test::ForgedArchive archive(test::source_dir() + "/tests/models/data/" + name + ".pt2");
    auto model = nlohmann::json::parse(archive["models/model.json"]);
    for (auto& node : model["graph_module"]["graph"]["nodes"]) node["metadata"] = nlohmann::json::object();
    if (name == "mlp_eval") write('m', model.dump());
    write('a', read_file(test::source_dir() + "/tests/models/data/" + name + ".pt2"));
  }
  for (
      const char* calls :
      {R"([["linear.default", {"input": "$x", "weight": "$p_first_weight", "bias": "$p_first_bias"}, "y"],
            ["gelu.default", {"self": "$y"}, "z"], ["softmax.int", {"self": "$z", "dim": 1}, "u"]])",
       R"([["unsqueeze.default", {"self": "$x", "dim": 1}, "y"], ["cat.default", {"tensors": ["$y", "$y"], "dim": 1}, "z"],
            ["layer_norm.default", {"input": "$z", "normalized_shape": [4]}, "u"]])",
       R"([["topk.default", {"self": "$x", "k": 2}, "y"]])",
       R"([["view.default", {"self": "$x", "size": [-1, 1, 2, 2]}, "y"],
            ["avg_pool2d.default", {"self": "$y", "kernel_size": [2, 2]}, "z"], ["flatten.using_ints", {"self": "$z", "start_dim": 1}, "u"]])",
       R"([["sum.dim_IntList", {"self": "$x", "dim": [1], "keepdim": true}, "y"], ["div.Tensor", {"self": "$x", "other": "$y"}, "z"],
            ["clamp.default", {"self": "$z", "min": 0.1}, "u"], ["pow.Tensor_Scalar", {"self": "$u", "exponent": 2}, "v"]])",
       R"([["transpose.int", {"self": "$x", "dim0": 0, "dim1": 1}, "y"], ["matmul.default", {"self": "$x", "other": "$y"}, "z"]])",
       R"([["gather.default", {"self": "$f46", "dim": 0, "index": "$i23"}, "y"], ["where.self", {"condition": "$mask", "self": "$f46", "other": "$d46"}, "z"]])"}) {
    write('c', calls);
  }
  std::mt19937 engine(1);
  for (int k = 0; k < 24; ++k) {
    std::string bytes;
    for (int n = 0; n < 30; ++n) bytes += static_cast<char>(engine() % 256);
    write('o', bytes);
  }
}

// A database of few bytes: pages of 512, and nothing in a second file.
std::string small_database(const std::string& path) {
  {
    SqliteFile file(path, Seconds(1));
    file.execute("PRAGMA journal_mode = DELETE");
    file.execute("PRAGMA page_size = 512");
    file.execute("VACUUM");
  }
  return read_file(path);
}

// See fuzz_loggers.cpp for the first byte.
void write_loggers(const std::string& folder) {
  const std::string path = folder + ".sqlite";
  {
    SqliteStore store(path, Seconds(1));
    store.open_run("0123456789abcdef", "fuzz", folder);
    using Table = SqliteRow::Table;
    store.write({{Table::metrics, "loss", {3, 1.8e9}, 0.5},
                 {Table::metrics, "loss", {4, 1.8e9}, 0.25},
                 {Table::metrics, "loss", {5, 1.8e9}, 0.125},
                 {Table::texts, "note", {5, 1.8e9}, 0, "a note"}},
                4);
    store.write_hparams({{"lr", "0.1"}});
    store.write_final_metrics({{"loss", 0.5}});
  }
  const std::string database = small_database(path);
  const std::string events = version_record(1.8e9) + session_start_record(1.8e9, 0) +
                             scalars_record({{"loss", 0.5}, {"acc", 1}}, "", {3, 1.8e9}) +
                             text_record("note", "a note", {4, 1.8e9});
  const std::string lines =
      "{\"time\":1764000000.5,\"step\":1,\"epoch\":0.0,\"metrics\":{\"loss\":0.5}}\n"
      "{\"time\":1764000001.5,\"step\":2,\"text\":{\"name\":\"a\",\"text\":\"b\"}}\n";
  const std::string record =
      R"({"format": 1, "command": "fit", "status": "running", "started": 1764000000, "updated": 1764000009,
 "sessions": [{"started": 1764000000.5, "first_step": 0, "status": "running"}], "trained_seconds": 9,
 "metrics": {"loss": {"last": 0.5, "last_step": 9, "min": "nan", "min_step": 1, "max": "inf", "max_step": 2}},
 "checkpoints": [{"path": "a.ckpt", "step": 9, "epoch": 0, "time": 1764000008, "score": 0.5}],
 "time_split": {"data": 1.5}, "clock": [[1, 0.5], [9, 9]]})";
  const std::string queue =
      "{\"n\":1,\"v\":1,\"k\":\"metrics\",\"t\":1764000000,\"step\":1,\"i\":{\"loss\":0.5}}\n"
      "{\"n\":2,\"v\":1,\"k\":\"status\",\"status\":\"FINISHED\",\"t\":1764000000009}\n";
  write_texts(folder, {"c2\nepoch,loss,step\n0,0.5,1\n0,0.25,2\n0,0.125,3\n",
                       "c1\n\"a,\"\"b\"\"\",loss\n1.0,2\n3,nan\n4", "c-1\nstep\r\n1\r\n", "c9\n",
                       "j" + std::to_string(lines.size()) + "\n" + lines + "{\"time\":", "j60\n" + lines,
                       "j-1\n" + lines, "t" + std::to_string(events.size()) + "\n" + events, "t80\n" + events,
                       "t0\n" + events.substr(0, 50), "q" + database, "q" + database.substr(0, 100), "q", "r" + record,
                       "r{}", "r", "o" + queue + "%%%%\n{\"acknowledged\": 1, \"dropped\": 2, \"refused\": 3}\n",
                       "o" + queue + "{\"n\":3", "o%%%%\n{\"acknowledged\": 7}"});
  std::filesystem::remove(path);
}

// See fuzz_sweep.cpp for the first byte.
void write_sweeps(const std::string& folder) {
  const std::string file =
      "run: run.yaml\nmetric: val_loss\nmode: max\nmax_trials: 4\nmax_time: 1h\nslots: 2\nsearch: {method: hyperband, "
      "max_resource: 9}\n"
      "space:\n  optimizer.lr: {log_uniform: [1e-4, 1e-1]}\n  model.hidden: {choice: [64, 'a']}\n"
      "  model.layers: {int: [1, 8], step: 2, log: false}\n  x: {uniform: [0, 1]}\n";
  const std::string folder_of_sweep = folder + "_of_a_sweep";
  std::string database;
  {
    SweepStore store = SweepStore::create(folder_of_sweep, {.name = "fuzz", .sweep = file, .max_resource = 9});
    for (int64_t k = 0; k < 3; ++k) {
      (void)store.add([](int64_t) {
        return SweepStore::NewTrial{.parameters = {{"optimizer.lr", "0.01"}, {"model.hidden", "64"}}, .target = 1};
      });
      (void)store.take(k, k % 2, 1.8e9);
      store.set_process(k, 4711, "12 boot");
    }
    store.record_result(0, {.resource = 1, .value = 0.5, .checkpoint = "a.ckpt", .checkpoint_step = 3}, false, true,
                        1.8e9);
    store.record_failure(1, "exit status 1", false, 1.8e9);
  }
  database = small_database(folder_of_sweep + "/sweep.sqlite");
  std::filesystem::remove_all(folder_of_sweep);
  const std::string result =
      R"({"status": "success", "metrics": {"val_loss": 0.5, "acc": null}, "measured_at": {"val_loss": 40},
 "checkpoints": {"a.ckpt": {"step": 9, "batches": 40}}, "best": [{"monitor": "val_loss", "mode": "min", "value": 0.25,
 "checkpoint": "a.ckpt"}]})";
  write_texts(
      folder,
      {"d" + database, "d" + database.substr(0, 700), "f" + file,
       "frun: run.yaml\nmetric: a\nsearch: {method: grid}\nspace:\n  a: {choice: [1, 2]}\n  b: {int: [0, 3]}\n",
       "frun: run.yaml\nmetric: a\nmax_trials: 5\nsearch: {method: sobol}\nspace: {a: {int: [1, 100], log: true}}\n",
       "frun: run.yaml\nmetric: a\nmax_trials: 5\nsearch: {method: asha, max_resource: 81, reduction_factor: "
       "3}\nspace: {}\n",
       "r" + result, R"(r{"status": "interrupted"})", "r[]"});
}

// A folder that save_pretrained writes, as one input of fuzz_weights.cpp.
std::string model_files(const std::string& config, const std::string& scratch) {
  huggingface::model_from_config(PretrainedConfig::parse(config, "seed"), huggingface::Task::base)
      ->save_pretrained(scratch);
  return "h" + read_file(scratch + "/config.json") + "%%%%\n" + read_file(scratch + "/model.safetensors");
}

// See fuzz_weights.cpp for the first byte.
void write_weights(const std::string& folder) {
  make_folder(folder);
  const std::string scratch = folder + "_scratch";
  make_folder(scratch);
  const auto saved = [&](const std::map<std::string, at::Tensor>& tensors) {
    write_safetensors(scratch + "/a.safetensors", tensors, {{"format", "pt"}});
    return read_file(scratch + "/a.safetensors");
  };
  int number = 0;
  const auto write = [&](const std::string& input) {
    write_file_durably(folder + "/" + std::to_string(number++), input);
  };
  write("s" + saved({{"first.weight", at::ones({3, 4})},
                     {"model.first.bias", at::ones({3}, at::TensorOptions(at::kHalf))},
                     {"skip.a", at::ones({}, at::TensorOptions(at::kLong))},
                     {"words.weight", at::ones({5, 3})}}));
  write("s" + saved({{"first.bias", at::ones({3}, at::TensorOptions(at::kBFloat16))}, {"none", at::ones({0, 2})}}));
  write(R"(i{"metadata": {"total_size": 92}, "weight_map": {"a": "a.safetensors", "first.weight": "a.safetensors",
 "b": "b.safetensors", "first.bias": "b.safetensors"}})");
  for (
      const char* config :
      {R"({"model_type": "bert", "vocab_size": 5, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
            "intermediate_size": 4, "max_position_embeddings": 4, "type_vocab_size": 1})",
       R"({"model_type": "roberta", "vocab_size": 5, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
            "intermediate_size": 4, "max_position_embeddings": 6, "id2label": {"0": "no", "1": "yes"}})",
       R"({"model_type": "distilbert", "vocab_size": 5, "dim": 4, "n_layers": 1, "n_heads": 2, "hidden_dim": 4,
            "max_position_embeddings": 4})",
       R"({"model_type": "gpt2", "vocab_size": 5, "n_embd": 4, "n_head": 2, "n_layer": 1, "n_positions": 4})",
       R"({"model_type": "llama", "vocab_size": 5, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
            "num_key_value_heads": 1, "intermediate_size": 4, "max_position_embeddings": 4,
            "rope_parameters": {"rope_type": "linear", "factor": 2.0}})",
       R"({"model_type": "qwen3", "vocab_size": 5, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
            "num_key_value_heads": 1, "intermediate_size": 4, "max_position_embeddings": 4, "head_dim": 2})",
       R"({"model_type": "phi3", "vocab_size": 5, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
            "num_key_value_heads": 2, "intermediate_size": 4, "max_position_embeddings": 4, "pad_token_id": 0})",
       R"({"model_type": "vit", "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 4,
            "image_size": 8, "patch_size": 4})"}) {
    write(model_files(config, scratch));
  }
  torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::Linear(3, 2));
  apply_lora(*net, {.target_modules = {"0", "1"}, .r = 2});
  save_lora(*net, scratch + "/adapter");
  write("p" + read_file(scratch + "/adapter/adapter_config.json") + "%%%%\n" +
        read_file(scratch + "/adapter/adapter_model.safetensors"));
  write(R"(p{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "use_dora": true, "rank_pattern": {"^0$": 3, "(1|2).*": 4},
 "alpha_pattern": {"1": 8}, "target_modules": ["0"], "bias": "all", "modules_to_save": ["1"]}%%%%
)" + read_file(scratch + "/adapter/adapter_model.safetensors"));
  write(R"(m{"format": "levin-compiled-1", "torch": ")" + torch_version() + R"(", "device": "cpu", "machine": "x86_64",
 "cpu_flags": ["sse"], "parameters": [{"name": "w", "shape": [2], "dtype": "float32", "requires_grad": true}],
 "buffers": [], "constants": [], "batch": [{"shape": [4, 2], "dtype": "float32"}],
 "graphs": {"training": {"dynamic_batch": false, "inputs": ["tensor:w", "batch:0"], "outputs": ["loss", "gradient:w"]},
 "evaluation": {"dynamic_batch": true, "inputs": ["tensor:w", "batch:0"], "outputs": ["loss", "unused"]}}}%%%%
flags : sse sse2)");
  write("0[[0.5, 1, -2e-3], [0, 0, 1]]");
  write("4[1, -9223372036854775808]");
  write("9[[true], [false]]");
  write("2[1e5, null]");
  std::filesystem::remove_all(scratch);
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
    levin::fuzz::write_yaml(folder + "/yaml", levin::fuzz::kYaml);
    levin::fuzz::write_yaml(folder + "/lightning", levin::fuzz::kLightning);
    levin::fuzz::write_calls(folder + "/c_api");
    levin::fuzz::write_runs(folder + "/runs");
    levin::fuzz::write_mlflow(folder + "/mlflow");
    levin::fuzz::write_rank_messages(folder + "/ranks");
    levin::fuzz::write_images(folder + "/images");
    levin::fuzz::write_data(folder + "/data");
    levin::fuzz::write_streams(folder + "/streams");
    levin::fuzz::write_onnx(folder + "/onnx");
    levin::fuzz::write_loggers(folder + "/loggers");
    levin::fuzz::write_sweeps(folder + "/sweep");
    levin::fuzz::write_weights(folder + "/weights");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_seeds: %s\n", error.what());
    return 1;
  }
}
