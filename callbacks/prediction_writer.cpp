#include "levin/callbacks/prediction_writer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "levin/callbacks/joined_predictions.h"
#include "levin/callbacks/prediction_files.h"
#include "levin/callbacks/prediction_text.h"
#include "levin/checkpoint/safetensors.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/core/files/files.h"
#include "levin/core/options/config_node.h"
#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/loggers/csv_table.h"
#include "levin/strategies/strategy.h"
#include "levin/trainer/step_output.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

// "a/b.csv" -> "a/b.WORD.csv"
std::string with_word(const std::string& path, const std::string& word) {
  fs::path named(path);
  named.replace_filename(named.stem().string() + "." + word + named.extension().string());
  return named.string();
}

constexpr const char* kPrediction = "prediction";
constexpr const char* kId = "id";
constexpr const char* kIndex = "index";
constexpr const char* kClass = "class";
constexpr const char* kProbability = "probability";

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

void add_class(PredictionRows& rows, const PredictionWriterOptions& options, const std::vector<std::string>& names) {
  const at::Tensor prediction = rows.parts[0].second;
  const bool is_class = prediction.dim() == 1 && c10::isIntegralType(prediction.scalar_type(), /*includeBool=*/false);
  if (options.scores == PredictionScores::none) {
    if (is_class && !names.empty()) rows.classes = class_texts(prediction.to(at::kLong), names);
    return;
  }
  if (prediction.dim() != 2 || !prediction.is_floating_point() || prediction.size(1) < 2) {
    throw Error(
        "PredictionWriterOptions.scores: " + enum_name(options.scores) +
        " are predictions of (samples, classes), at least two of them, as floating-point numbers; this one is " +
        shape_text(prediction.sizes()) + " of " + c10::toString(prediction.scalar_type()) + ". Leave scores at none.");
  }
  const bool are_logits = options.scores == PredictionScores::logits;
  const at::Tensor wide = prediction.to(prediction.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const auto [probability, number] = (are_logits ? wide.softmax(1) : wide).max(1);
  rows.classes = class_texts(number, names);
  const auto is_probability = [](const auto& part) { return part.first == kProbability; };
  if (std::none_of(rows.parts.begin(), rows.parts.end(), is_probability)) {
    rows.parts.emplace(rows.parts.begin() + 1, kProbability, probability);
  }
}

using Columns = std::vector<std::pair<std::string, int64_t>>;  // values of each part in a CSV row

Columns columns_of(const PredictionRows& rows) {
  Columns columns;
  for (const auto& [name, values] : rows.parts) {
    columns.emplace_back(name, values.numel() / rows.rows());
    if (columns.size() == 1 && !rows.classes.empty()) columns.emplace_back(kClass, 1);
  }
  return columns;
}

std::string header_of(const Columns& columns, RowKeys keys) {
  std::vector<std::string> names = {"loader", "batch"};
  if (keys.indices) names.insert(names.begin(), kIndex);
  if (keys.ids) names.insert(names.begin(), kId);
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

[[noreturn]] void fail_table(const std::string& sample, const std::string& others) {
  throw Error("PredictionWriter: a sample has " + sample + ", and those before it have " + others +
              ", which one table of CSV cannot hold. Write .jsonl or .safetensors.");
}

// Strings as the elements of a list in JSON, without its brackets.
std::string json_items(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ",") + json_string(text);
  return list;
}

Json shape_json(const RowShape& shape) {
  return {{"type", static_cast<int>(shape.type)}, {"sizes", shape.sizes}};
}

RowShape shape_of(const Json& json) {
  return {static_cast<at::ScalarType>(json.at("type").get<int>()), json.at("sizes").get<std::vector<int64_t>>()};
}

// Runs a task on rank 0 and returns its result, or throws its error, on every rank.
template <class Task>
Json on_rank_zero(RankCollectives& ranks, const Task& task) {
  if (ranks.world_size() == 1) return task();
  Json result;
  std::exception_ptr error;
  if (ranks.rank() == 0) {
    try {
      result["result"] = task();
    } catch (const std::exception& thrown) {
      error = std::current_exception();
      result["error"] = thrown.what();
    }
  }
  const std::string text = ranks.broadcast(result.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (error) std::rethrow_exception(error);
  result = Json::parse(text);
  if (result.contains("error")) throw Error("on rank 0: " + result["error"].get<std::string>());
  return result["result"];
}

}  // namespace

// ---- a prediction in progress -------------------------------------------------------------------------------------

struct PredictionWriter::Writing {
  // A column of this rank: the rows of a tensor, or strings.
  struct Column {
    explicit Column(const std::string& output) : spool(output) {}
    Spool spool;
    std::vector<RowShape> shapes = {};
  };

  RankCollectives* ranks = nullptr;
  bool writes = true;  // false: another rank writes the same samples
  int64_t rank = 0;    // this rank's index among the data-parallel ranks
  int64_t world_size = 1;
  std::vector<std::string> classes = {};
  std::map<int64_t, int64_t> seen = {};       // samples of each loader on this rank
  std::optional<UnfinishedFile> output = {};  // rows of a single rank
  std::optional<Spool> lines = {};            // rows of one of several ranks
  std::optional<Spool> skipped = {};          // lines of the list of skipped samples
  std::map<std::pair<std::string, int64_t>, std::unique_ptr<Column>> columns = {};  // by name and dataloader_idx
  Columns table = {};  // of the CSV file; empty: not known yet
  RowKeys keys = {};   // of the CSV file

  [[nodiscard]] BlockKey key_of(const Batch& batch, int64_t batch_idx, int64_t dataloader_idx) const {
    const BatchSamples* samples = batch.samples();
    if (samples == nullptr || samples->batch < 0) return {dataloader_idx, 0, batch_idx * world_size + rank};
    return {dataloader_idx, samples->loader, samples->batch};
  }

  // Without a loader that knows, samples are counted: ranks take every world_size-th (Loader::shard).
  [[nodiscard]] at::Tensor indices_of(const Batch& batch, int64_t rows, int64_t dataloader_idx) {
    int64_t& before = seen[dataloader_idx];
    const int64_t first = std::exchange(before, before + batch.size());
    if (rows != batch.size()) return {};
    if (const BatchSamples* samples = batch.samples(); samples != nullptr && std::ssize(samples->indices) == rows) {
      at::Tensor indices = at::empty({rows}, at::TensorOptions().dtype(at::kLong));
      std::copy(samples->indices.begin(), samples->indices.end(), indices.mutable_data_ptr<int64_t>());
      return indices;
    }
    return at::arange(first * world_size + rank, (first + rows) * world_size + rank, world_size,
                      at::TensorOptions().dtype(at::kLong));
  }

  void write_lines(const PredictionRows& rows, const BlockKey& key, bool is_json);
  void start_table(const PredictionRows& rows);
  void keep(const PredictionRows& rows, const BlockKey& key);
  void keep_texts(const std::string& name, const std::vector<std::string>& texts, const BlockKey& key);
  Column& column(const std::string& name, int64_t dataloader_idx, const std::string& output);
  [[nodiscard]] Json summary(int64_t samples, int64_t skipped_samples);
  [[nodiscard]] Json join(const std::vector<std::string>& summaries);
  void join_lines(const std::vector<Json>& all);
  void join_skipped(const std::vector<Json>& all, int64_t count) const;

  std::string path;
  std::string ending;
  std::string skipped_path;
  bool is_per_batch = false;  // .safetensors
};

PredictionWriter::PredictionWriter(PredictionWriterOptions options)
    : options_(checked(std::move(options), "PredictionWriterOptions")),
      ending_(fs::path(options_.output).extension().string()) {
  if (ending_ == ".csv" || ending_ == ".jsonl" || ending_ == ".safetensors" || ending_ == ".npy") return;
  throw ConfigError("PredictionWriterOptions.output: \"" + cut_text(options_.output) +
                    "\" says no format. Let it end in .csv, .jsonl, .safetensors or .npy.");
}

PredictionWriter::PredictionWriter(PredictionWriter&&) noexcept = default;
PredictionWriter& PredictionWriter::operator=(PredictionWriter&&) noexcept = default;
PredictionWriter::~PredictionWriter() = default;

std::string PredictionWriter::skipped_path() const {
  fs::path list(path_);
  list.replace_filename(list.stem().string() + ".skipped.csv");
  return list.string();
}

void PredictionWriter::on_predict_start(Trainer& trainer, LightningModule&) {
  writing_.reset();
  samples_ = skipped_ = 0;
  path_ = followed_links(options_.output);
  check_replaceable(path_);
  const std::string folder = fs::path(path_).parent_path().string();
  if (!folder.empty()) make_folder(folder);

  auto writing = std::make_shared<Writing>();
  writing->path = path_;
  writing->ending = ending_;
  writing->skipped_path = skipped_path();
  writing->is_per_batch = ending_ == ".safetensors" && options_.write_interval == WriteInterval::batch;
  writing->classes = options_.classes;
  if (writing->classes.empty() && trainer.datamodule() != nullptr) {
    writing->classes = trainer.datamodule()->label_names();
  }
  RankCollectives& ranks = trainer.strategy().ranks();
  writing->ranks = &ranks;
  writing->rank = ranks.mesh().data().index();
  writing->world_size = ranks.mesh().data().size();
  if (ranks.rank() == 0) {
    remove_unfinished(path_);
    remove_unfinished(writing->skipped_path);
  }
  const bool has_lines = ending_ == ".csv" || ending_ == ".jsonl";
  if (ranks.world_size() == 1) {
    if (has_lines) writing->output.emplace(path_);
    writing_ = std::move(writing);
    return;
  }
  const auto groups = ranks.gather(std::to_string(writing->rank));
  const auto own = groups.begin() + ranks.rank();
  writing->writes = std::find(groups.begin(), own, *own) == own;  // the first of its group
  if (has_lines) writing->lines.emplace(path_);
  writing->skipped.emplace(writing->skipped_path);
  const std::vector<std::string> spools = ranks.gather(writing->skipped->path());
  (void)on_rank_zero(ranks, [&]() -> Json {
    for (size_t k = 0; k < spools.size(); ++k) {
      std::error_code code;
      if (fs::exists(spools[k], code)) continue;
      throw Error("PredictionWriter: rank " + std::to_string(k) + " keeps its predictions in " + spools[k] +
                  ", which rank 0 does not see. Give an output in a folder that all machines share.");
    }
    return {};
  });
  writing_ = std::move(writing);
}

void PredictionWriter::on_samples_skipped(const BatchSamples& samples, int64_t dataloader_idx) {
  if (!writing_ || !writing_->writes) return;
  if (!writing_->skipped) writing_->skipped.emplace(writing_->skipped_path);
  std::string lines;
  for (const SkippedSample& sample : samples.skipped) {
    lines += csv_field(sample.id) + "," + std::to_string(sample.index) + "," + std::to_string(dataloader_idx) + "," +
             csv_field(sample.reason) + "\n";
  }
  const std::vector<std::string> pieces = {lines};
  writing_->skipped->append({dataloader_idx, samples.loader, samples.batch}, std::ssize(samples.skipped), pieces);
  skipped_ += std::ssize(samples.skipped);
}

void PredictionWriter::on_predict_batch_end(Trainer& trainer, LightningModule&, const at::Tensor& prediction,
                                            const Batch& batch, int64_t batch_idx, int64_t dataloader_idx) {
  if (!writing_ || !writing_->writes) return;
  const StepOutput& outputs = trainer.step_output();
  PredictionRows rows{parts_of(prediction, outputs)};
  if (rows.parts.empty()) return;
  const int64_t count = rows.rows();
  if (batch.ids() != nullptr && std::ssize(*batch.ids()) == count && !outputs.has(kId)) rows.ids = *batch.ids();
  rows.indices = writing_->indices_of(batch, count, dataloader_idx);
  if (outputs.has(kIndex)) rows.indices = at::Tensor();
  if (prediction.defined()) add_class(rows, options_, writing_->classes);
  if (outputs.has(kClass)) rows.classes.clear();
  samples_ += count;
  const BlockKey key = writing_->key_of(batch, batch_idx, dataloader_idx);
  if (ending_ == ".csv" || ending_ == ".jsonl") return writing_->write_lines(rows, key, ending_ == ".jsonl");
  if (!writing_->is_per_batch) return writing_->keep(rows, key);
  const std::string position = "loader" + std::to_string(dataloader_idx) + ".batch" + std::to_string(key.batch);
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, values] : rows.parts) tensors[tensor_name(name)] = values.contiguous();
  if (rows.indices.defined()) tensors[kIndex] = rows.indices;
  SafetensorsMetadata metadata;
  if (!rows.ids.empty()) metadata.emplace_back(kId, "[" + json_items(rows.ids) + "]");
  if (!rows.classes.empty()) metadata.emplace_back(kClass, "[" + json_items(rows.classes) + "]");
  write_safetensors(with_word(path_, position), tensors, metadata);
}

