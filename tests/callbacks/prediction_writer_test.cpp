#include "levin/callbacks/prediction_writer.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/prediction_text.h"
#include "levin/checkpoint/safetensors.h"
#include "levin/core/files/files.h"
#include "levin/data/data_module.h"
#include "levin/data/files/npy.h"
#include "levin/data/loading/dataloader.h"
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
  return trainer.predict(module, std::move(loaders), {.return_predictions = return_predictions});
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
    EXPECT_EQ(lines[0], "index,loader,batch,prediction0,prediction1");
    EXPECT_TRUE(lines[1].starts_with("0,0,0,-0.5,")) << lines[1];
    EXPECT_TRUE(lines[5].starts_with("4,0,1,")) << lines[5];
    const float written = std::stof(lines[6].substr(lines[6].rfind(',') + 1));
    EXPECT_EQ(written, kept[0][1][1][1].item<float>());  // to the last digit
    EXPECT_EQ(folder.names(), Names{"deep"});
  }
}

TEST(PredictionWriter, WritesALineOfJsonForEachSample) {
  const TemporaryFolder folder;
  Echo module;
  predict({folder / "a.jsonl"}, Loaders{tiny_loader(2), tiny_loader(1)}, module);
  const auto lines = lines_of(folder / "a.jsonl");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_TRUE(lines[0].starts_with("{\"index\":0,\"loader\":0,\"batch\":0,\"prediction\":[-0.5,")) << lines[0];
  EXPECT_TRUE(lines[2].starts_with("{\"index\":0,\"loader\":1,\"batch\":0,\"prediction\":[")) << lines[2];
  EXPECT_TRUE(lines[2].ends_with("]}")) << lines[2];
}

