#include "levin/callbacks/model_summary.h"

#include <algorithm>
#include <array>
#include <set>

#include "levin/core/options/units.h"
#include "levin/core/process/console.h"
#include "levin/core/tensors.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

using Row = std::array<std::string, 5>;

// 1,234,567
std::string grouped(int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

// Users know "torch::nn::LinearImpl" as Linear.
std::string class_name(const torch::nn::Module& module) {
  std::string name = module.name();
  if (const size_t bracket = name.find('<'); bracket != std::string::npos) name.resize(bracket);
  if (const size_t colon = name.rfind("::"); colon != std::string::npos) name = name.substr(colon + 2);
  if (name.size() > 4 && name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

std::string weight_shapes(const torch::nn::Module& module) {
  std::string text;
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    std::string shape;
    for (const int64_t size : parameter.value().sizes()) shape += (shape.empty() ? "" : " x ") + std::to_string(size);
    text += (text.empty() ? "" : ", ") + parameter.key() + " " + (shape.empty() ? "scalar" : shape);
  }
  return text;
}

struct Totals {
  int64_t trainable = 0;
  int64_t frozen = 0;
  int64_t parameter_bytes = 0;
  int64_t buffer_bytes = 0;
};

// Tensors that several layers share count once.
Totals totals_of(const torch::nn::Module& module) {
  Totals totals;
  std::set<const void*> seen;
  for (const at::Tensor& parameter : module.parameters()) {
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    (parameter.requires_grad() ? totals.trainable : totals.frozen) += parameter.numel();
    totals.parameter_bytes += static_cast<int64_t>(parameter.nbytes());
  }
  for (const at::Tensor& buffer : module.buffers()) {
    if (buffer.defined() && seen.insert(buffer.unsafeGetTensorImpl()).second) {
      totals.buffer_bytes += static_cast<int64_t>(buffer.nbytes());
    }
  }
  return totals;
}

void add_rows(const torch::nn::Module& module, const std::string& prefix, int64_t depth, std::vector<Row>& rows) {
  if (depth == 0) return;
  for (const auto& child : module.named_children()) {
    const torch::nn::Module& layer = *child.value();
    const std::string name = prefix + child.key();
    const Totals totals = totals_of(layer);
    rows.push_back({name, class_name(layer), grouped(totals.trainable + totals.frozen),
                    layer.is_training() ? "train" : "eval", weight_shapes(layer)});
    add_rows(layer, name + ".", depth - 1, rows);
  }
}

// Columns in characters; names may hold UTF-8.
size_t columns(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string table(const std::vector<Row>& rows) {
  std::array<size_t, 5> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - columns(row[i]), ' ');
      line += (i == 0 ? "" : "  ") + (i == 2 ? space + row[i] : row[i] + space);  // numbers are right-aligned
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string model_summary_text(const LightningModule& module, int64_t max_depth) {
  std::vector<Row> rows{{"name", "type", "parameters", "mode", "weights"}};
  add_rows(module, "", max_depth, rows);
  const Totals totals = totals_of(module);
  std::string text = rows.size() > 1 ? table(rows) : "";
  text += grouped(totals.trainable) + " trainable parameters, " + grouped(totals.frozen) + " non-trainable, " +
          grouped(totals.trainable + totals.frozen) + " in total, " +
          bytes_text(static_cast<uint64_t>(totals.parameter_bytes));
  if (totals.buffer_bytes > 0) text += " and " + bytes_text(static_cast<uint64_t>(totals.buffer_bytes)) + " of buffers";
  return text;
}

ModelSummary::ModelSummary(ModelSummaryOptions options) : options_(checked(options, "ModelSummaryOptions")) {}

void ModelSummary::on_fit_start(Trainer& trainer, LightningModule& module) {
  if (trainer.global_rank() == 0) Console::instance().print(model_summary_text(module, options_.max_depth));
}

}  // namespace levin
