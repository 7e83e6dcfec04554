#include "levin/callbacks/prediction_writer.h"

#include <ATen/ops/cat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "levin/checkpoint/safetensors_writer.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/core/scalar_text.h"
#include "levin/core/temporary_file.h"
#include "levin/core/tensor_text.h"
#include "levin/loggers/csv_table.h"
#include "levin/strategies/strategy.h"
#include "levin/trainer/step_output.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

// "a/b.csv" -> "a/b.WORD.csv"
std::string with_word(const std::string& path, const std::string& word) {
  fs::path named(path);
  named.replace_filename(named.stem().string() + "." + word + named.extension().string());
  return named.string();
}

std::string value_text(const at::Tensor& values, int64_t index) {
  const at::Tensor value = values[index];
  if (value.scalar_type() == at::kBool) return value.item<bool>() ? "true" : "false";
  if (!value.is_floating_point()) return std::to_string(value.item<int64_t>());
  return number_text(value.item<double>());
}

std::string json_value(const at::Tensor& row) {
  if (row.dim() > 0) {
    std::string text;
    for (int64_t k = 0; k < row.size(0); ++k) text += (k == 0 ? "" : ", ") + json_value(row[k]);
    return "[" + text + "]";
  }
  const at::Tensor one = row.reshape({1});
  // JSON has no numbers for nan and infinities.
  return one.isfinite().all().item<bool>() ? value_text(one, 0) : "null";
}

constexpr const char* kPrediction = "prediction";

// A file's tensor of predictions is named in the plural.
std::string tensor_name(const std::string& part) {
  return part == kPrediction ? "predictions" : part;
}

// What step_output's names must not hide.
bool is_taken(const std::string& name) {
  return name == kPrediction || name == "predictions" || name == "loader" || name == "batch";
}

StepOutput::Named parts_of(const at::Tensor& prediction, const StepOutput& outputs) {
  StepOutput::Named parts;
  const auto add = [&](const std::string& name, const at::Tensor& value) {
    const at::Tensor here = value.detach().cpu();
    parts.emplace_back(name, here.dim() == 0 ? here.unsqueeze(0) : here);
    const int64_t samples = parts[0].second.size(0), own = parts.back().second.size(0);
    if (own == samples) return;
    throw Error("PredictionWriter: step_output(\"" + name + "\") has " + count_of(own, "row") + ", and " +
                parts[0].first + " " + std::to_string(samples) + ". Publish a row for each sample.");
  };
  if (prediction.defined()) add(kPrediction, prediction);
  for (const auto& [name, value] : outputs) {
    if (is_taken(name)) {
      throw Error("PredictionWriter: step_output(\"" + name + "\") has the name of a column of its own. Use another.");
    }
    if (value.defined()) add(name, value);
  }
  return parts;
}

using Columns = std::vector<std::pair<std::string, int64_t>>;

std::string header_of(const Columns& columns) {
  std::vector<std::string> names = {"loader", "batch"};
  for (const auto& [name, width] : columns) {
    for (int64_t k = 0; k < width; ++k) names.push_back(width == 1 ? name : name + std::to_string(k));
  }
  return csv_header(names);
}

// "3 values", or with outputs of the step "prediction (3 values), label (1 value)"
std::string columns_text(const Columns& columns) {
  if (columns.size() == 1 && columns[0].first == kPrediction) return count_of(columns[0].second, "value");
  std::string text;
  for (const auto& [name, width] : columns)
    text += (text.empty() ? "" : ", ") + cut_text(name) + " (" + count_of(width, "value") + ")";
  return text;
}

// Concatenates the batches if their shapes allow it.
void add_joined(std::map<std::string, at::Tensor>& tensors, const std::string& name,
                const std::map<size_t, at::Tensor>& by_batch) {
  std::vector<at::Tensor> all;
  bool fits = true;
  for (const auto& [k, rows] : by_batch) {
    all.push_back(rows);
    fits = fits && rows.sizes().slice(1) == all[0].sizes().slice(1);
  }
  if (fits) tensors[name] = at::cat(all);
  for (const auto& [k, rows] : by_batch) {
    if (!fits) tensors[name + ".batch" + std::to_string(k)] = rows.contiguous();
  }
}

}  // namespace

PredictionWriter::PredictionWriter(PredictionWriterOptions options)
    : options_(checked(std::move(options), "PredictionWriterOptions")),
      ending_(fs::path(options_.output).extension().string()) {
  if (ending_ == ".csv" || ending_ == ".jsonl" || ending_ == ".safetensors") return;
  throw ConfigError("PredictionWriterOptions.output: \"" + cut_text(options_.output) +
                    "\" says no format. Let it end in .csv, .jsonl or .safetensors.");
}

// Created, written and renamed, or removed: incomplete files are not kept.
struct PredictionWriter::UnfinishedFile {
  explicit UnfinishedFile(const std::string& path) : name(temporary_name(path)), lock(LockedFile::create(name)) {
    if (lock) file.open(name, std::ios::binary);
    if (!file.is_open()) fail(path, system_error_text(errno));
  }
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;
  ~UnfinishedFile() {
    std::error_code ignored;
    fs::remove(name, ignored);  // the name is free once it is renamed
  }

