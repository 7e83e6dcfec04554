#include "levin/yaml/yaml_events.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/yaml/yaml_limits.h"

namespace levin::detail {

namespace {

constexpr size_t kMaxProblems = 50;  // of one file; a malicious file could have 100,000
constexpr std::string_view kCoreTag = "tag:yaml.org,2002:";

bool is_core_tag(const std::string& tag, std::initializer_list<std::string_view> names) {
  return tag.starts_with(kCoreTag) &&
         std::find(names.begin(), names.end(), std::string_view(tag).substr(kCoreTag.size())) != names.end();
}

bool is_null_text(const std::string& text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

constexpr std::string_view kOpenList = "this \"[\" is never closed, or a comma is missing. Add the \"]\" or the comma.";
constexpr std::string_view kOpenMap = "this \"{\" is never closed, or a comma is missing. Add the \"}\" or the comma.";

constexpr std::string_view kTab =
    "a tab in the indentation, and YAML takes spaces only. Replace the tab with spaces (in vi: \":set expandtab\" and "
    "\":retab\"; or run \"expand FILE\").";

// Messages of yaml-cpp, and our replacements.
struct Reworded {
  std::string_view theirs;
  std::string_view ours;
};
constexpr Reworded kSyntaxErrors[] = {
    {"illegal map value",
     "a \":\" where no value can start. Give all keys of one map the same indentation, and "
     "quote text that holds \": \"."},
    {"illegal map key", "a key cannot start here. Put it on a line of its own."},
    {"illegal block entry", "a list item \"- …\" cannot start here. Put it on a line of its own under the key."},
    {"end of map not found",
     "this belongs to no key. Check the indentation, the space after \":\", and that quotes close where the "
     "text ends."},
    {"end of sequence not found", "not a list item. Start it with \"- \", or check the indentation."},
    {"end of sequence flow not found", kOpenList},
    {"end of map flow not found", kOpenMap},
    {"illegal flow end", "a closing bracket that nothing opened. Remove it."},
    {"illegal EOF in scalar", "a quote is never closed. Add the closing quote."},
    {"illegal document indicator in scalar", "\"---\" or \"...\" inside a quoted text. Close the quote before it."},
    {"illegal tab when looking for indentation", kTab},
    {"unknown token", "text cannot start with this character. Quote the text."},
    {"the referenced anchor is not defined",
     "no &anchor of this name is defined above it. Define it, or quote the text."},
    {"alias not found after *", "\"*\" starts an alias, and no name follows. Quote the text."},
    {"anchor not found after &", "\"&\" starts an anchor, and no name follows. Quote the text."},
    {"invalid unicode", "not a character of Unicode. Write the character itself, or \\U and its 8 hex digits."},
    {"unknown escape character", "an unknown escape in a \"…\" string. Write \\\\ for a backslash, or use '…'."},
    {"bad character found while scanning hex number", "an escape needs hex digits: \\x41, \\u00e9, \\U0001f600."},
};

// The position after a node's anchor and tag.
size_t skip_properties(std::string_view text, size_t at) {
  while (at < text.size() && (text[at] == '&' || text[at] == '!')) {
    at = text.find_first_of(" \t\r\n", at);
    if (at == std::string_view::npos) return text.size();
    at = std::min(text.find_first_not_of(" \t\r\n", at), text.size());
  }
  return at;
}

bool closes(std::string_view text, size_t at) {
  const char quote = text[at];
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      const bool doubled = quote == '\'' && i + 1 < text.size() && text[i + 1] == '\'';
      if (!doubled) return true;
      ++i;
    }
  }
  return false;
}

}  // namespace

// yaml-cpp counts bytes from 0, people count characters from 1. Far along a line bytes are used: counting again for
// each of 100,000 values would take minutes.
Mark YamlBuilder::place(const YAML::Mark& mark) const {
  if (fixed_mark_ != nullptr) return *fixed_mark_;
  const auto column = static_cast<size_t>(std::max(mark.column, 0));
  const auto pos = static_cast<size_t>(std::max(mark.pos, 0));
  size_t characters = column;
  if (column <= 1000 && column <= pos && pos <= text_.size()) {
    const std::string_view before = text_.substr(pos - column, column);
    characters =
        static_cast<size_t>(std::count_if(before.begin(), before.end(), [](char c) { return (c & 0xc0) != 0x80; }));
  }
  return {source_, std::max(mark.line, 0) + 1, static_cast<int>(characters) + 1};
}

std::string YamlBuilder::path() const {
  std::string path;
  for (const auto& frame : frames_) {
    if (frame.node.is_list()) path = index_path(path, frame.node.items.size());
    if (frame.node.is_map() && frame.has_key) path = join_path(path, cut_text(frame.key));
  }
  return path;
}

