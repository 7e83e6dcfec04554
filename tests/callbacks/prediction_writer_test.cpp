#include "levin/callbacks/prediction_writer.h"

#include <gtest/gtest.h>

#include <sstream>

#include "callbacks/quiet_trainer.h"
#include "levin/checkpoint/safetensors.h"
#include "levin/core/files.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::prediction_writer_test {
namespace {

using namespace test;
using Names = std::vector<std::string>;

/// Predicts the first two of the four inputs.
struct Echo : TinyModule {
  at::Tensor predict_step(const Batch& batch, int64_t batch_idx) override {
    if (batch_idx == fails_at) throw Error("no prediction");
    return batch[0].narrow(1, 0, 2);
  }
  int64_t fails_at = -1;
};

std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream text(read_file(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

Predictions predict(PredictionWriterOptions options, Loaders loaders, Echo& module, bool return_predictions = true) {
  Trainer trainer(quiet(1, {std::make_shared<PredictionWriter>(std::move(options))}));
  return trainer.predict(module, std::move(loaders), "", return_predictions);
}

std::map<std::string, at::Tensor> tensors_of(const std::string& path) {
  const SafetensorsFile file(path);
  std::map<std::string, at::Tensor> tensors;
  for (const auto& entry : file.entries()) tensors[entry.name] = file.read(entry);
  return tensors;
}

TEST(PredictionWriter, WritesARowOfCsvForEachSample) {
  const TemporaryFolder folder;
  for (const WriteInterval interval : {WriteInterval::batch, WriteInterval::epoch}) {
    Echo module;
    const Predictions kept = predict({folder / "deep/a.csv", interval}, tiny_loader(6), module);
    const auto lines = lines_of(folder / "deep/a.csv");
    ASSERT_EQ(lines.size(), 7U);
    EXPECT_EQ(lines[0], "loader,batch,prediction0,prediction1");
    EXPECT_TRUE(lines[1].starts_with("0,0,-0.5,")) << lines[1];
    EXPECT_TRUE(lines[5].starts_with("0,1,")) << lines[5];
    const double written = std::stod(lines[6].substr(lines[6].rfind(',') + 1));
    EXPECT_EQ(written, kept[0][1][1][1].item<double>());  // to the last digit
    EXPECT_EQ(folder.names(), Names{"deep"});
  }
}

TEST(PredictionWriter, WritesALineOfJsonForEachSample) {
  const TemporaryFolder folder;
  Echo module;
  predict({folder / "a.jsonl"}, Loaders{tiny_loader(2), tiny_loader(1)}, module);
  const auto lines = lines_of(folder / "a.jsonl");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_TRUE(lines[0].starts_with("{\"loader\": 0, \"batch\": 0, \"prediction\": [-0.5, ")) << lines[0];
  EXPECT_TRUE(lines[2].starts_with("{\"loader\": 1, \"batch\": 0, \"prediction\": [")) << lines[2];
  EXPECT_TRUE(lines[2].ends_with("]}")) << lines[2];
}

TEST(PredictionWriter, WritesOneTensorALoaderOrOneFileABatch) {
  const TemporaryFolder folder;
  Echo module;
  const Predictions kept = predict({folder / "all.safetensors", WriteInterval::epoch}, tiny_loader(6), module);
  const auto all = tensors_of(folder / "all.safetensors");
  ASSERT_EQ(all.size(), 1U);
  EXPECT_TRUE(torch::equal(all.at("predictions"), torch::cat(kept[0])));
  predict({folder / "a.safetensors"}, tiny_loader(6), module);
  EXPECT_EQ(folder.names(), (Names{"a.loader0.batch0.safetensors", "a.loader0.batch1.safetensors", "all.safetensors"}));
  EXPECT_TRUE(torch::equal(tensors_of(folder / "a.loader0.batch1.safetensors").at("predictions"), kept[0][1]));
}

/// Predicts the class, and publishes the scores and a number for each sample.
struct Scored : TinyModule {
  at::Tensor predict_step(const Batch& batch, int64_t) override {
    step_output("scores", batch[0].narrow(1, 0, 2));
    step_output("length, in m", batch[0].sum(1));
    return batch[0].argmax(1);
  }
};

TEST(PredictionWriter, WritesWhatTheStepPublishesBesideThePrediction) {
  const TemporaryFolder folder;
  Scored module;
  const auto write = [&](PredictionWriterOptions options) {
    Trainer trainer(quiet(1, {std::make_shared<PredictionWriter>(std::move(options))}));
    return trainer.predict(module, tiny_loader(6));
  };
  const Predictions kept = write({folder / "a.csv"});
  const auto lines = lines_of(folder / "a.csv");
  ASSERT_EQ(lines.size(), 7U);
  EXPECT_EQ(lines[0], "loader,batch,prediction,scores0,scores1,\"length, in m\"");
  EXPECT_TRUE(lines[1].starts_with("0,0," + std::to_string(kept[0][0][0].item<int64_t>()) + ",-0.5,")) << lines[1];
  write({folder / "a.jsonl"});
  const auto objects = lines_of(folder / "a.jsonl");
  EXPECT_NE(objects.at(0).find(", \"scores\": [-0.5, "), std::string::npos) << objects[0];
  EXPECT_NE(objects.at(0).find(", \"length, in m\": "), std::string::npos) << objects[0];
  write({folder / "a.safetensors", WriteInterval::epoch});
  const auto tensors = tensors_of(folder / "a.safetensors");
  EXPECT_TRUE(torch::equal(tensors.at("predictions"), torch::cat(kept[0])));
  EXPECT_EQ(tensors.at("scores").sizes(), (std::vector<int64_t>{6, 2}));
  EXPECT_EQ(tensors.at("length, in m").sizes(), (std::vector<int64_t>{6}));
}

/// Publishes only.
struct Publishing : TinyModule {
  at::Tensor predict_step(const Batch& batch, int64_t batch_idx) override {
    if (batch_idx >= from) step_output(name, batch[0].sum(1).narrow(0, 0, rows < 0 ? batch.size() : rows));
    step_output("y", batch[0].sum(1));
    return {};
  }
  std::string name = "x";
  int64_t rows = -1, from = 0;
};

TEST(PredictionWriter, OutputsWithoutAPredictionAreWrittenAndWrongOnesAreErrors) {
  const TemporaryFolder folder;
  const auto write = [&](Publishing& module) {
    Trainer trainer(quiet(1, {std::make_shared<PredictionWriter>(PredictionWriterOptions{folder / "p.csv"})}));
    return error_of([&] { (void)trainer.predict(module, tiny_loader(6)); });
  };
  Publishing good;
  EXPECT_EQ(write(good), "");
  EXPECT_EQ(lines_of(folder / "p.csv").at(0), "loader,batch,x,y");
  Publishing taken;
  taken.name = "batch";
  EXPECT_TRUE(holds(write(taken), {"step_output(\"batch\") has the name of a column", "Use another"}));
  Publishing few;
  few.rows = 1;
  EXPECT_TRUE(holds(write(few), {"step_output(\"y\") has 4 rows, and x 1", "a row for each sample"}));
  Publishing late;
  late.from = 1;
  EXPECT_TRUE(holds(write(late), {"x (1 value), y (1 value), and those before it have y (1 value)"}));
}

TEST(PredictionWriter, PredictNeedNotKeepWhatItWrites) {
  const TemporaryFolder folder;
  Echo module;
  EXPECT_TRUE(predict({folder / "a.csv"}, tiny_loader(6), module, false).empty());
  EXPECT_EQ(lines_of(folder / "a.csv").size(), 7U);
}

TEST(PredictionWriter, AFailureLeavesTheOldFileAndNothingElse) {
  const TemporaryFolder folder;
  Echo module;
  predict({folder / "a.csv"}, tiny_loader(2), module);
  const std::string before = read_file(folder / "a.csv");
  module.fails_at = 1;
  EXPECT_TRUE(has(error_of([&] { predict({folder / "a.csv"}, tiny_loader(8), module); }), "no prediction"));
  EXPECT_EQ(read_file(folder / "a.csv"), before);
  EXPECT_EQ(folder.names(), Names{"a.csv"});
}

TEST(PredictionWriter, SaysWhatItCannotWrite) {
  const TemporaryFolder folder;
  Echo module;
  EXPECT_TRUE(holds(error_of([] { PredictionWriter({.output = "a.txt"}); }),
                    {"PredictionWriterOptions.output: \"a.txt\" says no format", ".jsonl"}));
  (void)folder.write("file", "");
  EXPECT_TRUE(holds(error_of([&] { predict({folder / "file/b.csv"}, tiny_loader(2), module); }), {"file"}));
  struct Growing : Echo {
    at::Tensor predict_step(const Batch&, int64_t batch_idx) override { return torch::zeros({1, 2 + batch_idx}); }
  } growing;
  EXPECT_TRUE(holds(error_of([&] { predict({folder / "g.csv"}, tiny_loader(8), growing); }),
                    {"a sample has 3 values, and those before it have 2", "Write .jsonl"}));
}

}  // namespace
}  // namespace levin::prediction_writer_test
