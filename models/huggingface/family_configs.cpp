#include "levin/models/huggingface/family_configs.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/models/huggingface/functional.h"

namespace levin::huggingface {

namespace {

// What is wrong with one file.
class Findings {
 public:
  explicit Findings(const PretrainedConfig& config) : config_(config) {
    refuse_if_set("quantization_config", "the weights are quantized, which Levin does not read");
    refuse_if_set("pruned_heads", "heads were removed, which Levin does not read");
    bool is_pair = false;
    const ConfigNode* pair = config.find("is_encoder_decoder");
    if (pair != nullptr && detail::parse_bool(*pair, is_pair) && is_pair) {
      add("is_encoder_decoder", "must be false: Levin has no encoder-decoder models.");
    }
  }

  void add(const std::string& key, const std::string& what) { problems_.add({config_.source(), 0, 0}, key, what); }

  void check_activation(const std::string& key, const std::string& name) {
    if (!is_activation(name)) {
      add(key, "unknown activation \"" + cut_text(name) + "\". Known: " + join(activation_names()) + ".");
    }
  }
  void check_multiple(const std::string& key, int64_t number, const std::string& of, int64_t divisor) {
    if (divisor < 1 || number % divisor == 0) return;  // the field's own range reports the first
    add(key, "must be a multiple of " + of + " (" + std::to_string(divisor) + "), got " + std::to_string(number) + ".");
  }
  void check_sizes(const char* act_key, const std::string& act, const char* width_key, int64_t width,
                   const char* heads_key, int64_t heads) {
    check_activation(act_key, act);
    check_multiple(width_key, width, heads_key, heads);
  }
  void check_padding(const std::optional<int64_t>& id, int64_t vocab_size) {
    if (!id || (*id >= 0 && *id < vocab_size)) return;
    add("pad_token_id",
        "must be from 0 to vocab_size - 1 (" + std::to_string(vocab_size - 1) + "), got " + std::to_string(*id) + ".");
  }

  [[nodiscard]] Problems& problems() { return problems_; }
  void throw_if_any() const { problems_.throw_if_any(); }

 private:
  void refuse_if_set(const std::string& key, const std::string& why) {
    const ConfigNode* node = config_.find(key);
    if (node == nullptr || node->is_null() || (!node->is_scalar() && node->entries.empty() && node->items.empty())) {
      return;
    }
    add(key, "must be absent: " + why + ".");
  }

