// BERT and its relatives, DistilBERT and ViT.
//
// Shapes: B batch, T tokens (or the class token and the patches), C hidden_size.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cmath>
#include <numbers>

#include "levin/core/module_call.h"
#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/models/huggingface/families.h"
#include "levin/models/huggingface/family_configs.h"
#include "levin/models/huggingface/functional.h"
#include "levin/models/huggingface/layers.h"

namespace levin::huggingface {

// Attention and an MLP, each added to its input, with norms after the additions (BERT) or before both parts (ViT). The
// layers' names and the order of their registration are the family's.
class EncoderLayer : public torch::nn::Module {
 public:
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {  // (B, T, C); (B, 1, 1, T) bool or undefined
    const at::Tensor input = is_pre_norm_ ? call(norm1_, x) : x;
    const auto heads_of = [&](const std::shared_ptr<Linear>& layer) { return split_heads(call(layer, input), heads_); };
    const at::Tensor seen = attend(heads_of(query_), heads_of(key_), heads_of(value_), mask,
                                   {.dropout = is_training() ? attention_dropout_ : 0.0});
    const at::Tensor sum = at::dropout(call(attended_, seen), attended_dropout_, is_training()) + x;
    const at::Tensor after = is_pre_norm_ ? sum : call(norm1_, sum);
    const at::Tensor hidden = call(narrow_, act_(call(wide_, is_pre_norm_ ? call(norm2_, after) : after)));
    const at::Tensor result = at::dropout(hidden, dropout_, is_training()) + after;
    return is_pre_norm_ ? result : call(norm2_, result);
  }

 protected:
  EncoderLayer(const EncoderConfig& config, bool is_pre_norm)
      : heads_(config.num_attention_heads),
        attention_dropout_(config.attention_probs_dropout_prob),
        attended_dropout_(config.hidden_dropout_prob),
        dropout_(config.hidden_dropout_prob),
        is_pre_norm_(is_pre_norm),
        act_(activation(config.hidden_act)) {}

  void add_attention(torch::nn::Module& part, const std::array<const char*, 3>& names, int64_t width, bool has_bias) {
    query_ = add_layer<Linear>(part, names[0], width, width, has_bias);
    key_ = add_layer<Linear>(part, names[1], width, width, has_bias);
    value_ = add_layer<Linear>(part, names[2], width, width, has_bias);
  }

  int64_t heads_;
  double attention_dropout_, attended_dropout_, dropout_;
  bool is_pre_norm_;
  Activation act_;
  std::shared_ptr<Linear> query_, key_, value_, attended_, wide_, narrow_;
  std::shared_ptr<LayerNorm> norm1_, norm2_;
};

// ---- BERT ----------------------------------------------------------------------------------------------------------

class BertEmbeddings : public torch::nn::Module {
 public:
  explicit BertEmbeddings(const BertConfig& config) : config_(config) {
    const int64_t width = config.hidden_size;
    words_ = add_layer<Embedding>(*this, "word_embeddings", config.vocab_size, width, config.pad_token_id);
    positions_ = add_layer<Embedding>(*this, "position_embeddings", config.max_position_embeddings, width,
                                      config.is_roberta ? config.pad_token_id : std::nullopt);
    types_ = add_layer<Embedding>(*this, "token_type_embeddings", config.type_vocab_size, width);
    norm_ = add_layer<LayerNorm>(*this, "LayerNorm", width, config.layer_norm_eps);
  }

  at::Tensor forward(const at::Tensor& ids, const at::Tensor& types) {  // (B, T) int64; types may be undefined
    const at::Tensor type_rows = call(types_, types.defined() ? types : at::zeros({1}, ids.options()));
    const at::Tensor sum = call(words_, ids) + type_rows + call(positions_, positions(ids));
    return at::dropout(call(norm_, sum), config_.hidden_dropout_prob, is_training());
  }

  [[nodiscard]] at::Tensor words() const { return words_->weight; }

 private:
  // RoBERTa counts the tokens that are not padding from pad_token_id + 1, and leaves padding at pad_token_id (fairseq's
  // make_positions). BERT counts all tokens, from 0.
  [[nodiscard]] at::Tensor positions(const at::Tensor& ids) const {
    if (!config_.is_roberta) return at::arange(ids.size(1), ids.options()).unsqueeze(0);
    const at::Tensor counted = ids.ne(*config_.pad_token_id).to(at::kLong);
    return counted.cumsum(1) * counted + *config_.pad_token_id;
  }

