// levin export: the real tool on run files.
#include "levin/cli/commands/export_model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <map>
#include <set>

#include "levin/checkpoint/safetensors.h"
#include "levin/core/files/files.h"
#include "levin/core/process/main_guard.h"
#include "levin/inference/load_for_inference.h"
#include "support/error_text.h"
#include "support/field_count.h"
#include "support/levin_runs.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::export_model_test {
namespace {

namespace fs = std::filesystem;
using test::holds;

class Export : public ::testing::Test {
 protected:
  test::Ran levin(const std::string& arguments) const { return test::run_levin(arguments, folder_.path()); }
  void write(const std::string& name, const std::string& text) const {
    write_file_durably(folder_.path() + "/" + name, text);
  }
  [[nodiscard]] bool exists(const std::string& name) const { return fs::exists(folder_.path() + "/" + name); }

  test::TemporaryFolder folder_;
};

const std::string kRun =
    "export --config " + test::source_dir() + "/configs/fashion_mnist.yaml --trainer.default_root_dir=runs ";

TEST_F(Export, OptionsAreListed) {
  EXPECT_EQ(levin::testing::field_count<ExportOptions>(), field_names<ExportOptions>().size());
}

TEST_F(Export, ReportsWhatCannotBeExported) {
  const auto ran =
      levin("export --config " + test::source_dir() +
            "/configs/gpt.yaml --model.n_layer=1 --model.max_new_tokens=2 --method predict_step --output model.onnx");
  EXPECT_EQ(ran.status, kExitRunFailed) << ran.output;
  EXPECT_TRUE(holds(ran.output, {"error: the model calls operators that cannot be exported", "aten::multinomial",
                                 "it draws random numbers"}));
  EXPECT_FALSE(exists("model.onnx"));
}

TEST_F(Export, WritesAGraph) {
  const auto ran = levin(kRun + "--output model.onnx");
  ASSERT_EQ(ran.status, kExitOk) << ran.output;
  EXPECT_TRUE(holds(ran.output, {"the model has its initial weights", "model.onnx: opset 18, ",
                                 "input  images: float32 (batch, 1, 28, 28)", "output output: float32 (batch, 10)"}));
  EXPECT_TRUE(exists("model.onnx"));
  EXPECT_FALSE(exists("runs")) << "an export must not create a run";
}

TEST_F(Export, NamesPortsAsAsked) {
  const auto ran =
      levin(kRun + "--output model.onnx --method predict_step --input_names x,y --output_name label --opset=17");
  ASSERT_EQ(ran.status, kExitOk) << ran.output;
  EXPECT_TRUE(holds(ran.output, {"opset 17", "input  x: float32", "output label: int64 (batch)"}));
  const auto one = levin(kRun + "--output one.onnx --method predict_step --input_names x");
  EXPECT_TRUE(holds(one.output, {"input  x: float32"}))
      << "the targets, which the output does not depend on, need none";
  const auto wrong = levin(kRun + "--output other.onnx --input_names x,y");
  EXPECT_TRUE(holds(wrong.output, {"(--input_names): got 2 names for 1 input (images)."}));
  EXPECT_FALSE(exists("other.onnx"));
}

TEST_F(Export, WritesWeightsByName) {
  const auto ran = levin(kRun + "--format safetensors --output weights.safetensors");
  ASSERT_EQ(ran.status, kExitOk) << ran.output;
  const SafetensorsFile file(folder_.path() + "/weights.safetensors");
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  std::vector<std::string> names;
  for (const auto& entry : file.entries()) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"net.1.bias", "net.1.weight", "net.4.bias", "net.4.weight"}));
}

TEST_F(Export, TakesTheFormatFromTheEnding) {
  const auto ran = levin(kRun + "--output weights.safetensors");
  ASSERT_EQ(ran.status, kExitOk) << ran.output;
  EXPECT_EQ(SafetensorsFile(folder_.path() + "/weights.safetensors").entries().size(), 4U);
  EXPECT_TRUE(holds(levin(kRun + "--output model").output, {"model: opset 18, "}))
      << "onnx is the format without a file ending";
  EXPECT_TRUE(holds(levin(kRun + "--format onnx --output model.v2").output, {"model.v2: opset 18, "}));
}

