#include "levin/models/huggingface_classifier.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>

#include <iterator>

#include "levin/core/error.h"
#include "levin/data/sets/image_folder_data.h"
#include "levin/data/sets/text_csv.h"
#include "levin/trainer/found_option.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

HuggingFaceSettings classifier_settings(const HuggingFaceClassifierOptions& o) {
  return {o.path,         o.from_scratch, o.dropout, o.ignore_mismatched_sizes, o.lr,          o.warmup_steps,
          o.weight_decay, o.freeze,       o.save_to, o.max_shard_size,          o.save_weights};
}

// What TextCsv's tokens need of the model. Its byte and SentencePiece tokenizers have fairseq's special tokens.
void check_fits(const PretrainedConfig& config, const TextCsv& texts) {
  Problems problems;
  const Mark mark{config.source(), 0, 0};
  const int64_t has = texts.tokenizer().vocab_size();
  int64_t vocabulary = has;
  if (const ConfigNode* node = config.find("vocab_size")) (void)detail::parse_int(*node, vocabulary);
  const std::string& tokenizer = texts.options().tokenizer;
  if (has > vocabulary) {
    problems.add(
        mark, "vocab_size",
        std::to_string(vocabulary) + " is too small for the " + std::to_string(has) + " tokens of " + tokenizer + ".");
  }
  const bool is_fairseqs = tokenizer == "byte" || tokenizer.ends_with(".model");
  if (is_fairseqs && config.pad_token_id() != SpecialTokens::pad) {
    const auto id = config.pad_token_id();
    problems.add(mark, "pad_token_id",
                 (id ? std::to_string(*id) : "null") + ", but TextCsv pads with " + std::to_string(SpecialTokens::pad) +
                     " for the tokenizer " + tokenizer + ". Take the model's own tokenizer, or set that number.");
  }
  problems.throw_if_any();
}

}  // namespace

HuggingFaceClassifier::HuggingFaceClassifier(HuggingFaceClassifierOptions options)
    : HuggingFaceModule(classifier_settings(checked(options, "HuggingFaceClassifierOptions"))),
      options_(std::move(options)) {
  save_hyperparameters(options_);
  if (options_.num_labels > 0) make(read_config(), options_.num_labels, {});
}

void HuggingFaceClassifier::make(PretrainedConfig config, int64_t num_labels, const std::vector<std::string>& classes) {
  if (num_labels > 0) config.set_num_labels(num_labels);
  if (!classes.empty()) config.set_labels(classes);
  const bool is_vision = huggingface::has_task(config.model_type(), huggingface::Task::image_classification);
  make_model(config, is_vision ? huggingface::Task::image_classification : huggingface::Task::sequence_classification);
}

void HuggingFaceClassifier::configure_model() {
  DataModule* data = has_trainer() ? trainer().datamodule() : nullptr;
  std::vector<std::string> classes;
  if (const auto* texts = dynamic_cast<const TextCsv*>(data)) {
    check_fits(model() == nullptr ? read_config() : model()->config(), *texts);
    classes = texts->classes();
  } else if (const auto* images = dynamic_cast<const ImageFolderData*>(data)) {
    classes = images->classes();
  }
  if (options_.num_labels > 0 && options_.num_labels < std::ssize(classes)) {
    throw ConfigError("HuggingFaceClassifierOptions.num_labels: " + std::to_string(options_.num_labels) +
                      " is less than the " + std::to_string(classes.size()) +
                      " classes of the data. Set it to that number, or to 0.");
  }
  if (model() == nullptr) {
    make(read_config(), 0, classes);
    keep_found_option(*this, "num_labels", model()->config().num_labels());
  } else if (!classes.empty() && static_cast<int64_t>(classes.size()) == model()->config().num_labels()) {
    model()->config().set_labels(classes);
  }
}

ModelInputs HuggingFaceClassifier::inputs_of(const at::Tensor& first) const {
  if (model() == nullptr) {
    throw Error("HuggingFaceClassifier: the model is not made yet. Set num_labels, or use it in a Trainer.");
  }
  if (first.is_floating_point()) return {.pixel_values = first};
  const auto pad = model()->config().pad_token_id();
  return {.input_ids = first, .attention_mask = pad ? first.ne(*pad) : at::Tensor()};
}

at::Tensor HuggingFaceClassifier::forward(const at::Tensor& input) {
  const ModelInputs inputs = inputs_of(input);  // before model(), which may be null: it says so
  return model()->forward(inputs).logits;
}

at::Tensor HuggingFaceClassifier::logits_of(const Batch& batch) {
  ModelInputs inputs = inputs_of(batch[0]);
  if (batch.count() == 3) inputs.attention_mask = batch[1];
  return model()->forward(inputs).logits;
}

at::Tensor HuggingFaceClassifier::training_step(const Batch& batch, int64_t) {
  const at::Tensor loss = at::cross_entropy_loss(logits_of(batch), batch[batch.count() - 1]);
  log("train_loss", loss, {.prog_bar = true});
  return loss;
}

void HuggingFaceClassifier::evaluate(const Batch& batch, const std::string& stage) {
  const at::Tensor logits = logits_of(batch), label = batch[batch.count() - 1];
  log(stage + "_loss", at::cross_entropy_loss(logits, label), {.prog_bar = true, .sync_dist = true});
  log(stage + "_acc", logits.argmax(-1).eq(label).to(at::kFloat).mean(), {.prog_bar = true, .sync_dist = true});
}

at::Tensor HuggingFaceClassifier::predict_step(const Batch& batch, int64_t) {
  return logits_of(batch).argmax(-1);
}

}  // namespace levin
