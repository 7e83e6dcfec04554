#include "levin/core/files/xml_tree.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

#include "levin/core/options/error.h"

namespace levin {

namespace {

constexpr int kMaxXmlDepth = 32;

class XmlReader {
 public:
  explicit XmlReader(std::string_view document) : document_(document) {}

  XmlElement read() {
    skip_misc();
    if (document_.substr(at_).starts_with("<!")) fail("a document type is not accepted");
    if (peek() != '<') fail("expected an element");
    XmlElement root = element(1);
    skip_misc();
    if (at_ != document_.size()) fail("expected the end of the document");
    return root;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error("XML, offset " + std::to_string(at_) + ": " + what + ".");
  }

  [[nodiscard]] char peek() const { return at_ < document_.size() ? document_[at_] : '\0'; }

  [[nodiscard]] static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

  void skip_space() {
    while (is_space(peek())) ++at_;
  }

  // Returns the text up to `end`, which is skipped too.
  std::string_view until(std::string_view end) {
    const size_t found = document_.find(end, at_);
    if (found == std::string_view::npos) fail("expected \"" + std::string(end) + "\"");
    const std::string_view text = document_.substr(at_, found - at_);
    at_ = found + end.size();
    return text;
  }

  bool skip(std::string_view text) {
    if (!document_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  // White space, comments and processing instructions.
  void skip_misc() {
    (void)skip("\xEF\xBB\xBF");
    while (true) {
      skip_space();
      if (skip("<!--")) {
        (void)until("-->");
      } else if (skip("<?")) {
        (void)until("?>");
      } else {
        return;
      }
    }
  }

  std::string name() {
    const size_t begin = at_;
    while (at_ < document_.size() && !is_space(peek()) &&
           std::string_view("/><=\"'&").find(peek()) == std::string_view::npos)
      ++at_;
    const std::string_view whole = document_.substr(begin, at_ - begin);
    const std::string_view local = whole.substr(whole.rfind(':') + 1);  // npos + 1 is 0
    if (local.empty()) fail("expected a name");
    return std::string(local);
  }

  void skip_attributes() {
    for (skip_space(); peek() != '>' && peek() != '/'; skip_space()) {
      (void)name();
      skip_space();
      if (!skip("=")) fail("expected \"=\" after an attribute");
      skip_space();
      const char quote = peek();
      if (quote != '"' && quote != '\'') fail("expected a quoted value");
      ++at_;
      (void)until(std::string_view(&quote, 1));
    }
  }

  void append_entity(std::string& text) {
    constexpr std::array<std::pair<std::string_view, char>, 5> known{
        {{"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}}};
    const size_t end = document_.substr(0, std::min(document_.size(), at_ + 12)).find(';', at_);
    if (end == std::string_view::npos) fail("expected \";\" after an entity");
    const std::string_view entity = document_.substr(at_, end - at_);
    for (const auto& [name, character] : known) {
      if (entity != name) continue;
      text += character;
      at_ = end + 1;
      return;
    }
    uint32_t code = 0;
    const bool hex = entity.starts_with("#x");
    const std::string_view digits = entity.substr(std::min<size_t>(entity.size(), hex ? 2 : 1));
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), code, hex ? 16 : 10);
    if (!entity.starts_with('#') || digits.empty() || result.ec != std::errc() ||
        result.ptr != digits.data() + digits.size() || code == 0 || code > 0x10FFFF ||
        (code >= 0xD800 && code < 0xE000))
      fail("unknown entity \"" + cut_text(std::string(entity)) + "\"");
    append_utf8(text, code);
    at_ = end + 1;
  }

  static void append_utf8(std::string& text, uint32_t code) {
    const auto byte = [&](uint32_t value) { text += static_cast<char>(value); };
    if (code < 0x80) return byte(code);
    if (code < 0x800) {
      byte(0xC0 | (code >> 6));
    } else {
      if (code < 0x10000) {
        byte(0xE0 | (code >> 12));
      } else {
        byte(0xF0 | (code >> 18));
        byte(0x80 | ((code >> 12) & 0x3F));
      }
      byte(0x80 | ((code >> 6) & 0x3F));
    }
    byte(0x80 | (code & 0x3F));
  }

  XmlElement element(int depth) {
    if (depth > kMaxXmlDepth) fail("elements are nested more than " + std::to_string(kMaxXmlDepth) + " deep");
    ++at_;  // "<"
    XmlElement result;
    result.name = name();
    skip_attributes();
    if (skip("/>")) return result;
    if (!skip(">")) fail("expected \">\"");
    while (true) {
      if (at_ >= document_.size()) fail("expected \"</" + cut_text(result.name) + ">\"");
      if (skip("</")) {
        if (name() != result.name) fail("expected \"</" + cut_text(result.name) + ">\"");
        skip_space();
        if (!skip(">")) fail("expected \">\"");
        return result;
      }
      if (skip("<!--")) {
        (void)until("-->");
      } else if (skip("<![CDATA[")) {
        result.text += until("]]>");
      } else if (skip("<?")) {
        (void)until("?>");
      } else if (peek() == '<') {
        result.elements.push_back(element(depth + 1));
      } else if (skip("&")) {
        append_entity(result.text);
      } else {
        result.text += document_[at_++];
      }
    }
  }

  std::string_view document_;
  size_t at_ = 0;
};

}  // namespace

const XmlElement* XmlElement::find(std::string_view wanted) const {
  const auto found =
      std::find_if(elements.begin(), elements.end(), [&](const auto& each) { return each.name == wanted; });
  return found == elements.end() ? nullptr : &*found;
}

std::string XmlElement::text_of(std::string_view wanted) const {
  const XmlElement* found = find(wanted);
  return found == nullptr ? "" : found->text;
}

XmlElement read_xml(std::string_view document) {
  return XmlReader(document).read();
}

std::string xml_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace levin