  const PretrainedConfig& config_;
  Problems problems_ = {};
};

// ---- rotary positions ----------------------------------------------------------------------------------------------

// attention_factor, or what the papers suggest for it: YaRN's section 3.4, LongRoPE's section 3.3 (Ding et al. 2024,
// https://arxiv.org/abs/2402.13753).
double table_scale(const RopeConfig& rope) {
  if (rope.rope_type != "yarn" && rope.rope_type != "longrope") return 1;
  if (rope.attention_factor) return *rope.attention_factor;
  const double factor = rope.scaling();
  if (rope.rope_type == "longrope") {
    const auto trained = static_cast<double>(rope.original_max_position_embeddings);
    return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(trained));
  }
  const auto by = [&](double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; };
  const bool has_both = rope.mscale.value_or(0) != 0 && rope.mscale_all_dim.value_or(0) != 0;
  return has_both ? by(*rope.mscale) / by(*rope.mscale_all_dim) : by(1);
}

// Llama 3 keeps short wavelengths, divides the speeds of long ones by `factor`, and blends between the two
// (https://arxiv.org/abs/2407.21783, section 3.4.3, with the formula of Meta's llama-models).
at::Tensor llama3_frequencies(const RopeConfig& rope, const at::Tensor& speeds) {
  const auto trained = static_cast<double>(rope.original_max_position_embeddings);
  const at::Tensor wavelengths = 2 * std::numbers::pi / speeds;
  const at::Tensor share = (trained / wavelengths - rope.low_freq_factor) /
                           (rope.high_freq_factor - rope.low_freq_factor);  // of the unchanged speed, in between
  const at::Tensor blended = (1 - share) * speeds / rope.scaling() + share * speeds;
  const at::Tensor long_too = at::where(wavelengths > trained / rope.low_freq_factor, speeds / rope.scaling(), blended);
  return at::where(wavelengths < trained / rope.high_freq_factor, speeds, long_too);
}

// YaRN (Peng et al. 2023, https://arxiv.org/abs/2309.00071, section 3.2): pairs that turn more than beta_fast times
// within the trained length keep their speed, the speeds of pairs that turn less than beta_slow times are divided by
// `factor`, and in between lies a ramp over the pairs' numbers.
at::Tensor yarn_frequencies(const RopeConfig& rope, const at::Tensor& speeds) {
  const auto width = static_cast<double>(2 * speeds.numel());
  const auto trained = static_cast<double>(rope.original_max_position_embeddings);
  const auto pair_that_turns = [&](double times) {
    return width * std::log(trained / (times * 2 * std::numbers::pi)) / (2 * std::log(rope.rope_theta));
  };
  double first = pair_that_turns(rope.beta_fast), last = pair_that_turns(rope.beta_slow);
  if (rope.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, width - 1);
  if (first == last) last += 0.001;
  const at::Tensor stretched =
      at::clamp((at::arange(speeds.numel(), at::kFloat) - first) / (last - first), 0, 1);  // share of the divided speed
  return speeds / rope.scaling() * stretched + speeds * (1 - stretched);
}

void check_rope(const RopeConfig& rope, const LlamaConfig& llama, const std::string& key, Findings& findings) {
  if (llama.num_attention_heads < 1 || llama.hidden_size < 1) return;  // reported with their fields
  const int64_t rotated = rope.rotated(llama.width_of_head());
  if (rope.partial_rotary_factor != 1 && !llama.has_fused_layers) {
    findings.add(join_path(key, "partial_rotary_factor"),
                 "must be 1: this family rotates whole heads, got " + number_text(rope.partial_rotary_factor) + ".");
  }
  if (rope.partial_rotary_factor != 1 && rotated % 2 != 0) {
    findings.add(join_path(key, "partial_rotary_factor"),
                 "must leave a multiple of 2 of a head's numbers, got " + std::to_string(rotated) + ".");
  }
  if ((rope.rope_type == "linear" || rope.rope_type == "dynamic") && !rope.factor) {
    findings.add(join_path(key, "factor"), "must be set for rope_type " + rope.rope_type + ".");
  }
  if (rope.rope_type == "dynamic" && rotated <= 2) {
    findings.add(join_path(key, "rope_type"), "dynamic needs heads of more than 2 rotated numbers.");
  }
  if (rope.rope_type == "yarn" && rope.rope_theta == 1) {
    findings.add(join_path(key, "rope_theta"), "must not be 1 for rope_type yarn.");
  }
  if (rope.rope_type != "default" && rope.original_max_position_embeddings < 1) {
    findings.add(join_path(key, "original_max_position_embeddings"),
                 "must be >= 1, got " + std::to_string(rope.original_max_position_embeddings) + ".");
  }
  if (rope.rope_type != "longrope") return;
  const std::array<std::pair<const char*, const std::vector<double>*>, 2> lists = {
      {{"short_factor", &rope.short_factor}, {"long_factor", &rope.long_factor}}};
  for (const auto& [name, list] : lists) {
    if (static_cast<int64_t>(list->size()) == rotated / 2) continue;
    findings.add(join_path(key, name), "must have a number for each of a head's " + std::to_string(rotated / 2) +
                                           " pairs, has " + std::to_string(list->size()) + ".");
  }
}

// The parameters as one map: "rope_parameters" of transformers 5, else "rope_scaling"; "type" is an old name of
// "rope_type". A map without rope_theta takes the rope_theta next to it.
RopeConfig read_rope(const PretrainedConfig& config, const LlamaConfig& llama, Findings& findings) {
  RopeConfig rope;
  std::string key = "rope_scaling";
  const ConfigNode* node = config.find(key);
  if (node == nullptr || node->is_null()) node = config.find(key = "rope_parameters");
  ConfigNode values = node == nullptr || node->is_null() ? ConfigNode::map() : *node;
  if (!values.is_map()) {
    findings.add(key, "expected a map, got " + values.shown() + ".");
    return rope;
  }
  for (const char* outer : {"rope_theta", "partial_rotary_factor"}) {
    const ConfigNode* value = config.find(outer);
    if (value != nullptr && !value->is_null() && values.find(outer) == nullptr) values.set(outer, *value);
  }
  // As in transformers, the value next to the map counts, and Phi-3 has a default for it.
  const char* const trained = "original_max_position_embeddings";
  const bool is_phi = config.model_type() == "phi3";
  if (const ConfigNode* original = config.find(trained); original != nullptr && !original->is_null()) {
    values.set(trained, *original);
  } else if (is_phi) {
    values.set(trained, ConfigNode::scalar("4096"));
  }
  for (const char* optional : {"beta_fast", "beta_slow", "truncate"}) {
    const ConfigNode* value = values.find(optional);
    if (value != nullptr && value->is_null()) values.erase(optional);
  }
  if (const ConfigNode* old = values.find("type"); old != nullptr && values.find("rope_type") == nullptr) {
    values.set("rope_type", *old);
  }
  values.erase("type");
  const std::vector<std::string> known = field_names<RopeConfig>();  // of others transformers makes nothing either
  std::erase_if(values.entries, [&](const ConfigEntry& entry) {
    return std::find(known.begin(), known.end(), entry.key) == known.end();
  });
  if (const ConfigNode* type = values.find("rope_type"); type != nullptr && is_phi) {
    if (type->text == "su" || type->text == "yarn") values.set("rope_type", ConfigNode::scalar("longrope", true));
  }
  const bool has_original = values.find(trained) != nullptr;
  read_options(values, rope, key, findings.problems());
  rope.max_position_embeddings = llama.max_position_embeddings;
  if (!has_original) rope.original_max_position_embeddings = llama.max_position_embeddings;
  check_rope(rope, llama, key, findings);
  if ((rope.rope_type == "yarn" || rope.rope_type == "longrope") && !rope.factor) {
    rope.factor =
        static_cast<double>(rope.max_position_embeddings) / static_cast<double>(rope.original_max_position_embeddings);
  }
  rope.table_scale = table_scale(rope);
  if (rope.rope_type != "llama3") return rope;
  for (const char* needed : {"factor", "low_freq_factor", "high_freq_factor"}) {
    if (values.find(needed) == nullptr) findings.add(join_path(key, needed), "must be set for rope_type llama3.");
  }
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    findings.add(join_path(key, "high_freq_factor"), "must be above low_freq_factor (" +
                                                         number_text(rope.low_freq_factor) + "), got " +
                                                         number_text(rope.high_freq_factor) + ".");
  }
  return rope;
}

