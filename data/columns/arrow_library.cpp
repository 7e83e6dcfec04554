// liblevin_arrow.so: the one file that uses Apache Arrow, in a separate library (arrow_file.h). It reads Parquet files
// and Arrow's file format, which is also Feather version 2.
#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <arrow/util/decimal.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "levin/data/columns/column_file.h"

namespace {

using levin::ColumnInfo;
using levin::ColumnType;
using levin::ColumnValues;
using levin::WantedColumn;

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

// The type of the values; a dictionary's are those in the dictionary.
const arrow::DataType& value_type(const arrow::DataType& type) {
  return type.id() == arrow::Type::DICTIONARY ? *static_cast<const arrow::DictionaryType&>(type).value_type() : type;
}

bool is_text(const arrow::DataType& type) {
  return arrow::is_string(type.id()) || type.id() == arrow::Type::STRING_VIEW;
}

bool is_number(const arrow::DataType& type) {
  using T = arrow::Type;
  switch (type.id()) {
    case T::DATE32:
    case T::DATE64:
    case T::TIME32:
    case T::TIME64:
    case T::TIMESTAMP:
    case T::DURATION:
    case T::DECIMAL128:
    case T::DECIMAL256:
    case T::NA: return true;
    default: return arrow::is_integer(type.id()) || arrow::is_floating(type.id());
  }
}

ColumnInfo info_of(const arrow::Field& field) {
  const arrow::DataType& type = value_type(*field.type());
  const bool is_dictionary = field.type()->id() == arrow::Type::DICTIONARY;
  const bool is_category = is_dictionary || is_text(type) || type.id() == arrow::Type::BOOL;
  return {field.name(), is_category ? ColumnType::category : ColumnType::number, field.type()->ToString(),
          is_number(type) || is_text(type) || type.id() == arrow::Type::BOOL};
}

// One array of a column. An array of numbers of `Array`, whose values `Value` converts.
template <class Array, class Use>
void each_value(const arrow::Array& array, const Use& use) {
  const auto& values = static_cast<const Array&>(array);
  for (int64_t i = 0; i < values.length(); ++i) {
    values.IsNull(i) ? use(std::optional<decltype(values.GetView(i))>()) : use(std::optional(values.GetView(i)));
  }
}

// The nearest double to each decimal, by its digits: Arrow's ToDouble() rounds twice.
template <class Array, class Decimal, class Use>
void each_decimal(const arrow::Array& array, int32_t scale, const Use& use) {
  const auto& values = static_cast<const Array&>(array);
  for (int64_t i = 0; i < values.length(); ++i) {
    if (values.IsNull(i)) {
      use(std::optional<double>());
      continue;
    }
    const std::string digits = Decimal(values.GetValue(i)).ToString(scale);
    double number = kMissing;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    use(std::optional(number));
  }
}

// Calls `use` with an optional of a number or a string for every value; returns false for all other types.
template <class Use>
bool each(const arrow::Array& array, const Use& use) {
  using T = arrow::Type;
  switch (array.type_id()) {
    case T::INT8: return each_value<arrow::Int8Array>(array, use), true;
    case T::INT16: return each_value<arrow::Int16Array>(array, use), true;
    case T::INT32: return each_value<arrow::Int32Array>(array, use), true;
    case T::INT64: return each_value<arrow::Int64Array>(array, use), true;
    case T::UINT8: return each_value<arrow::UInt8Array>(array, use), true;
    case T::UINT16: return each_value<arrow::UInt16Array>(array, use), true;
    case T::UINT32: return each_value<arrow::UInt32Array>(array, use), true;
    case T::UINT64: return each_value<arrow::UInt64Array>(array, use), true;
    case T::FLOAT: return each_value<arrow::FloatArray>(array, use), true;
    case T::DOUBLE: return each_value<arrow::DoubleArray>(array, use), true;
    case T::BOOL: return each_value<arrow::BooleanArray>(array, use), true;
    case T::DATE32: return each_value<arrow::Date32Array>(array, use), true;
    case T::DATE64: return each_value<arrow::Date64Array>(array, use), true;
    case T::TIME32: return each_value<arrow::Time32Array>(array, use), true;
    case T::TIME64: return each_value<arrow::Time64Array>(array, use), true;
    case T::TIMESTAMP: return each_value<arrow::TimestampArray>(array, use), true;
    case T::DURATION: return each_value<arrow::DurationArray>(array, use), true;
    case T::HALF_FLOAT:
      for (int64_t i = 0; i < array.length(); ++i) {
        const auto& values = static_cast<const arrow::HalfFloatArray&>(array);
        use(values.IsNull(i) ? std::optional<float>() : arrow::util::Float16::FromBits(values.Value(i)).ToFloat());
      }
      return true;
    case T::DECIMAL128:
      return each_decimal<arrow::Decimal128Array, arrow::Decimal128>(
                 array, static_cast<const arrow::Decimal128Type&>(*array.type()).scale(), use),
             true;
    case T::DECIMAL256:
      return each_decimal<arrow::Decimal256Array, arrow::Decimal256>(
                 array, static_cast<const arrow::Decimal256Type&>(*array.type()).scale(), use),
             true;
    case T::STRING: return each_value<arrow::StringArray>(array, use), true;
    case T::LARGE_STRING: return each_value<arrow::LargeStringArray>(array, use), true;
    case T::STRING_VIEW: return each_value<arrow::StringViewArray>(array, use), true;
    case T::NA:
      for (int64_t i = 0; i < array.length(); ++i) use(std::optional<double>());
      return true;
    default: return false;
  }
}

template <class Value>
std::string text_of(const Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_convertible_v<Value, std::string_view>) {
    return std::string(std::string_view(value));
  } else {
    char text[64];
    const auto [end, code] = std::to_chars(text, text + sizeof text, value);
    return {text, end};
  }
}