void YamlBuilder::report(const YAML::Mark& mark, const std::string& what) {
  problems_.add(place(mark), path(), what);
  if (++reported_ < kMaxProblems) return;
  problems_.add(place(mark), "",
                "and perhaps more: reading stopped after " + std::to_string(kMaxProblems) + " problems.");
  throw StopReading{};
}

// yaml-cpp accepts a tab as a space of the text, and stops where the text becomes invalid.
std::optional<Mark> YamlBuilder::tab_before(const YAML::Mark& mark) const {
  if (fixed_mark_ != nullptr) return std::nullopt;
  std::string_view lines[2];  // the one before that holds something, and the mark's own
  int numbers[2] = {0, 0};
  std::string_view rest = text_;
  for (int line = 0; line <= std::max(mark.line, 0) && !rest.empty(); ++line) {
    const std::string_view now = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(now.size() + 1, rest.size()));
    if (now.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    lines[0] = std::exchange(lines[1], now);
    numbers[0] = std::exchange(numbers[1], line + 1);
  }
  for (const int k : {1, 0}) {
    const size_t tab = lines[k].substr(0, std::min(lines[k].find_first_not_of(" \t-"), lines[k].size())).find('\t');
    if (tab != std::string_view::npos) return Mark{source_, numbers[k], static_cast<int>(tab) + 1};
  }
  return std::nullopt;
}

void YamlBuilder::report_syntax_error(const YAML::Mark& mark, const std::string& message) {
  if (const auto tab = tab_before(mark)) return problems_.add(*tab, "", "not YAML: " + std::string(kTab));
  const bool open_bracket = message.find("flow not found") != std::string::npos;
  YAML::Mark where = mark;
  const auto* known = std::find_if(std::begin(kSyntaxErrors), std::end(kSyntaxErrors),
                                   [&](const Reworded& each) { return message.starts_with(each.theirs); });
  std::string what(known != std::end(kSyntaxErrors) ? known->ours : std::string_view(message));
  if (open_bracket) {  // their mark is the start of the file; the position of the bracket is more useful
    while (!frames_.empty() && !frames_.back().flow) frames_.pop_back();
    if (!frames_.empty()) {
      where = frames_.back().start;
      what = frames_.back().node.is_list() ? kOpenList : kOpenMap;
      frames_.pop_back();
    }
  }
  problems_.add(place(where), path(), "not YAML: " + what);
}

void YamlBuilder::charge(const YAML::Mark& mark, size_t nodes, size_t bytes) {
  nodes_ += nodes;
  bytes_ += bytes;
  if (nodes_ <= kMaxYamlNodes && bytes_ <= kMaxYamlTextBytes) return;
  report(mark, "too large: more than " + std::to_string(kMaxYamlNodes) + " values or " +
                   std::to_string(kMaxYamlTextBytes) +
                   " bytes of text once aliases are written out. "
                   "Use fewer aliases, and keep data out of the configuration.");
  throw StopReading{};
}

void YamlBuilder::OnDocumentStart(const YAML::Mark& mark) {
  if (++documents_ == 1) return;
  report(mark,
         "a second document starts here. A configuration is one document: remove \"---\" or the stray text before "
         "it, and give further files with --config.");
  throw StopReading{};
}

void YamlBuilder::OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) {
  charge(mark, 1, 0);
  if (at_key()) return refuse_key(mark, "a key is missing here. If it is called null or ~, quote it.");
  const auto pos = static_cast<size_t>(std::max(mark.pos, 0));
  const bool in_list = !frames_.empty() && frames_.back().flow && frames_.back().node.is_list();
  if (in_list && pos < text_.size() && text_[pos] == ',')
    report(mark, "nothing between two commas. Write null, or remove a comma.");
  deliver(ConfigNode{}, mark, anchor);
}

void YamlBuilder::OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) {
  if (at_key()) return refuse_key(mark, "an alias cannot be a key. Write the key itself.");
  const auto found = anchored_.find(anchor);
  if (found == anchored_.end()) {  // yaml-cpp knows the name, but its value is not complete yet
    report(mark, "this alias is inside the value that it repeats. Use it only outside that value.");
    throw StopReading{};
  }
  charge(mark, found->second.nodes, found->second.bytes);
  attach(found->second.node, mark);
}

void YamlBuilder::OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                           const std::string& value) {
  charge(mark, 1, value.size());
  if (tag != "?") check_quote_is_closed(mark);
  const bool is_string = tag == "!" || is_core_tag(tag, {"str"});
  const bool is_other = tag == "?" || is_core_tag(tag, {"int", "float", "bool", "null"});
  if (!is_string && !is_other)
    report(mark, "unknown tag \"" + tag + "\". Remove it: types are known from the options.");
  if (at_key()) {
    if (anchor != 0) {
      charge(mark, 1, value.size());
      anchored_[anchor] = {ConfigNode::scalar(value, is_string), 1, value.size()};
    }
    return take_key(mark, value, is_string);
  }
  // !!int with nothing after it is not text either.
  if (is_core_tag(tag, {"null"}) || (is_other && is_null_text(value))) return deliver(ConfigNode{}, mark, anchor);
  deliver(ConfigNode::scalar(value, is_string), mark, anchor);
}

