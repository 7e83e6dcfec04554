// The options of LoRA, by PEFT's names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/options/which_checkpoint.h"

namespace levin {

/// Which biases are trained: none, all biases of the model, or the adapted layers' biases.
enum class LoRABias { none, all, lora_only };
template <>
struct EnumNames<LoRABias> {
  static constexpr EnumName<LoRABias> names[] = {
      {"none", LoRABias::none}, {"all", LoRABias::all}, {"lora_only", LoRABias::lora_only}};
};

/// How A starts: uniform as a linear layer's weight, or normal. B starts as zeros. Of embeddings A is zeros, B normal.
enum class LoRAInit { uniform, gaussian };
template <>
struct EnumNames<LoRAInit> {
  static constexpr EnumName<LoRAInit> names[] = {{"true", LoRAInit::uniform}, {"gaussian", LoRAInit::gaussian}};
};

/// How the weights of adapted linear layers are held.
enum class Quantize { none, int8, nf4 };
template <>
struct EnumNames<Quantize> {
  static constexpr EnumName<Quantize> names[] = {
      {"none", Quantize::none}, {"int8", Quantize::int8}, {"nf4", Quantize::nf4}};
};

namespace detail {
template <class Map>
bool all_above_0(const Map& values) {
  for (const auto& item : values) {
    if (item.second <= 0) return false;
  }
  return true;
}
}  // namespace detail

/// Options of apply_lora and of the callback LoRA, by the names of PEFT's LoraConfig.
struct LoRAOptions {
  std::vector<std::string> target_modules = {};
  std::optional<int64_t> r = std::nullopt;
  std::optional<double> lora_alpha = std::nullopt;
  std::map<std::string, int64_t> rank_pattern = {};
  std::map<std::string, double> alpha_pattern = {};
  double lora_dropout = 0.0;
  std::vector<std::string> exclude_modules = {};
  std::vector<std::string> modules_to_save = {};
  EnumOption<LoRABias> bias = LoRABias::none;
  std::optional<bool> use_rslora = std::nullopt;
  std::optional<bool> use_dora = std::nullopt;
  EnumOption<LoRAInit> init_lora_weights = LoRAInit::uniform;
  EnumOption<Quantize> quantize = Quantize::none;
  std::string path = "";
  std::string save_to = "";
  EnumOption<WhichCheckpoint> save_weights = WhichCheckpoint::best;

  template <class = void>
  static auto fields() {
    using O = LoRAOptions;
    return levin::fields(
        field("target_modules", &O::target_modules,
              "the layers to adapt: names, their last parts (q_proj), patterns (\"h.[0-3].*\"), or all-linear"),
        field("r", &O::r, "rank of the update; null: 8, or path's")
            .check([](const auto& r) { return !r || *r > 0; }, "> 0"),
        field("lora_alpha", &O::lora_alpha, "the update is scaled by lora_alpha / r; null: 8, or path's")
            .check([](const auto& alpha) { return !alpha || *alpha > 0; }, "> 0"),
        field("rank_pattern", &O::rank_pattern,
              "ranks that differ from r, by names as in target_modules: {down_proj: 16, \"h.0.*\": 4}")
            .check([](const auto& ranks) { return detail::all_above_0(ranks); }, "> 0, all of them"),
        field("alpha_pattern", &O::alpha_pattern, "values that differ from lora_alpha, by names as in target_modules")
            .check([](const auto& alphas) { return detail::all_above_0(alphas); }, "> 0, all of them"),
        field("lora_dropout", &O::lora_dropout,
              "fraction of an adapter's inputs dropped in training; none for embeddings")
            .min(0.0)
            .below(1.0),
        field("exclude_modules", &O::exclude_modules, "layers of target_modules that are left unchanged"),
        field("modules_to_save", &O::modules_to_save,
              "other modules to train, such as a new head; the adapter's folder holds them too"),
        field("bias", &O::bias, "biases to train: none, all, or lora_only (the adapted layers')"),
        field("use_rslora", &O::use_rslora, "scale by lora_alpha / sqrt(r); null: false, or path's"),
        field("use_dora", &O::use_dora,
              "DoRA: train the norms of the weights' outputs apart from their directions; null: false, or path's"),
        field("init_lora_weights", &O::init_lora_weights,
              "how A starts: true, as a linear layer's weight; gaussian; of embeddings it is B, always normal"),
        field("quantize", &O::quantize,
              "hold the weights of adapted linear layers in 8 bits (int8) or 4 (nf4), and train the adapter alone "
              "(QLoRA)"),
        field("path", &O::path, "a folder with adapter_config.json and adapter_model.safetensors to start from")
            .ranks_may_differ(),
        field("save_to", &O::save_to, "a folder for the adapter at the end of fit, in PEFT's layout; \"\": none")
            .ranks_may_differ(),
        field("save_weights", &O::save_weights,
              "what save_to holds: best, the weights of the best checkpoint by its callback's monitor (the last ones "
              "without a monitor), or last"));
  }
};

}  // namespace levin
