#include "levin/checkpoint/values_json.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "levin/core/options/error.h"

namespace levin {

namespace {

using OrderedJson = nlohmann::ordered_json;

// Note [Escapes in JSON values]
// An object with one key that is "plain" or "map" is not a user's map: {"plain": "1e-3"} is the unquoted scalar
// 1e-3, whose text a JSON number would not keep; {"map": {…}} is a map that would else look like one of the two.
bool looks_like_escape(const ConfigNode& node) {
  return node.entries.size() == 1 && (node.entries[0].key == "plain" || node.entries[0].key == "map");
}

// Bools and numbers whose JSON text is the very text that was written.
bool is_literal(const std::string& text, OrderedJson& value) {
  if (text.empty() || text == "null" || text.find_first_of("\"[{") != std::string::npos) return false;
  value = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  return !value.is_discarded() && value.dump() == text;
}

// What is written must be readable again, so both directions share their limits.
class Limits {
 public:
  void count() {
    if (++values_ > kMaxJsonValues) {
      throw CheckpointError("the values are more than " + std::to_string(kMaxJsonValues) +
                            ". Keep large lists in a tensor");
    }
  }
  static void check_depth(int depth) {
    if (depth > kMaxJsonDepth) {
      throw CheckpointError("the values nest deeper than " + std::to_string(kMaxJsonDepth) + " lists and maps");
    }
  }

 private:
  size_t values_ = 0;
};

// `depth`: how many lists and maps are open around the node.
OrderedJson to_json(const ConfigNode& node, int depth, Limits& limits) {
  limits.count();
  OrderedJson value;
  switch (node.kind) {
    case ConfigNode::Kind::null: return nullptr;
    case ConfigNode::Kind::scalar:
      if (node.quoted) return node.text;
      if (is_literal(node.text, value)) return value;
      Limits::check_depth(depth + 1);
      limits.count();
      return OrderedJson{{"plain", node.text}};
    case ConfigNode::Kind::list:
      Limits::check_depth(depth + 1);
      value = OrderedJson::array();
      for (const auto& item : node.items) value.push_back(to_json(item, depth + 1, limits));
      return value;
    case ConfigNode::Kind::map: break;
  }
  const bool escaped = looks_like_escape(node);
  Limits::check_depth(depth + 1 + escaped);
  value = OrderedJson::object();
  auto& object = value.get_ref<OrderedJson::object_t&>();  // whose own [] looks for the key one by one
  for (const auto& entry : node.entries) {
    object.emplace_back(entry.key, to_json(entry.value, depth + 1 + escaped, limits));
  }
  return escaped ? OrderedJson{{"map", value}} : value;
}

// Takes the parser's events and builds the tree with escapes not yet undone. Directly from the events,
// because a JSON tree looks up a key by linear search: a malicious file's million keys would take hours.
class TreeBuilder final : public nlohmann::json_sax<OrderedJson> {
 public:
  explicit TreeBuilder(size_t text_bytes) : text_bytes_(text_bytes) {}
  [[nodiscard]] ConfigNode take() { return std::move(root_); }

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add(ConfigNode::scalar(value ? "true" : "false")); }
  bool number_integer(int64_t value) override { return add(ConfigNode::scalar(std::to_string(value))); }
  bool number_unsigned(uint64_t value) override { return add(ConfigNode::scalar(std::to_string(value))); }
  bool number_float(double value, const std::string&) override {
    return add(ConfigNode::scalar(OrderedJson(value).dump()));
  }
  bool string(std::string& text) override { return add(ConfigNode::scalar(std::move(text), true)); }
  bool binary(OrderedJson::binary_t&) override { return false; }
  bool start_array(size_t) override { return open(ConfigNode::list()); }
  bool end_array() override { return close(); }
  bool start_object(size_t) override { return open(ConfigNode::map()); }
  bool end_object() override { return close(); }
  bool key(std::string& name) override {
    if (!frames_.back().keys.insert(name).second) {
      throw CheckpointError("JSON has the key \"" + cut_text(name) + "\" twice in one object");
    }
    frames_.back().node.entries.push_back({std::move(name), {}, {}});
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception& error) override {
    if (dynamic_cast<const OrderedJson::parse_error*>(&error) == nullptr) {
      throw CheckpointError("not readable as JSON: " + cut_text(error.what()));
    }
    throw CheckpointError("not JSON at byte " + std::to_string(at) + " of " + std::to_string(text_bytes_));
  }

 private:
  struct Frame {
    ConfigNode node;
    std::unordered_set<std::string> keys = {};
  };

  bool open(ConfigNode node) {
    Limits::check_depth(static_cast<int>(frames_.size()) + 1);
    frames_.push_back({std::move(node)});
    return true;
  }
  bool close() {
    ConfigNode node = std::move(frames_.back().node);
    frames_.pop_back();
    return add(std::move(node));
  }
  bool add(ConfigNode node) {
    limits_.count();
    if (frames_.empty()) {
      root_ = std::move(node);
    } else if (ConfigNode& parent = frames_.back().node; parent.is_list()) {
      parent.items.push_back(std::move(node));
    } else {
      parent.entries.back().value = std::move(node);
    }
    return true;
  }

  size_t text_bytes_;
  Limits limits_;
  std::vector<Frame> frames_;
  ConfigNode root_;
};

// See Note [Escapes in JSON values]; no deeper than kMaxJsonDepth.
void undo_escapes(ConfigNode& node) {
  if (node.is_map() && looks_like_escape(node)) {
    ConfigNode inner = std::move(node.entries[0].value);
    const bool is_plain = node.entries[0].key == "plain" && inner.is_scalar() && inner.quoted;
    const bool is_map = node.entries[0].key == "map" && inner.is_map();
    if (is_plain) {
      node = ConfigNode::scalar(std::move(inner.text));
    } else if (is_map) {
      node = std::move(inner);
    } else {
      node.entries[0].value = std::move(inner);
    }
  }
  for (auto& item : node.items) undo_escapes(item);
  for (auto& entry : node.entries) undo_escapes(entry.value);
}

}  // namespace

std::string values_to_json(const ConfigNode& values) {
  try {
    Limits limits;
    return to_json(values, 0, limits).dump();
  } catch (const OrderedJson::exception& error) {
    throw CheckpointError(std::string("the values hold text that is not UTF-8: ") + error.what() +
                          ". Keep bytes in a tensor instead.");
  }
}

ConfigNode values_from_json(const std::string& text) {
  TreeBuilder builder(text.size());
  OrderedJson::sax_parse(text, &builder);
  ConfigNode values = builder.take();
  undo_escapes(values);
  return values;
}

}  // namespace levin
