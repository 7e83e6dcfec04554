#include "text_classifier.h"

#include "levin/data/text/sentence_piece.h"
#include "levin/trainer/found_option.h"

LEVIN_REGISTER_MODEL(TextClassifier, "classifies text: an encoder like BERT or XLM-R, of any size");

namespace {

EncoderShape shape_of(const TextClassifierOptions& options) {
  EncoderShape shape = EncoderShape::of(options.architecture);
  const auto take = [](int64_t own, int64_t& number) {
    if (own > 0) number = own;
  };
  take(options.num_hidden_layers, shape.num_hidden_layers);
  take(options.hidden_size, shape.hidden_size);
  take(options.num_attention_heads, shape.num_attention_heads);
  take(options.intermediate_size, shape.intermediate_size);
  take(options.vocab_size, shape.vocab_size);
  take(options.max_position_embeddings, shape.max_position_embeddings);
  shape.pad_token_id = options.pad_token_id.value_or(shape.pad_token_id);
  shape.dropout = options.dropout;
  return shape;
}

EncoderShape checked_shape(const TextClassifierOptions& options) {
  const EncoderShape shape = shape_of(options);
  std::vector<std::string> problems;
  const auto must = [&](bool holds, const std::string& problem) {
    if (!holds) problems.push_back("TextClassifierOptions." + problem + ".");
  };
  must(shape.hidden_size % shape.num_attention_heads == 0, "hidden_size: must be a multiple of num_attention_heads (" +
                                                               std::to_string(shape.num_attention_heads) + "), got " +
                                                               std::to_string(shape.hidden_size));
  must(shape.pad_token_id < shape.vocab_size, "pad_token_id: must be below vocab_size (" +
                                                  std::to_string(shape.vocab_size) + "), got " +
                                                  std::to_string(shape.pad_token_id));
  must(shape.max_tokens() > 0,
       "max_position_embeddings: must be above pad_token_id + 1, got " + std::to_string(shape.max_position_embeddings));
  if (!problems.empty()) throw levin::ConfigError(problems);
  return shape;
}

// Checks that the encoder fits the data's tokens.
void check_fits(const EncoderShape& shape, const levin::TextCsv& texts) {
  std::vector<std::string> problems;
  const auto add = [&](const std::string& problem) { problems.push_back("TextClassifierOptions." + problem); };
  if (texts.tokenizer().vocab_size() > shape.vocab_size) {
    add("vocab_size: " + std::to_string(shape.vocab_size) + " is too small for the " +
        std::to_string(texts.tokenizer().vocab_size()) + " tokens of " + texts.options().tokenizer + ".");
  }
  if (texts.options().max_length > shape.max_tokens()) {
    add("max_position_embeddings: " + std::to_string(shape.max_position_embeddings) +
        " is too small for the data's max_length of " + std::to_string(texts.options().max_length) +
        " tokens. Texts may have " + std::to_string(shape.max_tokens()) + ".");
  }
  if (shape.pad_token_id != levin::SpecialTokens::pad) {
    add("pad_token_id: " + std::to_string(shape.pad_token_id) + ", but TextCsv pads with " +
        std::to_string(levin::SpecialTokens::pad) + ". Set that number.");
  }
  if (!problems.empty()) throw levin::ConfigError(problems);
}

}  // namespace

TextClassifier::TextClassifier(TextClassifierOptions options)
    : options_(levin::checked(std::move(options), "TextClassifierOptions")), shape_(checked_shape(options_)) {
  save_hyperparameters(options_);
  if (options_.num_classes > 0) make_layers(options_.num_classes);
}

void TextClassifier::configure_model() {
  const auto* texts = has_trainer() ? dynamic_cast<const levin::TextCsv*>(trainer().datamodule()) : nullptr;
  if (texts != nullptr) check_fits(shape_, *texts);
  if (!logits_.is_empty()) return;
  if (texts == nullptr) {
    throw levin::ConfigError(
        "TextClassifierOptions.num_classes: 0 takes the number from TextCsv, but the data is of a different class. Set "
        "the number.");
  }
  const auto num_classes = static_cast<int64_t>(texts->classes().size());
  levin::keep_found_option(*this, "num_classes", num_classes);
  make_layers(num_classes);
}

void TextClassifier::make_layers(int64_t num_classes) {
  const int64_t width = shape_.hidden_size;
  encoder_ = register_module(shape_.is_roberta ? "roberta" : "bert", Encoder(shape_, /*pooler=*/!shape_.is_roberta));
  if (!shape_.is_roberta) {
    logits_ = register_module("classifier", encoder_linear(width, num_classes));
    return;
  }
  const auto head = register_module("classifier", std::make_shared<torch::nn::Module>());
  dense_ = head->register_module("dense", encoder_linear(width, width));
  logits_ = head->register_module("out_proj", encoder_linear(width, num_classes));
}

torch::Tensor TextClassifier::forward(const torch::Tensor& ids) {
  const auto drop = [&](const torch::Tensor& x) { return at::dropout(x, shape_.dropout, is_training()); };
  const auto features = encoder_->forward(ids);
  if (!shape_.is_roberta) return logits_->forward(drop(encoder_->pooled(features)));
  return logits_->forward(drop(dense_->forward(drop(features.select(1, 0))).tanh()));
}

torch::Tensor TextClassifier::training_step(const levin::Batch& batch) {
  auto [ids, label] = batch.unpack<2>();  // (B, T) and (B) int64
  const auto loss = torch::nn::functional::cross_entropy(forward(ids), label);
  log("train_loss", loss, {.prog_bar = true});
  return loss;
}

void TextClassifier::evaluate(const levin::Batch& batch, const std::string& stage) {
  auto [ids, label] = batch.unpack<2>();
  const auto logits = forward(ids);
  log(stage + "_loss", torch::nn::functional::cross_entropy(logits, label), {.prog_bar = true, .sync_dist = true});
  log(stage + "_acc", logits.argmax(-1).eq(label).to(torch::kFloat).mean(), {.prog_bar = true, .sync_dist = true});
}

torch::Tensor TextClassifier::predict_step(const levin::Batch& batch) {
  return forward(batch[0]).argmax(-1);
}

levin::OptimizerConfig TextClassifier::configure_optimizers() {
  const int64_t total = trainer().estimated_stepping_batches();  // huge if open: lr stays after the warmup
  const auto factor = [warmup = options_.warmup_steps, total](int64_t step) {
    if (step < warmup) return static_cast<double>(step) / static_cast<double>(warmup);
    if (total <= warmup) return 1.0;
    return std::max(0.0, static_cast<double>(total - step) / static_cast<double>(total - warmup));
  };
  return {levin::AdamW(levin::param_groups(*this, {}, /*no_decay=*/true),
                       {.lr = options_.lr, .weight_decay = options_.weight_decay}),
          levin::LambdaLR(factor),
          {.interval = "step"}};
}
