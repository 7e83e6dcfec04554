#include "levin/models/huggingface/heads.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>

#include "levin/core/module_call.h"
#include "levin/core/options/error.h"
#include "levin/models/huggingface/family_configs.h"
#include "levin/models/huggingface/functional.h"
#include "levin/models/huggingface/layers.h"

namespace levin::huggingface {

namespace {

using Module = torch::nn::Module;

// A linear layer on the pooler's output (BERT), the first token (ViT), or on every token.
class LinearHead : public Head {
 public:
  enum class On { pooled, first, each };
  LinearHead(Module& model, const std::string& name, int64_t width, int64_t labels, On on, double dropout = 0)
      : on_(on), dropout_(dropout), layer_(add_layer<Linear>(model, name, width, labels)) {}

  at::Tensor logits(const ModelOutput& features, const ModelInputs&, bool is_training) override {
    const at::Tensor x = on_ == On::pooled  ? features.pooler_output
                         : on_ == On::first ? features.last_hidden_state.select(1, 0)
                                            : features.last_hidden_state;
    return call(layer_, at::dropout(x, dropout_, is_training));
  }

 private:
  On on_;
  double dropout_;
  std::shared_ptr<Linear> layer_;
};

// RoBERTa's classifier: one layer more, on the first token.
class RobertaClassifier : public Head {
 public:
  RobertaClassifier(Module& model, int64_t width, int64_t labels, double dropout) : dropout_(dropout) {
    const auto part = add_part(model, "classifier");
    dense_ = add_layer<Linear>(*part, "dense", width, width);
    out_ = add_layer<Linear>(*part, "out_proj", width, labels);
  }

  at::Tensor logits(const ModelOutput& features, const ModelInputs&, bool is_training) override {
    const auto drop = [&](const at::Tensor& x) { return at::dropout(x, dropout_, is_training); };
    return call(out_, drop(call(dense_, drop(features.last_hidden_state.select(1, 0))).tanh()));
  }

 private:
  double dropout_;
  std::shared_ptr<Linear> dense_, out_;
};

// DistilBERT's classifier: one layer more, on the first token.
class DistilBertClassifier : public Head {
 public:
  DistilBertClassifier(Module& model, int64_t width, int64_t labels, double dropout)
      : dropout_(dropout),
        first_(add_layer<Linear>(model, "pre_classifier", width, width)),
        out_(add_layer<Linear>(model, "classifier", width, labels)) {}

  at::Tensor logits(const ModelOutput& features, const ModelInputs&, bool is_training) override {
    const at::Tensor x = at::relu(call(first_, features.last_hidden_state.select(1, 0)));
    return call(out_, at::dropout(x, dropout_, is_training));
  }

 private:
  double dropout_;
  std::shared_ptr<Linear> first_, out_;
};

// The classifier of causal models, on each sample's last token that is not padding.
class LastTokenClassifier : public Head {
 public:
  LastTokenClassifier(ModelWithHead& model, int64_t width)
      : pad_(model.config().pad_token_id()),
        who_(model.config().model_type()),
        score_(add_layer<Linear>(model, "score", width, model.config().num_labels(), /*has_bias=*/false)) {}

  at::Tensor logits(const ModelOutput& features, const ModelInputs& inputs, bool) override {
    const at::Tensor& ids = inputs.input_ids;
    const at::Tensor& x = features.last_hidden_state;
    if (!pad_) {
      if (ids.size(0) == 1) return call(score_, x.select(1, -1));
      throw Error(who_ +
                  ": config.json has no pad_token_id, so the last token of a sample is unknown in a batch of several. "
                  "Set pad_token_id.");
    }
    const at::Tensor positions = at::arange(ids.size(1), ids.options());
    const at::Tensor last = (positions * ids.ne(*pad_)).argmax(-1);  // (B)
    const at::Tensor rows = at::arange(ids.size(0), ids.options());
    return call(score_, x.index({rows, last}));
  }