  void finish(const std::string& path) {
    file.close();
    if (!file) fail(path, system_error_text(errno));
    std::error_code code;
    fs::rename(name, path, code);
    if (code) fail(path, code.message());
  }

  [[noreturn]] static void fail(const std::string& path, const std::string& cause) {
    throw Error("PredictionWriter: " + path + " cannot be written: " + cause + ". Make room, or give another output.");
  }

  std::string name;
  LockedFile lock;
  std::ofstream file;
};

PredictionWriter::PredictionWriter(PredictionWriter&&) noexcept = default;
PredictionWriter& PredictionWriter::operator=(PredictionWriter&&) noexcept = default;
PredictionWriter::~PredictionWriter() = default;

void PredictionWriter::on_predict_start(Trainer& trainer, LightningModule&) {
  unfinished_.reset();
  kept_.clear();
  samples_ = 0;
  columns_.clear();
  path_ = options_.output;
  if (trainer.world_size() > 1) path_ = with_word(path_, "rank" + std::to_string(trainer.global_rank()));
  const std::string folder = fs::path(path_).parent_path().string();
  if (!folder.empty()) make_folder(folder);
  if (ending_ == ".safetensors") return;
  unfinished_ = std::make_unique<UnfinishedFile>(path_);
}

void PredictionWriter::on_predict_batch_end(Trainer& trainer, LightningModule&, const at::Tensor& prediction,
                                            const Batch&, int64_t batch_idx, int64_t dataloader_idx) {
  Parts parts = parts_of(prediction, trainer.step_output());
  if (parts.empty()) return;
  samples_ += parts[0].second.size(0);
  if (options_.write_interval == WriteInterval::epoch) {
    kept_[dataloader_idx].push_back(std::move(parts));
  } else if (ending_ == ".safetensors") {
    const std::string place = "loader" + std::to_string(dataloader_idx) + ".batch" + std::to_string(batch_idx);
    std::map<std::string, at::Tensor> tensors;
    for (const auto& [name, rows] : parts) tensors[tensor_name(name)] = rows.contiguous();
    write_safetensors(with_word(path_, place), tensors);
  } else {
    write_rows(parts, batch_idx, dataloader_idx);
  }
}

void PredictionWriter::write_rows(const Parts& parts, int64_t batch_idx, int64_t dataloader_idx) {
  const std::string loader = std::to_string(dataloader_idx), batch = std::to_string(batch_idx);
  for (int64_t row = 0; row < parts[0].second.size(0); ++row) {
    if (ending_ == ".csv") write_csv_row(parts, row, loader + "," + batch);
    if (ending_ == ".jsonl") write_json_row(parts, row, "{\"loader\": " + loader + ", \"batch\": " + batch);
  }
}

void PredictionWriter::write_csv_row(const Parts& parts, int64_t row, const std::string& place) {
  std::vector<std::pair<std::string, int64_t>> columns;
  for (const auto& [name, rows] : parts) columns.emplace_back(name, rows[row].numel());
  if (columns_.empty()) {
    columns_ = columns;
    put(header_of(columns));
  }
  if (columns != columns_) {
    throw Error("PredictionWriter: a sample has " + columns_text(columns) + ", and those before it have " +
                columns_text(columns_) + ", which one table of CSV cannot hold. Write .jsonl or .safetensors.");
  }
  std::string line = place;
  for (const auto& [name, rows] : parts) {
    const at::Tensor values = rows[row].flatten();
    for (int64_t k = 0; k < values.size(0); ++k) line += "," + value_text(values, k);
  }
  put(line + "\n");
}

void PredictionWriter::write_json_row(const Parts& parts, int64_t row, const std::string& place) {
  std::string line = place;
  for (const auto& [name, rows] : parts) line += ", " + nlohmann::json(name).dump() + ": " + json_value(rows[row]);
  put(line + "}\n");
}

void PredictionWriter::put(const std::string& text) {
  if (!(unfinished_->file << text)) UnfinishedFile::fail(path_, system_error_text(errno));
}

void PredictionWriter::write_kept() {
  if (ending_ != ".safetensors") {
    for (const auto& [loader, batches] : kept_) {
      for (size_t k = 0; k < batches.size(); ++k) write_rows(batches[k], static_cast<int64_t>(k), loader);
    }
    return;
  }
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [loader, batches] : kept_) {
    const std::string of_loader = kept_.size() > 1 ? ".loader" + std::to_string(loader) : "";
    std::map<std::string, std::map<size_t, at::Tensor>> by_name;  // then by batch
    for (size_t k = 0; k < batches.size(); ++k) {
      for (const auto& [name, rows] : batches[k]) by_name[name][k] = rows;
    }
    for (const auto& [name, rows] : by_name) add_joined(tensors, tensor_name(name) + of_loader, rows);
  }
  write_safetensors(path_, tensors);
}

void PredictionWriter::on_predict_end(Trainer&, LightningModule&) {
  if (options_.write_interval == WriteInterval::epoch) write_kept();
  kept_.clear();
  if (!unfinished_) return;
  unfinished_->finish(path_);
  unfinished_.reset();
}

void PredictionWriter::on_exception(Trainer&, LightningModule&, const std::exception&) {
  unfinished_.reset();
}

}  // namespace levin
