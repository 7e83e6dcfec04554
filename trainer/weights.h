// Takes weights from files of other programs (Hugging Face's safetensors, whole or in shards) or from Levin's
// checkpoints into a module.
//
//   load_weights(*model, {.path = "bert-base", .map = {{"bert.encoder", "encoder"}, {"cls", std::nullopt}}});
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/fields.h"

namespace torch::nn {
class Module;
}

namespace levin {

/// Renames tensors of the file. `from` is a name or its first parts (whole parts between dots); `*` stands for any one
/// part and keeps what it stood for: "layers.*.attn" to "blocks.*.attention". An empty `from` puts `to` before every
/// name.
struct RenameRule {
  std::string from = "";
  std::optional<std::string> to = "";  // none: the tensors are left out

  static auto fields() {
    using O = RenameRule;
    return levin::fields(field("from", &O::from, "first parts of a tensor's name in the file; * is any one part"),
                         field("to", &O::to, "what stands there in the model; null leaves the tensors out"));
  }
};

struct WeightsOptions {
  std::string path = "";
  std::vector<RenameRule> map = {};
  bool strict = true;

  static auto fields() {
    using O = WeightsOptions;
    return levin::fields(
        field("path", &O::path, "a safetensors file, an index of shards, a folder with either, or a checkpoint")
            .not_empty()
            .ranks_may_differ(),
        field("map", &O::map, "renames tensors of the file; the first rule that fits a name counts")
            .check(stars_match, "rules whose to has as many * as its from"),
        field("strict", &O::strict,
              "names that are missing, unexpected or of another shape: true fails, false warns and loads the others"));
  }

 private:
  static bool stars_match(const std::vector<RenameRule>& map);
};

/// What did not fit, each with its shapes. Empty lists if all did.
struct WeightsReport {
  size_t loaded = 0;
  std::vector<std::string> missing = {};     // in the module, not in the file
  std::vector<std::string> unexpected = {};  // in the file, not in the module
  std::vector<std::string> mis_shaped = {};

  /// One line: "missing a (2); unexpected b (3, 4)"; "" if all fitted.
  [[nodiscard]] std::string str() const;
};

/// Copies the tensors into the module's parameters and buffers, converting types as PyTorch's load_state_dict does.
/// Holds all of them in memory once, because the module is not changed at all if something is wrong: throws
/// CheckpointError for a file that is missing or damaged, for names that do not fit (listing all) if `strict`, and if
/// none fits.
WeightsReport load_weights(torch::nn::Module& module, const WeightsOptions& options);

}  // namespace levin