 private:
  std::optional<int64_t> pad_;
  std::string who_;
  std::shared_ptr<Linear> score_;
};

// The matrix of the logits: the input tokens' own, or a layer.
class Decoder {
 public:
  Decoder(ModelWithHead& model, Module& part, const std::string& prefix, const std::string& name, bool is_tied,
          bool has_bias, const std::string& embeddings) {
    if (is_tied) {
      model.add_alias({prefix + name + ".weight", embeddings});
      return;
    }
    const at::Tensor rows = model.input_embeddings();
    layer_ = add_layer<Linear>(part, name, rows.size(1), rows.size(0), has_bias);
  }

  /// `bias`: of tied logits; may be undefined.
  at::Tensor logits(const at::Tensor& x, const PretrainedModel& base, const at::Tensor& bias) {
    return layer_ == nullptr ? at::linear(x, base.input_embeddings(), bias) : call(layer_, x);
  }

 private:
  std::shared_ptr<Linear> layer_;  // null: tied
};

class CausalHead : public Head {
 public:
  CausalHead(ModelWithHead& model, bool is_tied, const std::string& embeddings)
      : base_(model.base()), decoder_(model, model, "", "lm_head", is_tied, /*has_bias=*/false, embeddings) {}

  at::Tensor logits(const ModelOutput& features, const ModelInputs&, bool) override {
    return decoder_.logits(features.last_hidden_state, base_, {});
  }

 private:
  PretrainedModel& base_;
  Decoder decoder_;
};

// The logits' bias of tied embeddings, a parameter of the head itself.
class BiasedPart : public Module, public HasStartingWeights {
 public:
  at::Tensor add_bias(int64_t size) { return register_parameter("bias", at::empty({size})); }
  void start(const std::string&, at::Tensor& parameter, double) override { parameter.zero_(); }
};

// The logits of every token: BERT's (cls.predictions), RoBERTa's (lm_head) and DistilBERT's (vocab_*).
class MaskedHead : public Head {
 public:
  MaskedHead(ModelWithHead& model, const BertConfig& config)
      : base_(model.base()), act_(activation(config.is_roberta ? "gelu" : config.hidden_act)) {
    const std::string prefix = config.is_roberta ? "lm_head." : "cls.predictions.";
    const auto part = std::make_shared<BiasedPart>();
    if (config.is_roberta) {
      model.register_module("lm_head", part);
    } else {
      add_part(model, "cls")->register_module("predictions", part);
    }
    const auto transform = config.is_roberta ? std::static_pointer_cast<Module>(part) : add_part(*part, "transform");
    add_transform(*transform, "dense", config.is_roberta ? "layer_norm" : "LayerNorm", config);
    const bool is_tied = config.tie_word_embeddings;
    add_decoder(model, *part, prefix, "decoder", is_tied);
    if (!is_tied) {
      model.add_alias({prefix + "bias", prefix + "decoder.bias", /*is_written=*/true});
      return;
    }
    bias_ = part->add_bias(config.vocab_size);
    model.add_alias({prefix + "decoder.bias", prefix + "bias"});
  }

  MaskedHead(ModelWithHead& model, const DistilBertConfig& config)
      : base_(model.base()), act_(activation(config.hidden_act)) {
    add_transform(model, "vocab_transform", "vocab_layer_norm", config);
    add_decoder(model, model, "", "vocab_projector", config.tie_word_embeddings);
    if (!config.tie_word_embeddings) return;
    bias_ = model.register_module("vocab_projector", std::make_shared<BiasedPart>())->add_bias(config.vocab_size);
  }

  at::Tensor logits(const ModelOutput& features, const ModelInputs&, bool) override {
    const at::Tensor x = call(norm_, act_(call(dense_, features.last_hidden_state)));
    return decoder_->logits(x, base_, bias_);
  }

 private:
  void add_transform(Module& part, const char* dense, const char* norm, const EncoderConfig& config) {
    dense_ = add_layer<Linear>(part, dense, config.hidden_size, config.hidden_size);
    norm_ = add_layer<LayerNorm>(part, norm, config.hidden_size, config.layer_norm_eps);
  }
  void add_decoder(ModelWithHead& model, Module& part, const std::string& prefix, const char* name, bool is_tied) {
    decoder_ = std::make_unique<Decoder>(model, part, prefix, name, is_tied, /*has_bias=*/true,
                                         base_.base_model_prefix() + ".embeddings.word_embeddings.weight");
  }

