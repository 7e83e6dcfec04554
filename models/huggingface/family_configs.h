// The sizes of each family of models, read from a config.json under Hugging Face's keys. A value that would change the
// numbers in a way Levin does not compute is refused; all problems of a file are reported together, with file and key.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/models/huggingface/pretrained_config.h"

namespace levin::huggingface {

/// What BERT and its relatives, DistilBERT and ViT have in common.
struct EncoderConfig {
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t intermediate_size = 3072;
  std::string hidden_act = "gelu";
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;

  template <class = void>
  static auto fields() {
    using O = EncoderConfig;
    return levin::fields(
        field("hidden_size", &O::hidden_size, "width").min(1),
        field("num_hidden_layers", &O::num_hidden_layers, "layers").min(0),
        field("num_attention_heads", &O::num_attention_heads, "heads of a layer").min(1),
        field("intermediate_size", &O::intermediate_size, "width within the MLPs").min(1),
        field("hidden_act", &O::hidden_act, "the MLPs' activation"),
        field("hidden_dropout_prob", &O::hidden_dropout_prob, "fraction dropped").min(0.0).below(1.0),
        field("attention_probs_dropout_prob", &O::attention_probs_dropout_prob, "fraction dropped").min(0.0).below(1.0),
        field("initializer_range", &O::initializer_range, "standard deviation of new weights").min(0.0),
        field("layer_norm_eps", &O::layer_norm_eps, "added to variances").min(0.0));
  }
};

/// BERT, RoBERTa, XLM-R and CamemBERT.
struct BertConfig : EncoderConfig {
  int64_t vocab_size = 30522;
  int64_t max_position_embeddings = 512;
  int64_t type_vocab_size = 2;
  std::optional<int64_t> pad_token_id = 0;
  std::optional<double> classifier_dropout = std::nullopt;  // unset: hidden_dropout_prob
  bool tie_word_embeddings = true;
  std::string position_embedding_type = "absolute";
  bool is_decoder = false;
  bool add_cross_attention = false;

  bool is_roberta = false;  // positions count the tokens that are not padding; the heads have names of their own

  template <class = void>
  static auto fields() {
    using O = BertConfig;
    return levin::fields(
        EncoderConfig::fields(), field("vocab_size", &O::vocab_size, "tokens").min(1),
        field("max_position_embeddings", &O::max_position_embeddings, "positions").min(1),
        field("type_vocab_size", &O::type_vocab_size, "token types").min(1),
        field("pad_token_id", &O::pad_token_id, "the padding token"),
        field("classifier_dropout", &O::classifier_dropout, "fraction dropped before a classifier"),
        field("tie_word_embeddings", &O::tie_word_embeddings, "one matrix for tokens in and logits out"),
        field("position_embedding_type", &O::position_embedding_type, "absolute")
            .check([](const std::string& type) { return type == "absolute"; }, "\"absolute\": Levin has no other"),
        field("is_decoder", &O::is_decoder, "false")
            .check([](bool is) { return !is; }, "false: Levin has this family as encoders only"),
        field("add_cross_attention", &O::add_cross_attention, "false")
            .check([](bool is) { return !is; }, "false: Levin has no encoder-decoder models"));
  }
};

struct GPT2Config {
  int64_t vocab_size = 50257;
  int64_t n_positions = 1024;
  int64_t n_embd = 768;
  int64_t n_layer = 12;
  int64_t n_head = 12;
  std::optional<int64_t> n_inner = std::nullopt;  // unset: 4 n_embd
  std::string activation_function = "gelu_new";
  double resid_pdrop = 0.1;
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  bool scale_attn_weights = true;
  bool scale_attn_by_inverse_layer_idx = false;
  bool tie_word_embeddings = true;
  bool add_cross_attention = false;
  std::optional<int64_t> pad_token_id = std::nullopt;
  std::optional<double> classifier_dropout = std::nullopt;

