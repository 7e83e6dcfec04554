// What models know about their own weights and adapters need: how a layer computes with its weight, which weights are
// used at a second place, and what the layers are called in adapters' files. Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace levin {

/// What a layer's parameter "weight" is: the matrix of a linear layer, rows that indices pick, the kernel of a
/// convolution (out, in / groups, size …), or something else.
enum class WeightUse { linear, embedding, convolution, other };

/// A module whose class does not say what it computes with its weight.
class KnowsWeightUse {
 public:
  struct Known {
    WeightUse use = WeightUse::other;
    int64_t groups = 1;  // of a convolution
  };
  virtual ~KnowsWeightUse() = default;
  /// Nothing if it does not know.
  [[nodiscard]] virtual std::optional<Known> weight_use() const = 0;
};

/// A model that uses one of its parameters at a second place, where no module has it.
class HasTiedWeights {
 public:
  virtual ~HasTiedWeights() = default;
  /// Each second name with the parameter's own: {"lm_head.weight", "transformer.wte.weight"}.
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> tied_weights() const = 0;
};

/// A model whose layers have other names in adapters' files: those of transformers' modules.
class HasPeftNames {
 public:
  virtual ~HasPeftNames() = default;
  /// Parts of its names, each with the part that stands for it there, in the order in which they are replaced. None is
  /// a part of a name of the other kind.
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> peft_names() const = 0;
};

}  // namespace levin
