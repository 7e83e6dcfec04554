// GPT-2 (Radford et al. 2019) of any size: learned positions, pre-norm, GELU, tied embeddings. `levin` trains it
// as class_path: GPT, on the tokens of TextFile; `levin predict` samples from it.
//
// Shapes: B batch, T tokens of a block, C n_embd, V vocab_size. Parameters are named as in OpenAI's checkpoints
// (wte.weight, h.0.attn.c_attn.weight), with the matrices the way torch::nn::Linear has them: (out, in).
#pragma once

#include <array>

#include "levin/levin.h"

struct GPTOptions {
  int64_t vocab_size = 0;      // tokens; 0: as many as the data's tokenizer has
  int64_t block_size = 128;    // tokens that a prediction may look back on
  int64_t n_layer = 4;         // blocks
  int64_t n_head = 4;          // attention heads of a block
  int64_t n_embd = 128;        // width; a multiple of n_head
  double dropout = 0.0;        // dropout rate of embeddings, attention and residual branches
  bool bias = true;            // of the linear layers and norms
  bool tie_embeddings = true;  // one matrix for input tokens and output logits
  double lr = 1e-3;            // AdamW's step size after the warmup
  double min_lr = 0.1;         // where the cosine ends, as a fraction of lr
  int64_t warmup_steps = 100;  // optimizer steps of linear warmup
  double weight_decay = 0.1;   // of matrices; biases and norms have none
  std::array<double, 2> betas = {0.9, 0.95};
  int64_t max_new_tokens = 200;  // tokens that predict adds to the prompt
  double temperature = 0.8;      // for predict: below 1 more conservative, above 1 more varied; 0: the likeliest token
  int64_t top_k = 0;             // predict draws among the k likeliest tokens; 0: among all

  template <class = void>
  static auto fields() {
    using O = GPTOptions;
    return levin::fields(
        levin::field("vocab_size", &O::vocab_size, "tokens; 0: as many as the data's tokenizer has").min(0),
        levin::field("block_size", &O::block_size, "tokens that a prediction may look back on").min(1),
        levin::field("n_layer", &O::n_layer, "blocks").min(1),
        levin::field("n_head", &O::n_head, "attention heads of a block").min(1),
        levin::field("n_embd", &O::n_embd, "width; a multiple of n_head").min(1),
        levin::field("dropout", &O::dropout, "share dropped while training").min(0.0).below(1.0),
        levin::field("bias", &O::bias, "linear layers and norms have one"),
        levin::field("tie_embeddings", &O::tie_embeddings, "one matrix for tokens in and logits out"),
        levin::field("lr", &O::lr, "AdamW's step size after the warmup").above(0.0),
        levin::field("min_lr", &O::min_lr, "where the cosine ends, as a share of lr").min(0.0).max(1.0),
        levin::field("warmup_steps", &O::warmup_steps, "optimizer steps of linear warmup").min(0),
        levin::field("weight_decay", &O::weight_decay, "of matrices; biases and norms have none").min(0.0),
        levin::field("betas", &O::betas, "AdamW's decay of the mean of gradients and of squared gradients"),
        levin::field("max_new_tokens", &O::max_new_tokens, "predict: tokens added to the prompt").min(1),
        levin::field("temperature", &O::temperature, "predict: 0 takes the likeliest token, 1 draws as trained")
            .min(0.0),
        levin::field("top_k", &O::top_k, "predict: draw among the k likeliest tokens; 0: among all").min(0));
  }
};

/// LayerNorm over the last dimension with an optional bias; LibTorch's cannot omit it.
class GPTNormImpl : public torch::nn::Module {
 public:
  explicit GPTNormImpl(const GPTOptions& options);
  torch::Tensor forward(const torch::Tensor& x);  // (…, C)

 private:
  torch::Tensor weight_;  // (C)
  torch::Tensor bias_;    // (C), or undefined
};
TORCH_MODULE(GPTNorm);

/// x + attention(norm(x)), then x + mlp(norm(x)).
class GPTBlockImpl : public torch::nn::Module {
 public:
  explicit GPTBlockImpl(const GPTOptions& options);
  torch::Tensor forward(const torch::Tensor& x);  // (B, T, C)

 private:
  torch::Tensor attend(const torch::Tensor& x);

  int64_t n_head_;
  double dropout_;
  GPTNorm ln_1_{nullptr}, ln_2_{nullptr};
  torch::nn::Linear c_attn_{nullptr}, attn_proj_{nullptr}, c_fc_{nullptr}, mlp_proj_{nullptr};
};
TORCH_MODULE(GPTBlock);

class GPT : public levin::LightningModule {
 public:
  using Options = GPTOptions;
  explicit GPT(GPTOptions options = {});

  /// Makes the layers if vocab_size comes from the data.
  void configure_model() override;

  /// tokens: (B, T) int64, T <= block_size; returns logits (B, T, V).
  torch::Tensor forward(const torch::Tensor& tokens) override;
  torch::Tensor training_step(const levin::Batch& batch) override;
  void validation_step(const levin::Batch& batch) override;
  /// Continues each prompt by max_new_tokens: (B, T) to (B, T + max_new_tokens) int64. The tokens drawn depend on the
  /// run's seed and batch_idx.
  torch::Tensor predict_step(const levin::Batch& batch, int64_t batch_idx) override;
  /// AdamW in two groups, and a cosine over the whole run after a linear warmup.
  levin::OptimizerConfig configure_optimizers() override;

  [[nodiscard]] const GPTOptions& options() const { return options_; }

 private:
  void make_layers();
  torch::Tensor features(const torch::Tensor& tokens);  // (B, T, C), after the last norm
  torch::Tensor logits(const torch::Tensor& features);  // (…, C) to (…, V)
  torch::Tensor loss(const levin::Batch& batch);        // mean cross entropy of a token, in nats

  GPTOptions options_;
  torch::nn::Embedding wte_{nullptr}, wpe_{nullptr};
  torch::nn::Dropout drop_{nullptr};
  std::vector<GPTBlock> blocks_;
  GPTNorm ln_f_{nullptr};
  torch::nn::Linear lm_head_{nullptr};  // null if the embeddings are tied
};
