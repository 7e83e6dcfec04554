#include "levin/loggers/event_records.h"

#include <span>

#include "levin/core/config_node.h"
#include "levin/loggers/crc32c.h"
#include "levin/loggers/png_image.h"

namespace levin {

namespace {

// Numbers of the fields, as TensorBoard's event.proto, summary.proto and tensor.proto have them.
namespace event_field {
enum : uint32_t { wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7, source_metadata = 10 };
}
namespace value_field {
enum : uint32_t { tag = 1, simple_value = 2, image = 4, histo = 5, tensor = 8, metadata = 9 };
}
namespace histogram_field {
enum : uint32_t { min = 1, max = 2, num = 3, sum = 4, sum_squares = 5, bucket_limit = 6, bucket = 7 };
}
namespace image_field {
enum : uint32_t { height = 1, width = 2, colorspace = 3, encoded = 4 };
}
namespace tensor_field {
enum : uint32_t { dtype = 1, shape = 2, float_val = 5, string_val = 8 };
}
constexpr uint32_t kFirst = 1;  // the only field that matters here of Summary, TensorShape, Dim, SourceMetadata
constexpr uint64_t kDtFloat = 1;
constexpr uint64_t kDtString = 7;
constexpr uint64_t kSessionStart = 1;
constexpr uint64_t kDataClassTensor = 2;

constexpr const char* kFileVersion = "brain.Event:2";
constexpr const char* kWriter = "levin";

WireMessage event_at(const LogPoint& at) {
  WireMessage event;
  event.real(event_field::wall_time, at.time).number(event_field::step, static_cast<uint64_t>(at.step));
  return event;
}

std::string record_of(const WireMessage& value, const LogPoint& at) {
  WireMessage summary;
  summary.message(kFirst, value);
  return framed_event(event_at(at).message(event_field::summary, summary));
}

WireMessage tagged(const std::string& tag) {
  WireMessage value;
  value.text(value_field::tag, tag);
  return value;
}

// `data_class`: of a value that plugins read as it is; 0: unset.
WireMessage metadata_for(const std::string& plugin, const WireMessage& content, uint64_t data_class) {
  WireMessage plugin_data;
  plugin_data.text(1, plugin).bytes(2, content.encoded());
  WireMessage metadata;
  metadata.message(1, plugin_data);
  if (data_class != 0) metadata.number(4, data_class);
  return metadata;
}

WireMessage shape_of_one() {
  WireMessage dim;
  dim.number(1, 1);
  WireMessage shape;
  shape.message(2, dim);
  return shape;
}

std::string cell_text(const LogTable::Cell& cell) {
  const auto* number = std::get_if<double>(&cell);
  const std::string raw = number != nullptr ? number_text(*number) : std::get<std::string>(cell);
  std::string text;
  for (const char c : raw) {
    if (c == '|') text += '\\';
    text += c == '\n' || c == '\r' ? ' ' : c;
  }
  return text;
}

void append_bytes(std::string& text, const void* from, size_t count) {
  text.append(static_cast<const char*>(from), count);
}

}  // namespace

std::string framed_event(const WireMessage& event) {
  const std::string& bytes = event.encoded();
  const uint64_t length = bytes.size();
  std::string record;
  record.reserve(length + 16);
  append_bytes(record, &length, sizeof length);
  const uint32_t of_length = masked_crc32c(record);
  append_bytes(record, &of_length, sizeof of_length);
  record += bytes;
  const uint32_t of_event = masked_crc32c(bytes);
  append_bytes(record, &of_event, sizeof of_event);
  return record;
}

std::string version_record(double time) {
  WireMessage source;
  source.text(kFirst, kWriter);
  WireMessage event;
  event.real(event_field::wall_time, time).text(event_field::file_version, kFileVersion);
  return framed_event(event.message(event_field::source_metadata, source));
}

bool is_own_event_file(std::string_view first_bytes) {
  const std::string own = version_record(0);
  constexpr size_t head = 12;              // length and checksum
  constexpr size_t before = head + 1 + 8;  // and the time, with its key
  const size_t after = own.size() - 4;     // the event's checksum depends on the time
  return first_bytes.size() >= own.size() && first_bytes.substr(0, head) == own.substr(0, head) &&
         first_bytes.substr(before, after - before) == own.substr(before, after - before);
}

std::string session_start_record(double time, int64_t step) {
  WireMessage session;
  session.number(1, kSessionStart);
  return framed_event(event_at({step, time}).message(event_field::session_log, session));
}

std::string scalars_record(const MetricList& metrics, const std::string& prefix, const LogPoint& at) {
  WireMessage summary;
  for (const auto& [name, number] : metrics) {
    WireMessage value = tagged(prefix + name);
    summary.message(kFirst, value.real32(value_field::simple_value, static_cast<float>(number)));
  }
  return framed_event(event_at(at).message(event_field::summary, summary));
}

// TensorBoard takes min and max as the outer edges.
std::string histogram_record(const std::string& tag, const Histogram& histogram, const LogPoint& at) {
  namespace field = histogram_field;
  WireMessage histo;
  histo.real(field::min, histogram.min).real(field::max, histogram.max).real(field::num, histogram.count);
  histo.real(field::sum, histogram.sum).real(field::sum_squares, histogram.sum_squares);
  if (!histogram.counts.empty()) {
    histo.reals(field::bucket_limit, std::span(histogram.edges).subspan(1));
    histo.reals(field::bucket, histogram.counts);
  }
  return record_of(tagged(tag).message(value_field::histo, histo), at);
}

std::string image_record(const std::string& tag, const LogImage& image, const LogPoint& at) {
  WireMessage encoded;
  encoded.number(image_field::height, static_cast<uint64_t>(image.height));
  encoded.number(image_field::width, static_cast<uint64_t>(image.width));
  encoded.number(image_field::colorspace, static_cast<uint64_t>(image.channels));
  encoded.bytes(image_field::encoded, png_of(image));
  return record_of(tagged(tag).message(value_field::image, encoded), at);
}

std::string text_record(const std::string& tag, std::string_view text, const LogPoint& at) {
  WireMessage tensor;
  tensor.number(tensor_field::dtype, kDtString).message(tensor_field::shape, shape_of_one());
  tensor.text(tensor_field::string_val, text);
  WireMessage value = tagged(tag);
  value.message(value_field::tensor, tensor);
  return record_of(value.message(value_field::metadata, metadata_for("text", {}, kDataClassTensor)), at);
}

std::string plugin_record(const std::string& tag, const std::string& plugin, const WireMessage& content,
                          const LogPoint& at) {
  WireMessage tensor;  // readers expect some value
  tensor.number(tensor_field::dtype, kDtFloat).message(tensor_field::shape, shape_of_one());
  tensor.real32(tensor_field::float_val, 0);
  WireMessage value = tagged(tag);
  value.message(value_field::tensor, tensor);
  return record_of(value.message(value_field::metadata, metadata_for(plugin, content, kDataClassTensor)), at);
}

std::string markdown_table(const LogTable& table) {
  std::string text = "|";
  for (const std::string& column : table.columns) text += " " + cell_text(column) + " |";
  text += "\n|";
  for (size_t k = 0; k < table.columns.size(); ++k) text += " --- |";
  for (const auto& row : table.rows) {
    text += "\n|";
    for (const auto& cell : row) text += " " + cell_text(cell) + " |";
  }
  return text + "\n";
}

}  // namespace levin