TEST_F(Export, RefusesADifferentExtensionOrNone) {
  const auto refused = [&](const std::string& arguments, const std::string& name, const std::string& what) {
    const auto ran = levin(kRun + arguments);
    EXPECT_EQ(ran.status, kExitBadConfig) << ran.output;
    EXPECT_TRUE(holds(ran.output, {what, "nothing was written"})) << ran.output;
    EXPECT_FALSE(exists(name));
  };
  refused("--output m.foo", "m.foo",
          "--output: \"m.foo\" says no format. Let it end in .onnx or .safetensors, or add --format.");
  refused("--format safetensors --output m.onnx", "m.onnx",
          "--output: \"m.onnx\" ends as a file of onnx, and --format is safetensors. Let it end in .safetensors, or "
          "give --format onnx.");
  refused("--format onnx --output m.safetensors", "m.safetensors",
          "--format is onnx. Let it end in .onnx, or give --format safetensors.");
  refused("--format hf --output m.safetensors", "m.safetensors",
          "--format is hf. Name a folder, or give --format safetensors.");
}

TEST_F(Export, OfADifferentModelAsAFolderReportsTheRemedy) {
  const auto ran = levin(kRun + "--format hf --output folder");
  EXPECT_EQ(ran.status, kExitRunFailed) << ran.output;
  EXPECT_TRUE(holds(ran.output, {"--format hf writes models of Hugging Face's kinds", "--format safetensors"}));
  EXPECT_FALSE(exists("folder"));
}

TEST_F(Export, TakesATrainingBatchWhereThereIsNoOther) {
  std::string rows = "a,b,c,d,y\n";
  for (int k = 0; k < 20; ++k) rows += std::to_string(k) + ",1,2,3," + std::to_string(k % 2) + "\n";
  write("rows.csv", rows);
  write("run.yaml", "model: {class_path: ExportedModule, init_args: {path: " + test::source_dir() +
                        "/tests/models/data/mlp.pt2}}\n"
                        "data: {class_path: CsvData, init_args: {path: rows.csv, target: y, val_fraction: 0, "
                        "batch_size: 4}}\n");
  const auto ran = levin("export --config run.yaml --output model.onnx");
  ASSERT_EQ(ran.status, kExitOk) << ran.output;
  EXPECT_TRUE(holds(ran.output, {"(batch, 4)", "output output: float32"}));
}

TEST_F(Export, NeedsData) {
  const auto ran =
      levin("export --config " + test::source_dir() + "/configs/fashion_mnist.yaml --data=null --output model.onnx");
  EXPECT_EQ(ran.status, kExitBadConfig) << ran.output;
  EXPECT_TRUE(holds(ran.output, {"the run has no batch of data", "Give it data"}));
}

TEST_F(Export, OverwritesOnlyOnRequest) {
  write("model.onnx", "precious");
  const auto refused = levin(kRun + "--output model.onnx");
  EXPECT_EQ(refused.status, kExitBadConfig);
  EXPECT_TRUE(holds(refused.output, {"--output: model.onnx exists", "--overwrite", "nothing was written"}));
  EXPECT_EQ(read_file(folder_.path() + "/model.onnx"), "precious");
  write("other.onnx.data", "precious");
  EXPECT_TRUE(holds(levin(kRun + "--output other.onnx").output, {"other.onnx.data exists"}));
  EXPECT_EQ(levin(kRun + "--output model.onnx --overwrite").status, kExitOk);
  EXPECT_NE(read_file(folder_.path() + "/model.onnx"), "precious");
}

