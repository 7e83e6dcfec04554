#include "levin/models/huggingface_lm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/where.h>

#include <filesystem>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/random.h"
#include "levin/data/sets/text.h"
#include "levin/models/huggingface/pretrained_config.h"
#include "levin/models/loss_type.h"
#include "levin/models/token_sampling.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

constexpr int64_t kIgnored = -100;

// BERT's or RoBERTa's mask token, among the tokens that tokenizer.json adds to its model's vocabulary.
std::optional<int64_t> mask_token_in(const std::string& folder) {
  const auto path = std::filesystem::path(folder) / "tokenizer.json";
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return std::nullopt;
  const ConfigNode json = huggingface::parse_json_config(read_file(path.string()), path.string());
  const ConfigNode* added = json.find("added_tokens");
  if (added == nullptr) return std::nullopt;
  for (const ConfigNode& token : added->items) {
    const ConfigNode *content = token.find("content"), *id = token.find("id");
    int64_t number = 0;
    if (content == nullptr || id == nullptr || !detail::parse_int(*id, number)) continue;
    if (content->text == "[MASK]" || content->text == "<mask>") return number;
  }
  return std::nullopt;
}

// The positions that the model was made for: "n_positions" is GPT-2's.
int64_t context_of(const PretrainedConfig& config) {
  int64_t positions = 0;
  for (const char* key : {"max_position_embeddings", "n_positions"}) {
    const ConfigNode* node = config.find(key);
    if (node != nullptr && detail::parse_int(*node, positions)) break;
  }
  return positions;
}

}  // namespace

MaskedTokens mask_tokens(const at::Tensor& ids, double probability, int64_t mask_token_id, int64_t vocab_size,
                         std::optional<int64_t> pad) {
  const at::TensorOptions numbers = ids.options().dtype(at::kFloat);
  at::Tensor chosen = at::rand(ids.sizes(), numbers) < probability;
  if (pad) chosen = chosen.logical_and(ids.ne(*pad));
  const at::Tensor kind = at::rand(ids.sizes(), numbers);
  const at::Tensor any = at::randint(vocab_size, ids.sizes(), ids.options());
  at::Tensor hidden = ids.masked_fill(chosen.logical_and(kind < 0.8), mask_token_id);
  hidden = at::where(chosen.logical_and(kind >= 0.9), any, hidden);
  return {hidden, ids.masked_fill(chosen.logical_not(), kIgnored)};
}

HuggingFaceLM::HuggingFaceLM(HuggingFaceLMOptions options)
    : HuggingFaceModule(settings_of(checked(options, "HuggingFaceLMOptions"))), options_(std::move(options)) {
  save_hyperparameters(options_);
  const PretrainedConfig config = read_config();
  is_masked_ = huggingface::has_task(config.model_type(), huggingface::Task::masked_lm);
  make_model(config, is_masked_ ? huggingface::Task::masked_lm : huggingface::Task::causal_lm);
  vocab_size_ = model()->input_embeddings().size(0);
  if (!is_masked_) return;
  if (options_.max_new_tokens > 0) {
    throw ConfigError("HuggingFaceLMOptions.max_new_tokens: only causal models continue a text, and " + options_.path +
                      " holds a masked one (" + config.model_type() + "). Leave it at 0.");
  }
  const auto id = options_.mask_token_id ? options_.mask_token_id : mask_token_in(options_.path);
  if (!id) {
    throw ConfigError("HuggingFaceLMOptions.mask_token_id: " + options_.path +
                      " has no tokenizer.json with a token [MASK] or <mask>. Set the number.");
  }
  if (*id >= vocab_size_) {
    throw ConfigError("HuggingFaceLMOptions.mask_token_id: must be below vocab_size (" + std::to_string(vocab_size_) +
                      "), got " + std::to_string(*id) + ".");
  }
  mask_token_id_ = *id;
}

void HuggingFaceLM::configure_model() {
  const auto* text = has_trainer() ? dynamic_cast<const TextFile*>(trainer().datamodule()) : nullptr;
  if (text == nullptr || text->vocab_size() <= vocab_size_) return;
  throw ConfigError(model()->config().source() + ": vocab_size: " + std::to_string(vocab_size_) +
                    " is too small for the " + std::to_string(text->vocab_size()) + " tokens of " +
                    text->options().tokenizer + ".");
}

at::Tensor HuggingFaceLM::forward(const at::Tensor& ids) {
  return model()->forward({.input_ids = ids}).logits;
}

HuggingFaceLM::Loss HuggingFaceLM::loss_of(const Batch& batch) {
  if (!is_masked_) {
    auto [x, y] = batch.unpack<2>();
    const at::Tensor logits = forward(x).flatten(0, 1);
    return {at::cross_entropy_loss(logits.to(loss_type(logits)), y.flatten()), {}};
  }
  const auto pad = model()->config().pad_token_id();
  const MaskedTokens masked = mask_tokens(batch[0], options_.mlm_probability, mask_token_id_, vocab_size_, pad);
  at::Tensor logits = forward(masked.ids).flatten(0, 1);
  logits = logits.to(loss_type(logits));
  const at::Tensor labels = masked.labels.flatten();
  // A sum over a count, and not a mean: in a small batch no token may be predicted.
  const at::Tensor sum =
      at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Sum, /*ignore_index=*/kIgnored);
  const at::Tensor predicted = labels.ne(kIgnored).sum();
  return {sum / predicted.clamp_min(1), predicted};
}

// A window that is one batch is the same with any weight, and a recorded step cannot have one.
void HuggingFaceLM::weigh_by(const at::Tensor& predicted) {
  if (!has_trainer()) return;
  const bool is_alone = trainer().accumulate_grad_batches() == 1 && trainer().world_size() == 1;
  if (!is_alone || trainer().plan().record_steps != RecordSteps::yes) set_loss_weight(predicted);
}

at::Tensor HuggingFaceLM::training_step(const Batch& batch) {
  const auto [loss, predicted] = loss_of(batch);
  if (predicted.defined()) weigh_by(predicted);
  log("train_loss", loss, {.prog_bar = true});
  return loss;
}

void HuggingFaceLM::log_loss(const char* name, const Batch& batch) {
  const auto [loss, predicted] = loss_of(batch);
  LogOptions options{.prog_bar = true, .sync_dist = true};
  if (predicted.defined()) options.batch_size = predicted.item<int64_t>();
  log(name, loss, options);
}

at::Tensor HuggingFaceLM::predict_step(const Batch& batch, int64_t batch_idx) {
  if (options_.max_new_tokens == 0) return forward(batch[0]);
  const auto next = [this](const at::Tensor& tokens) { return forward(tokens).select(1, -1); };
  return continue_tokens(batch[0], next,
                         {.max_new_tokens = options_.max_new_tokens,
                          .temperature = options_.temperature,
                          .top_k = options_.top_k,
                          .context = context_of(model()->config())},
                         mix_seed(default_seed(), static_cast<uint64_t>(batch_idx)));
}

}  // namespace levin