void PredictionWriter::Writing::start_table(const PredictionRows& rows) {
  const Columns found = columns_of(rows);
  if (table.empty()) {
    table = found;
    keys = {!rows.ids.empty(), rows.indices.defined()};
    if (output) output->write(header_of(table, keys));
  }
  if (found != table) fail_table(columns_text(found), columns_text(table));
}

void PredictionWriter::Writing::write_lines(const PredictionRows& rows, const BlockKey& key, bool is_json) {
  if (!is_json && rows.rows() > 0) start_table(rows);
  const BatchNumbers numbers{key.dataloader_idx, key.batch};
  const auto pieces = is_json ? json_lines(rows, numbers) : csv_lines(rows, numbers, keys);
  if (lines) return lines->append(key, rows.rows(), pieces);
  for (const std::string& piece : pieces) output->write(piece);
}

PredictionWriter::Writing::Column& PredictionWriter::Writing::column(const std::string& name, int64_t dataloader_idx,
                                                                     const std::string& output_path) {
  auto& found = columns[{name, dataloader_idx}];
  if (found == nullptr) found = std::make_unique<Column>(output_path);
  return *found;
}

void PredictionWriter::Writing::keep(const PredictionRows& rows, const BlockKey& key) {
  const auto add = [&](const std::string& name, const at::Tensor& values) {
    if (safetensors_dtype(values.scalar_type()) == nullptr || values.layout() != at::kStrided) {
      throw Error("PredictionWriter: " + name + " is of type " + values.toString() +
                  ", which the file cannot hold. Convert it.");
    }
    Column& to = column(name, key.dataloader_idx, path);
    const RowShape shape{values.scalar_type(), values.sizes().slice(1).vec()};
    const auto known = std::find(to.shapes.begin(), to.shapes.end(), shape);
    const auto number = known - to.shapes.begin();
    if (known == to.shapes.end()) to.shapes.push_back(shape);
    const at::Tensor plain = values.resolve_conj().resolve_neg().contiguous();
    to.spool.append(key, rows.rows(), number, {static_cast<const char*>(plain.const_data_ptr()), plain.nbytes()});
  };
  for (const auto& [name, values] : rows.parts) add(tensor_name(name), values);
  if (ending == ".npy") return;
  if (rows.indices.defined()) add(kIndex, rows.indices);
  keep_texts(kId, rows.ids, key);
  keep_texts(kClass, rows.classes, key);
}