// ---- Llama's relatives ---------------------------------------------------------------------------------------------

// transformers' defaults where a file leaves a key out.
LlamaConfig llama_defaults(const std::string& type) {
  LlamaConfig llama;
  if (type == "mistral") {
    llama.intermediate_size = 14336;
    llama.num_key_value_heads = 8;
    llama.max_position_embeddings = 131072;
    llama.sliding_window = 4096;
  } else if (type == "qwen2" || type == "qwen3") {
    llama.vocab_size = 151936;
    llama.intermediate_size = 22016;
    llama.num_key_value_heads = 32;
    llama.max_position_embeddings = 32768;
    llama.sliding_window = 4096;
    if (type == "qwen3") llama.head_dim = 128;
  } else if (type == "gemma") {
    llama.vocab_size = 256000;
    llama.hidden_size = 3072;
    llama.intermediate_size = 24576;
    llama.num_hidden_layers = 28;
    llama.num_attention_heads = 16;
    llama.num_key_value_heads = 16;
    llama.head_dim = 256;
    llama.hidden_act = "gelu_pytorch_tanh";
    llama.max_position_embeddings = 8192;
    llama.pad_token_id = 0;
    llama.tie_word_embeddings = true;
  } else if (type == "phi3") {
    llama.vocab_size = 32064;
    llama.hidden_size = 3072;
    llama.intermediate_size = 8192;
    llama.max_position_embeddings = 4096;
    llama.rms_norm_eps = 1e-5;
    llama.pad_token_id = 32000;
  }
  return llama;
}

