// Small XML documents, such as the answers of object stores, as trees: elements and text. Attributes, comments and
// processing instructions are skipped; document types are refused, and with them entities that grow.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace levin {

/// An element: its name without a namespace's prefix, its text, and the elements in it.
struct XmlElement {
  std::string name = "";
  std::string text = "";  // all of it, without the text of the elements in it
  std::vector<XmlElement> elements = {};

  /// Returns the first element with this name; null if there is none.
  [[nodiscard]] const XmlElement* find(std::string_view wanted) const;
  /// Returns the text of the first element with this name; "" if there is none.
  [[nodiscard]] std::string text_of(std::string_view wanted) const;
};

/// Returns the root element. Throws Error with the offset and what was expected there.
[[nodiscard]] XmlElement read_xml(std::string_view document);

/// Returns `text` with &, <, > and " as entities.
[[nodiscard]] std::string xml_text(const std::string& text);

}  // namespace levin