TEST(PredictionWriter, WritesOneTensorALoaderOrOneFileABatch) {
  const TemporaryFolder folder;
  Echo module;
  const Predictions kept = predict({folder / "all.safetensors", WriteInterval::epoch}, tiny_loader(6), module);
  const auto all = tensors_of(folder / "all.safetensors");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_TRUE(torch::equal(all.at("predictions"), torch::cat(kept[0])));
  EXPECT_TRUE(torch::equal(all.at("index"), torch::arange(6)));
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

TEST(PredictionWriter, WritesWhatTheStepPublishesNextToThePrediction) {
  const TemporaryFolder folder;
  Scored module;
  const auto write = [&](PredictionWriterOptions options) {
    Trainer trainer(quiet(1, {std::make_shared<PredictionWriter>(std::move(options))}));
    return trainer.predict(module, tiny_loader(6));
  };
  const Predictions kept = write({folder / "a.csv"});
  const auto lines = lines_of(folder / "a.csv");
  ASSERT_EQ(lines.size(), 7U);
  EXPECT_EQ(lines[0], "index,loader,batch,prediction,scores0,scores1,\"length, in m\"");
  EXPECT_TRUE(lines[1].starts_with("0,0,0," + std::to_string(kept[0][0][0].item<int64_t>()) + ",-0.5,")) << lines[1];
  write({folder / "a.jsonl"});
  const auto objects = lines_of(folder / "a.jsonl");
  EXPECT_NE(objects.at(0).find(",\"scores\":[-0.5,"), std::string::npos) << objects[0];
  EXPECT_NE(objects.at(0).find(",\"length, in m\":"), std::string::npos) << objects[0];
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
  EXPECT_EQ(lines_of(folder / "p.csv").at(0), "index,loader,batch,x,y");
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

TEST(PredictionWriter, ReplacesNoFifoAndWritesTheFileThatALinkLeadsTo) {
  const TemporaryFolder folder;
  Echo module;
  for (const char* name : {"a.csv", "a.safetensors"}) {
    ASSERT_EQ(::mkfifo((folder / name).c_str(), 0600), 0);
    EXPECT_TRUE(holds(error_of([&] { predict({folder / name}, tiny_loader(2), module); }),
                      {folder / name, "it is a FIFO, and only regular files are replaced"}));
    EXPECT_TRUE(std::filesystem::is_fifo(folder / name));
  }
  std::filesystem::create_symlink("target.csv", folder / "link.csv");
  predict({folder / "link.csv"}, tiny_loader(2), module);
  EXPECT_EQ(lines_of(folder / "target.csv").size(), 3U);
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.csv"));
}

TEST(PredictionWriter, ReportsWhatItCannotWrite) {
  const TemporaryFolder folder;
  Echo module;
  EXPECT_TRUE(holds(error_of([] { PredictionWriter({.output = "a.txt"}); }),
                    {"PredictionWriterOptions.output: \"a.txt\" says no format", ".npy"}));
  (void)folder.write("file", "");
  EXPECT_TRUE(holds(error_of([&] { predict({folder / "file/b.csv"}, tiny_loader(2), module); }), {"file"}));
  struct Growing : Echo {
    at::Tensor predict_step(const Batch&, int64_t batch_idx) override { return torch::zeros({1, 2 + batch_idx}); }
  } growing;
  EXPECT_TRUE(holds(error_of([&] { predict({folder / "g.csv"}, tiny_loader(8), growing); }),
                    {"a sample has 3 values, and those before it have 2", "Write .jsonl"}));
}

/// Scores of three samples, two of them with names that CSV and JSON must quote.
class Named : public DataModule {
 public:
  struct Rows : Dataset {
    int64_t size() const override { return 3; }
    Batch get(int64_t index) const override { return {scores[index]}; }
    std::string sample_id(int64_t index) const override { return names[static_cast<size_t>(index)]; }
    at::Tensor scores = torch::tensor({{2.F, 1.F, 0.F}, {0.F, 5.F, 0.F}, {-1.F, 3.F, 3.5F}});
    Names names = {"a,\"b\".png", "c.png", "d\xff.png"};  // a byte that is not UTF-8
  };
  Loaders predict_dataloader() override { return DataLoader(std::make_shared<Rows>(), {.batch_size = 2}); }
  std::vector<std::string> label_names() const override { return {"ant", "bee, wild"}; }  // of three
};

/// Predicts the scores, or the class of the highest.
struct Scores : TinyModule {
  at::Tensor predict_step(const Batch& batch, int64_t) override {
    return gives_class ? batch[0].argmax(1) : batch[0].clone();
  }
  bool gives_class = false;
};

std::vector<std::string> written(PredictionWriterOptions options, LightningModule& module) {
  Trainer trainer(quiet(1, {std::make_shared<PredictionWriter>(options)}));
  Named data;
  (void)trainer.predict(module, data);
  return lines_of(options.output);
}

TEST(PredictionWriter, BeginsRowsWithWhatIdentifiesTheSampleAndNamesTheClass) {
  const TemporaryFolder folder;
  Scores module;
  module.gives_class = true;
  EXPECT_EQ(written({folder / "a.csv"}, module),
            (Names{"id,index,loader,batch,prediction,class", "\"a,\"\"b\"\".png\",0,0,0,0,ant",
                   "c.png,1,0,0,1,\"bee, wild\"", "d\xff.png,2,0,1,2,2"}));
  EXPECT_EQ(
      written({folder / "a.jsonl"}, module),
      (Names{R"({"id":"a,\"b\".png","index":0,"loader":0,"batch":0,"prediction":0,"class":"ant"})",
             R"({"id":"c.png","index":1,"loader":0,"batch":0,"prediction":1,"class":"bee, wild"})",
             "{\"id\":\"d\xef\xbf\xbd.png\",\"index\":2,\"loader\":0,\"batch\":1,\"prediction\":2,\"class\":\"2\"}"}));
  const auto named = written({.output = folder / "b.csv", .classes = {"x", "y", "z"}}, module);
  EXPECT_EQ(named.at(2), "c.png,1,0,0,1,y");
  (void)written({folder / "a.safetensors", WriteInterval::epoch}, module);
  const SafetensorsFile file(folder / "a.safetensors");
  EXPECT_EQ(file.metadata().at("id"), "[\"a,\\\"b\\\".png\",\"c.png\",\"d\xef\xbf\xbd.png\"]");
  EXPECT_EQ(file.metadata().at("class"), R"(["ant","bee, wild","2"])");
}

