// Builds a ConfigNode from yaml-cpp's events. Private to yaml_file.cpp: nobody else may see yaml-cpp.
#pragma once

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/mark.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "levin/core/options/config_node.h"
#include "levin/core/options/value.h"

namespace levin::detail {

/// Thrown by the builder to leave the parser; the problem is already reported.
struct StopReading {};

class YamlBuilder final : public YAML::EventHandler {
 public:
  /// `fixed_mark`: the mark of every value, for text that is not a file.
  YamlBuilder(std::string_view text, std::string source, const Mark* fixed_mark, Problems& problems)
      : text_(text), source_(std::move(source)), fixed_mark_(fixed_mark), problems_(problems) {}

  /// The document's value; null if there was none.
  [[nodiscard]] ConfigNode take_root() { return std::move(root_); }

  /// The parser stopped with `message`; adds a readable problem.
  void report_syntax_error(const YAML::Mark& mark, const std::string& message);

  void OnDocumentStart(const YAML::Mark& mark) override;
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override;
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override;
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override;
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override;
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override;
  void OnMapEnd() override { close(); }

 private:
  // An unfinished list or map.
  struct Frame {
    ConfigNode node;
    YAML::Mark start;
    YAML::anchor_t anchor = 0;
    bool flow = false;
    bool has_key = false;     // a map's key was read, its value comes next
    bool drop_value = false;  // the key was rejected, so its value is dropped
    std::string key = "";
    Mark key_mark = {};
    std::unordered_map<std::string, Mark> keys = {};
  };
  struct Anchored {
    ConfigNode node;
    size_t nodes = 0;
    size_t bytes = 0;
  };

  void report(const YAML::Mark& mark, const std::string& what);
  [[nodiscard]] Mark place(const YAML::Mark& mark) const;
  [[nodiscard]] std::optional<Mark> tab_before(const YAML::Mark& mark) const;
  [[nodiscard]] std::string path() const;
  [[nodiscard]] bool at_key() const {
    return !frames_.empty() && frames_.back().node.is_map() && !frames_.back().has_key;
  }
  void charge(const YAML::Mark& mark, size_t nodes, size_t bytes);
  void open(ConfigNode node, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, bool flow);
  void close();
  void refuse_key(const YAML::Mark& mark, const std::string& what);
  void take_key(const YAML::Mark& mark, const std::string& key, bool quoted);
  void deliver(ConfigNode node, const YAML::Mark& mark, YAML::anchor_t anchor);
  void attach(ConfigNode node, const YAML::Mark& mark);
  void check_quote_is_closed(const YAML::Mark& mark);

  std::string_view text_;
  std::string source_;
  const Mark* fixed_mark_;
  Problems& problems_;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, Anchored> anchored_;
  ConfigNode root_;
  size_t documents_ = 0;
  size_t reported_ = 0;
  size_t nodes_ = 0;  // spent of kMaxYamlNodes
  size_t bytes_ = 0;  // spent of kMaxYamlTextBytes
};

}  // namespace levin::detail