  template <class = void>
  static auto fields() {
    using O = GPT2Config;
    return levin::fields(
        field("vocab_size", &O::vocab_size, "tokens").min(1), field("n_positions", &O::n_positions, "positions").min(1),
        field("n_embd", &O::n_embd, "width").min(1), field("n_layer", &O::n_layer, "blocks").min(0),
        field("n_head", &O::n_head, "heads of a block").min(1), field("n_inner", &O::n_inner, "width within the MLPs"),
        field("activation_function", &O::activation_function, "the MLPs' activation"),
        field("resid_pdrop", &O::resid_pdrop, "fraction dropped").min(0.0).below(1.0),
        field("embd_pdrop", &O::embd_pdrop, "fraction dropped").min(0.0).below(1.0),
        field("attn_pdrop", &O::attn_pdrop, "fraction dropped").min(0.0).below(1.0),
        field("layer_norm_epsilon", &O::layer_norm_epsilon, "added to variances").min(0.0),
        field("initializer_range", &O::initializer_range, "standard deviation of new weights").min(0.0),
        field("scale_attn_weights", &O::scale_attn_weights, "divide scores by the root of the heads' width"),
        field("scale_attn_by_inverse_layer_idx", &O::scale_attn_by_inverse_layer_idx, "and by the block's number"),
        field("tie_word_embeddings", &O::tie_word_embeddings, "one matrix for tokens in and logits out"),
        field("add_cross_attention", &O::add_cross_attention, "false")
            .check([](bool is) { return !is; }, "false: Levin has no encoder-decoder models"),
        field("pad_token_id", &O::pad_token_id, "the padding token"),
        field("classifier_dropout", &O::classifier_dropout, "fraction dropped before a classifier"));
  }
};

/// DistilBERT, whose files have other names for the encoder's sizes, and no eps.
struct DistilBertConfig : EncoderConfig {
  int64_t vocab_size = 30522;
  int64_t max_position_embeddings = 512;
  bool sinusoidal_pos_embds = false;
  double seq_classif_dropout = 0.2;
  std::optional<int64_t> pad_token_id = 0;
  bool tie_word_embeddings = true;

  template <class = void>
  static auto fields() {
    using O = DistilBertConfig;
    return levin::fields(
        field("vocab_size", &O::vocab_size, "tokens").min(1),
        field("max_position_embeddings", &O::max_position_embeddings, "positions").min(1),
        field("sinusoidal_pos_embds", &O::sinusoidal_pos_embds, "positions start as sines and cosines"),
        field("n_layers", &O::num_hidden_layers, "layers").min(0),
        field("n_heads", &O::num_attention_heads, "heads of a layer").min(1),
        field("dim", &O::hidden_size, "width").min(1),
        field("hidden_dim", &O::intermediate_size, "width within the MLPs").min(1),
        field("dropout", &O::hidden_dropout_prob, "fraction dropped").min(0.0).below(1.0),
        field("attention_dropout", &O::attention_probs_dropout_prob, "fraction dropped").min(0.0).below(1.0),
        field("seq_classif_dropout", &O::seq_classif_dropout, "fraction dropped before a classifier")
            .min(0.0)
            .below(1.0),
        field("activation", &O::hidden_act, "the MLPs' activation"),
        field("initializer_range", &O::initializer_range, "standard deviation of new weights").min(0.0),
        field("pad_token_id", &O::pad_token_id, "the padding token"),
        field("tie_word_embeddings", &O::tie_word_embeddings, "one matrix for tokens in and logits out"));
  }
};

/// Rotary positions (Su et al. 2021): "rope_parameters", or in older files "rope_theta" and "rope_scaling".
struct RopeConfig {
  std::string rope_type = "default";  // default, linear, dynamic, llama3, yarn or longrope
  double rope_theta = 10000;
  std::optional<double> factor = std::nullopt;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 0;
  double partial_rotary_factor = 1;
  std::optional<double> attention_factor = std::nullopt;
  double beta_fast = 32;
  double beta_slow = 1;
  std::optional<double> mscale = std::nullopt;
  std::optional<double> mscale_all_dim = std::nullopt;
  bool truncate = true;
  std::vector<double> short_factor = {};
  std::vector<double> long_factor = {};

  // By the model's config.
  int64_t max_position_embeddings = 0;
  double table_scale = 1;  // of cosines and sines

