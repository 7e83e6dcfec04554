#include "levin/models/tabular_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/data/columns/table_module.h"
#include "levin/models/loss_type.h"
#include "levin/optim/adam.h"
#include "levin/trainer/param_groups.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

constexpr const char* kTable = "data";  // the data module's part of a checkpoint

// The rule of fast.ai for the size of an embedding, with a smaller limit.
int64_t embedding_size(int64_t categories) {
  return std::min<int64_t>(100, std::llround(1.6 * std::pow(static_cast<double>(categories), 0.56)));
}

}  // namespace

TabularModel::TabularModel(TabularModelOptions options) : options_(checked(std::move(options), "TabularModelOptions")) {
  save_hyperparameters(options_);
}

void TabularModel::configure_model() {
  DataModule* any = has_trainer() ? trainer().datamodule() : nullptr;
  auto* data = dynamic_cast<TableModule*>(any);
  if (stage_ == Stage::fit && has_trainer() && data == nullptr && net_.is_empty()) {
    throw ConfigError(
        "TabularModel: its data are tables with columns of numbers and categories. Use TableCsv or ParquetData.");
  }
  if (data == nullptr || !net_.is_empty() || (stage_ != Stage::fit && !data->has_summary())) return;
  const TableSummary& summary = data->summary();
  if (summary.target.name.empty()) {
    throw ConfigError("TabularModel: the data have no target. Set `target` of the data to a column.");
  }
  table_ = summary.state_dict();
  make_layers(TableSizes::of(summary));
  set_moments(summary);
}

void TabularModel::make_layers(const TableSizes& sizes) {
  sizes_ = sizes;
  embeddings_ = torch::nn::ModuleList();
  int64_t width = 2 * sizes.numbers;
  for (const int64_t codes : sizes.codes) {
    const int64_t size = options_.embedding_dim > 0 ? options_.embedding_dim : embedding_size(codes);
    // Code 0, for categories that no training row has, is a vector of zeros that does not learn.
    embeddings_->push_back(torch::nn::Embedding(torch::nn::EmbeddingOptions(codes, size).padding_idx(0)));
    width += size;
  }
  net_ = torch::nn::Sequential();
  for (const int64_t hidden : options_.hidden) {
    net_->push_back(torch::nn::Linear(width, hidden));
    net_->push_back(torch::nn::ReLU());
    if (options_.dropout > 0) net_->push_back(torch::nn::Dropout(options_.dropout));
    width = hidden;
  }
  net_->push_back(torch::nn::Linear(width, sizes.classes > 0 ? sizes.classes : 1));
  register_module("embeddings", embeddings_);
  register_module("net", net_);
  number_mean_ = register_buffer("number_mean", at::zeros({sizes.numbers}));
  number_std_ = register_buffer("number_std", at::ones({sizes.numbers}));
  number_may_be_missing_ = register_buffer("number_may_be_missing", at::zeros({sizes.numbers}));
  target_mean_ = register_buffer("target_mean", at::zeros({}));
  target_std_ = register_buffer("target_std", at::ones({}));
  LightningModule::to(device_, dtype_);
}

void TabularModel::set_moments(const TableSummary& summary) {
  const std::vector<TableColumn> numbers = summary.of_type(ColumnType::number);
  const auto fill = [&](at::Tensor& buffer, const auto& value_of) {
    std::vector<double> values;
    for (const TableColumn& column : numbers) values.push_back(value_of(column));
    buffer.copy_(at::tensor(values, at::TensorOptions().dtype(at::kDouble)));
  };
  fill(number_mean_, [](const TableColumn& column) { return column.mean; });
  fill(number_std_, [](const TableColumn& column) { return column.std; });
  fill(number_may_be_missing_, [](const TableColumn& column) { return column.has_missing ? 1.0 : 0.0; });
  target_mean_.fill_(summary.target.mean);
  target_std_.fill_(summary.target.std);
}

void TabularModel::on_save_checkpoint(State& checkpoint) {
  if (!checkpoint.has(kTable) && !table_.empty()) checkpoint.put(kTable, table_);
}

void TabularModel::on_load_checkpoint(const State& checkpoint) {
  table_ = checkpoint.part(kTable);
  if (!net_.is_empty()) return;
  if (table_.empty()) {
    throw CheckpointError(
        "TabularModel: the checkpoint lacks the columns of the table. Was it saved by "
        "TabularModel?");
  }
  make_layers(TableSizes::of(table_));
}

void TabularModel::to(at::Device device, at::ScalarType dtype, bool non_blocking) {
  device_ = device;
  dtype_ = dtype;
  LightningModule::to(device, dtype, non_blocking);
}

