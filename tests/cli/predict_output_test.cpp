// levin predict --output: the real tool.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "levin/checkpoint/safetensors.h"
#include "levin/core/files/files.h"
#include "levin/core/process/main_guard.h"
#include "support/levin_runs.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::predict_output_test {
namespace {

TEST(PredictOutput, WritesARowPerSampleInAdditionToTheCallbacksOfTheRunFile) {
  const test::TemporaryFolder folder;
  const auto ran =
      test::run_levin("predict --config " + test::source_dir() +
                          "/configs/fashion_mnist.yaml --trainer.limit_predict_batches=2 "
                          "--trainer.enable_progress_bar=false --data.batch_size=8 --output 'a, \"b\".csv'",
                      folder.path());
  ASSERT_EQ(ran.status, kExitOk) << ran.output;
  const std::string rows = read_file(folder / "a, \"b\".csv");
  EXPECT_EQ(rows.substr(0, rows.find('\n')), "index,loader,batch,prediction,class");
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 1 + 2 * 8);
  EXPECT_EQ(std::count(rows.begin(), rows.end(), ','), 4 * (1 + 2 * 8));
}

// New text has no labels; its predictions are found again by the ids of the file.
TEST(PredictOutput, NamesRowsAndClassesOfTextWithoutLabels) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "model");
  (void)folder.write("model/config.json", R"({"architectures": ["BertForSequenceClassification"], "model_type": "bert",
      "vocab_size": 300, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
      "max_position_embeddings": 32, "type_vocab_size": 1, "pad_token_id": 1})");
  (void)folder.write("train.csv", "text,label\nbad,neg\ngood,pos\n");
  (void)folder.write("new.csv", "key,text\nx7,what a day\nx8,not bad\nx9,hm\n");
  const auto ran = test::run_levin(
      "predict --model HuggingFaceClassifier --model.path model --model.from_scratch true --data TextCsv "
      "--data.path train.csv --data.test_path new.csv --data.id key --data.max_length 8 --data.batch_size 2 "
      "--trainer.enable_progress_bar false --output new.jsonl",
      folder.path());
  ASSERT_EQ(ran.status, kExitOk) << ran.output;
  std::istringstream lines(read_file(folder / "new.jsonl"));
  std::vector<std::string> ids;
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    ids.push_back(row.at("id").get<std::string>());
    EXPECT_EQ(row.at("class"), row.at("prediction") == 0 ? "neg" : "pos");
    EXPECT_GE(row.at("probability").get<double>(), 0.5);  // of two classes
    EXPECT_LE(row.at("probability").get<double>(), 1.0);
  }
  EXPECT_EQ(ids, (std::vector<std::string>{"x7", "x8", "x9"}));
}

TEST(PredictOutput, WritesTensorsToTheOneFileThatIsNamed) {
  const test::TemporaryFolder folder;
  const auto ran = test::run_levin("predict --config " + test::source_dir() +
                                       "/configs/fashion_mnist.yaml --trainer.limit_predict_batches=2 "
                                       "--trainer.enable_progress_bar=false --data.batch_size=8 --output p.safetensors",
                                   folder.path());
  ASSERT_EQ(ran.status, kExitOk) << ran.output;
  const SafetensorsFile written(folder / "p.safetensors");
  ASSERT_EQ(written.entries().size(), 2U);  // the predictions, and the indices of their samples
  for (const auto& entry : written.entries()) EXPECT_EQ(entry.shape, std::vector<int64_t>{16}) << entry.name;
}

// A run that keeps the best and the last of its checkpoints.
void train(const test::TemporaryFolder& folder) {
  std::string text;
  for (int k = 0; k < 60; ++k) text += "In the beginning was the word number " + std::to_string(k) + ".\n";
  (void)folder.write("text.txt", text);
  (void)folder.write("run.yaml", R"(seed_everything: 1
trainer:
  max_epochs: 3
  limit_train_batches: 4
  enable_progress_bar: false
  callbacks:
    - class_path: ModelCheckpoint
      init_args: {monitor: val_loss, save_last: true}
model: {class_path: GPT, init_args: {n_layer: 1, n_head: 1, n_embd: 8, block_size: 8, max_new_tokens: 4}}
data: {class_path: TextFile, init_args: {path: text.txt, block_size: 8, batch_size: 4, val_fraction: 0.2, prompt: In}}
)");
  const auto ran = test::run_levin("fit --config run.yaml", folder.path());
  EXPECT_EQ(ran.status, kExitOk) << ran.output;
}

TEST(PredictOutput, SaysWhichWeightsWereUsedByDefaultTheBest) {
  const test::TemporaryFolder folder;
  train(folder);
  std::string best, last;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    if (entry.path().extension() != ".ckpt") continue;
    (entry.path().filename() == "last.ckpt" ? last : best) = entry.path().filename().string();
  }
  ASSERT_FALSE(best.empty() || last.empty());
  const auto output_of = [&](const std::string& arguments) {
    const auto ran = test::run_levin(arguments, folder.path());
    EXPECT_EQ(ran.status, kExitOk) << ran.output;
    return ran.output;
  };
  for (const std::string command : {"predict --output p.jsonl", "export --output w.safetensors --overwrite"}) {
    const std::string given = command + " --config run.yaml";
    std::string output = output_of(given);
    EXPECT_NE(output.find(best + " (the best by val_loss, "), std::string::npos) << output;
    EXPECT_EQ(output.find("initial weights"), std::string::npos) << output;
    output = output_of(given + " --ckpt_path last");
    EXPECT_NE(output.find("weights:     "), std::string::npos) << output;
    EXPECT_NE(output.find("last.ckpt\n"), std::string::npos) << output;
    output = output_of(given + " --ckpt_path ''");
    EXPECT_NE(output.find("initial weights"), std::string::npos) << output;
    output = output_of(given + " --trainer.callbacks=[]");  // nothing is monitored
    EXPECT_NE(output.find("initial weights"), std::string::npos) << output;
    output = output_of(given + " --trainer.default_root_dir=elsewhere");  // there is no run
    EXPECT_NE(output.find("initial weights"), std::string::npos) << output;
  }
}

}  // namespace
}  // namespace levin::predict_output_test
