#include "gpt.h"

#include <cmath>
#include <numbers>

#include "levin/core/random.h"
#include "levin/trainer/found_option.h"
#include "project.h"

namespace nn = torch::nn;
namespace F = torch::nn::functional;

LEVIN_REGISTER_MODEL(GPT, "a language model like GPT-2, of any size");

namespace {

GPTOptions checked_options(GPTOptions options) {
  options = levin::checked(std::move(options), "GPTOptions");
  if (options.n_embd % options.n_head != 0) {
    throw levin::ConfigError("GPTOptions.n_embd: must be a multiple of n_head (" + std::to_string(options.n_head) +
                             "), got " + std::to_string(options.n_embd) + ".");
  }
  return options;
}

// GPT-2's start: small normal weights, no bias; what is added to the residual stream is smaller the more of it there
// is.
nn::Linear make_linear(int64_t in, int64_t out, bool bias, double deviation = 0.02) {
  nn::Linear linear(nn::LinearOptions(in, out).bias(bias));
  nn::init::normal_(linear->weight, 0.0, deviation);
  if (bias) nn::init::zeros_(linear->bias);
  return linear;
}

nn::Embedding make_embedding(int64_t rows, int64_t width) {
  nn::Embedding embedding(rows, width);
  nn::init::normal_(embedding->weight, 0.0, 0.02);
  return embedding;
}

// The tokenizer of the run's data, or null if the data has none.
const levin::TextFile* text_of(const levin::LightningModule& module) {
  return module.has_trainer() ? dynamic_cast<const levin::TextFile*>(module.trainer().datamodule()) : nullptr;
}

}  // namespace

// ---- layers --------------------------------------------------------------------------------------------------------

GPTNormImpl::GPTNormImpl(const GPTOptions& options) {
  weight_ = register_parameter("weight", torch::ones(options.n_embd));
  if (options.bias) bias_ = register_parameter("bias", torch::zeros(options.n_embd));
}

torch::Tensor GPTNormImpl::forward(const torch::Tensor& x) {
  return at::layer_norm(x, weight_.sizes(), weight_, bias_, /*eps=*/1e-5);
}

GPTBlockImpl::GPTBlockImpl(const GPTOptions& options) : n_head_(options.n_head), dropout_(options.dropout) {
  const int64_t width = options.n_embd;
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(options.n_layer));
  ln_1_ = register_module("ln_1", GPTNorm(options));
  const auto attn = register_module("attn", std::make_shared<nn::Module>());
  c_attn_ = attn->register_module("c_attn", make_linear(width, 3 * width, options.bias));
  attn_proj_ = attn->register_module("c_proj", make_linear(width, width, options.bias, residual));
  ln_2_ = register_module("ln_2", GPTNorm(options));
  const auto mlp = register_module("mlp", std::make_shared<nn::Module>());
  c_fc_ = mlp->register_module("c_fc", make_linear(width, 4 * width, options.bias));
  mlp_proj_ = mlp->register_module("c_proj", make_linear(4 * width, width, options.bias, residual));
}

torch::Tensor GPTBlockImpl::attend(const torch::Tensor& x) {
  const int64_t batch = x.size(0), tokens = x.size(1), width = x.size(2);
  const auto parts = project(c_attn_, x).chunk(3, /*dim=*/-1);  // of (B, T, C), whose gradients are joined by one copy
  const auto heads_of = [&](const torch::Tensor& part) {        // (B, heads, T, C / heads)
    return part.view({batch, tokens, n_head_, width / n_head_}).transpose(1, 2);
  };
  const auto heads = at::scaled_dot_product_attention(heads_of(parts[0]), heads_of(parts[1]), heads_of(parts[2]),
                                                      /*attn_mask=*/{}, is_training() ? dropout_ : 0.0,
                                                      /*is_causal=*/true);
  return project(attn_proj_, heads.transpose(1, 2).reshape({batch, tokens, width}));
}

torch::Tensor GPTBlockImpl::forward(const torch::Tensor& x) {
  const auto after = x + at::dropout(attend(ln_1_->forward(x)), dropout_, is_training());
  const auto hidden = at::gelu(project(c_fc_, ln_2_->forward(after)), "tanh");
  return after + at::dropout(project(mlp_proj_, hidden), dropout_, is_training());
}

// ---- the model -----------------------------------------------------------------------------------------------------

GPT::GPT(GPTOptions options) : options_(checked_options(std::move(options))) {
  save_hyperparameters(options_);
  if (options_.vocab_size > 0) make_layers();
}