  [[nodiscard]] double scaling() const { return factor.value_or(1); }
  /// How many numbers of a head are rotated.
  [[nodiscard]] int64_t rotated(int64_t head_width) const {
    return static_cast<int64_t>(static_cast<double>(head_width) * partial_rotary_factor);
  }

  template <class = void>
  static auto fields() {
    using O = RopeConfig;
    return levin::fields(
        field("rope_type", &O::rope_type, "default, linear, dynamic, llama3, yarn or longrope")
            .check(
                [](const std::string& t) {
                  return t == "default" || t == "linear" || t == "dynamic" || t == "llama3" || t == "yarn" ||
                         t == "longrope";
                },
                "default, linear, dynamic, llama3, yarn or longrope: Levin has no other"),
        field("rope_theta", &O::rope_theta, "base of the wavelengths").above(0.0),
        field("factor", &O::factor, "what positions are divided by")
            .check([](const auto& factor) { return !factor || *factor >= 1; }, ">= 1"),
        field("low_freq_factor", &O::low_freq_factor, "llama3: the longest wavelength that is kept").above(0.0),
        field("high_freq_factor", &O::high_freq_factor, "llama3: the shortest wavelength that is stretched").above(0.0),
        field("original_max_position_embeddings", &O::original_max_position_embeddings,
              "llama3, yarn, longrope: of pretraining"),
        field("partial_rotary_factor", &O::partial_rotary_factor, "fraction of a head's numbers that are rotated")
            .above(0.0)
            .max(1.0),
        field("attention_factor", &O::attention_factor, "yarn, longrope: of cosines and sines; null: by factor")
            .check([](const auto& factor) { return !factor || *factor > 0; }, "> 0"),
        field("beta_fast", &O::beta_fast, "yarn: turns from which on pairs keep their speed").above(0.0),
        field("beta_slow", &O::beta_slow, "yarn: turns below which speeds are divided by factor").above(0.0),
        field("mscale", &O::mscale, "yarn: of attention_factor's numerator"),
        field("mscale_all_dim", &O::mscale_all_dim, "yarn: of attention_factor's denominator"),
        field("truncate", &O::truncate, "yarn: the ramp begins and ends at whole pairs"),
        field("short_factor", &O::short_factor, "longrope: what each pair's speed is divided by"),
        field("long_factor", &O::long_factor, "longrope: the same, in samples longer than in pretraining"));
  }
};

/// Llama, Mistral, Qwen2, Qwen3, Gemma and Phi-3.
struct LlamaConfig {
  int64_t vocab_size = 32000;
  int64_t hidden_size = 4096;
  int64_t intermediate_size = 11008;
  int64_t num_hidden_layers = 32;
  int64_t num_attention_heads = 32;
  std::optional<int64_t> num_key_value_heads = std::nullopt;  // unset: num_attention_heads
  std::optional<int64_t> head_dim = std::nullopt;             // unset: hidden_size / num_attention_heads
  std::string hidden_act = "silu";
  int64_t max_position_embeddings = 2048;
  double initializer_range = 0.02;
  double rms_norm_eps = 1e-6;
  std::optional<int64_t> pad_token_id = std::nullopt;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  double attention_dropout = 0;
  double resid_pdrop = 0;  // Phi-3
  std::optional<bool> use_bidirectional_attention = std::nullopt;
  std::optional<int64_t> sliding_window = std::nullopt;
  bool use_sliding_window = false;  // Qwen
  int64_t max_window_layers = 28;   // Qwen: the layers from this one on have windows
  std::optional<std::vector<std::string>> layer_types = std::nullopt;
  std::optional<double> classifier_dropout = std::nullopt;
  bool is_causal = true;

  // By the family and the keys above.
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;
  bool is_gemma = false;              // embeddings times the root of their width, norms with 1 + weight
  bool has_fused_layers = false;      // Phi-3: qkv_proj and gate_up_proj
  std::vector<bool> has_window = {};  // by layer
  RopeConfig rope = {};

  [[nodiscard]] int64_t key_value_heads() const { return num_key_value_heads.value_or(num_attention_heads); }
  [[nodiscard]] int64_t width_of_head() const { return head_dim.value_or(hidden_size / num_attention_heads); }