TEST_F(Export, ListsMistakes) {
  const auto ran = levin("export --format tflite --opset 3");
  EXPECT_EQ(ran.status, kExitBadConfig);
  EXPECT_TRUE(holds(ran.output, {"tflite", "opset: must be >= 17, got 3", "output: must be set"}));
  EXPECT_TRUE(
      holds(levin("export --output x.onnx --config nowhere.yaml").output, {"nowhere.yaml", "nothing was written"}));
  EXPECT_EQ(levin("export").status, kExitBadConfig);
  EXPECT_TRUE(holds(levin("export --help").output, {"levin export --config", "fixed_batch", "safetensors"}));
  EXPECT_TRUE(holds(levin("help").output, {"export --config FILE"}));
}

// A small run of two linear layers (4 to 6 to 2) and a batch normalization, in FOLDER/run.yaml, and where its last
// checkpoint is.
class ExportedRun : public Export {
 protected:
  std::string fit(const std::string& trainer, const std::string& callbacks = "") {
    std::string rows = "a,b,c,d,y\n";
    for (int k = 0; k < 32; ++k) {
      rows += std::to_string(k % 7) + ",1,2," + std::to_string(k % 5) + "," + std::to_string(k % 2) + "\n";
    }
    write("rows.csv", rows);
    write("run.yaml", "trainer: {default_root_dir: runs, max_epochs: 2, num_threads: 1" + trainer + ", callbacks: [" +
                          callbacks +
                          "{class_path: ModelCheckpoint, init_args: {save_last: true}}]}\n"
                          "model: {class_path: ExportedModule, init_args: {path: " +
                          test::source_dir() +
                          "/tests/models/data/mlp.pt2, lr: 0.05}}\n"
                          "data: {class_path: CsvData, init_args: {path: rows.csv, target: y, target_is_class: true, "
                          "val_fraction: 0.25, batch_size: 4}}\n");
    const auto ran = levin("fit --config run.yaml");
    EXPECT_EQ(ran.status, kExitOk) << ran.output;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path() + "/runs")) {
      if (entry.path().filename() == "last.ckpt") return entry.path();
    }
    return "";
  }

  std::map<std::string, at::Tensor> exported() {
    const auto ran = levin("export --config run.yaml --ckpt_path last --format safetensors --output w.safetensors");
    EXPECT_EQ(ran.status, kExitOk) << ran.output;
    return tensors_of(folder_.path() + "/w.safetensors");
  }

  static std::map<std::string, at::Tensor> tensors_of(const std::string& path) {
    std::map<std::string, at::Tensor> tensors;
    const SafetensorsFile file(path);
    for (const auto& entry : file.entries()) tensors[entry.name] = file.read(entry);
    return tensors;
  }
};

TEST_F(ExportedRun, OfAdaptersHasTheMergedWeights) {
  for (const std::string quantize : {"none", "int8"}) {
    const auto saved =
        tensors_of(fit("",
                       "{class_path: LoRA, init_args: {target_modules: [first, second], r: 2, lora_alpha: 3, "
                       "quantize: " +
                           quantize + "}}, "));
    const auto weights = exported();
    EXPECT_EQ(weights.size(), 9U);  // two layers, and the normalization with its three buffers
    for (const auto& [name, weight] : weights) {
      EXPECT_EQ(name.find("lora"), std::string::npos) << name;
      at::Tensor expected = saved.at("model." + name);
      const std::string layer = "model." + name.substr(0, name.size() - std::string("weight").size());
      if (name.ends_with(".weight") && saved.contains(layer + "lora_A.weight")) {
        if (quantize == "int8") expected = expected * saved.at(layer + "quantized.scales").unsqueeze(1);
        const at::Tensor update = saved.at(layer + "lora_B.weight").mm(saved.at(layer + "lora_A.weight")) * 1.5;
        EXPECT_GT(update.abs().max().item<float>(), 1e-4) << name;
        EXPECT_TRUE(weight.allclose(expected + update, 1e-5, 1e-6)) << name << quantize;
      } else {
        EXPECT_TRUE(weight.equal(expected)) << name;
      }
    }
    const auto graph = levin("export --config run.yaml --ckpt_path last --output model.onnx --overwrite");
    ASSERT_EQ(graph.status, kExitOk) << graph.output;
    fs::remove_all(folder_.path() + "/runs");
    const auto plain = levin("export --config run.yaml --trainer.callbacks=[] --output plain.onnx --overwrite");
    const auto nodes = [](const std::string& text) {
      return text.substr(text.find("opset"), text.find(" of weights") - text.find("opset"));
    };
    EXPECT_EQ(nodes(graph.output), nodes(plain.output)) << "the same graph, of other weights";
    fs::remove(folder_.path() + "/w.safetensors");
  }
}