void GPT::configure_model() {
  const levin::TextFile* text = text_of(*this);
  if (options_.vocab_size == 0) {
    if (text == nullptr) {
      throw levin::ConfigError("GPTOptions.vocab_size: 0 asks the data, which has no tokenizer. Set the number.");
    }
    options_.vocab_size = text->vocab_size();
    levin::keep_found_option(*this, "vocab_size", options_.vocab_size);
    make_layers();
  }
  if (text == nullptr) return;
  if (text->vocab_size() > options_.vocab_size) {
    throw levin::ConfigError("GPTOptions.vocab_size: " + std::to_string(options_.vocab_size) +
                             " is too small for the " + std::to_string(text->vocab_size()) + " tokens of " +
                             text->options().tokenizer + ".");
  }
  if (text->options().block_size > options_.block_size) {
    throw levin::ConfigError("GPTOptions.block_size: " + std::to_string(options_.block_size) +
                             " is too small for the data's blocks of " + std::to_string(text->options().block_size) +
                             " tokens.");
  }
}

void GPT::make_layers() {
  wte_ = register_module("wte", make_embedding(options_.vocab_size, options_.n_embd));
  wpe_ = register_module("wpe", make_embedding(options_.block_size, options_.n_embd));
  drop_ = register_module("drop", nn::Dropout(options_.dropout));
  nn::ModuleList list;
  for (int64_t i = 0; i < options_.n_layer; ++i) {
    blocks_.emplace_back(options_);
    list->push_back(blocks_.back());
  }
  register_module("h", list);
  ln_f_ = register_module("ln_f", GPTNorm(options_));
  if (options_.tie_embeddings) return;
  lm_head_ = register_module("lm_head", make_linear(options_.n_embd, options_.vocab_size, /*bias=*/false));
}

torch::Tensor GPT::features(const torch::Tensor& tokens) {
  const int64_t count = tokens.size(1);
  if (count > options_.block_size) {
    throw levin::Error("GPT: got " + std::to_string(count) + " tokens, and block_size is " +
                       std::to_string(options_.block_size) + ".");
  }
  auto x = drop_->forward(wte_->forward(tokens) + wpe_->weight.narrow(0, 0, count));
  x = levin::call_chain(blocks_, x);  // so that trainer.recompute and placements find h.0, h.1, …
  return ln_f_->forward(x);
}

torch::Tensor GPT::logits(const torch::Tensor& features) {
  return at::linear(features, lm_head_.is_empty() ? wte_->weight : lm_head_->weight);
}

torch::Tensor GPT::forward(const torch::Tensor& tokens) {
  return logits(features(tokens));
}

torch::Tensor GPT::loss(const levin::Batch& batch) {
  auto [x, y] = batch.unpack<2>();  // (B, T) int64 both
  return F::cross_entropy(forward(x).flatten(0, 1), y.flatten());
}

torch::Tensor GPT::training_step(const levin::Batch& batch) {
  const auto result = loss(batch);
  log("train_loss", result, {.prog_bar = true});
  return result;
}

// Bits per byte compares models regardless of their tokens; it is linear in the loss, so its mean is exact.
void GPT::validation_step(const levin::Batch& batch) {
  const auto result = loss(batch);
  log("val_loss", result, {.prog_bar = true, .sync_dist = true});
  const levin::TextFile* text = text_of(*this);
  if (text == nullptr || text->bytes_per_token() == 0) return;
  log("val_bits_per_byte", result / (std::numbers::ln2 * text->bytes_per_token()),
      {.prog_bar = true, .sync_dist = true});
}

// ---- sampling ------------------------------------------------------------------------------------------------------

torch::Tensor GPT::predict_step(const levin::Batch& batch, int64_t batch_idx) {
  const auto next = [this](const torch::Tensor& tokens) { return logits(features(tokens).select(1, -1)); };
  return levin::continue_tokens(batch[0], next,
                                {.max_new_tokens = options_.max_new_tokens,
                                 .temperature = options_.temperature,
                                 .top_k = options_.top_k,
                                 .context = options_.block_size},
                                levin::mix_seed(levin::default_seed(), static_cast<uint64_t>(batch_idx)));
}

// ---- training ------------------------------------------------------------------------------------------------------

levin::OptimizerConfig GPT::configure_optimizers() {
  const int64_t total = trainer().estimated_stepping_batches();  // huge if open: lr stays after the warmup
  const auto factor = [warmup = options_.warmup_steps, total, lowest = options_.min_lr](int64_t step) {
    if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
    if (total <= warmup) return 1.0;
    const double done = std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(total - warmup));
    return lowest + (1 - lowest) * 0.5 * (1 + std::cos(std::numbers::pi * done));
  };
  return {levin::AdamW(levin::param_groups(*this, {}, /*no_decay=*/true),
                       {.lr = options_.lr, .betas = options_.betas, .weight_decay = options_.weight_decay}),
          levin::LambdaLR(factor),
          {.interval = "step"}};
}