  BertConfig config_;
  std::shared_ptr<Embedding> words_, positions_, types_;
  std::shared_ptr<LayerNorm> norm_;
};

class BertLayer : public EncoderLayer {
 public:
  explicit BertLayer(const BertConfig& config) : EncoderLayer(config, /*is_pre_norm=*/false) {
    const int64_t width = config.hidden_size;
    const auto attention = add_part(*this, "attention");
    add_attention(*add_part(*attention, "self"), {"query", "key", "value"}, width, /*has_bias=*/true);
    const auto output = add_part(*attention, "output");
    attended_ = add_layer<Linear>(*output, "dense", width, width);
    norm1_ = add_layer<LayerNorm>(*output, "LayerNorm", width, config.layer_norm_eps);
    wide_ = add_layer<Linear>(*add_part(*this, "intermediate"), "dense", width, config.intermediate_size);
    const auto last = add_part(*this, "output");
    narrow_ = add_layer<Linear>(*last, "dense", config.intermediate_size, width);
    norm2_ = add_layer<LayerNorm>(*last, "LayerNorm", width, config.layer_norm_eps);
  }
};

class BertModel : public PretrainedModel {
 public:
  BertModel(const PretrainedConfig& config, bool has_pooler)
      : PretrainedModel(config), config_(read_bert_config(config)) {
    set_prefix(config_.is_roberta ? "roberta" : "bert");
    embeddings_ = add_layer<BertEmbeddings>(*this, "embeddings", config_);
    layers_ = add_layers<BertLayer>(*add_part(*this, "encoder"), "layer", config_.num_hidden_layers, config_);
    if (!has_pooler) return;
    pooler_ = add_layer<Linear>(*add_part(*this, "pooler"), "dense", config_.hidden_size, config_.hidden_size);
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_ids(inputs, config_.max_position_embeddings - (config_.is_roberta ? *config_.pad_token_id + 1 : 0));
    const at::Tensor x = call(embeddings_, inputs.input_ids, inputs.token_type_ids);
    ModelOutput output;
    output.last_hidden_state = call_chain(layers_, x, padding_mask(inputs.attention_mask));
    if (pooler_ != nullptr) output.pooler_output = call(pooler_, output.last_hidden_state.select(1, 0)).tanh();
    return output;
  }

  [[nodiscard]] at::Tensor input_embeddings() const override { return embeddings_->words(); }

 private:
  BertConfig config_;
  std::shared_ptr<BertEmbeddings> embeddings_;
  std::vector<std::shared_ptr<BertLayer>> layers_;
  std::shared_ptr<Linear> pooler_;  // null: none
};

// ---- DistilBERT ----------------------------------------------------------------------------------------------------

class DistilBertEmbeddings : public torch::nn::Module {
 public:
  explicit DistilBertEmbeddings(const DistilBertConfig& config) : dropout_(config.hidden_dropout_prob) {
    const int64_t width = config.hidden_size, positions = config.max_position_embeddings;
    words_ = add_layer<Embedding>(*this, "word_embeddings", config.vocab_size, width, config.pad_token_id);
    if (config.sinusoidal_pos_embds) {
      positions_ = add_layer<SinusoidalEmbedding>(*this, "position_embeddings", positions, width);
    } else {
      positions_ = add_layer<Embedding>(*this, "position_embeddings", positions, width);
    }
    norm_ = add_layer<LayerNorm>(*this, "LayerNorm", width, config.layer_norm_eps);
  }

  at::Tensor forward(const at::Tensor& ids) {  // (B, T) int64
    const at::Tensor positions = at::arange(ids.size(1), ids.options()).unsqueeze(0);
    return at::dropout(call(norm_, call(words_, ids) + call(positions_, positions)), dropout_, is_training());
  }

  [[nodiscard]] at::Tensor words() const { return words_->weight; }