void PredictionWriter::Writing::keep_texts(const std::string& name, const std::vector<std::string>& texts,
                                           const BlockKey& key) {
  if (texts.empty()) return;
  column(name, key.dataloader_idx, path).spool.append(key, std::ssize(texts), 0, json_items(texts));
}

// What rank 0 must know to join the files of this rank.
Json PredictionWriter::Writing::summary(int64_t samples, int64_t skipped_samples) {
  Json own = {{"samples", samples}, {"skipped", skipped_samples}, {"columns", Json::array()}};
  if (lines) {
    lines->flush();
    own["lines"] = lines->path();
  }
  if (!table.empty()) own.update({{"header", header_of(table, keys)}, {"table", columns_text(table)}});
  if (skipped) {
    skipped->flush();
    own["skipped_lines"] = skipped->path();
  }
  for (const auto& [place, column] : columns) {
    column->spool.flush();
    Json shapes = Json::array();
    for (const RowShape& shape : column->shapes) shapes.push_back(shape_json(shape));
    own["columns"].push_back(
        {{"name", place.first}, {"loader", place.second}, {"path", column->spool.path()}, {"shapes", shapes}});
  }
  return own;
}

void PredictionWriter::Writing::join_lines(const std::vector<Json>& all) {
  if (!output) {
    output.emplace(path);
    std::string header, known;
    std::vector<std::string> spools;
    for (const Json& each : all) {
      spools.push_back(each.at("lines"));
      if (!each.contains("header")) continue;
      if (!header.empty() && each.at("header") != header) fail_table(each.at("table"), known);
      header = each.at("header");
      known = each.at("table");
    }
    output->write(header);
    copy_blocks(spools, [&](const SpoolBlock&, SpoolReader& reader) {
      reader.copy([&](std::string_view piece) { output->write(piece); });
    });
  }
  output->finish();
  output.reset();
}

