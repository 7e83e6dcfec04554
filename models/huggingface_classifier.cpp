#include "levin/models/huggingface_classifier.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>

#include <filesystem>
#include <iterator>

#include "levin/checkpoint/checkpoint_values.h"
#include "levin/core/options/error.h"
#include "levin/core/options/value.h"
#include "levin/core/tensors.h"
#include "levin/data/sets/text_csv.h"
#include "levin/models/loss_type.h"
#include "levin/trainer/found_option.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

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

// The number of labels of the model in a checkpoint file, for predictions without the training data; 0: unknown.
int64_t saved_num_labels(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return 0;
  const ConfigNode values = load_checkpoint_values(path);
  const ConfigNode* node = &values;
  for (const char* key : {"model_class", "init_args", "num_labels"}) {
    if (node != nullptr) node = node->find(key);
  }
  int64_t labels = 0;
  return node != nullptr && detail::parse_int(*node, labels) ? labels : 0;
}

// (batch) or, as transformers takes them too, (batch, 1)
at::Tensor class_numbers(const at::Tensor& label) {
  if (label.dim() <= 1) return label;
  if (label.numel() == label.size(0)) return label.flatten();
  throw Error("HuggingFaceClassifier: labels of one class for each sample have the shape (batch), and these are " +
              shape_text(label.sizes()) +
              ". Where a sample has several labels, set problem_type: multi_label_classification.");
}

void check_same_shape(const at::Tensor& logits, const at::Tensor& label, ProblemType type) {
  if (logits.sizes() == label.sizes()) return;
  throw Error("HuggingFaceClassifier: " + enum_name(type) + " compares logits " + shape_text(logits.sizes()) +
              " with labels of the same shape, and they are " + shape_text(label.sizes()) +
              ". Give one number for each label, or set problem_type to what they are.");
}

}  // namespace

HuggingFaceClassifier::HuggingFaceClassifier(HuggingFaceClassifierOptions options)
    : HuggingFaceModule(settings_of(checked(options, "HuggingFaceClassifierOptions"))), options_(std::move(options)) {
  save_hyperparameters(options_);
  if (options_.num_labels > 0) make(read_config(), options_.num_labels, {});
}

void HuggingFaceClassifier::make(PretrainedConfig config, int64_t num_labels, const std::vector<std::string>& classes) {
  if (num_labels > 0) config.set_num_labels(num_labels);
  if (!classes.empty()) config.set_labels(classes);
  if (options_.problem_type) config.set("problem_type", enum_name(*options_.problem_type));
  const bool is_vision = huggingface::has_task(config.model_type(), huggingface::Task::image_classification);
  make_model(config, is_vision ? huggingface::Task::image_classification : huggingface::Task::sequence_classification);
  (void)known_problem_type();  // an unknown word is an error before the run
}

void HuggingFaceClassifier::configure_model() {
  DataModule* data = has_trainer() ? trainer().datamodule() : nullptr;
  std::vector<std::string> classes;
  if (const auto* strings = dynamic_cast<const TextCsv*>(data)) {
    check_fits(model() == nullptr ? read_config() : model()->config(), *strings);
  }
  if (data != nullptr) classes = data->label_names();
  if (options_.num_labels > 0 && options_.num_labels < std::ssize(classes)) {
    throw ConfigError("HuggingFaceClassifierOptions.num_labels: " + std::to_string(options_.num_labels) +
                      " is less than the " + std::to_string(classes.size()) +
                      " classes of the data. Set it to that number, or to 0.");
  }
  if (model() == nullptr) {
    make(read_config(), classes.empty() && has_trainer() ? saved_num_labels(trainer().ckpt_path()) : 0, classes);
    keep_found_option(*this, "num_labels", model()->config().num_labels());
  } else if (!classes.empty() && static_cast<int64_t>(classes.size()) == model()->config().num_labels()) {
    model()->config().set_labels(classes);
  }
  const auto type = known_problem_type();
  if (classes.empty() || !type || *type == ProblemType::single_label_classification) return;
  throw ConfigError(
      model()->config().source() + ": problem_type: " + enum_name(*type) +
      ", but the labels of the data are numbers of classes (" + cut_text(join(classes)) +
      "). Set problem_type: single_label_classification and num_labels: 0, or use a DataModule that gives "
      "the numbers.");
}

