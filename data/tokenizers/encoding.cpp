#include "levin/data/tokenizers/encoding.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "levin/core/options/error.h"
#include "levin/data/tokenizers/token_model.h"

namespace levin::tokenizers {

namespace {

constexpr int64_t kMaxLength = int64_t{1} << 40;

template <class Use>
void for_each_row(Encoding& encoding, Use use) {
  for (auto* row : {&encoding.ids, &encoding.type_ids, &encoding.attention_mask, &encoding.special_tokens_mask})
    use(*row);
}

void cut(Encoding& encoding, int64_t length, bool from_left) {
  const auto size = static_cast<int64_t>(encoding.ids.size());
  if (size <= length) return;
  for_each_row(encoding, [&](std::vector<int32_t>& row) {
    if (from_left) row.erase(row.begin(), row.begin() + (size - length));
    row.resize(static_cast<size_t>(length));
  });
}

bool read_side(const JsonNode& node) {
  const std::string side = node.text("direction", "Right");
  if (side != "Left" && side != "Right") node.at("direction").refuse_value("Left or Right");
  return side == "Left";
}

}  // namespace

Encoding make_encoding(std::vector<int32_t> ids, int32_t type_id) {
  const size_t size = ids.size();
  return {std::move(ids), std::vector<int32_t>(size, type_id), std::vector<int32_t>(size, 1),
          std::vector<int32_t>(size, 0)};
}

void append(Encoding& to, const Encoding& more) {
  const auto append_row = [](std::vector<int32_t>& row, const std::vector<int32_t>& other) {
    row.insert(row.end(), other.begin(), other.end());
  };
  append_row(to.ids, more.ids);
  append_row(to.type_ids, more.type_ids);
  append_row(to.attention_mask, more.attention_mask);
  append_row(to.special_tokens_mask, more.special_tokens_mask);
}

void Truncation::apply(Encoding& first, Encoding* second, int64_t added) const {
  const int64_t most = std::max<int64_t>(max_length - added, 0);
  int64_t n1 = static_cast<int64_t>(first.ids.size()),
          n2 = second == nullptr ? 0 : static_cast<int64_t>(second->ids.size());
  const int64_t excess = n1 + n2 - most;
  if (excess <= 0) return;
  if (most > 0 && strategy != Strategy::longest_first) {
    Encoding* const target = strategy == Strategy::only_first ? &first : second;
    const int64_t length = target == nullptr ? 0 : static_cast<int64_t>(target->ids.size());
    if (length <= excess) {
      throw DataError("tokenizer.json: truncation: " + std::to_string(excess) + " tokens are too many, and only the " +
                      (target == &first ? "first" : "second") + " text may be cut, which has " +
                      std::to_string(length) + ".");
    }
    return cut(*target, length - excess, from_left);
  }
  if (second == nullptr || most == 0) {
    n1 = std::min(n1, most);
    n2 = 0;
  } else {  // the longer one is cut down to the other, then both
    int64_t& shorter = n1 > n2 ? n2 : n1;
    int64_t& longer = n1 > n2 ? n1 : n2;
    longer = shorter > most ? shorter : std::max(shorter, most - shorter);
    if (shorter + longer > most) {
      shorter = most / 2;
      longer = shorter + most % 2;
    }
  }
  cut(first, n1, from_left);
  if (second != nullptr) cut(*second, n2, from_left);
}

void PaddingRule::apply(std::vector<Encoding>& encodings, const Budget& budget) const {
  size_t longest = 0;
  for (const Encoding& one : encodings) longest = std::max(longest, one.ids.size());
  size_t length = fixed == 0 ? longest : static_cast<size_t>(fixed);
  const auto step = static_cast<size_t>(multiple);
  if (step > 0 && length % step > 0) length += step - length % step;
  if (length > longest) budget.check_tokens((length - longest) * encodings.size());  // that the file asks for
  for (Encoding& one : encodings) {
    if (one.ids.size() >= length) continue;
    const size_t count = length - one.ids.size();
    Encoding pads{std::vector<int32_t>(count, id), std::vector<int32_t>(count, type_id), std::vector<int32_t>(count, 0),
                  std::vector<int32_t>(count, 1)};
    if (on_left) {
      append(pads, one);
      one = std::move(pads);
    } else {
      append(one, pads);
    }
  }
}

std::optional<Truncation> read_truncation(const JsonNode& node) {
  if (node.is_null()) return std::nullopt;
  Truncation truncation;
  truncation.max_length = node.count("max_length", kMaxLength);
  truncation.from_left = read_side(node);
  const std::string strategy = node.text("strategy", "LongestFirst");
  using Strategy = Truncation::Strategy;
  truncation.strategy = strategy == "OnlyFirst"    ? Strategy::only_first
                        : strategy == "OnlySecond" ? Strategy::only_second
                                                   : Strategy::longest_first;
  if (truncation.strategy == Strategy::longest_first && strategy != "LongestFirst") {
    node.at("strategy").refuse_value("LongestFirst, OnlyFirst or OnlySecond");
  }
  return truncation;
}

std::optional<PaddingRule> read_padding(const JsonNode& node) {
  if (node.is_null()) return std::nullopt;
  PaddingRule padding;
  const JsonNode strategy = node.at("strategy");
  if (strategy.is_object()) {
    padding.fixed = strategy.count("Fixed", 1 << 24);
  } else if (strategy.value() != "BatchLongest") {
    strategy.refuse_value("BatchLongest or {\"Fixed\": length}");
  }
  padding.multiple = node.count("pad_to_multiple_of", 1 << 24, 0);
  padding.on_left = read_side(node);
  padding.id = static_cast<int32_t>(node.count("pad_id", kMaxToken, 0));
  padding.type_id = static_cast<int32_t>(node.count("pad_type_id", kMaxToken, 0));
  return padding;
}

}  // namespace levin::tokenizers
