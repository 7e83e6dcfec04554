#include "levin/callbacks/prediction_writer.h"

#include <ATen/ops/cat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <utility>

#include "levin/checkpoint/safetensors_writer.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/core/scalar_text.h"
#include "levin/core/temporary_file.h"
#include "levin/core/tensor_text.h"
#include "levin/strategies/strategy.h"
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
  columns_ = -1;
  path_ = options_.output;
  if (trainer.world_size() > 1) path_ = with_word(path_, "rank" + std::to_string(trainer.global_rank()));
  const std::string folder = fs::path(path_).parent_path().string();
  if (!folder.empty()) make_folder(folder);
  if (ending_ == ".safetensors") return;
  unfinished_ = std::make_unique<UnfinishedFile>(path_);
}

void PredictionWriter::on_predict_batch_end(Trainer&, LightningModule&, const at::Tensor& prediction, const Batch&,
                                            int64_t batch_idx, int64_t dataloader_idx) {
  if (!prediction.defined()) return;
  const at::Tensor here = prediction.detach().cpu();
  samples_ += here.dim() == 0 ? 1 : here.size(0);
  if (options_.write_interval == WriteInterval::epoch) {
    kept_[dataloader_idx].push_back(here);
  } else if (ending_ == ".safetensors") {
    const std::string place = "loader" + std::to_string(dataloader_idx) + ".batch" + std::to_string(batch_idx);
    write_safetensors(with_word(path_, place), {{"predictions", here.contiguous()}});
  } else {
    write_rows(here, batch_idx, dataloader_idx);
  }
}

void PredictionWriter::write_rows(const at::Tensor& prediction, int64_t batch_idx, int64_t dataloader_idx) {
  const at::Tensor rows = prediction.dim() == 0 ? prediction.unsqueeze(0) : prediction;
  for (int64_t k = 0; k < rows.size(0); ++k) {
    const std::string loader = std::to_string(dataloader_idx), batch = std::to_string(batch_idx);
    if (ending_ == ".csv") write_csv_row(rows[k].flatten(), loader + "," + batch);
    if (ending_ == ".jsonl") write_json_row(rows[k], "{\"loader\": " + loader + ", \"batch\": " + batch);
  }
}

void PredictionWriter::write_csv_row(const at::Tensor& row, const std::string& place) {
  if (columns_ < 0) {
    columns_ = row.numel();
    std::string header = "loader,batch";
    for (int64_t k = 0; k < columns_; ++k) header += columns_ == 1 ? ",prediction" : ",prediction" + std::to_string(k);
    put(header + "\n");
  }
  if (row.numel() != columns_) {
    throw Error("PredictionWriter: a sample has " + count_of(row.numel(), "value") + ", and those before it have " +
                std::to_string(columns_) + ", which one table of CSV cannot hold. Write .jsonl or .safetensors.");
  }
  std::string line = place;
  for (int64_t k = 0; k < columns_; ++k) line += "," + value_text(row, k);
  put(line + "\n");
}

void PredictionWriter::write_json_row(const at::Tensor& row, const std::string& place) {
  put(place + ", \"prediction\": " + json_value(row) + "}\n");
}

void PredictionWriter::put(const std::string& text) {
  if (!(unfinished_->file << text)) UnfinishedFile::fail(path_, system_error_text(errno));
}

// Concatenates the batches of one loader if their shapes allow it.
void PredictionWriter::write_kept() {
  if (ending_ != ".safetensors") {
    for (const auto& [loader, batches] : kept_) {
      for (size_t k = 0; k < batches.size(); ++k) write_rows(batches[k], static_cast<int64_t>(k), loader);
    }
    return;
  }
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [loader, batches] : kept_) {
    const std::string name = "predictions" + (kept_.size() > 1 ? ".loader" + std::to_string(loader) : "");
    bool fits = batches[0].dim() > 0;
    for (const auto& batch : batches) {
      fits = fits && batch.dim() == batches[0].dim() && batch.sizes().slice(1) == batches[0].sizes().slice(1);
    }
    if (fits) tensors[name] = at::cat(batches);
    for (size_t k = 0; !fits && k < batches.size(); ++k) {
      tensors[name + ".batch" + std::to_string(k)] = batches[k].contiguous();
    }
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
