#include "levin/models/huggingface/auto_model.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "levin/checkpoint/weights_source.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/models/huggingface/families.h"
#include "levin/models/huggingface/pretrained_model.h"

namespace levin::huggingface {

namespace {

constexpr int64_t kMaxLayers = 10'000;
// A model of these sizes costs little; errors in its weights are reported tensor by tensor when they are read.
constexpr int64_t kFewLayers = 100, kSmallSize = 4096;
constexpr const char* kLayers[] = {"num_hidden_layers", "n_layer", "n_layers"};

int64_t number_in(const PretrainedConfig& config, const char* key) {
  int64_t number = 0;
  const ConfigNode* node = config.find(key);
  return node != nullptr && detail::parse_int(*node, number) ? number : 0;
}

enum class Kind { bert, distilbert, gpt2, llama, vit };

struct Family {
  const char* model_type;
  const char* name;  // of transformers' classes
  Kind kind;
};

constexpr auto kFamilies = std::to_array<Family>({{"bert", "Bert", Kind::bert},
                                                  {"roberta", "Roberta", Kind::bert},
                                                  {"xlm-roberta", "XLMRoberta", Kind::bert},
                                                  {"camembert", "Camembert", Kind::bert},
                                                  {"distilbert", "DistilBert", Kind::distilbert},
                                                  {"gpt2", "GPT2", Kind::gpt2},
                                                  {"llama", "Llama", Kind::llama},
                                                  {"mistral", "Mistral", Kind::llama},
                                                  {"qwen2", "Qwen2", Kind::llama},
                                                  {"qwen3", "Qwen3", Kind::llama},
                                                  {"gemma", "Gemma", Kind::llama},
                                                  {"phi3", "Phi3", Kind::llama},
                                                  {"vit", "ViT", Kind::vit}});

struct TaskName {
  Task task;
  const char* class_ending;
  const char* words;
};

constexpr std::array<TaskName, 6> kTasks{
    {{Task::base, "Model", "bare model"},
     {Task::sequence_classification, "ForSequenceClassification", "sequence classification"},
     {Task::token_classification, "ForTokenClassification", "token classification"},
     {Task::masked_lm, "ForMaskedLM", "masked language model"},
     {Task::causal_lm, "ForCausalLM", "causal language model"},
     {Task::image_classification, "ForImageClassification", "image classification"}}};

const Family* find_family(const std::string& model_type) {
  const auto* found = std::find_if(kFamilies.begin(), kFamilies.end(),
                                   [&](const Family& family) { return model_type == family.model_type; });
  return found == kFamilies.end() ? nullptr : found;
}

bool kind_has(Kind kind, Task task) {
  if (task == Task::base) return true;
  if (kind == Kind::vit) return task == Task::image_classification;
  if (task == Task::image_classification) return false;
  const bool is_encoder = kind == Kind::bert || kind == Kind::distilbert;
  return task != (is_encoder ? Task::causal_lm : Task::masked_lm);
}

const TaskName& name_of(Task task) {
  return *std::find_if(kTasks.begin(), kTasks.end(), [&](const TaskName& name) { return name.task == task; });
}

std::string class_name(const Family& family, Task task) {
  if (family.kind == Kind::gpt2 && task == Task::causal_lm) return "GPT2LMHeadModel";
  return std::string(family.name) + name_of(task).class_ending;
}

const Family& family_of(const PretrainedConfig& config, Task task) {
  const std::string type = config.model_type(), where = config.source().empty() ? "config" : config.source();
  const Family* family = find_family(type);
  if (family == nullptr) {
    throw ConfigError(where + ": model_type: Levin has no \"" + cut_text(type) + "\". It has: " + join(model_types()) +
                      "." + did_you_mean(type, model_types()));
  }
  if (kind_has(family->kind, task)) return *family;
  std::vector<std::string> tasks;
  for (const TaskName& name : kTasks) {
    if (kind_has(family->kind, name.task)) tasks.emplace_back(name.words);
  }
  throw ConfigError(where + ": model_type: " + type + " has no " + name_of(task).words + ". It has: " + join(tasks) +
                    ".");
}

// Whether the task's model uses the pooler of its base.
bool has_pooler(Kind kind, Task task, const PretrainedConfig& config) {
  if (task == Task::base) return true;
  return kind == Kind::bert && task == Task::sequence_classification && config.model_type() == "bert";
}

std::shared_ptr<PretrainedModel> make_base(Kind kind, Task task, const PretrainedConfig& config) {
  switch (kind) {
    case Kind::bert: return make_bert(config, has_pooler(kind, task, config));
    case Kind::distilbert: return make_distilbert(config);
    case Kind::gpt2: return make_gpt2(config);
    case Kind::llama: return make_llama(config);
    case Kind::vit: return make_vit(config, has_pooler(kind, task, config));
  }
  return nullptr;
}

std::shared_ptr<PretrainedModel> add_head(Kind kind, Task task, std::shared_ptr<PretrainedModel> base) {
  auto model = std::make_shared<ModelWithHead>(base->config(), std::move(base));
  switch (kind) {
    case Kind::bert: add_bert_head(*model, task); break;
    case Kind::distilbert: add_distilbert_head(*model, task); break;
    case Kind::gpt2: add_gpt2_head(*model, task); break;
    case Kind::llama: add_llama_head(*model, task); break;
    case Kind::vit: add_vit_head(*model); break;
  }
  return model;
}

// Throws ConfigError if the config has more layers than any model.
void check_layers(const PretrainedConfig& config) {
  Problems problems;
  for (const char* key : kLayers) {
    const int64_t layers = number_in(config, key);
    if (layers <= kMaxLayers) continue;
    problems.add({config.source(), 0, 0}, key,
                 "must be at most " + std::to_string(kMaxLayers) + ", got " + std::to_string(layers) + ".");
  }
  problems.throw_if_any();
}

// Throws ConfigError with all problems if the config has many layers, and more than `source`, the files of `folder`,
// have tensors, or, unless `ignore_mismatched_sizes`, a large size that exceeds every dimension in their headers.
void check_sizes(const PretrainedConfig& config, const WeightsSource& source, const std::string& folder,
                 bool ignore_mismatched_sizes) {
  const auto tensors = static_cast<int64_t>(source.tensors().size());
  int64_t largest = 0;
  for (const auto& [name, tensor] : source.tensors()) {
    if (tensor.bytes == 0) continue;  // the header may claim anything of it
    for (const int64_t size : tensor.shape) largest = std::max(largest, size);
  }
  Problems problems;
  const auto add = [&](const char* key, int64_t number, const std::string& found) {
    problems.add({config.source(), 0, 0}, key,
                 "is " + std::to_string(number) + ", and " + found + " in the weights of " + folder +
                     ". Give the config.json that was saved with them.");
  };
  for (const char* key : kLayers) {
    const int64_t layers = number_in(config, key);
    if (layers > std::max(tensors, kFewLayers)) add(key, layers, "there are only " + count_of(tensors, "tensor"));
  }
  // Sizes that are dimensions of weights, or divide one, in each family that has the key.
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
        "n_embd", "n_inner", "n_head", "n_positions", "dim", "hidden_dim", "n_heads"}) {
    const int64_t size = ignore_mismatched_sizes ? 0 : number_in(config, key);
    if (size > std::max(largest, kSmallSize)) add(key, size, "the largest dimension is " + std::to_string(largest));
  }
  problems.throw_if_any();
}

}  // namespace