// Collects the chunks of one column of a group.
class Collector {
 public:
  Collector(ColumnType type, ColumnValues& values) : type_(type), values_(values) {}

  /// Returns the error, or "".
  std::string add(const arrow::Array& array) {
    if (array.type_id() == arrow::Type::DICTIONARY)
      return add_dictionary(static_cast<const arrow::DictionaryArray&>(array));
    const bool known = type_ == ColumnType::number
                           ? each(array, [this](const auto& value) { add_number(value); })
                           : each(array, [this](const auto& value) { values_.codes.push_back(code_of(value)); });
    if (!known) return "values of type " + array.type()->ToString() + " are neither numbers nor strings";
    return problem_;
  }

 private:
  std::string add_dictionary(const arrow::DictionaryArray& array) {
    for (int64_t i = 0; i < array.length(); ++i) {
      const int64_t index = array.IsNull(i) ? 0 : array.GetValueIndex(i);
      if (array.IsNull(i) || (index >= 0 && index < array.dictionary()->length())) continue;
      return "row " + std::to_string(i) + " has value " + std::to_string(index) + " of a dictionary of " +
             std::to_string(array.dictionary()->length()) + " values";
    }
    if (type_ == ColumnType::number) {
      ColumnValues inside;
      const std::string problem = Collector(type_, inside).add(*array.dictionary());
      if (!problem.empty()) return problem;
      for (int64_t i = 0; i < array.length(); ++i) {
        values_.numbers.push_back(array.IsNull(i) ? kMissing : inside.numbers[index_of(array, i)]);
      }
      return "";
    }
    std::vector<int32_t> codes;  // of the dictionary's values
    const bool known = each(*array.dictionary(), [&](const auto& value) { codes.push_back(code_of(value)); });
    if (!known) return "values of type " + array.dictionary()->type()->ToString() + " are neither numbers nor strings";
    for (int64_t i = 0; i < array.length(); ++i) {
      values_.codes.push_back(array.IsNull(i) ? -1 : codes[index_of(array, i)]);
    }
    return "";
  }

  static size_t index_of(const arrow::DictionaryArray& array, int64_t i) {
    return static_cast<size_t>(array.GetValueIndex(i));
  }

  template <class Value>
  void add_number(const std::optional<Value>& value) {
    if constexpr (std::is_convertible_v<Value, std::string_view>) {
      double number = kMissing;
      if (value) {
        const char *first = value->data(), *last = first + value->size();
        const auto [end, code] = std::from_chars(first, last, number);
        if ((code != std::errc() || end != last) && problem_.empty()) {
          problem_ = "row " + std::to_string(values_.numbers.size()) + " of the group: expected a number, saw \"" +
                     std::string(value->substr(0, 80)) + "\"";
        }
      }
      values_.numbers.push_back(number);
    } else {
      values_.numbers.push_back(value ? static_cast<double>(*value) : kMissing);
    }
  }

  template <class Value>
  int32_t code_of(const std::optional<Value>& value) {
    if (!value) return -1;
    if constexpr (std::is_floating_point_v<Value>) {
      if (std::isnan(*value)) return -1;
    }
    const auto [found, is_new] = numbers_.try_emplace(text_of(*value), static_cast<int32_t>(values_.values.size()));
    if (is_new) values_.values.push_back(found->first);
    return found->second;
  }