void TabularModel::to(at::ScalarType dtype, bool non_blocking) {
  dtype_ = dtype;
  LightningModule::to(dtype, non_blocking);
}

void TabularModel::to(at::Device device, bool non_blocking) {
  device_ = device;
  LightningModule::to(device, non_blocking);
}

at::Tensor TabularModel::outputs(const at::Tensor& numbers, const at::Tensor& categories) {
  if (net_.is_empty()) {
    throw Error(
        "TabularModel: it has no layers yet. Train it, or give the checkpoint of a training (--ckpt_path best).");
  }
  if (numbers.size(1) != sizes_.numbers) {
    throw Error("TabularModel: expected " + count_of(sizes_.numbers, "column") + " of numbers, got " +
                std::to_string(numbers.size(1)) + ".");
  }
  std::vector<at::Tensor> inputs;
  if (sizes_.numbers > 0) {
    const at::Tensor is_missing = numbers.isnan();
    const at::Tensor standard = (numbers - number_mean_) / number_std_;
    inputs.push_back(standard.masked_fill(is_missing, 0));
    inputs.push_back(is_missing.to(standard.scalar_type()) * number_may_be_missing_);
  }
  for (size_t k = 0; k < sizes_.codes.size(); ++k) {
    inputs.push_back(
        embeddings_->at<torch::nn::EmbeddingImpl>(k).forward(categories.select(1, static_cast<int64_t>(k))));
  }
  const at::Tensor output = net_->forward(at::cat(inputs, 1));
  return sizes_.classes > 0 ? output : output.squeeze(1);
}

at::Tensor TabularModel::outputs(const Batch& batch) {
  if (!batch.has("features")) return outputs_of_rows(batch[0]);  // as load_for_inference gives them
  return outputs(batch["features"], sizes_.codes.empty() ? at::Tensor() : batch["categories"]);
}

at::Tensor TabularModel::outputs_of_rows(const at::Tensor& input) {
  const auto columns = sizes_.numbers + std::ssize(sizes_.codes);
  if (!net_.is_empty() && (input.dim() != 2 || input.size(1) != columns)) {
    throw Error("TabularModel: expected rows of " + count_of(columns, "number") + ", " +
                std::to_string(sizes_.numbers) + " numbers and then the codes of " +
                std::to_string(sizes_.codes.size()) + " categories, got " + shape_text(input.sizes()) + ".");
  }
  const int64_t numbers = net_.is_empty() ? 0 : sizes_.numbers;
  return outputs(input.narrow(1, 0, numbers), input.slice(1, numbers).to(at::kLong));
}

// A regression's output is the standardized target.
at::Tensor TabularModel::in_units(const at::Tensor& output) {
  if (sizes_.classes > 0) return output;
  return output * target_std_ + target_mean_;
}

at::Tensor TabularModel::forward(const at::Tensor& input) {
  return in_units(outputs_of_rows(input));
}

at::Tensor TabularModel::loss_of(const at::Tensor& output, const at::Tensor& target) {
  const at::ScalarType wide = loss_type(output, target);
  if (sizes_.classes > 0) return at::cross_entropy_loss(output.to(wide), target);
  return at::mse_loss(output.to(wide), (target.to(wide) - target_mean_) / target_std_);
}

at::Tensor TabularModel::training_step(const Batch& batch) {
  const at::Tensor loss = loss_of(outputs(batch), batch["targets"]);
  log("train_loss", loss, {.prog_bar = true});
  return loss;
}

void TabularModel::evaluate(const Batch& batch, const std::string& stage) {
  const at::Tensor output = outputs(batch), target = batch["targets"];
  const LogOptions options{.prog_bar = true, .sync_dist = true};
  log(stage + "_loss", loss_of(output, target), options);
  if (sizes_.classes > 0) {
    log(stage + "_acc", output.argmax(1).eq(target).to(at::kFloat).mean(), options);
  } else {
    const at::ScalarType wide = loss_type(output, target);
    log(stage + "_mae", at::l1_loss(in_units(output).to(wide), target.to(wide)), options);
  }
}

at::Tensor TabularModel::predict_step(const Batch& batch) {
  const at::Tensor output = outputs(batch);
  if (sizes_.classes == 0) return in_units(output);
  step_output("probability", output.softmax(1).amax(1));
  return output.argmax(1);
}

OptimizerConfig TabularModel::configure_optimizers() {
  return AdamW(param_groups(*this, {}, /*no_decay=*/true), {.lr = options_.lr, .weight_decay = options_.weight_decay});
}

}  // namespace levin
