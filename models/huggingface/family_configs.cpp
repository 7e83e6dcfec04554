#include "levin/models/huggingface/family_configs.h"

#include "levin/core/error.h"
#include "levin/models/huggingface/activation.h"

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

// The parameters as one map: "rope_parameters" of transformers 5, else "rope_scaling"; "type" is an old name of
// "rope_type". Without a theta of its own the one beside it counts.
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
  if (const ConfigNode* old = values.find("type"); old != nullptr && values.find("rope_type") == nullptr) {
    values.set("rope_type", *old);
  }
  values.erase("type");
  const bool has_original = values.find("original_max_position_embeddings") != nullptr;
  read_options(values, rope, key, findings.problems());
  if (rope.rope_type != "llama3") return rope;
  if (!has_original) rope.original_max_position_embeddings = llama.max_position_embeddings;
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
  }
  return llama;
}

// Mistral's layers have windows all or none; Qwen's by layer_types, or from max_window_layers on.
void set_windows(const std::string& type, LlamaConfig& llama, Findings& findings) {
  const auto layers = static_cast<size_t>(std::max<int64_t>(llama.num_hidden_layers, 0));
  const bool is_qwen = type == "qwen2" || type == "qwen3";
  if (type == "llama" || (is_qwen && !llama.use_sliding_window)) llama.sliding_window.reset();
  llama.has_window.assign(layers, type == "mistral" && llama.sliding_window.has_value());
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
  findings.check_activation("hidden_act", bert.hidden_act);
  findings.check_multiple("hidden_size", bert.hidden_size, "num_attention_heads", bert.num_attention_heads);
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

GPT2Config read_gpt2_config(const PretrainedConfig& config) {
  GPT2Config gpt;
  Findings findings(config);
  config.read_into(gpt, findings.problems());
  findings.check_activation("activation_function", gpt.activation_function);
  findings.check_multiple("n_embd", gpt.n_embd, "n_head", gpt.n_head);
  findings.check_padding(gpt.pad_token_id, gpt.vocab_size);
  findings.throw_if_any();
  return gpt;
}

LlamaConfig read_llama_config(const PretrainedConfig& config) {
  const std::string type = config.model_type();
  LlamaConfig llama = llama_defaults(type);
  Findings findings(config);
  config.read_into(llama, findings.problems());
  llama.qkv_bias = type == "qwen2" || (type != "mistral" && llama.attention_bias);
  llama.output_bias = type != "qwen2" && type != "mistral" && llama.attention_bias;
  llama.mlp_bias = type == "llama" && llama.mlp_bias;
  llama.qk_norm = type == "qwen3";
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

ViTConfig read_vit_config(const PretrainedConfig& config) {
  ViTConfig vit;
  Findings findings(config);
  config.read_into(vit, findings.problems());
  findings.check_activation("hidden_act", vit.hidden_act);
  findings.check_activation("pooler_act", vit.pooler_act);
  findings.check_multiple("hidden_size", vit.hidden_size, "num_attention_heads", vit.num_attention_heads);
  findings.check_multiple("image_size", vit.image_size, "patch_size", vit.patch_size);
  findings.throw_if_any();
  return vit;
}

}  // namespace levin::huggingface
