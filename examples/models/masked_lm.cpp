#include "masked_lm.h"

#include "levin/core/module_call.h"

LEVIN_REGISTER_MODEL(MaskedLM, "a masked language model like BERT, of any size");

namespace {

EncoderShape masked_lm_shape(const MaskedLMOptions& options) {
  EncoderShape shape = EncoderShape::of(options.architecture);
  const auto take = [](int64_t own, int64_t& number) {
    if (own > 0) number = own;
  };
  take(options.num_hidden_layers, shape.num_hidden_layers);
  take(options.hidden_size, shape.hidden_size);
  take(options.num_attention_heads, shape.num_attention_heads);
  take(options.intermediate_size, shape.intermediate_size);
  take(options.vocab_size, shape.vocab_size);
  shape.dropout = options.dropout;
  if (shape.hidden_size % shape.num_attention_heads != 0) {
    throw levin::ConfigError("MaskedLMOptions.hidden_size: must be a multiple of num_attention_heads (" +
                             std::to_string(shape.num_attention_heads) + "), got " + std::to_string(shape.hidden_size) +
                             ".");
  }
  return shape;
}

}  // namespace

MaskedLM::MaskedLM(MaskedLMOptions options)
    : options_(levin::checked(options, "MaskedLMOptions")), shape_(masked_lm_shape(options_)) {
  save_hyperparameters(options_);
  encoder_ = register_module("bert", Encoder(shape_, /*pooler=*/false));
  decoder_ = register_module("decoder", encoder_linear(shape_.hidden_size, shape_.vocab_size));
}

torch::Tensor MaskedLM::forward(const torch::Tensor& ids) {
  return levin::call(decoder_, encoder_->forward(ids));
}

std::pair<torch::Tensor, torch::Tensor> MaskedLM::loss_of(const torch::Tensor& ids) {
  namespace F = torch::nn::functional;
  constexpr int64_t kIgnored = -100;
  const auto hidden = torch::rand(ids.sizes(), ids.options().dtype(torch::kFloat)) < options_.masked;
  const auto logits = forward(ids.masked_fill(hidden, shape_.vocab_size - 1));
  const auto sum = F::cross_entropy(logits.view({-1, shape_.vocab_size}), ids.masked_fill(~hidden, kIgnored).view(-1),
                                    F::CrossEntropyFuncOptions().ignore_index(kIgnored).reduction(torch::kSum));
  const auto count = hidden.sum();
  return {sum / count.clamp_min(1), count};
}

// Each batch counts by what its loss is a mean over.
torch::Tensor MaskedLM::training_step(const levin::Batch& batch) {
  auto [loss, count] = loss_of(batch[0]);
  set_loss_weight(count);
  log("train_loss", loss, {.prog_bar = true});
  return loss;
}

void MaskedLM::validation_step(const levin::Batch& batch) {
  const auto [loss, count] = loss_of(batch[0]);
  log("val_loss", loss, {.prog_bar = true, .batch_size = count.item<int64_t>(), .sync_dist = true});
}

levin::OptimizerConfig MaskedLM::configure_optimizers() {
  return levin::AdamW(parameters(), {.lr = options_.lr});
}