bool has_task(const std::string& model_type, Task task) {
  const Family* family = find_family(model_type);
  return family != nullptr && kind_has(family->kind, task);
}

std::vector<std::string> model_types() {
  std::vector<std::string> types;
  for (const Family& family : kFamilies) types.emplace_back(family.model_type);
  return types;
}

void set_dropout(PretrainedConfig& config, double dropout) {
  const Family* family = find_family(config.model_type());
  if (family == nullptr) return;
  static constexpr std::array<const char*, 2> encoder{"hidden_dropout_prob", "attention_probs_dropout_prob"};
  static constexpr std::array<const char*, 3> gpt2{"resid_pdrop", "embd_pdrop", "attn_pdrop"};
  static constexpr std::array<const char*, 1> llama{"attention_dropout"};
  static constexpr std::array<const char*, 3> distilbert{"dropout", "attention_dropout", "seq_classif_dropout"};
  static constexpr std::array<const char*, 3> phi3{"attention_dropout", "resid_pdrop", "embd_pdrop"};
  std::span<const char* const> keys = encoder;
  if (family->kind == Kind::distilbert) keys = distilbert;
  if (family->kind == Kind::gpt2) keys = gpt2;
  if (family->kind == Kind::llama) keys = llama;
  if (config.model_type() == "phi3") keys = phi3;
  for (const char* key : keys) config.set(key, dropout);
  if (family->kind != Kind::vit && family->kind != Kind::distilbert) config.set("classifier_dropout", dropout);
}

std::shared_ptr<PretrainedModel> make_model(PretrainedConfig config, Task task) {
  const Family& family = family_of(config, task);
  check_layers(config);
  config.set("architectures", std::vector<std::string>{class_name(family, task)});
  std::shared_ptr<PretrainedModel> model;
  try {
    model = make_base(family.kind, task, config);
    if (task != Task::base) model = add_head(family.kind, task, std::move(model));
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (text.find("memory") == std::string::npos && text.find("overflow") == std::string::npos) throw;
    throw ConfigError((config.source().empty() ? "config" : config.source()) +
                      ": a model of its sizes does not fit into memory: " + cut_text(text.substr(0, text.find('\n'))) +
                      " Give the config.json that was saved with the weights, or smaller sizes.");
  }
  model->set_class_name(class_name(family, task));
  return model;
}

std::shared_ptr<PretrainedModel> model_from_config(PretrainedConfig config, Task task) {
  auto model = make_model(std::move(config), task);
  init_weights(*model);
  model->eval();
  return model;
}

std::shared_ptr<PretrainedModel> model_from_files(const std::string& folder, PretrainedConfig config, Task task,
                                                  bool ignore_mismatched_sizes) {
  (void)family_of(config, task);
  const WeightsSource source(folder);
  check_sizes(config, source, folder, ignore_mismatched_sizes);
  auto model = make_model(std::move(config), task);
  model->set_source(folder);
  const LoadReport report = load_pretrained(*model, source, folder, ignore_mismatched_sizes);
  if (const std::string text = report.str(); !text.empty()) {
    Console::instance().warn(folder + ": loaded as " + model->class_name() + ". " + text +
                             (report.newly_initialized.empty()
                                  ? "."
                                  : ". What is newly initialized has to be trained before the model is used."));
  }
  model->eval();
  return model;
}

std::shared_ptr<PretrainedModel> model_from_pretrained(const std::string& folder, Task task,
                                                       const FromPretrainedOptions& options) {
  PretrainedConfig config = PretrainedConfig::read(folder);
  if (options.num_labels) config.set_num_labels(*options.num_labels);
  if (options.dropout) set_dropout(config, *options.dropout);
  return model_from_files(folder, std::move(config), task, options.ignore_mismatched_sizes);
}

}  // namespace levin::huggingface