TEST(PredictionWriter, ComputesClassAndProbabilityOfScores) {
  const TemporaryFolder folder;
  Scores module;
  const auto [probability, number] = torch::softmax(Named::Rows().scores, 1).max(1);
  for (const PredictionScores scores : {PredictionScores::logits, PredictionScores::probabilities}) {
    PredictionWriterOptions options{.output = folder / "a.csv", .classes = {"x", "y", "z"}};
    options.scores = scores;
    const auto lines = written(options, module);
    EXPECT_EQ(lines.at(0), "id,index,loader,batch,prediction0,prediction1,prediction2,class,probability");
    EXPECT_TRUE(lines.at(3).starts_with("d\xff.png,2,0,1,-1.0,3.0,3.5,z,")) << lines[3];
    const double last = std::stod(lines[3].substr(lines[3].rfind(',') + 1));
    EXPECT_FLOAT_EQ(last, scores == PredictionScores::logits ? probability[2].item<float>() : 3.5F);
  }
  module.gives_class = true;
  PredictionWriterOptions options{.output = folder / "a.csv", .scores = PredictionScores::logits};
  EXPECT_TRUE(holds(error_of([&] { (void)written(options, module); }),
                    {"PredictionWriterOptions.scores: logits are predictions of (samples, classes)", "(2) of Long"}));
}

/// Publishes under the names of columns that the writer has itself.
struct OwnNames : TinyModule {
  at::Tensor predict_step(const Batch& batch, int64_t) override {
    step_output("id", at::full({batch.size()}, 7));
    step_output("index", at::full({batch.size()}, 9));
    step_output("class", at::full({batch.size()}, 8));
    step_output("probability", at::full({batch.size()}, 0.25));
    return batch[0].clone();
  }
};

TEST(PredictionWriter, LeavesItsColumnsToAStepThatPublishesThem) {
  const TemporaryFolder folder;
  OwnNames module;
  EXPECT_EQ(written({.output = folder / "a.csv", .scores = PredictionScores::logits}, module).at(1),
            "0,0,2.0,1.0,0.0,7,9,8,0.25");
}

/// Predicts what it is given.
struct Given : TinyModule {
  explicit Given(at::Tensor all) : values(std::move(all)) {}
  at::Tensor predict_step(const Batch&, int64_t) override { return values; }
  at::Tensor values;
};

// The truth is the text that nlohmann's JSON and strtod read back.
TEST(PredictionWriter, WritesNumbersThatReadBackToTheLastBit) {
  const TemporaryFolder folder;
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor numbers =
      torch::tensor({0.1, 1.0, -0.0, 1e300, 5e-324, 1.0 / 3, 123456789012345680.0, 1e-5}, torch::kDouble)
          .view({2, 2, 2});
  const auto written_to = [&](const std::string& name, const at::Tensor& values) {
    Given module(values);
    Trainer trainer(quiet(1, {std::make_shared<PredictionWriter>(PredictionWriterOptions{folder / name})}));
    (void)trainer.predict(module, tiny_loader(2, 2));
    return lines_of(folder / name);
  };
  const auto objects = written_to("a.jsonl", numbers);
  for (int64_t row = 0; row < 2; ++row) {
    const auto lists = nlohmann::json::parse(objects.at(static_cast<size_t>(row))).at("prediction");
    for (int64_t i = 0; i < 2; ++i) {
      for (int64_t k = 0; k < 2; ++k) EXPECT_EQ(lists[i][k].get<double>(), numbers[row][i][k].item<double>());
    }
  }
  EXPECT_EQ(written_to("a.csv", numbers).at(1), "0,0,0,0.1,1.0,-0.0,1e+300");
  EXPECT_EQ(written_to("f.csv", torch::tensor({0.1F, 3.F})).at(1), "0,0,0,0.1");
  const at::Tensor none = torch::tensor({std::nan(""), infinity, -infinity, 2.0}, torch::kDouble).view({2, 2});
  EXPECT_EQ(written_to("n.csv", none),
            (Names{"index,loader,batch,prediction0,prediction1", "0,0,0,nan,inf", "1,0,0,-inf,2.0"}));
  EXPECT_TRUE(written_to("n.jsonl", none).at(0).ends_with("\"prediction\":[null,null]}"));
  EXPECT_EQ(written_to("b.csv", torch::tensor({true, false})).at(1), "0,0,0,true");
  EXPECT_EQ(written_to("i.csv", torch::tensor({int64_t{-9223372036854775807}, int64_t{1}}, torch::kLong)).at(1),
            "0,0,0,-9223372036854775807");
  EXPECT_EQ(written_to("u.csv", torch::tensor({int64_t{-1}, int64_t{1}}, torch::kLong).view(torch::kUInt64)).at(1),
            "0,0,0,18446744073709551615");
  EXPECT_EQ(written_to("h.csv", torch::tensor({1.5F, 1.F}).to(torch::kHalf)).at(1), "0,0,0,1.5");
  EXPECT_TRUE(holds(error_of([&] {
                      (void)written_to("c.csv", torch::view_as_complex(torch::zeros({2, 2})));
                    }),
                    {"prediction has complex numbers", "view_as_real"}));
}

