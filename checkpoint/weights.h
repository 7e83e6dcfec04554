// Loads weights from files of other programs (Hugging Face's safetensors, whole or in shards) or from Levin's
// checkpoints into a module.
//
//   load_weights(*model, {.path = "bert-base", .map = {{"bert.encoder", "encoder"}, {"cls", std::nullopt}}});
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"

namespace torch::nn {
class Module;
}

namespace levin {

/// A rule that maps names of a file's tensors to names of the module's tensors. `from` is a name or its first parts
/// (whole parts between dots); `*` matches any one part, which is kept: "layers.*.attn" to "blocks.*.attention". An
/// empty `from` puts `to` before every name.
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

/// Returns the name by the first matching rule, or unchanged; nothing if the rule omits the tensor.
[[nodiscard]] std::optional<std::string> renamed(const std::string& name, const std::vector<RenameRule>& rules);

namespace detail {
/// Returns whether each rule's `to` has as many * as its `from`.
[[nodiscard]] bool stars_match(const std::vector<RenameRule>& map);
}  // namespace detail

/// Options of load_weights.
struct WeightsOptions {
  std::string path = "";
  std::vector<RenameRule> map = {};
  bool strict = true;

  template <class = void>
  static auto fields() {
    using O = WeightsOptions;
    return levin::fields(
        field("path", &O::path, "a safetensors file, an index of shards, a folder with either, or a checkpoint")
            .not_empty()
            .ranks_may_differ(),
        field("map", &O::map, "renames tensors of the file; the first matching rule applies")
            .check(detail::stars_match, "rules whose to has as many * as its from"),
        field("strict", &O::strict,
              "names that are missing, unexpected or of a different shape: true fails, false warns and loads the "
              "others"));
  }
};

/// The tensors that did not match, each with its shapes. Empty if all of them matched.
struct WeightsReport {
  size_t loaded = 0;
  std::vector<std::string> missing = {};     // in the module, not in the file
  std::vector<std::string> unexpected = {};  // in the file, not in the module
  std::vector<std::string> mis_shaped = {};

  /// Returns one line: "missing a (2); unexpected b (3, 4)"; "" if all matched.
  [[nodiscard]] std::string str() const;
};

/// Copies the tensors into the module's parameters and buffers, converting types as PyTorch's load_state_dict does.
/// Reads all of them into memory first, because the module does not change if something is wrong: throws
/// CheckpointError for a file that is missing or damaged, for names that do not match (listing all) if `strict`, and if
/// none matches.
WeightsReport load_weights(torch::nn::Module& module, const WeightsOptions& options);

}  // namespace levin
