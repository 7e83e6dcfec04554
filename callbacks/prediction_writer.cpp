#include "levin/callbacks/prediction_writer.h"

#include <ATen/ops/cat.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "levin/checkpoint/safetensors_writer.h"
#include "levin/core/files/files.h"
#include "levin/core/options/config_node.h"
#include "levin/core/options/error.h"
#include "levin/core/options/units.h"
#include "levin/core/process/console.h"
#include "levin/core/tensors.h"
#include "levin/loggers/csv_table.h"
#include "levin/strategies/strategy.h"
#include "levin/trainer/step_output.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

using OrderedJson = nlohmann::ordered_json;

// "a/b.csv" -> "a/b.WORD.csv"
std::string with_word(const std::string& path, const std::string& word) {
  fs::path named(path);
  named.replace_filename(named.stem().string() + "." + word + named.extension().string());
  return named.string();
}

// Bytes that are not UTF-8, which names of files may have, become U+FFFD; nan and infinities become null.
std::string json_text(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// One part of a batch, ready to be written: the values of a sample follow the values of the sample before it.
struct Values {
  std::string name;
  at::Tensor numbers;          // contiguous, of bool, int64, uint64 or float64
  std::vector<int64_t> sizes;  // of a sample
  int64_t width = 1;           // values of a sample
};

Values values_of(const std::string& name, const at::Tensor& rows) {
  const at::ScalarType type = rows.scalar_type();
  if (rows.is_complex()) {
    throw Error("PredictionWriter: " + name +
                " has complex numbers, which only .safetensors can hold. Publish at::view_as_real() of it.");
  }
  const bool stays = type == at::kBool || type == at::kUInt64;
  const at::ScalarType wide = rows.is_floating_point() ? at::kDouble : stays ? type : at::kLong;
  Values values{name, rows.to(wide).contiguous(), rows.sizes().slice(1).vec()};
  for (const int64_t size : values.sizes) values.width *= size;
  return values;
}

OrderedJson value_at(const Values& values, int64_t index) {
  switch (values.numbers.scalar_type()) {
    case at::kBool: return values.numbers.const_data_ptr<bool>()[index];
    case at::kLong: return values.numbers.const_data_ptr<int64_t>()[index];
    case at::kUInt64: return values.numbers.const_data_ptr<uint64_t>()[index];
    default: return values.numbers.const_data_ptr<double>()[index];
  }
}

std::string csv_value(const OrderedJson& value) {
  if (!value.is_number_float()) return value.dump();
  const auto number = value.get<double>();
  if (std::isfinite(number)) return number_text(number);
  return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
}

// Nested lists from dimension `dim` on; `index` is the index of the next value.
OrderedJson lists_of(const Values& values, size_t dim, int64_t& index) {
  if (dim == values.sizes.size()) return value_at(values, index++);
  OrderedJson list = OrderedJson::array();
  for (int64_t k = 0; k < values.sizes[dim]; ++k) list.push_back(lists_of(values, dim + 1, index));
  return list;
}

constexpr const char* kPrediction = "prediction";
constexpr const char* kId = "id";
constexpr const char* kClass = "class";
constexpr const char* kProbability = "probability";
constexpr size_t kMaxIdBytes = 16 << 20;  // in the metadata of a safetensors file

// A file's tensor of predictions is named in the plural.
std::string tensor_name(const std::string& part) {
  return part == kPrediction ? "predictions" : part;
}

// Columns that a name in step_output must not hide.
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

std::string header_of(const Columns& columns, bool has_ids) {
  std::vector<std::string> names = {"loader", "batch"};
  if (has_ids) names.insert(names.begin(), kId);
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

// Adds the names of a few samples; the names of millions do not fit into the header of a safetensors file.
void add_names(SafetensorsMetadata& metadata, const std::string& name, const std::vector<std::string>& texts) {
  if (texts.empty()) return;
  const std::string list = json_text(texts);
  if (list.size() <= kMaxIdBytes) {
    metadata.emplace_back(name, list);
    return;
  }
  Console::instance().warn("PredictionWriter: the list of each sample's " + name + " takes " + bytes_text(list.size()) +
                           ", more than a .safetensors file holds, and is left out. Write .csv or .jsonl to have it.");
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

// A file that is written under a temporary name, then renamed. It is removed if it is not finished.
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
  classes_ = options_.classes;
  if (classes_.empty() && trainer.datamodule() != nullptr) classes_ = trainer.datamodule()->label_names();
  path_ = options_.output;
  if (trainer.world_size() > 1) path_ = with_word(path_, "rank" + std::to_string(trainer.global_rank()));
  path_ = followed_links(path_);
  check_replaceable(path_);
  const std::string folder = fs::path(path_).parent_path().string();
  if (!folder.empty()) make_folder(folder);
  if (ending_ == ".safetensors") return;
  unfinished_ = std::make_shared<UnfinishedFile>(path_);
}

PredictionWriter::Rows PredictionWriter::rows_of(const at::Tensor& prediction, const StepOutput& outputs,
                                                 const Batch& batch) const {
  Rows rows{parts_of(prediction, outputs)};
  if (rows.parts.empty()) return rows;
  const int64_t samples = rows.parts[0].second.size(0);
  if (batch.ids() != nullptr && std::ssize(*batch.ids()) == samples && !outputs.has(kId)) rows.ids = *batch.ids();
  if (prediction.defined()) add_class(rows);
  if (outputs.has(kClass)) rows.classes.clear();
  return rows;
}

void PredictionWriter::add_class(Rows& rows) const {
  const at::Tensor prediction = rows.parts[0].second;
  const bool is_class = prediction.dim() == 1 && c10::isIntegralType(prediction.scalar_type(), /*includeBool=*/false);
  if (options_.scores == PredictionScores::none) {
    if (is_class && !classes_.empty()) rows.classes = class_texts(prediction.to(at::kLong), classes_);
    return;
  }
  if (prediction.dim() != 2 || !prediction.is_floating_point() || prediction.size(1) < 2) {
    throw Error(
        "PredictionWriterOptions.scores: " + enum_name(options_.scores) +
        " are predictions of (samples, classes), at least two of them, as floating-point numbers; this one is " +
        shape_text(prediction.sizes()) + " of " + c10::toString(prediction.scalar_type()) + ". Leave scores at none.");
  }
  const bool are_logits = options_.scores == PredictionScores::logits;
  const at::Tensor wide = prediction.to(prediction.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const auto [probability, number] = (are_logits ? wide.softmax(1) : wide).max(1);
  rows.classes = class_texts(number, classes_);
  const auto is_probability = [](const auto& part) { return part.first == kProbability; };
  if (std::none_of(rows.parts.begin(), rows.parts.end(), is_probability)) {
    rows.parts.emplace(rows.parts.begin() + 1, kProbability, probability);
  }
}

void PredictionWriter::on_predict_batch_end(Trainer& trainer, LightningModule&, const at::Tensor& prediction,
                                            const Batch& batch, int64_t batch_idx, int64_t dataloader_idx) {
  Rows rows = rows_of(prediction, trainer.step_output(), batch);
  if (rows.parts.empty()) return;
  samples_ += rows.parts[0].second.size(0);
  if (options_.write_interval == WriteInterval::epoch) {
    kept_[dataloader_idx].push_back(std::move(rows));
  } else if (ending_ == ".safetensors") {
    const std::string position = "loader" + std::to_string(dataloader_idx) + ".batch" + std::to_string(batch_idx);
    std::map<std::string, at::Tensor> tensors;
    for (const auto& [name, values] : rows.parts) tensors[tensor_name(name)] = values.contiguous();
    SafetensorsMetadata metadata;
    add_names(metadata, kId, rows.ids);
    add_names(metadata, kClass, rows.classes);
    write_safetensors(with_word(path_, position), tensors, metadata);
  } else {
    write_rows(rows, batch_idx, dataloader_idx);
  }
}

void PredictionWriter::start_table(const Rows& rows) {
  const int64_t samples = rows.parts[0].second.size(0);
  if (samples == 0) return;
  Columns columns;
  for (const auto& [name, values] : rows.parts) {
    columns.emplace_back(name, values.numel() / samples);
    if (columns.size() == 1 && !rows.classes.empty()) columns.emplace_back(kClass, 1);
  }
  if (columns_.empty()) {
    columns_ = columns;
    has_ids_ = !rows.ids.empty();
    std::string header = header_of(columns, has_ids_);
    put(header);
  }
  if (columns == columns_) return;
  throw Error("PredictionWriter: a sample has " + columns_text(columns) + ", and those before it have " +
              columns_text(columns_) + ", which one table of CSV cannot hold. Write .jsonl or .safetensors.");
}

void PredictionWriter::write_rows(const Rows& rows, int64_t batch_idx, int64_t dataloader_idx) {
  constexpr size_t kWrittenAtOnce = 1 << 20;
  const bool is_json = ending_ == ".jsonl";
  if (!is_json) start_table(rows);
  std::vector<Values> columns;
  for (const auto& [name, values] : rows.parts) columns.push_back(values_of(name, values));
  const std::string position = std::to_string(dataloader_idx) + "," + std::to_string(batch_idx);
  std::string text;
  for (size_t row = 0; row < static_cast<size_t>(rows.parts[0].second.size(0)); ++row) {
    OrderedJson object;
    if (!is_json && has_ids_) text += (rows.ids.empty() ? "" : csv_field(rows.ids[row])) + ",";
    if (!is_json) text += position;
    if (is_json && !rows.ids.empty()) object[kId] = rows.ids[row];
    if (is_json) object.update({{"loader", dataloader_idx}, {"batch", batch_idx}});
    for (const Values& values : columns) {
      int64_t index = static_cast<int64_t>(row) * values.width;
      if (is_json) object[values.name] = lists_of(values, 0, index);
      if (!is_json) {
        for (const int64_t end = index + values.width; index < end; ++index)
          text += "," + csv_value(value_at(values, index));
      }
      if (&values != &columns[0] || rows.classes.empty()) continue;
      if (is_json) object[kClass] = rows.classes[row];
      if (!is_json) text += "," + csv_field(rows.classes[row]);
    }
    text += (is_json ? json_text(object) : "") + "\n";
    if (text.size() >= kWrittenAtOnce) put(text);
  }
  put(text);
}

void PredictionWriter::put(std::string& text) {
  if (!(unfinished_->file << text)) UnfinishedFile::fail(path_, system_error_text(errno));
  text.clear();
}

void PredictionWriter::write_kept() {
  if (ending_ != ".safetensors") {
    for (const auto& [loader, batches] : kept_) {
      for (size_t k = 0; k < batches.size(); ++k) write_rows(batches[k], static_cast<int64_t>(k), loader);
    }
    return;
  }
  std::map<std::string, at::Tensor> tensors;
  SafetensorsMetadata metadata;
  for (const auto& [loader, batches] : kept_) {
    const std::string of_loader = kept_.size() > 1 ? ".loader" + std::to_string(loader) : "";
    std::map<std::string, std::map<size_t, at::Tensor>> by_name;  // then by batch
    std::vector<std::string> ids, classes;
    for (size_t k = 0; k < batches.size(); ++k) {
      for (const auto& [name, values] : batches[k].parts) by_name[name][k] = values;
      ids.insert(ids.end(), batches[k].ids.begin(), batches[k].ids.end());
      classes.insert(classes.end(), batches[k].classes.begin(), batches[k].classes.end());
    }
    for (const auto& [name, values] : by_name) add_joined(tensors, tensor_name(name) + of_loader, values);
    add_names(metadata, kId + of_loader, ids);
    add_names(metadata, kClass + of_loader, classes);
  }
  write_safetensors(path_, tensors, metadata);
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