// Mistral's and Phi-3's layers have windows all or none; Qwen's by layer_types, or from max_window_layers on.
void set_windows(const std::string& type, LlamaConfig& llama, Findings& findings) {
  const auto layers = static_cast<size_t>(std::max<int64_t>(llama.num_hidden_layers, 0));
  const bool is_qwen = type == "qwen2" || type == "qwen3";
  const bool is_one_kind = type == "mistral" || type == "phi3";
  if ((!is_qwen && !is_one_kind) || (is_qwen && !llama.use_sliding_window)) llama.sliding_window.reset();
  llama.has_window.assign(layers, is_one_kind && llama.sliding_window.has_value());
  if (!is_qwen) return;
  if (!llama.layer_types) {
    for (size_t i = 0; i < layers; ++i) {
      llama.has_window[i] = llama.sliding_window && static_cast<int64_t>(i) >= llama.max_window_layers;
    }
    return;
  }
  if (llama.layer_types->size() != layers) {
    findings.add("layer_types", "must name num_hidden_layers (" + std::to_string(layers) + ") layers, names " +
                                    std::to_string(llama.layer_types->size()) + ".");
    return;
  }
  for (size_t i = 0; i < layers; ++i) {
    const std::string& name = (*llama.layer_types)[i];
    llama.has_window[i] = name == "sliding_attention";
    if (name == "full_attention" || (llama.has_window[i] && llama.sliding_window)) continue;
    findings.add(detail::index_path("layer_types", i),
                 llama.has_window[i] ? "sliding_attention needs use_sliding_window and sliding_window."
                                     : "must be full_attention or sliding_attention, got \"" + cut_text(name) + "\".");
  }
}

}  // namespace

BertConfig read_bert_config(const PretrainedConfig& config) {
  BertConfig bert;
  bert.is_roberta = config.model_type() != "bert";
  if (bert.is_roberta) {
    bert.pad_token_id = 1;
    if (config.model_type() == "roberta") bert.vocab_size = 50265;
  }
  Findings findings(config);
  config.read_into(bert, findings.problems());
  findings.check_sizes("hidden_act", bert.hidden_act, "hidden_size", bert.hidden_size, "num_attention_heads",
                       bert.num_attention_heads);
  findings.check_padding(bert.pad_token_id, bert.vocab_size);
  if (bert.is_roberta && bert.pad_token_id.value_or(0) + 1 >= bert.max_position_embeddings) {
    findings.add("max_position_embeddings", "must be above pad_token_id + 1, where positions begin, got " +
                                                std::to_string(bert.max_position_embeddings) + ".");
  }
  if (bert.is_roberta && !bert.pad_token_id) {
    findings.add("pad_token_id", "must be set: this family counts positions from it.");
  }
  findings.throw_if_any();
  return bert;
}

DistilBertConfig read_distilbert_config(const PretrainedConfig& config) {
  DistilBertConfig bert;
  bert.num_hidden_layers = 6;
  Findings findings(config);
  config.read_into(bert, findings.problems());
  findings.check_sizes("activation", bert.hidden_act, "dim", bert.hidden_size, "n_heads", bert.num_attention_heads);
  findings.check_padding(bert.pad_token_id, bert.vocab_size);
  findings.throw_if_any();
  return bert;
}