  ColumnType type_;
  ColumnValues& values_;
  std::unordered_map<std::string, int32_t> numbers_;
  std::string problem_;
};

std::string column_error(const std::string& name, const std::string& what) {
  return "column \"" + name + "\": " + what;
}

class ParquetFile final : public levin::ColumnFile {
 public:
  std::string open(const std::string& path) {
    auto mapped = arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ);
    if (!mapped.ok()) return mapped.status().message();
    file_ = *mapped;
    auto opened = parquet::ParquetFileReader::Open(file_);
    metadata_ = opened->metadata();
    if (const std::string problem = reader(std::move(opened)); !problem.empty()) return problem;
    std::shared_ptr<arrow::Schema> schema;
    if (const auto status = made_->GetSchema(&schema); !status.ok()) return status.message();
    for (const auto& field : schema->fields()) columns_.push_back(info_of(*field));
    for (int group = 0; group < metadata_->num_row_groups(); ++group) {
      const int64_t rows = metadata_->RowGroup(group)->num_rows();
      if (rows < 0)
        return "row group " + std::to_string(group) + " has a negative number of rows, " + std::to_string(rows);
      rows_.push_back(rows);
    }
    for (const auto& field : made_->manifest().schema_fields) {
      leaves_.emplace_back();
      collect_leaves(field, leaves_.back());
    }
    return leaves_.size() == columns_.size() ? "" : "its schema is damaged";
  }

  [[nodiscard]] const std::vector<ColumnInfo>& columns() const override { return columns_; }
  [[nodiscard]] const std::vector<int64_t>& group_rows() const override { return rows_; }
  [[nodiscard]] std::string position_text(size_t group, int64_t row) const override {
    return "row " + std::to_string(row) + " of row group " + std::to_string(group);
  }

  [[nodiscard]] std::string read(size_t group, const std::vector<WantedColumn>& wanted,
                                 std::vector<ColumnValues>& values) const override {
    try {
      return read_columns(static_cast<int>(group), wanted, values);
    } catch (const std::exception& error) {
      return "row group " + std::to_string(group) + ": " + error.what();
    }
  }

 private:
  static void collect_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
    if (field.is_leaf()) leaves.push_back(field.column_index);
    for (const auto& child : field.children) collect_leaves(child, leaves);
  }

  // Whether a column of strings can be read as a dictionary, which Arrow cannot do of every encoding.
  [[nodiscard]] bool can_read_dictionary(int leaf) const {
    const auto& type = metadata_->schema()->Column(leaf)->logical_type();
    if (type == nullptr || !type->is_string()) return false;
    for (int group = 0; group < metadata_->num_row_groups(); ++group) {
      const auto chunk = metadata_->RowGroup(group)->ColumnChunk(leaf);
      for (const parquet::Encoding::type encoding : chunk->encodings()) {
        if (encoding == parquet::Encoding::DELTA_BYTE_ARRAY || encoding == parquet::Encoding::DELTA_LENGTH_BYTE_ARRAY) {
          return false;
        }
      }
    }
    return true;
  }

  // A reader is for one thread at a time; the metadata, which take the time to parse, are shared.
  [[nodiscard]] std::unique_ptr<parquet::arrow::FileReader> new_reader(std::unique_ptr<parquet::ParquetFileReader> file,
                                                                       std::string& problem) const {
    parquet::ArrowReaderProperties properties(/*use_threads=*/false);
    properties.set_pre_buffer(false);
    for (int leaf = 0; leaf < metadata_->num_columns(); ++leaf) {
      if (can_read_dictionary(leaf)) properties.set_read_dictionary(leaf, true);
    }
    auto made = parquet::arrow::FileReader::Make(arrow::default_memory_pool(), std::move(file), properties);
    if (!made.ok()) {
      problem = made.status().message();
      return nullptr;
    }
    return *std::move(made);
  }
  std::string reader(std::unique_ptr<parquet::ParquetFileReader> file) {
    std::string problem;
    made_ = new_reader(std::move(file), problem);
    return problem;
  }

  std::string read_columns(int group, const std::vector<WantedColumn>& wanted,
                           std::vector<ColumnValues>& values) const {
    const std::string where = "row group " + std::to_string(group) + ": ";
    std::string problem;
    const auto reader =
        new_reader(parquet::ParquetFileReader::Open(file_, parquet::default_reader_properties(), metadata_), problem);
    if (reader == nullptr) return where + problem;
    values.resize(wanted.size());
    for (size_t k = 0; k < wanted.size(); ++k) {  // one after the other: the memory of one column more
      const std::string& name = columns_[wanted[k].column].name;
      auto read = reader->ReadRowGroup(group, leaves_[wanted[k].column]);
      if (!read.ok()) return where + column_error(name, read.status().message());
      const std::shared_ptr<arrow::Table> table = *read;
      const auto rows = rows_[static_cast<size_t>(group)];
      if (table->num_columns() != 1 || table->num_rows() != rows) {
        return where + column_error(name, "expected " + std::to_string(rows) + " values, saw " +
                                              std::to_string(table->num_rows()));
      }
      Collector collector(wanted[k].type, values[k]);
      for (const auto& chunk : table->column(0)->chunks()) {
        if (problem = collector.add(*chunk); !problem.empty()) return where + column_error(name, problem);
      }
    }
    return "";
  }

  std::shared_ptr<arrow::io::MemoryMappedFile> file_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  std::unique_ptr<parquet::arrow::FileReader> made_;
  std::vector<ColumnInfo> columns_;
  std::vector<int64_t> rows_;
  std::vector<std::vector<int>> leaves_;  // of each column
};