 private:
  double dropout_;
  std::shared_ptr<Embedding> words_, positions_;
  std::shared_ptr<LayerNorm> norm_;
};

class DistilBertLayer : public EncoderLayer {
 public:
  explicit DistilBertLayer(const DistilBertConfig& config) : EncoderLayer(config, /*is_pre_norm=*/false) {
    const int64_t width = config.hidden_size;
    attended_dropout_ = 0;
    const auto attention = add_part(*this, "attention");
    add_attention(*attention, {"q_lin", "k_lin", "v_lin"}, width, /*has_bias=*/true);
    attended_ = add_layer<Linear>(*attention, "out_lin", width, width);
    norm1_ = add_layer<LayerNorm>(*this, "sa_layer_norm", width, config.layer_norm_eps);
    const auto mlp = add_part(*this, "ffn");
    wide_ = add_layer<Linear>(*mlp, "lin1", width, config.intermediate_size);
    narrow_ = add_layer<Linear>(*mlp, "lin2", config.intermediate_size, width);
    norm2_ = add_layer<LayerNorm>(*this, "output_layer_norm", width, config.layer_norm_eps);
  }
};

class DistilBertModel : public PretrainedModel {
 public:
  explicit DistilBertModel(const PretrainedConfig& config)
      : PretrainedModel(config), config_(read_distilbert_config(config)) {
    set_prefix("distilbert");
    embeddings_ = add_layer<DistilBertEmbeddings>(*this, "embeddings", config_);
    layers_ = add_layers<DistilBertLayer>(*add_part(*this, "transformer"), "layer", config_.num_hidden_layers, config_);
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_ids(inputs, config_.max_position_embeddings);
    ModelOutput output;
    output.last_hidden_state =
        call_chain(layers_, call(embeddings_, inputs.input_ids), padding_mask(inputs.attention_mask));
    return output;
  }

  [[nodiscard]] at::Tensor input_embeddings() const override { return embeddings_->words(); }

 private:
  DistilBertConfig config_;
  std::shared_ptr<DistilBertEmbeddings> embeddings_;
  std::vector<std::shared_ptr<DistilBertLayer>> layers_;
};

// ---- ViT -----------------------------------------------------------------------------------------------------------

// One row of C numbers for each patch: a linear map, held as the weight of a convolution.
class ViTPatches : public torch::nn::Module, public HasStartingWeights {
 public:
  explicit ViTPatches(const ViTConfig& config) : stride_(config.patch_size) {
    weight_ = register_parameter("weight", at::empty({config.hidden_size, config.num_channels, stride_, stride_}));
    bias_ = register_parameter("bias", at::empty({config.hidden_size}));
  }

  at::Tensor forward(const at::Tensor& pixels) {  // (B, channels, height, width) to (B, T - 1, C)
    return at::conv2d(pixels, weight_, bias_, stride_).flatten(2).transpose(1, 2);
  }

  void start(const std::string& name, at::Tensor& parameter, double deviation) override {
    start_linear(name, parameter, deviation);
  }

 private:
  at::Tensor weight_, bias_;
  int64_t stride_;
};

class ViTEmbeddings : public torch::nn::Module, public HasStartingWeights {
 public:
  explicit ViTEmbeddings(const ViTConfig& config) : dropout_(config.hidden_dropout_prob) {
    const int64_t side = config.image_size / config.patch_size;
    cls_token_ = register_parameter("cls_token", at::empty({1, 1, config.hidden_size}));
    positions_ = register_parameter("position_embeddings", at::empty({1, side * side + 1, config.hidden_size}));
    patches_ = add_layer<ViTPatches>(*add_part(*this, "patch_embeddings"), "projection", config);
  }

  at::Tensor forward(const at::Tensor& pixels) {
    const at::Tensor patches = call(patches_, pixels.to(cls_token_.scalar_type()));
    const at::Tensor first = cls_token_.expand({patches.size(0), 1, patches.size(2)}).to(patches.scalar_type());
    return at::dropout(at::cat({first, patches}, 1) + positions_, dropout_, is_training());
  }

  // Truncated normal numbers, by the inverse of the normal distribution. Python cuts them at -2 and 2, far outside of
  // any standard deviation in use.
  void start(const std::string&, at::Tensor& parameter, double deviation) override {
    const double cut = std::erf(2 / (deviation * std::numbers::sqrt2));
    parameter.uniform_(-cut, cut).erfinv_().mul_(deviation * std::numbers::sqrt2).clamp_(-2, 2);
  }