  template <class = void>
  static auto fields() {
    using O = LlamaConfig;
    const auto positive = [](const auto& number) { return !number || *number > 0; };
    return levin::fields(
        field("vocab_size", &O::vocab_size, "tokens").min(1), field("hidden_size", &O::hidden_size, "width").min(1),
        field("intermediate_size", &O::intermediate_size, "width within the MLPs").min(1),
        field("num_hidden_layers", &O::num_hidden_layers, "layers").min(0),
        field("num_attention_heads", &O::num_attention_heads, "heads of a layer").min(1),
        field("num_key_value_heads", &O::num_key_value_heads, "key/value heads").check(positive, "> 0"),
        field("head_dim", &O::head_dim, "width of a head").check(positive, "> 0"),
        field("hidden_act", &O::hidden_act, "the MLPs' activation"),
        field("max_position_embeddings", &O::max_position_embeddings, "tokens of pretraining").min(1),
        field("initializer_range", &O::initializer_range, "standard deviation of new weights").min(0.0),
        field("rms_norm_eps", &O::rms_norm_eps, "added to mean squares").min(0.0),
        field("pad_token_id", &O::pad_token_id, "the padding token"),
        field("tie_word_embeddings", &O::tie_word_embeddings, "one matrix for tokens in and logits out"),
        field("attention_bias", &O::attention_bias, "of the attention's linear layers"),
        field("mlp_bias", &O::mlp_bias, "of the MLPs' linear layers"),
        field("attention_dropout", &O::attention_dropout, "fraction dropped").min(0.0).below(1.0),
        field("resid_pdrop", &O::resid_pdrop, "Phi-3: fraction dropped").min(0.0).below(1.0),
        field("use_bidirectional_attention", &O::use_bidirectional_attention, "false")
            .check([](const std::optional<bool>& is) { return !is.value_or(false); },
                   "false: Levin has this family as causal models only"),
        field("sliding_window", &O::sliding_window, "tokens that a token sees").check(positive, "> 0"),
        field("use_sliding_window", &O::use_sliding_window, "layers have windows"),
        field("max_window_layers", &O::max_window_layers, "the first layer with one").min(0),
        field("layer_types", &O::layer_types, "full_attention or sliding_attention, by layer"),
        field("classifier_dropout", &O::classifier_dropout, "fraction dropped before a token classifier"),
        field("is_causal", &O::is_causal, "true")
            .check([](bool is) { return is; }, "true: Levin has this family as causal models only"));
  }
};

struct ViTConfig : EncoderConfig {
  int64_t image_size = 224;
  int64_t patch_size = 16;
  int64_t num_channels = 3;
  bool qkv_bias = true;
  std::optional<int64_t> pooler_output_size = std::nullopt;  // unset: hidden_size
  std::string pooler_act = "tanh";

  template <class = void>
  static auto fields() {
    using O = ViTConfig;
    return levin::fields(EncoderConfig::fields(),
                         field("image_size", &O::image_size, "pixels, of height and width").min(1),
                         field("patch_size", &O::patch_size, "pixels, of height and width").min(1),
                         field("num_channels", &O::num_channels, "colours").min(1),
                         field("qkv_bias", &O::qkv_bias, "of queries, keys and values"),
                         field("pooler_output_size", &O::pooler_output_size, "width of the pooler"),
                         field("pooler_act", &O::pooler_act, "its activation"));
  }
};

// Each function throws ConfigError with all problems of the file.
[[nodiscard]] BertConfig read_bert_config(const PretrainedConfig& config);
[[nodiscard]] DistilBertConfig read_distilbert_config(const PretrainedConfig& config);
[[nodiscard]] GPT2Config read_gpt2_config(const PretrainedConfig& config);
[[nodiscard]] LlamaConfig read_llama_config(const PretrainedConfig& config);
[[nodiscard]] ViTConfig read_vit_config(const PretrainedConfig& config);

/// The angles' speeds of rotary positions in samples of `tokens` tokens, (R / 2) float32, in radians a token; R is how
/// many of a head's numbers are rotated.
[[nodiscard]] at::Tensor rope_frequencies(const RopeConfig& rope, int64_t head_width, int64_t tokens);

}  // namespace levin::huggingface