// The expected text is what repr() prints in Python, for float32 in NumPy.
TEST(PredictionWriter, WritesNumbersAsPythonDoes) {
  const auto text_of = [](auto number) {
    std::string text;
    append_number(text, number);
    return text;
  };
  const std::pair<double, const char*> doubles[] = {{0, "0.0"},
                                                    {-0.0, "-0.0"},
                                                    {1, "1.0"},
                                                    {100, "100.0"},
                                                    {0.1, "0.1"},
                                                    {-12.5, "-12.5"},
                                                    {0.0001, "0.0001"},
                                                    {0.00001, "1e-05"},
                                                    {0.000123456, "0.000123456"},
                                                    {123456.789, "123456.789"},
                                                    {1e15, "1000000000000000.0"},
                                                    {1234567890123456, "1234567890123456.0"},
                                                    {1e16, "1e+16"},
                                                    {12345678901234567890.0, "1.2345678901234567e+19"},
                                                    {9007199254740993, "9007199254740992.0"},
                                                    {5e-324, "5e-324"},
                                                    {2.2250738585072014e-308, "2.2250738585072014e-308"},
                                                    {1.7976931348623157e308, "1.7976931348623157e+308"}};
  for (const auto& [number, expected] : doubles) EXPECT_EQ(text_of(number), expected);
  const std::pair<float, const char*> floats[] = {{0.1F, "0.1"},
                                                  {16777216.F, "16777216.0"},
                                                  {3.4028235e38F, "3.4028235e+38"},
                                                  {1e-45F, "1e-45"},
                                                  {1.F / 3, "0.33333334"}};
  for (const auto& [number, expected] : floats) EXPECT_EQ(text_of(number), expected);
  std::mt19937_64 random(7);
  for (int k = 0; k < 100'000; ++k) {
    const uint64_t bits = random();
    const auto wide = std::bit_cast<double>(bits);
    const auto narrow = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isfinite(wide)) ASSERT_EQ(std::bit_cast<uint64_t>(std::strtod(text_of(wide).c_str(), nullptr)), bits);
    if (std::isfinite(narrow)) ASSERT_EQ(std::strtof(text_of(narrow).c_str(), nullptr), narrow) << text_of(narrow);
  }
}

TEST(PredictionWriter, WritesListsOfAnyShape) {
  const TemporaryFolder folder;
  const auto line = [&](const at::Tensor& values) {
    Given module(values);
    Trainer trainer(quiet(1, {std::make_shared<PredictionWriter>(PredictionWriterOptions{folder / "a.jsonl"})}));
    (void)trainer.predict(module, tiny_loader(2, 2));
    return nlohmann::json::parse(lines_of(folder / "a.jsonl").at(1)).at("prediction").dump();
  };
  EXPECT_EQ(line(torch::arange(2)), "1");
  EXPECT_EQ(line(torch::arange(4).view({2, 2})), "[2,3]");
  EXPECT_EQ(line(torch::arange(8).view({2, 2, 2})), "[[4,5],[6,7]]");
  EXPECT_EQ(line(torch::arange(2).view({2, 1, 1, 1})), "[[[1]]]");
  EXPECT_EQ(line(torch::zeros({2, 0})), "[]");
  EXPECT_EQ(line(torch::zeros({2, 2, 0})), "[[],[]]");
  EXPECT_EQ(line(torch::zeros({2, 0, 3})), "[]");
}