  PretrainedModel& base_;
  Activation act_;
  std::shared_ptr<Linear> dense_;
  std::shared_ptr<LayerNorm> norm_;
  std::unique_ptr<Decoder> decoder_;
  at::Tensor bias_;  // of tied logits
};

// What the heads of a causal family differ in.
struct DecoderHead {
  int64_t width;
  bool is_tied;
  const char* embeddings;
  const char* token_classifier;
  double dropout;
};

void add_decoder_head(ModelWithHead& model, Task task, const DecoderHead& family) {
  if (task == Task::causal_lm) {
    model.set_head(std::make_unique<CausalHead>(model, family.is_tied, family.embeddings));
  } else if (task == Task::sequence_classification) {
    model.set_head(std::make_unique<LastTokenClassifier>(model, family.width));
  } else {
    model.set_head(std::make_unique<LinearHead>(model, family.token_classifier, family.width,
                                                model.config().num_labels(), LinearHead::On::each, family.dropout));
  }
}

}  // namespace

ModelWithHead::ModelWithHead(PretrainedConfig config, std::shared_ptr<PretrainedModel> base)
    : PretrainedModel(std::move(config)), base_(std::move(base)) {
  set_prefix(base_->base_model_prefix());
  register_module(base_model_prefix(), base_);
}

ModelOutput ModelWithHead::forward(const ModelInputs& inputs) {
  ModelOutput output = base_->forward(inputs);
  output.logits = head_->logits(output, inputs, is_training());
  return output;
}

void add_bert_head(ModelWithHead& model, Task task) {
  const BertConfig bert = read_bert_config(model.config());
  const double dropout = bert.classifier_dropout.value_or(bert.hidden_dropout_prob);
  const int64_t labels = model.config().num_labels();
  if (task == Task::masked_lm) {
    model.set_head(std::make_unique<MaskedHead>(model, bert));
  } else if (task == Task::sequence_classification && bert.is_roberta) {
    model.set_head(std::make_unique<RobertaClassifier>(model, bert.hidden_size, labels, dropout));
  } else {
    const auto on = task == Task::sequence_classification ? LinearHead::On::pooled : LinearHead::On::each;
    model.set_head(std::make_unique<LinearHead>(model, "classifier", bert.hidden_size, labels, on, dropout));
  }
}

void add_distilbert_head(ModelWithHead& model, Task task) {
  const DistilBertConfig bert = read_distilbert_config(model.config());
  const int64_t labels = model.config().num_labels();
  if (task == Task::masked_lm) {
    model.set_head(std::make_unique<MaskedHead>(model, bert));
  } else if (task == Task::sequence_classification) {
    model.set_head(std::make_unique<DistilBertClassifier>(model, bert.hidden_size, labels, bert.seq_classif_dropout));
  } else {
    model.set_head(std::make_unique<LinearHead>(model, "classifier", bert.hidden_size, labels, LinearHead::On::each,
                                                bert.hidden_dropout_prob));
  }
}

void add_gpt2_head(ModelWithHead& model, Task task) {
  const GPT2Config gpt = read_gpt2_config(model.config());
  add_decoder_head(model, task,
                   {gpt.n_embd, gpt.tie_word_embeddings, "transformer.wte.weight", "classifier",
                    gpt.classifier_dropout.value_or(0.1)});
}

void add_llama_head(ModelWithHead& model, Task task) {
  const LlamaConfig llama = read_llama_config(model.config());
  add_decoder_head(model, task,
                   {llama.hidden_size, llama.tie_word_embeddings, "model.embed_tokens.weight", "score",
                    llama.classifier_dropout.value_or(0.1)});
}

void add_vit_head(ModelWithHead& model) {
  const ViTConfig vit = read_vit_config(model.config());
  model.set_head(std::make_unique<LinearHead>(model, "classifier", vit.hidden_size, model.config().num_labels(),
                                              LinearHead::On::first));
}

}  // namespace levin::huggingface
