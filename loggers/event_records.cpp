#include "levin/loggers/event_records.h"

#include <array>
#include <cstring>
#include <span>

#include "levin/core/options/config_node.h"
#include "levin/core/options/value.h"
#include "levin/loggers/image.h"

#ifdef __x86_64__
#include <nmmintrin.h>
#endif

namespace levin {

namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  constexpr uint32_t polynomial = 0x82f63b78;  // reversed
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? polynomial : 0);
    table[byte] = value;
  }
  return table;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) uint32_t crc32c_by_instruction(std::string_view bytes) {
  uint64_t crc = 0xffffffff;
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  auto rest = static_cast<uint32_t>(crc);
  for (; left > 0; --left, ++at) rest = _mm_crc32_u8(rest, static_cast<uint8_t>(*at));
  return ~rest;
}
#endif

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

// `data_class`: for values that plugins read without conversion; 0: unset.
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

// Numbers of the fields, as the plugin's api.proto and plugin_data.proto, and struct.proto have them.
enum PluginField : uint32_t { kExperiment = 2, kSessionStartInfo = 3, kSessionEndInfo = 4 };
enum ExperimentField : uint32_t { kTimeCreated = 3, kHparamInfos = 4, kMetricInfos = 5 };
enum HparamInfoField : uint32_t { kHparamName = 1, kHparamType = 4 };
enum HparamType : uint64_t { kString = 1, kBool = 2, kFloat64 = 3 };
enum SessionStartField : uint32_t { kHparams = 1, kStartTime = 5 };
enum SessionEndField : uint32_t { kStatus = 1, kEndTime = 2 };
enum SessionStatus : uint64_t { kSuccess = 1, kFailure = 2 };
enum ValueField : uint32_t { kNumberValue = 2, kStringValue = 3, kBoolValue = 4 };

std::string hparams_plugin_record(const std::string& name, uint32_t field, const WireMessage& content,
                                  const LogPoint& at) {
  WireMessage data;
  data.message(field, content);
  return plugin_record("_hparams_/" + name, "hparams", data, at);
}

HparamValue value_of(const ConfigNode& node) {
  bool truth = false;
  double number = 0;
  if (node.is_null()) return "null";
  if (node.is_scalar() && !node.quoted) {
    if (detail::parse_bool(node, truth)) return truth;
    if (detail::parse_double(node, number)) return number;
  }
  if (node.is_scalar()) return node.text;
  if (node.is_map()) return "{}";
  std::string text = "[";
  for (size_t k = 0; k < node.items.size(); ++k) {
    std::string item = node.items[k].is_scalar() ? node.items[k].text : to_yaml(node.items[k]);
    while (!item.empty() && item.back() == '\n') item.pop_back();
    text += (k > 0 ? ", " : "") + item;
  }
  return text + "]";
}

void collect_hparams(const ConfigNode& node, const std::string& name, HparamList& list) {
  if (!node.is_map() || node.entries.empty()) return list.emplace_back(name, value_of(node)), void();
  for (const auto& entry : node.entries)
    collect_hparams(entry.value, name.empty() ? entry.key : name + "/" + entry.key, list);
}

}  // namespace

namespace detail {

uint32_t crc32c_by_table(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> table = crc_table();
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

}  // namespace detail

uint32_t crc32c(std::string_view bytes) {
#ifdef __x86_64__
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return crc32c_by_instruction(bytes);
#endif
  return detail::crc32c_by_table(bytes);
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

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

HparamList flat_hparams(const ConfigNode& hparams) {
  HparamList list;
  if (hparams.is_map() && !hparams.entries.empty()) collect_hparams(hparams, "", list);
  return list;
}

std::string session_start_info_record(const HparamList& hparams, const LogPoint& at) {
  WireMessage info;
  for (const auto& [name, held] : hparams) {
    WireMessage value;
    if (const auto* truth = std::get_if<bool>(&held)) value.number(kBoolValue, *truth ? 1 : 0);
    if (const auto* number = std::get_if<double>(&held)) value.real(kNumberValue, *number);
    if (const auto* text = std::get_if<std::string>(&held)) value.text(kStringValue, *text);
    WireMessage entry;
    info.message(kHparams, entry.text(1, name).message(2, value));
  }
  return hparams_plugin_record("session_start_info", kSessionStartInfo, info.real(kStartTime, at.time), at);
}

std::string experiment_record(const HparamList& hparams, const std::vector<std::string>& metric_tags,
                              const LogPoint& at) {
  WireMessage experiment;
  experiment.real(kTimeCreated, at.time);
  for (const auto& [name, held] : hparams) {
    const uint64_t type = std::holds_alternative<bool>(held) ? kBool : held.index() == 1 ? kFloat64 : kString;
    WireMessage info;
    experiment.message(kHparamInfos, info.text(kHparamName, name).number(kHparamType, type));
  }
  for (const std::string& tag : metric_tags) {
    WireMessage name;
    name.text(2, tag);
    WireMessage info;
    experiment.message(kMetricInfos, info.message(1, name));
  }
  return hparams_plugin_record("experiment", kExperiment, experiment, at);
}

std::string session_end_info_record(bool success, const LogPoint& at) {
  WireMessage info;
  info.number(kStatus, success ? kSuccess : kFailure).real(kEndTime, at.time);
  return hparams_plugin_record("session_end_info", kSessionEndInfo, info, at);
}

}  // namespace levin
