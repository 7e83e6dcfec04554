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

/// A module whose class does not tell what it computes with its weight, and which therefore reports it.
class KnowsWeightUse {
 public:
  /// How the weight is used.
  struct Known {
    WeightUse use = WeightUse::other;
    int64_t groups = 1;  // of a convolution
  };
  virtual ~KnowsWeightUse() = default;
  /// Returns nothing if the module does not know.
  [[nodiscard]] virtual std::optional<Known> weight_use() const = 0;
};

/// A model that uses one of its parameters at a second place, where no module has it.
class HasTiedWeights {
 public:
  virtual ~HasTiedWeights() = default;
  /// Each second name with the parameter's own: {"lm_head.weight", "transformer.wte.weight"}.
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> tied_weights() const = 0;
};

/// A model whose layers have different names in adapter files, where the names of transformers' modules are used.
class HasPeftNames {
 public:
  virtual ~HasPeftNames() = default;
  /// Parts of its names, each with the part that stands for it there, in the order in which they are replaced. None is
  /// a part of a name of the other kind.
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> peft_names() const = 0;
};

}  // namespace levin

namespace torch::nn {
class Module;
}

namespace levin {

/// A submodule that was added to a layer. It and what belongs to it can be taken out of the layer and put back.
class AddedPart {
 public:
  virtual ~AddedPart() = default;
  virtual void take_out() = 0;
  virtual void put_back() = 0;
  /// Adds the same to `copy`, a copy of the layer, with tensors of its own whose values are not set yet.
  virtual void add_to(torch::nn::Module& copy) = 0;
};

}  // namespace levin