class ArrowFile final : public levin::ColumnFile {
 public:
  std::string open(const std::string& path) {
    auto mapped = arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ);
    if (!mapped.ok()) return mapped.status().message();
    file_ = *mapped;
    auto opened = arrow::ipc::RecordBatchFileReader::Open(file_);
    if (!opened.ok()) return opened.status().message();
    const auto schema = (*opened)->schema();
    for (const auto& field : schema->fields()) columns_.push_back(info_of(*field));
    if (columns_.empty()) return "it has no columns";
    std::string problem;
    const auto reader = reader_of({0}, problem);
    if (reader == nullptr) return problem;
    for (int group = 0; group < reader->num_record_batches(); ++group) {
      auto batch = reader->ReadRecordBatch(group);
      if (!batch.ok()) return "record batch " + std::to_string(group) + ": " + batch.status().message();
      rows_.push_back((*batch)->num_rows());
    }
    return "";
  }

  [[nodiscard]] const std::vector<ColumnInfo>& columns() const override { return columns_; }
  [[nodiscard]] const std::vector<int64_t>& group_rows() const override { return rows_; }
  [[nodiscard]] std::string position_text(size_t group, int64_t row) const override {
    return "row " + std::to_string(row) + " of record batch " + std::to_string(group);
  }

  [[nodiscard]] std::string read(size_t group, const std::vector<WantedColumn>& wanted,
                                 std::vector<ColumnValues>& values) const override {
    const std::string where = "record batch " + std::to_string(group) + ": ";
    try {
      std::vector<int> fields;
      for (const WantedColumn& column : wanted) fields.push_back(static_cast<int>(column.column));
      std::string problem;
      const auto reader = reader_of(std::move(fields), problem);
      if (reader == nullptr) return where + problem;
      auto batch = reader->ReadRecordBatch(static_cast<int>(group));
      if (!batch.ok()) return where + batch.status().message();
      if (const auto status = (*batch)->ValidateFull(); !status.ok()) return where + status.message();
      values.resize(wanted.size());
      for (size_t k = 0; k < wanted.size(); ++k) {
        const std::string& name = columns_[wanted[k].column].name;
        // The reader gives the fields in the order of the file.
        int position = 0;
        for (size_t j = 0; j < wanted.size(); ++j) position += wanted[j].column < wanted[k].column ? 1 : 0;
        problem = Collector(wanted[k].type, values[k]).add(*(*batch)->column(position));
        if (!problem.empty()) return where + column_error(name, problem);
      }
      return "";
    } catch (const std::exception& error) {
      return where + error.what();
    }
  }

 private:
  [[nodiscard]] std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_of(std::vector<int> fields,
                                                                             std::string& problem) const {
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.use_threads = false;
    options.included_fields = std::move(fields);
    auto opened = arrow::ipc::RecordBatchFileReader::Open(file_, options);
    if (opened.ok()) return *opened;
    problem = opened.status().message();
    return nullptr;
  }

  std::shared_ptr<arrow::io::MemoryMappedFile> file_;
  std::vector<ColumnInfo> columns_;
  std::vector<int64_t> rows_;
};

template <class File>
levin::ColumnFile* opened(const std::string& path, std::string& problem) {
  auto file = std::make_unique<File>();
  try {
    problem = file->open(path);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  return problem.empty() ? file.release() : nullptr;
}

}  // namespace

extern "C" levin::ColumnFile* levin_open_column_file(const std::string& path, bool is_parquet, std::string& problem) {
  return is_parquet ? opened<ParquetFile>(path, problem) : opened<ArrowFile>(path, problem);
}