// The pieces of a tensor in the ranks' files, in the ranks' order, are the tensor laid flat.
TEST_F(ExportedRun, OfAShardedCheckpointHasItsWeights) {
  const std::string folder = fit(
      ", accelerator: cpu, devices: 2, strategy: {class_path: fsdp, init_args: {stage: 2, state_dict_type: sharded}}");
  ASSERT_TRUE(fs::is_directory(folder)) << folder;
  std::vector<std::map<std::string, at::Tensor>> shards;
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.insert(entry.path());
  for (const std::string& file : files) {
    if (file.find("/shard-") != std::string::npos) shards.push_back(tensors_of(file));
  }
  ASSERT_EQ(shards.size(), 2U);
  const auto whole = [&](const std::string& name) {
    std::vector<at::Tensor> pieces;
    for (const auto& shard : shards) {
      if (const auto piece = shard.find("model." + name); piece != shard.end()) {
        pieces.push_back(piece->second.reshape({-1}));
      }
    }
    return at::cat(pieces);
  };
  const auto weights = exported();
  EXPECT_EQ(weights.size(), 9U);
  size_t in_two = 0;
  for (const auto& [name, weight] : weights) {
    EXPECT_TRUE(weight.reshape({-1}).equal(whole(name))) << name;
    in_two += shards[0].contains("model." + name) && shards[1].contains("model." + name) ? 1 : 0;
  }
  EXPECT_GE(in_two, 1U);
  // The folder is a model for predictions, too.
  const InferenceModel model = load_for_inference(folder);
  for (const auto& item : model.module().named_parameters()) {
    EXPECT_TRUE(item.value().equal(weights.at(item.key()))) << item.key();
  }
  EXPECT_EQ(model.predict(at::ones({3, 4})).size(0), 3);
}

// A logger finds the last checkpoint, and would keep the metrics of an evaluation.
TEST_F(Export, OfACheckpointHasItsWeightsAndLeavesNoFolder) {
  const std::string fast =
      "--trainer.limit_train_batches=3 --trainer.limit_val_batches=1 --trainer.max_epochs=1 --test_after_fit=false ";
  const auto trained = levin("fit --config " + test::source_dir() +
                             "/configs/fashion_mnist.yaml --trainer.default_root_dir=runs " + fast);
  ASSERT_EQ(trained.status, kExitOk) << trained.output;
  const auto ran =
      levin(kRun + "--ckpt_path last --format safetensors --output weights.safetensors --trainer.logger=CSVLogger");
  ASSERT_EQ(ran.status, kExitOk) << ran.output;
  EXPECT_EQ(names_in(folder_.path() + "/runs/levin_logs"), std::vector<std::string>{"version_0"});
  std::string saved;
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path() + "/runs")) {
    if (entry.path().filename() == "last.ckpt") saved = entry.path();
  }
  const SafetensorsFile one(folder_.path() + "/weights.safetensors"), other(saved);
  size_t compared = 0;
  for (const auto& mine : one.entries()) {
    for (const auto& theirs : other.entries()) {
      if (theirs.name != "model." + mine.name) continue;
      EXPECT_TRUE(one.read(mine).equal(other.read(theirs))) << mine.name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 4u) << saved;
}

}  // namespace
}  // namespace levin::export_model_test