TEST(PredictionWriter, WritesAnArrayThatNumpyMaps) {
  const TemporaryFolder folder;
  const auto write = [&](const at::Tensor& values) {
    Given module(values);
    Trainer trainer(quiet(1, {std::make_shared<PredictionWriter>(PredictionWriterOptions{folder / "a.npy"})}));
    (void)trainer.predict(module, tiny_loader(4, 2));
  };
  for (const at::Tensor& values : {torch::rand({2, 3}), torch::arange(2), torch::rand({2, 1, 2}, torch::kDouble),
                                   torch::rand({2}).to(torch::kHalf), torch::ones({2, 2}, torch::kBool)}) {
    write(values);
    EXPECT_TRUE(torch::equal(map_npy(folder / "a.npy"), torch::cat({values, values})));
  }
  EXPECT_TRUE(holds(error_of([&] { write(torch::rand({2}).to(torch::kBFloat16)); }),
                    {"predictions is of BFloat16, which .npy cannot hold", "write .safetensors"}));
  Scored several;
  Trainer trainer(quiet(1, {std::make_shared<PredictionWriter>(PredictionWriterOptions{folder / "b.npy"})}));
  EXPECT_TRUE(holds(error_of([&] { (void)trainer.predict(several, tiny_loader(2)); }),
                    {"b.npy holds one array, and there are 3", "scores"}));
  EXPECT_EQ(folder.names(), Names{"a.npy"});
}

TEST(PredictionWriter, KeepsBatchesOfDifferentShapesAsTensorsOfTheirOwn) {
  const TemporaryFolder folder;
  struct Growing : Echo {
    at::Tensor predict_step(const Batch& batch, int64_t batch_idx) override {
      return torch::full({batch.size(), 1 + batch_idx}, batch_idx)
          .to(type_of_second && batch_idx > 0 ? at::kLong : at::kFloat);
    }
    bool type_of_second = false;
  } growing;
  predict({folder / "a.safetensors", WriteInterval::epoch}, tiny_loader(10), growing);
  const auto tensors = tensors_of(folder / "a.safetensors");
  ASSERT_EQ(tensors.size(), 4U);
  EXPECT_TRUE(torch::equal(tensors.at("predictions.batch0"), torch::zeros({4, 1})));
  EXPECT_TRUE(torch::equal(tensors.at("predictions.batch1"), torch::ones({4, 2})));
  EXPECT_TRUE(torch::equal(tensors.at("predictions.batch2"), torch::full({2, 3}, 2.F)));
  EXPECT_TRUE(torch::equal(tensors.at("index"), torch::arange(10)));
  growing.type_of_second = true;
  EXPECT_TRUE(holds(error_of([&] {
                      predict({folder / "b.safetensors", WriteInterval::epoch}, tiny_loader(8), growing);
                    }),
                    {"predictions is of Float in some batches and of Long in others", "the same type"}));
  EXPECT_EQ(folder.names(), Names{"a.safetensors"});
}

// The header of a safetensors file holds 100 MB.
TEST(PredictionWriter, KeepsIdsThatDoNotFitIntoTheHeaderAsATensor) {
  struct Rows : Dataset {
    int64_t size() const override { return 3; }
    Batch get(int64_t index) const override { return {torch::full({4}, index).to(at::kFloat)}; }
    std::string sample_id(int64_t index) const override { return std::string(6 << 20, static_cast<char>('a' + index)); }
  };
  const TemporaryFolder folder;
  Echo module;
  predict({folder / "a.safetensors", WriteInterval::epoch}, DataLoader(std::make_shared<Rows>(), {.batch_size = 2}),
          module);
  const SafetensorsFile file(folder / "a.safetensors");
  EXPECT_FALSE(file.metadata().contains("id"));
  const at::Tensor bytes = tensors_of(folder / "a.safetensors").at("id.json");
  const auto ids = nlohmann::json::parse(std::string(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()));
  ASSERT_EQ(ids.size(), 3U);
  for (int64_t k = 0; k < 3; ++k) EXPECT_EQ(ids[static_cast<size_t>(k)], Rows().sample_id(k));
}

// An operator for each number would take more than ten times as long.
TEST(PredictionWriter, CallsNoOperatorPerNumber) {
  const TemporaryFolder folder;
  const auto operators = [&](const std::string& name, int64_t numbers) {
    Given module(torch::rand({64, numbers}));
    Trainer trainer(quiet(1, {std::make_shared<PredictionWriter>(PredictionWriterOptions{folder / name})}));
    static std::atomic<int64_t> calls;
    calls = 0;
    const auto count = at::addGlobalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
          ++calls;
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
    (void)trainer.predict(module, tiny_loader(64, 64));
    at::removeCallback(count);
    return calls.load();
  };
  for (const std::string ending : {".csv", ".jsonl"}) {
    const int64_t few = operators("few" + ending, 10);
    EXPECT_GT(few, 0) << ending;
    EXPECT_EQ(operators("many" + ending, 1000), few) << ending;
  }
}

}  // namespace
}  // namespace levin::prediction_writer_test