// An old list would be about other samples.
void PredictionWriter::Writing::join_skipped(const std::vector<Json>& all, int64_t count) const {
  if (count == 0) {
    std::error_code ignored;
    if (fs::is_regular_file(skipped_path, ignored)) fs::remove(skipped_path, ignored);
    return;
  }
  std::vector<std::string> spools;
  for (const Json& each : all) {
    if (each.contains("skipped_lines")) spools.push_back(each.at("skipped_lines"));
  }
  UnfinishedFile list(skipped_path);
  list.write(csv_header({kId, kIndex, "loader", "reason"}));
  copy_blocks(spools, [&](const SpoolBlock&, SpoolReader& reader) {
    reader.copy([&](std::string_view piece) { list.write(piece); });
  });
  list.finish();
}

Json PredictionWriter::Writing::join(const std::vector<std::string>& summaries) {
  std::vector<Json> all;
  JoinedColumns joined;
  int64_t samples = 0, skipped_samples = 0;
  for (const std::string& text : summaries) {
    const Json& own = all.emplace_back(Json::parse(text));
    samples += own.at("samples").get<int64_t>();
    skipped_samples += own.at("skipped").get<int64_t>();
    for (const Json& column : own.at("columns")) {
      JoinedColumn& to = joined[{column.at("name"), column.at("loader")}];
      to.spools.push_back(column.at("path"));
      std::vector<RowShape>& shapes = to.shapes.emplace_back();
      for (const Json& shape : column.at("shapes")) shapes.push_back(shape_of(shape));
    }
  }
  join_skipped(all, skipped_samples);
  if (ending == ".npy") {
    write_joined_array(path, joined);
  } else if (ending != ".safetensors") {
    join_lines(all);
  } else if (!is_per_batch) {
    write_joined_tensors(path, joined);
  }
  return {{"samples", samples}, {"skipped", skipped_samples}};
}

void PredictionWriter::on_predict_end(Trainer&, LightningModule&) {
  if (!writing_) return;
  const std::string own = writing_->summary(samples_, skipped_).dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::vector<std::string> all = writing_->ranks->gather(own);
  const Json totals = on_rank_zero(*writing_->ranks, [&] { return writing_->join(all); });
  samples_ = totals.at("samples");
  skipped_ = totals.at("skipped");
  writing_.reset();
}

void PredictionWriter::on_exception(Trainer&, LightningModule&, const std::exception&) {
  writing_.reset();
}

}  // namespace levin
