#include "levin/yaml/yaml_file.h"

#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <optional>
#include <sstream>
#include <string_view>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/options/utf8.h"
#include "levin/yaml/yaml_events.h"

namespace levin {

namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string hex_byte(unsigned char byte) {
  static const char* digits = "0123456789abcdef";
  return std::string("0x") + digits[byte >> 4] + digits[byte & 15];
}

// The first byte that is not allowed in YAML: not UTF-8, or a control character.
bool check_characters(std::string_view text, const std::string& source, const Mark* fixed_mark, Problems& problems) {
  Mark mark{source, 1, 1};
  const auto refuse = [&](const std::string& what) {
    problems.add(fixed_mark != nullptr ? *fixed_mark : mark, "", what);
    return false;
  };
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const size_t length = utf8_length(text, at);
    if (length == 0) return refuse("not UTF-8 (byte " + hex_byte(byte) + "). Save the file as UTF-8.");
    const bool is_control = (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7f;
    if (is_control) {
      return refuse("a control character (byte " + hex_byte(byte) + ") in the text. Remove it, or write it as \"\\x" +
                    hex_byte(byte).substr(2) + "\" in double quotes.");
    }
    mark.column = byte == '\n' ? 1 : mark.column + 1;
    mark.line += byte == '\n';
    at += length;
  }
  return true;
}

// The document's value; unset if it could not be read, with the reason in the problems.
std::optional<ConfigNode> parse(std::string_view text, const std::string& source, const Mark* fixed_mark,
                                Problems& problems) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (text.size() > kMaxYamlFileBytes) {
    problems.add(fixed_mark != nullptr ? *fixed_mark : Mark{source, 0, 0}, "",
                 "larger than " + std::to_string(kMaxYamlFileBytes) + " bytes (" + std::to_string(text.size()) +
                     "). Keep data out of the configuration.");
    return std::nullopt;
  }
  if (!check_characters(text, source, fixed_mark, problems)) return std::nullopt;
  detail::YamlBuilder builder(text, source, fixed_mark, problems);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const detail::StopReading&) {
    return std::nullopt;
  } catch (const YAML::Exception& error) {
    builder.report_syntax_error(error.mark, error.msg);
    return std::nullopt;
  }
  return builder.take_root();
}

}  // namespace

ConfigNode read_yaml_text(const std::string& text, const std::string& source_name, Problems& problems) {
  ConfigNode empty = ConfigNode::map();
  empty.mark = {source_name, 1, 1};
  std::optional<ConfigNode> root = parse(text, source_name, nullptr, problems);
  if (!root || root->is_null()) return empty;
  if (!root->is_map()) {
    problems.add(root->mark, "",
                 "expected keys with values (\"trainer:\" …), got " + root->shown() +
                     ". Write \"key: value\", with a space after the colon.");
    return empty;
  }
  return std::move(*root);
}

namespace {

ConfigNode read_yaml(const std::string& path, std::string (*read)(const std::string& path, uint64_t max_bytes),
                     Problems& problems) {
  try {
    return read_yaml_text(read(path, kMaxYamlFileBytes + kByteOrderMark.size()), path, problems);
  } catch (const Error& error) {
    problems.add({}, "", error.what());
    return ConfigNode::map();
  }
}

}  // namespace

ConfigNode read_yaml_file(const std::string& path, Problems& problems) {
  return read_yaml(path, &read_file, problems);
}

ConfigNode read_yaml_input(const std::string& path, Problems& problems) {
  return read_yaml(path, &read_input, problems);
}

bool check_yaml_characters(const std::string& text, const Mark& mark, Problems& problems) {
  return check_characters(text, mark.source, &mark, problems);
}

ConfigNode read_yaml_value(const std::string& text, const Mark& mark, Problems& problems) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  ConfigNode node;
  node.mark = mark;
  if (first == std::string::npos) return node;
  if (std::string_view("[{\"'").find(text[first]) != std::string_view::npos) {
    if (std::optional<ConfigNode> root = parse(text, mark.source, &mark, problems)) return std::move(*root);
    return node;
  }
  if (!check_characters(text, mark.source, &mark, problems)) return node;
  const std::string plain = text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
  if (plain == "null" || plain == "Null" || plain == "NULL" || plain == "~") return node;
  node = ConfigNode::scalar(plain);
  node.mark = mark;
  return node;
}

}  // namespace levin
