// The options of recomputation: trainer.recompute.
//
//   recompute: {modules: ["encoder.layer.*"]}      each of these submodules is a segment
//   recompute: {checkpoints: [fc_1, pred]}         segments between these outputs, as in Paddle
//   recompute: {modules: [layers], segments: 32}   a Sequential in 32 parts
//   recompute: {budget: 11GiB}                     the planner chooses; auto: for the memory that is free
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/options/units.h"

namespace levin {

/// What a segment keeps for backward besides its inputs: nothing, or the results of its matrix products, so that only
/// the cheap rest is recomputed.
enum class Keep { nothing, matmul };
template <>
struct EnumNames<Keep> {
  static constexpr EnumName<Keep> names[] = {{"nothing", Keep::nothing}, {"matmul", Keep::matmul}};
};

/// Options of recomputation: which parts of a module are segments, and what a segment keeps.
struct RecomputeOptions {
  std::vector<std::string> modules = {};
  std::vector<std::string> checkpoints = {};
  std::optional<int64_t> segments = std::nullopt;
  std::optional<ByteSize> budget = std::nullopt;
  EnumOption<Keep> keep = Keep::nothing;
  bool offload = false;

  template <class = void>
  static auto fields() {
    using O = RecomputeOptions;
    return levin::fields(
        field("modules", &O::modules, "names of submodules, * matches any part: each is recomputed in backward"),
        field("checkpoints", &O::checkpoints,
              "names of submodules whose outputs are kept; everything in between is recomputed"),
        field("segments", &O::segments, "cut each of modules, a Sequential, into this many parts of equal length")
            .check([](const std::optional<int64_t>& n) { return !n || *n >= 1; }, ">= 1"),
        field("budget", &O::budget, "plan the segments so that a step stays under this memory, e.g. 11GiB"),
        field("keep", &O::keep, "what a segment keeps: nothing, or the results of matrix products (matmul)"),
        field("offload", &O::offload, "keep the segments' inputs in the host's memory"));
  }
};

/// The value of trainer.recompute. Unset: nothing is recomputed. "auto": like budget, with the free memory.
struct RecomputeChoice {
  bool automatic = false;
  std::optional<RecomputeOptions> options = std::nullopt;

  RecomputeChoice() = default;
  RecomputeChoice(RecomputeOptions given) : options(std::move(given)) {}  // NOLINT(google-explicit-constructor)
  /// Takes "auto"; throws ConfigError for any other word.
  RecomputeChoice(const char* word);  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool wanted() const { return automatic || options.has_value(); }
  /// Returns whether the memory planner chooses the segments.
  [[nodiscard]] bool is_planned() const { return automatic || (options && options->budget); }
};

template <>
struct ValueType<RecomputeChoice> {
  static std::string name() { return "auto, or modules, checkpoints or budget"; }
  static bool read(const ConfigNode& node, RecomputeChoice& value, const std::string& path, Problems& problems);
  static ConfigNode write(const RecomputeChoice& value);
};

}  // namespace levin
