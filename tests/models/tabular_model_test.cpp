// TabularModel on tables in CSV files: its numbers by their formulas, and what a checkpoint alone is enough for.
#include "levin/models/tabular_model.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "callbacks/quiet_trainer.h"
#include "levin/core/options/error.h"
#include "levin/data/columns/table_csv.h"
#include "levin/data/sets/csv.h"
#include "levin/inference/load_for_inference.h"
#include "levin/trainer/trainer.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::tabular_model_test {
namespace {

using test::error_of;
using test::holds;
using test::quiet;
using test::TemporaryFolder;

/// Houses: the price depends on the city and, where it is known, on the size.
std::string houses(int rows, uint32_t seed, const std::string& other_city = "Ulm") {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::string text = "row,city,size,rooms,price,kind\n";
  for (int row = 0; row < rows; ++row) {
    const int city = static_cast<int>(random() % 4);
    const double size = 80 + 30 * normal(random), rooms = 1 + static_cast<double>(random() % 6);
    const double price = 1000 * size + 40000 * city + 100 * normal(random);
    const bool has_size = random() % 10 != 0;
    text += "r" + std::to_string(row) + "," +
            std::vector<std::string>{"Bonn", "", "Jena", other_city}[static_cast<size_t>(city)] + "," +
            (has_size ? std::to_string(size) : "NA") + "," + std::to_string(static_cast<int>(rooms)) + "," +
            std::to_string(price) + "," + (price > 140000 ? "dear" : "cheap") + "\n";
  }
  return text;
}

TableCsvOptions options_for(const std::string& path, const std::string& target) {
  TableCsvOptions options;
  options.path = path;
  options.features = {"city", "size", "rooms"};
  options.target = target;
  options.id = "row";
  return options;
}

double metric(const Trainer& trainer, const std::string& name) {
  return trainer.callback_metrics().at(name);
}

at::Tensor weight(TabularModel& model, const std::string& name) {
  return model.named_parameters()[name].detach();
}

TEST(TabularModel, ComputesWhatItsFormulasSay) {
  const TemporaryFolder folder;
  TableCsvOptions options = options_for(folder.write("t.csv", houses(300, 1)), "price");
  options.test_path =
      folder.write("n.csv", "row,city,size,rooms,price\na,Jena,70,3,100000\nb,Oslo,,2,90000\nc,,60,NA,80000\n");
  TableCsv data(options);
  TabularModel model({.hidden = {}, .dropout = 0, .embedding_dim = 3});  // a linear model
  Trainer trainer(quiet(2, {}, folder.path()));
  trainer.fit(model, data);

  // The numbers by pandas' formulas: (x - mean) / std(ddof=0) of the training rows.
  const TableSummary& summary = data.summary();
  ASSERT_EQ(summary.of_type(ColumnType::category)[0].values, (std::vector<std::string>{"Bonn", "Jena", "Ulm"}));
  const TableColumn size = summary.of_type(ColumnType::number)[0], rooms = summary.of_type(ColumnType::number)[1];
  EXPECT_TRUE(size.has_missing);
  EXPECT_FALSE(rooms.has_missing);
  const at::Tensor embedding = weight(model, "embeddings.0.weight"), w = weight(model, "net.0.weight");
  ASSERT_EQ(embedding.sizes(), (std::vector<int64_t>{5, 3}));  // unknown, three cities, missing
  EXPECT_TRUE(embedding[0].eq(0).all().item<bool>());
  const auto standard = [](double x, const TableColumn& column) { return (x - column.mean) / column.std; };
  const std::vector<std::vector<double>> numbers = {
      {standard(70, size), standard(3, rooms), 0, 0},
      {0, standard(2, rooms), 1, 0},   // no size: its mean, and the second input says so
      {standard(60, size), 0, 0, 0}};  // no rooms, which no training row lacks
  const std::vector<int64_t> codes = {2, 0, 4};
  const std::vector<double> prices = {100000, 90000, 80000};
  const Predictions predictions = trainer.predict(model, data);
  double loss = 0, error = 0;
  for (size_t i = 0; i < 3; ++i) {
    const at::Tensor input = at::cat({at::tensor(numbers[i]).to(at::kFloat), embedding[codes[i]]});
    const double output = (w.matmul(input) + weight(model, "net.0.bias")).item<double>();
    const double price = output * summary.target.std + summary.target.mean;
    EXPECT_NEAR(predictions[0][0][static_cast<int64_t>(i)].item<double>(), price, 1) << i;  // of about 100,000
    loss += std::pow(output - (prices[i] - summary.target.mean) / summary.target.std, 2) / 3;
    error += std::abs(price - prices[i]) / 3;
  }
  trainer.test(model, data);
  EXPECT_NEAR(metric(trainer, "test_loss"), loss, 1e-4 * loss);
  EXPECT_NEAR(metric(trainer, "test_mae"), error, 1);
}

TEST(TabularModel, LearnsARegressionAndAClassification) {
  const TemporaryFolder folder;
  torch::manual_seed(1);
  const std::string path = folder.write("t.csv", houses(2000, 2));
  TabularModel regression({.dropout = 0, .lr = 0.01});
  Trainer trainer(quiet(20, {}, folder.path()));
  TableCsv prices(options_for(path, "price"));
  trainer.fit(regression, prices);
  EXPECT_LT(metric(trainer, "val_loss"),
            0.1);  // 1: the mean; a tenth of the rows lack the size, with 25 % of the variance
  TabularModel classifier({.dropout = 0, .lr = 0.01});
  TableCsv kinds(options_for(path, "kind"));
  Trainer classified(quiet(20, {}, folder.path()));
  classified.fit(classifier, kinds);
  EXPECT_GT(metric(classified, "val_acc"), 0.93);
}

TEST(TabularModel, PredictsFromACheckpointAlone) {
  const TemporaryFolder folder;
  for (const std::string target : {"price", "kind"}) {
    TableCsvOptions options = options_for(folder.write("t.csv", houses(300, 3)), target);
    options.test_path = folder.write("n.csv", houses(50, 4, "Rome"));
    TableCsv data(options);
    TabularModel model;
    Trainer trainer(quiet(2, {}, folder.path()));
    trainer.fit(model, data);
    trainer.save_checkpoint(folder / "whole.ckpt");
    trainer.save_checkpoint(folder / "weights.ckpt", /*weights_only=*/true);
    const at::Tensor expected = trainer.predict(model, data)[0][0];
    std::filesystem::remove(folder / "t.csv");
    for (const char* name : {"whole.ckpt", "weights.ckpt"}) {
      TableCsv new_rows(options);
      TabularModel fresh;
      Trainer predicting(quiet(1, {}, folder.path()));
      const Predictions predictions = predicting.predict(fresh, new_rows, folder / name);
      EXPECT_TRUE(at::equal(predictions[0][0], expected)) << name;
      EXPECT_EQ(new_rows.label_names(), data.label_names());
      predicting.test(fresh, new_rows, folder / name);
      trainer.test(model, data);
      EXPECT_EQ(metric(predicting, "test_loss"), metric(trainer, "test_loss")) << name;

      const auto served = load_for_inference<TabularModel>(folder / name, {.device = "cpu"});
      const at::Tensor input =
          torch::tensor({{70.F, 3.F, 2.F}, {60.F, NAN, 0.F}});  // numbers, and the code of the city
      model.eval();
      const at::NoGradGuard no_grad;
      const at::Tensor output = model.forward(input);
      EXPECT_TRUE(at::allclose(served.predict(input), output.dim() == 2 ? output.argmax(1) : output)) << name;
    }
  }
}

TEST(TabularModel, ResumesWithTheSameLayers) {
  const TemporaryFolder folder;
  TableCsv data(options_for(folder.write("t.csv", houses(300, 5)), "kind"));
  TabularModel whole, first, second;
  torch::manual_seed(3);
  Trainer(quiet(4, {}, folder.path())).fit(whole, data);
  torch::manual_seed(3);
  Trainer started(quiet(2, {}, folder.path()));
  started.fit(first, data);
  started.save_checkpoint(folder / "half.ckpt");
  Trainer(quiet(4, {}, folder.path())).fit(second, data, folder / "half.ckpt");
  for (const auto& item : whole.named_parameters())
    EXPECT_TRUE(at::equal(item.value(), weight(second, item.key()))) << item.key();
}

TEST(TabularModel, SaysWhatItLacks) {
  const TemporaryFolder folder;
  const std::string path = folder.write("t.csv", "x,y\n1,2\n3,4\n");
  Trainer trainer(quiet(1, {}, folder.path()));
  TabularModel model;
  CsvData numbers({.path = path, .target = "y"});
  EXPECT_TRUE(
      holds(error_of<ConfigError>([&] { trainer.fit(model, numbers); }), {"TabularModel", "TableCsv or ParquetData"}));
  TableCsvOptions options = options_for(path, "");
  options.features = {"x"};
  options.id = "";
  TableCsv no_target(options);
  EXPECT_TRUE(holds(error_of<ConfigError>([&] { trainer.fit(model, no_target); }), {"no target", "Set `target`"}));
  options.target = "y";
  options.test_path = path;
  TableCsv data(options);
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)trainer.predict(model, data); }), {"no layers yet", "ckpt_path"}));
}

}  // namespace
}  // namespace levin::tabular_model_test