// As transformers finds it (ForSequenceClassificationLoss); nothing: by the labels.
std::optional<ProblemType> HuggingFaceClassifier::known_problem_type() const {
  const PretrainedConfig& config = model()->config();
  const ConfigNode* node = config.find("problem_type");
  if (node == nullptr || node->is_null()) {
    return config.num_labels() == 1 ? std::optional(ProblemType::regression) : std::nullopt;
  }
  ProblemType type{};
  Problems problems;
  if (!ValueType<ProblemType>::read(*node, type, "problem_type", problems)) problems.throw_if_any();
  return type;
}

ProblemType HuggingFaceClassifier::problem_type(const at::Tensor& label) {
  if (const auto known = known_problem_type()) return *known;
  const auto type =
      label.is_floating_point() ? ProblemType::multi_label_classification : ProblemType::single_label_classification;
  model()->config().set("problem_type", enum_name(type));  // for predictions, and for the folder that is written
  keep_found_option(*this, "problem_type", type);
  return type;
}

at::Tensor HuggingFaceClassifier::loss_of(const at::Tensor& logits, const at::Tensor& label) {
  const ProblemType type = problem_type(label);
  const at::ScalarType wide = loss_type(logits, label);
  const at::Tensor predicted = logits.to(wide);
  if (type == ProblemType::single_label_classification) {
    return at::cross_entropy_loss(predicted, label.is_floating_point() ? label.to(wide) : class_numbers(label));
  }
  if (type == ProblemType::multi_label_classification) {
    check_same_shape(logits, label, type);
    return at::binary_cross_entropy_with_logits(predicted, label.to(wide));
  }
  const bool is_column = logits.size(-1) == 1 && label.dim() == 1;
  check_same_shape(is_column ? logits.squeeze(-1) : logits, label, type);
  return at::mse_loss(is_column ? predicted.squeeze(-1) : predicted, label.to(wide));
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
  const ModelInputs inputs = inputs_of(input);  // throws if model() is null
  return model()->forward(inputs).logits;
}

at::Tensor HuggingFaceClassifier::logits_of(const Batch& batch) {
  ModelInputs inputs = inputs_of(batch[0]);
  if (batch.count() == 3) inputs.attention_mask = batch[1];
  return model()->forward(inputs).logits;
}

at::Tensor HuggingFaceClassifier::training_step(const Batch& batch) {
  const at::Tensor loss = loss_of(logits_of(batch), batch[batch.count() - 1]);
  log("train_loss", loss, {.prog_bar = true});
  return loss;
}

void HuggingFaceClassifier::evaluate(const Batch& batch, const std::string& stage) {
  const at::Tensor logits = logits_of(batch), label = batch[batch.count() - 1];
  log(stage + "_loss", loss_of(logits, label), {.prog_bar = true, .sync_dist = true});
  const ProblemType type = problem_type(label);
  if (type == ProblemType::regression) return;
  const bool is_single = type == ProblemType::single_label_classification;
  const auto classes = [&] { return label.is_floating_point() ? label.argmax(-1) : class_numbers(label); };
  const at::Tensor right = is_single ? logits.argmax(-1).eq(classes()) : logits.gt(0).eq(label.gt(0.5));
  log(stage + "_acc", right.to(at::kFloat).mean(), {.prog_bar = true, .sync_dist = true});
}

at::Tensor HuggingFaceClassifier::predict_step(const Batch& batch) {
  const at::Tensor logits = logits_of(batch);
  const auto type = known_problem_type().value_or(ProblemType::single_label_classification);
  if (type == ProblemType::single_label_classification) {
    step_output("probability", logits.softmax(-1).amax(-1));
    return logits.argmax(-1);
  }
  if (type == ProblemType::multi_label_classification) {
    step_output("probability", logits.sigmoid());
    return logits.gt(0).to(at::kLong);
  }
  return logits.size(-1) == 1 ? logits.squeeze(-1) : logits;
}

}  // namespace levin