GPT2Config read_gpt2_config(const PretrainedConfig& config) {
  GPT2Config gpt;
  Findings findings(config);
  config.read_into(gpt, findings.problems());
  findings.check_sizes("activation_function", gpt.activation_function, "n_embd", gpt.n_embd, "n_head", gpt.n_head);
  findings.check_padding(gpt.pad_token_id, gpt.vocab_size);
  findings.throw_if_any();
  return gpt;
}

ViTConfig read_vit_config(const PretrainedConfig& config) {
  ViTConfig vit;
  vit.hidden_dropout_prob = vit.attention_probs_dropout_prob = 0;
  Findings findings(config);
  config.read_into(vit, findings.problems());
  findings.check_sizes("hidden_act", vit.hidden_act, "hidden_size", vit.hidden_size, "num_attention_heads",
                       vit.num_attention_heads);
  findings.check_activation("pooler_act", vit.pooler_act);
  findings.check_multiple("image_size", vit.image_size, "patch_size", vit.patch_size);
  findings.throw_if_any();
  return vit;
}

LlamaConfig read_llama_config(const PretrainedConfig& config) {
  const std::string type = config.model_type();
  LlamaConfig llama = llama_defaults(type);
  Findings findings(config);
  config.read_into(llama, findings.problems());
  const bool may_have_bias = type == "llama" || type == "qwen3" || type == "gemma";
  llama.qkv_bias = type == "qwen2" || (may_have_bias && llama.attention_bias);
  llama.output_bias = may_have_bias && llama.attention_bias;
  llama.mlp_bias = type == "llama" && llama.mlp_bias;
  llama.qk_norm = type == "qwen3";
  llama.is_gemma = type == "gemma";
  llama.has_fused_layers = type == "phi3";
  if (!llama.has_fused_layers) llama.resid_pdrop = 0;
  // The files of its makers say gelu and mean the approximation.
  if (llama.is_gemma && llama.hidden_act == "gelu") llama.hidden_act = "gelu_pytorch_tanh";
  set_windows(type, llama, findings);
  llama.rope = read_rope(config, llama, findings);
  findings.check_activation("hidden_act", llama.hidden_act);
  if (!llama.head_dim) {
    findings.check_multiple("hidden_size", llama.hidden_size, "num_attention_heads", llama.num_attention_heads);
  }
  findings.check_multiple("num_attention_heads", llama.num_attention_heads, "num_key_value_heads",
                          llama.key_value_heads());
  if (llama.num_attention_heads > 0) findings.check_multiple("head_dim", llama.width_of_head(), "a rotated pair", 2);
  findings.check_padding(llama.pad_token_id, llama.vocab_size);
  findings.throw_if_any();
  return llama;
}

// As transformers computes them (modeling_rope_utils.py), with the length of the samples at hand where it remembers the
// longest one before.
at::Tensor rope_frequencies(const RopeConfig& rope, int64_t head_width, int64_t tokens) {
  const int64_t width = rope.rotated(head_width);
  const at::Tensor exponents = at::arange(0, width, 2, at::kFloat) / static_cast<double>(width);
  double theta = rope.rope_theta;
  if (rope.rope_type == "dynamic") {
    const auto most = static_cast<double>(rope.max_position_embeddings);
    const double stretch = rope.scaling() * std::max(static_cast<double>(tokens), most) / most - (rope.scaling() - 1);
    theta *= std::pow(stretch, static_cast<double>(width) / static_cast<double>(width - 2));
  }
  const at::Tensor speeds = at::pow(theta, exponents).reciprocal();
  if (rope.rope_type == "linear") return speeds / rope.scaling();
  if (rope.rope_type == "llama3") return llama3_frequencies(rope, speeds);
  if (rope.rope_type == "yarn") return yarn_frequencies(rope, speeds);
  if (rope.rope_type != "longrope") return speeds;
  const bool is_long = tokens > rope.original_max_position_embeddings;
  return speeds / at::tensor(is_long ? rope.long_factor : rope.short_factor, at::kFloat);
}

}  // namespace levin::huggingface
