// Renames the tensors of a file to those of a module.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "levin/core/fields.h"

namespace levin {

/// Renames tensors of the file. `from` is a name or its first parts (whole parts between dots); `*` matches any one
/// part, which is kept: "layers.*.attn" to "blocks.*.attention". An empty `from` puts `to` before every name.
struct RenameRule {
  std::string from = "";
  std::optional<std::string> to = "";  // none: the tensors are left out

  template <class = void>
  static auto fields() {
    using O = RenameRule;
    return levin::fields(field("from", &O::from, "first parts of a tensor's name in the file; * matches any one part"),
                         field("to", &O::to, "its replacement in the model; null skips the tensors"));
  }
};

/// The name by the first matching rule, or unchanged; none if the rule omits it.
[[nodiscard]] std::optional<std::string> renamed(const std::string& name, const std::vector<RenameRule>& rules);

namespace detail {
/// Whether each rule's `to` has as many * as its `from`.
[[nodiscard]] bool stars_match(const std::vector<RenameRule>& map);
}  // namespace detail

}  // namespace levin
