// A network for tables: an embedding of each category, standardized numbers, and a multilayer perceptron.
//
//   model: {class_path: TabularModel, init_args: {hidden: [128, 64]}}
//   data: {class_path: TableCsv, init_args: {path: houses.csv, target: price}}
//
// The target of the data makes it a classifier (cross entropy) or a regression (mean squared error).
#pragma once

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "levin/data/columns/table_summary.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

/// Options of TabularModel.
struct TabularModelOptions {
  std::vector<int64_t> hidden = {128, 64};
  double dropout = 0.1;
  int64_t embedding_dim = 0;  // of each column of categories; 0: by its number of categories
  double lr = 1e-3;
  double weight_decay = 0.01;

  template <class = void>
  static auto fields() {
    using O = TabularModelOptions;
    return levin::fields(
        field("hidden", &O::hidden, "widths of the hidden layers; none: a linear model")
            .check(
                [](const std::vector<int64_t>& all) {
                  return all.empty() || *std::min_element(all.begin(), all.end()) > 0;
                },
                "widths of at least 1"),
        field("dropout", &O::dropout, "fraction of the hidden values that is set to 0 in training").min(0.0).below(1.0),
        field("embedding_dim", &O::embedding_dim,
              "size of the vector of a category; 0: min(100, round(1.6 n^0.56)) for a column of n categories")
            .min(0),
        field("lr", &O::lr, "learning rate of AdamW").min(0.0),
        field("weight_decay", &O::weight_decay, "of AdamW; biases do not decay").min(0.0));
  }
};

/// A model of the data modules TableCsv and ParquetData. Numbers become (x - mean) / std, of the training rows; a
/// missing number becomes 0, and in columns that lack numbers in training rows a second input is 1 for it. A category
/// that no training row has becomes a vector of zeros. Logs train_loss, val_loss and test_loss; for classes val_acc and
/// test_acc, else val_mae and test_mae, the mean absolute error in the unit of the target. The loss of a regression is
/// the squared error of the standardized target. The layers are made from the training rows, or from a checkpoint.
class TabularModel final : public LightningModule {
 public:
  using Options = TabularModelOptions;
  explicit TabularModel(TabularModelOptions options = {});

  /// Makes the layers in fit, and else if the data have a checkpoint's state. Throws ConfigError if the data module is
  /// not one of tables, or has no target.
  void configure_model() override;
  void on_save_checkpoint(State& checkpoint) override;
  void on_load_checkpoint(const State& checkpoint) override;
  void setup(Stage stage) override { stage_ = stage; }

  /// `input`: (rows, columns), the numbers and then the codes of the categories. Returns (rows, classes) logits, or
  /// (rows) numbers in the unit of the target.
  at::Tensor forward(const at::Tensor& input) override;
  at::Tensor training_step(const Batch& batch) override;
  void validation_step(const Batch& batch) override { evaluate(batch, "val"); }
  void test_step(const Batch& batch) override { evaluate(batch, "test"); }
  /// Takes a batch of the data, or a list of one tensor as forward() does. Returns classes, (rows) int64, and publishes
  /// "probability" with step_output; or numbers, (rows).
  at::Tensor predict_step(const Batch& batch) override;
  /// AdamW, at the learning rate of the options.
  OptimizerConfig configure_optimizers() override;

  // Remembered for layers that are made later.
  void to(at::Device device, at::ScalarType dtype, bool non_blocking = false) override;
  void to(at::ScalarType dtype, bool non_blocking = false) override;
  void to(at::Device device, bool non_blocking = false) override;

 private:
  void make_layers(const TableSizes& sizes);
  void set_moments(const TableSummary& summary);
  [[nodiscard]] at::Tensor outputs(const at::Tensor& numbers, const at::Tensor& categories);
  [[nodiscard]] at::Tensor outputs(const Batch& batch);
  [[nodiscard]] at::Tensor outputs_of_rows(const at::Tensor& input);
  [[nodiscard]] at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target);
  [[nodiscard]] at::Tensor in_units(const at::Tensor& output);
  void evaluate(const Batch& batch, const std::string& stage);

  TabularModelOptions options_;
  Stage stage_ = Stage::fit;
  TableSizes sizes_ = {};
  State table_ = {};  // of the data module, for checkpoints of weights alone
  at::ScalarType dtype_ = at::kFloat;
  at::Device device_ = at::kCPU;
  torch::nn::ModuleList embeddings_ = nullptr;
  torch::nn::Sequential net_ = nullptr;
  at::Tensor number_mean_ = {}, number_std_ = {}, number_may_be_missing_ = {};  // (columns of numbers)
  at::Tensor target_mean_ = {}, target_std_ = {};                               // ()
};

}  // namespace levin
