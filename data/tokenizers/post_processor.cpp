#include "levin/data/tokenizers/post_processor.h"

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "levin/core/options/error.h"
#include "levin/data/tokenizers/token_model.h"

namespace levin::tokenizers {

namespace {

// Pieces that name the same special tokens share their ids.
using SharedIds = std::shared_ptr<const std::vector<int32_t>>;

// A text of the pair (0 or 1) or special tokens.
struct TemplatePiece {
  int text = -1;  // -1: special tokens
  SharedIds ids;  // those
  int32_t type_id = 0;
};
using Template = std::vector<TemplatePiece>;

int64_t count_added(const Template& pieces) {
  int64_t count = 0;
  for (const TemplatePiece& piece : pieces) count += piece.text < 0 ? static_cast<int64_t>(piece.ids->size()) : 0;
  return count;
}

class TemplateProcessor final : public PostProcessor {
 public:
  /// `keeps_types`: without special tokens, type ids stay unchanged.
  TemplateProcessor(Template single, Template pair, bool keeps_types)
      : single_(std::move(single)), pair_(std::move(pair)), keeps_types_(keeps_types) {}

  void process(std::vector<Encoding>& encodings, bool add_special_tokens, Budget& budget) const override {
    if (!add_special_tokens && keeps_types_) return;
    Encoding result;
    for (const TemplatePiece& piece : encodings.size() > 1 ? pair_ : single_) {
      const bool is_special = piece.text < 0;
      if (is_special ? !add_special_tokens : static_cast<size_t>(piece.text) >= encodings.size()) continue;
      const std::vector<int32_t>& ids = is_special ? *piece.ids : encodings[static_cast<size_t>(piece.text)].ids;
      budget.check_tokens(result.ids.size() + ids.size());
      Encoding part = make_encoding(ids, piece.type_id);
      if (is_special) part.special_tokens_mask.assign(ids.size(), 1);
      append(result, part);
    }
    encodings = {std::move(result)};
  }

  [[nodiscard]] int64_t added(bool is_pair) const override { return count_added(is_pair ? pair_ : single_); }

 private:
  Template single_, pair_;
  bool keeps_types_;
};

SharedIds shared(std::vector<int32_t> ids) {
  return std::make_shared<const std::vector<int32_t>>(std::move(ids));
}

std::vector<int32_t> read_ids(const JsonNode& node) {
  std::vector<int32_t> ids;
  for (const JsonNode& id : node.elements()) ids.push_back(static_cast<int32_t>(id.count(kMaxToken)));
  return ids;
}

// `known`: the special tokens that were read before, by their names.
Template read_template(const JsonNode& node, const JsonNode& special_tokens,
                       std::unordered_map<std::string, SharedIds>& known) {
  Template pieces;
  for (const JsonNode& one : node.elements()) {
    TemplatePiece piece;
    const JsonNode text = one.at("Sequence"), special = one.at("SpecialToken");
    if (text.is_object()) {
      const std::string id = text.text("id");
      if (id != "A" && id != "B") text.at("id").refuse_value("A or B");
      piece.text = id == "B" ? 1 : 0;
      piece.type_id = static_cast<int32_t>(text.count("type_id", kMaxToken));
    } else if (special.is_object()) {
      const std::string id = special.text("id");
      SharedIds& ids = known[id];
      if (ids == nullptr) {
        const JsonNode token = special_tokens.at(id);
        if (token.is_null()) {
          special.at("id").refuse("the token " + cut_text(id) + " is not in " + special_tokens.path() + ".");
        }
        ids = shared(token.is_null() ? std::vector<int32_t>() : read_ids(token.at("ids")));
      }
      piece.ids = ids;
      piece.type_id = static_cast<int32_t>(special.count("type_id", kMaxToken));
    } else {
      one.refuse_value("an object with Sequence or SpecialToken");
      continue;
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::unique_ptr<const PostProcessor> make_template(const JsonNode& node) {
  const JsonNode special_tokens = node.at("special_tokens");
  std::unordered_map<std::string, SharedIds> known;
  Template single = read_template(node.at("single"), special_tokens, known);
  return std::make_unique<TemplateProcessor>(std::move(single), read_template(node.at("pair"), special_tokens, known),
                                             false);
}

// ["[SEP]", 102]
SharedIds read_named_token(const JsonNode& node) {
  const std::vector<JsonNode> parts = node.elements();
  if (parts.size() == 2) return shared({static_cast<int32_t>(parts[1].count(kMaxToken))});
  node.refuse_value("a token and its id");
  return shared({});
}

// [CLS] A [SEP] B [SEP], the second text with its [SEP] of type 1.
std::unique_ptr<const PostProcessor> make_bert(const JsonNode& node) {
  const auto cls = read_named_token(node.at("cls")), sep = read_named_token(node.at("sep"));
  const Template single = {{-1, cls, 0}, {0, nullptr, 0}, {-1, sep, 0}};
  Template pair = single;
  pair.insert(pair.end(), {{1, nullptr, 1}, {-1, sep, 1}});
  return std::make_unique<TemplateProcessor>(single, pair, true);
}

// <s> A </s> </s> B </s>, all of type 0.
std::unique_ptr<const PostProcessor> make_roberta(const JsonNode& node) {
  const auto cls = read_named_token(node.at("cls")), sep = read_named_token(node.at("sep"));
  const Template single = {{-1, cls, 0}, {0, nullptr, 0}, {-1, sep, 0}};
  Template pair = single;
  pair.insert(pair.end(), {{-1, sep, 0}, {1, nullptr, 0}, {-1, sep, 0}});
  return std::make_unique<TemplateProcessor>(single, pair, false);
}

// ByteLevel only moves offsets, which are not given; so a sequence has one that adds tokens.
std::unique_ptr<const PostProcessor> make_processor_sequence(const JsonNode& node) {
  std::unique_ptr<const PostProcessor> only;
  for (const JsonNode& one : node.at("processors").elements()) {
    const std::string type = one.text("type");
    if (type == "ByteLevel") continue;
    if (type == "Sequence" || only != nullptr) {
      one.refuse("a Sequence of post-processors may hold one besides ByteLevel, and no other Sequence; saw " + type +
                 ".");
      continue;
    }
    only = make_post_processor(one);
  }
  return only;
}

}  // namespace

std::unique_ptr<const PostProcessor> make_post_processor(const JsonNode& node) {
  if (node.is_null()) return nullptr;
  const std::string type = node.text("type");
  if (type == "ByteLevel") return nullptr;
  if (type == "TemplateProcessing") return make_template(node);
  if (type == "BertProcessing") return make_bert(node);
  if (type == "RobertaProcessing") return make_roberta(node);
  if (type == "Sequence") return make_processor_sequence(node);
  if (!type.empty()) node.at("type").refuse("the post-processor " + type + " is not supported.");
  return nullptr;
}

}  // namespace levin::tokenizers