void YamlBuilder::OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                                  YAML::EmitterStyle::value style) {
  open(ConfigNode::list(), mark, tag, anchor, style == YAML::EmitterStyle::Flow);
}

void YamlBuilder::OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                             YAML::EmitterStyle::value style) {
  open(ConfigNode::map(), mark, tag, anchor, style == YAML::EmitterStyle::Flow);
}

void YamlBuilder::open(ConfigNode node, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       bool flow) {
  charge(mark, 1, 0);
  const bool known = tag.empty() || tag == "?" || tag == "!" || is_core_tag(tag, {node.is_list() ? "seq" : "map"});
  if (!known) report(mark, "unknown tag \"" + tag + "\". Remove it: types are known from the options.");
  if (frames_.size() >= kMaxYamlNesting) {
    report(mark,
           "more than " + std::to_string(kMaxYamlNesting) + " lists and maps within one another. Nest less deeply.");
    throw StopReading{};
  }
  Frame frame;
  frame.node = std::move(node);
  frame.node.mark = place(mark);
  frame.start = mark;
  frame.anchor = anchor;
  frame.flow = flow;
  frames_.push_back(std::move(frame));
}

void YamlBuilder::close() {
  Frame frame = std::move(frames_.back());
  frames_.pop_back();
  if (at_key())
    return refuse_key(frame.start, "a key must be text, got " + frame.node.shown() + ". Quote it if it is text.");
  deliver(std::move(frame.node), frame.start, frame.anchor);
}

void YamlBuilder::refuse_key(const YAML::Mark& mark, const std::string& what) {
  report(mark, what);
  frames_.back().has_key = true;
  frames_.back().drop_value = true;
  frames_.back().key.clear();
}

void YamlBuilder::take_key(const YAML::Mark& mark, const std::string& key, bool quoted) {
  Frame& frame = frames_.back();
  if (key == "<<" && !quoted) {
    return refuse_key(mark,
                      "merge keys (<<) are not applied. Write the keys out, or give a second file with --config.");
  }
  const auto [first, is_new] = frame.keys.emplace(key, place(mark));
  frame.key = key;
  frame.has_key = true;
  frame.drop_value = !is_new;
  frame.key_mark = place(mark);
  if (!is_new)
    report(mark, "duplicate key \"" + cut_text(key) + "\", first at " + first->second.str() + ". Remove one of them.");
}

void YamlBuilder::deliver(ConfigNode node, const YAML::Mark& mark, YAML::anchor_t anchor) {
  node.mark = place(mark);
  if (anchor != 0) {
    Anchored kept{node};
    std::vector<const ConfigNode*> open_nodes{&node};
    while (!open_nodes.empty()) {
      const ConfigNode* next = open_nodes.back();
      open_nodes.pop_back();
      kept.nodes += 1 + next->entries.size();
      kept.bytes += next->text.size();
      for (const auto& item : next->items) open_nodes.push_back(&item);
      for (const auto& entry : next->entries) {
        kept.bytes += entry.key.size();
        open_nodes.push_back(&entry.value);
      }
    }
    charge(mark, kept.nodes, kept.bytes);  // the copy kept for aliases counts too
    anchored_[anchor] = std::move(kept);
  }
  attach(std::move(node), mark);
}

void YamlBuilder::attach(ConfigNode node, const YAML::Mark& mark) {
  if (frames_.empty()) {
    root_ = std::move(node);
    return;
  }
  Frame& frame = frames_.back();
  if (frame.node.is_list()) {
    frame.node.items.push_back(std::move(node));
    return;
  }
  if (frame.flow && node.is_null() && !frame.drop_value && frame.key.find(':') != std::string::npos) {
    report(mark, "the key \"" + cut_text(frame.key) + "\" has no value. Put a space after the colon.");
  }
  if (!frame.drop_value) frame.node.entries.push_back({frame.key, frame.key_mark, std::move(node)});
  frame.has_key = false;
  frame.drop_value = false;
}

// yaml-cpp silently ends a quoted text at the end of the file.
void YamlBuilder::check_quote_is_closed(const YAML::Mark& mark) {
  const size_t at = skip_properties(text_, static_cast<size_t>(std::max(mark.pos, 0)));
  if (at >= text_.size() || (text_[at] != '\'' && text_[at] != '"')) return;
  if (closes(text_, at)) return;
  report(mark, std::string("not YAML: this ") + text_[at] + " is never closed. Add the closing quote.");
  throw StopReading{};
}

}  // namespace levin::detail
