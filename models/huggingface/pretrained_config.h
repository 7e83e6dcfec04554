// Reads a config.json into the tree that options are read from, and writes it back: keys keep their order, and numbers
// and nulls their text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/config_node.h"
#include "levin/core/options/fields.h"

namespace levin::huggingface {

/// `source`, the file's path, becomes the mark of every value. Throws ConfigError that begins with it unless the text
/// is a JSON object.
[[nodiscard]] ConfigNode parse_json_config(const std::string& text, const std::string& source);

/// Indented by two, with a newline at the end, as transformers writes it.
[[nodiscard]] std::string json_text(const ConfigNode& node);

}  // namespace levin::huggingface

namespace levin {

/// A Hugging Face config.json: which model a folder holds, and its sizes. Keys that Levin does not read are kept and
/// written back unchanged.
///
///   auto config = levin::PretrainedConfig::read("bert-base-uncased");
///   config.set_labels({"negative", "positive"});
class PretrainedConfig {
 public:
  /// An empty one, for models made from numbers: set model_type first.
  PretrainedConfig() : values_(ConfigNode::map()) {}
  /// Reads the config.json at `path`, a folder or the file itself. Throws Error naming the path if it cannot be read,
  /// ConfigError if it is not a JSON object or has no "model_type".
  [[nodiscard]] static PretrainedConfig read(const std::string& path);
  /// `source`: what messages call it.
  [[nodiscard]] static PretrainedConfig parse(const std::string& json, const std::string& source);

  /// Returns the config as transformers writes it: JSON, indented by two.
  [[nodiscard]] std::string json() const;

  /// Returns the file it was read from, or "".
  [[nodiscard]] const std::string& source() const { return source_; }
  /// "bert", "llama", …
  [[nodiscard]] std::string model_type() const;
  /// Returns the classes that the weights were saved from: "BertForMaskedLM".
  [[nodiscard]] std::vector<std::string> architectures() const;
  /// Returns the number of labels of a classification head: as many as "id2label" has, 2 without it.
  [[nodiscard]] int64_t num_labels() const;
  /// Returns the label names of "id2label" by number; empty without it.
  [[nodiscard]] std::vector<std::string> labels() const;
  [[nodiscard]] std::optional<int64_t> pad_token_id() const;

  /// Returns the value of `key`, or null pointer.
  [[nodiscard]] const ConfigNode* find(std::string_view key) const { return values_.find(key); }
  /// Changes or adds a key: set("hidden_dropout_prob", 0.2).
  template <class T>
  void set(std::string_view key, const T& value) {
    ConfigNode node = ValueType<T>::write(value);
    node.mark = {source_, 0, 0};
    values_.set(key, std::move(node), {source_, 0, 0});
  }
  void erase(std::string_view key) { values_.erase(key); }
  /// Writes "id2label" and "label2id".
  void set_labels(const std::vector<std::string>& labels);
  /// Labels called LABEL_0, …, unless there are that many already.
  void set_num_labels(int64_t count);

  /// Fills the fields that `options` names from the keys of the same names; other keys are left alone.
  template <HasFields Options>
  void read_into(Options& options, Problems& problems) const {
    read_options(only(field_names<Options>()), options, "", problems);
  }

 private:
  [[nodiscard]] ConfigNode only(const std::vector<std::string>& keys) const;

  std::string source_ = "";
  ConfigNode values_;
};

}  // namespace levin