 private:
  double dropout_;
  at::Tensor cls_token_, positions_;
  std::shared_ptr<ViTPatches> patches_;
};

class ViTLayer : public EncoderLayer {
 public:
  explicit ViTLayer(const ViTConfig& config) : EncoderLayer(config, /*is_pre_norm=*/true) {
    const int64_t width = config.hidden_size;
    const auto attention = add_part(*this, "attention");
    add_attention(*add_part(*attention, "attention"), {"query", "key", "value"}, width, config.qkv_bias);
    attended_ = add_layer<Linear>(*add_part(*attention, "output"), "dense", width, width);
    wide_ = add_layer<Linear>(*add_part(*this, "intermediate"), "dense", width, config.intermediate_size);
    narrow_ = add_layer<Linear>(*add_part(*this, "output"), "dense", config.intermediate_size, width);
    norm1_ = add_layer<LayerNorm>(*this, "layernorm_before", width, config.layer_norm_eps);
    norm2_ = add_layer<LayerNorm>(*this, "layernorm_after", width, config.layer_norm_eps);
  }
};

class ViTModel : public PretrainedModel {
 public:
  ViTModel(const PretrainedConfig& config, bool has_pooler)
      : PretrainedModel(config), config_(read_vit_config(config)), pooler_act_(activation(config_.pooler_act)) {
    set_prefix("vit");
    embeddings_ = add_layer<ViTEmbeddings>(*this, "embeddings", config_);
    layers_ = add_layers<ViTLayer>(*add_part(*this, "encoder"), "layer", config_.num_hidden_layers, config_);
    norm_ = add_layer<LayerNorm>(*this, "layernorm", config_.hidden_size, config_.layer_norm_eps);
    if (!has_pooler) return;
    pooler_ = add_layer<Linear>(*add_part(*this, "pooler"), "dense", config_.hidden_size,
                                config_.pooler_output_size.value_or(config_.hidden_size));
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    const at::Tensor& pixels = inputs.pixel_values;
    if (!pixels.defined()) throw Error("vit: it reads images: set pixel_values, (batch, channels, height, width).");
    const std::vector<int64_t> wanted{config_.num_channels, config_.image_size, config_.image_size};
    if (pixels.dim() != 4 || pixels.sizes().slice(1) != at::IntArrayRef(wanted)) {
      throw Error("vit: images must be " + shape_text(wanted) + " as in the model's config.json, got a batch of " +
                  shape_text(pixels.sizes()) + ". Set the data's size.");
    }
    ModelOutput output;
    output.last_hidden_state = call(norm_, call_chain(layers_, call(embeddings_, pixels), at::Tensor()));
    if (pooler_ != nullptr) output.pooler_output = pooler_act_(call(pooler_, output.last_hidden_state.select(1, 0)));
    return output;
  }

  [[nodiscard]] std::vector<std::pair<std::string, std::string>> peft_names() const override {
    return {{"encoder.layer.", "layers."},
            {".attention.attention.query", ".attention.q_proj"},
            {".attention.attention.key", ".attention.k_proj"},
            {".attention.attention.value", ".attention.v_proj"},
            {".attention.output.dense", ".attention.o_proj"},
            {".intermediate.dense", ".mlp.fc1"},
            {".output.dense", ".mlp.fc2"}};
  }

 private:
  ViTConfig config_;
  std::shared_ptr<ViTEmbeddings> embeddings_;
  std::vector<std::shared_ptr<ViTLayer>> layers_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Linear> pooler_;  // null: none
  Activation pooler_act_;
};

std::shared_ptr<PretrainedModel> make_bert(const PretrainedConfig& config, bool has_pooler) {
  return std::make_shared<BertModel>(config, has_pooler);
}

std::shared_ptr<PretrainedModel> make_distilbert(const PretrainedConfig& config) {
  return std::make_shared<DistilBertModel>(config);
}

std::shared_ptr<PretrainedModel> make_vit(const PretrainedConfig& config, bool has_pooler) {
  return std::make_shared<ViTModel>(config, has_pooler);
}

}  // namespace levin::huggingface
