// What lora_peers_test.py, lora_layers_peers_test.py and lora_ranks_test.py have Levin compute. Arguments are
// key=value:
//
//   lora_program make model=FOLDER task=TASK saved=FOLDER targets=a,b
//                [r= alpha= rslora dora ranks=a:1,b:2 alphas=a:1,b:2 save=a,b bias=WORD quantize=WORD]
//   lora_program train model=FOLDER task=TASK tensors=FILE out=FILE adapter=FOLDER saved=FOLDER
//                [lr= batch= devices= strategy=ddp|fsdp stage= quantize=WORD recompute=PATTERN apart]
//   lora_program forward model=FOLDER task=TASK tensors=FILE out=FILE [adapter=FOLDER merge]
//
// make adapts the model, gives A and B random values and writes the adapter; train starts from an adapter and writes
// saved/adapter, saved/merged (unless apart) and the losses; forward writes the logits of ids or images. TASK:
// causal_lm, sequence_classification, image_classification; layers, whose model is a safetensors file for lora_nets.h;
// exported, whose model is a .pt2 file (forward alone).
#include <torch/torch.h>

#include <map>
#include <sstream>

#include "adapters/lora_nets.h"
#include "levin/adapters/lora.h"
#include "levin/adapters/lora_layer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/lora.h"
#include "levin/checkpoint/safetensors.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/core/process/main_guard.h"
#include "levin/data/loading/dataloader.h"
#include "levin/models/exported/exported_program.h"
#include "levin/models/huggingface_classifier.h"
#include "levin/models/huggingface_lm.h"
#include "levin/strategies/process/ddp.h"
#include "levin/strategies/process/fsdp.h"
#include "levin/trainer/trainer.h"
#include "ranks/run_arguments.h"
#include "support/forked_runs.h"

namespace lora_program {
namespace {

using levin::test::RunArguments;
using Tensors = std::map<std::string, at::Tensor>;

Tensors read(const std::string& path) {
  Tensors tensors;
  const levin::SafetensorsFile file(path);
  for (const auto& entry : file.entries()) tensors[entry.name] = file.read(entry);
  return tensors;
}

std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

// "a:1,b:2"
std::map<std::string, double> numbers_of(const std::string& text) {
  std::map<std::string, double> numbers;
  for (const std::string& part : list_of(text)) {
    const size_t colon = part.find(':');
    numbers[part.substr(0, colon)] = std::stod(part.substr(colon + 1));
  }
  return numbers;
}

template <class E>
E choice(const std::string& word) {
  for (const auto& [name, value] : levin::EnumNames<E>::names) {
    if (word == name) return value;
  }
  throw levin::Error("no such word: " + word);
}

// A module to train, and the model in it that is adapted.
struct Task {
  std::shared_ptr<levin::LightningModule> module;
  std::shared_ptr<torch::nn::Module> model;
};

Task make_layers(const RunArguments& arguments) {
  const torch::NoGradGuard no_grad;
  auto module = std::make_shared<levin::test::LayersModule>(std::stod(arguments.text("lr", "0.01")));
  auto parameters = module->model()->named_parameters();
  for (const auto& [name, value] : read(arguments.text("model", ""))) parameters[name].copy_(value);
  return {module, module->model()};
}

Task make_module(const RunArguments& arguments) {
  if (arguments.text("task", "") == "layers") return make_layers(arguments);
  const std::string path = arguments.text("model", ""), saved = arguments.text("saved", "");
  const std::string merged = saved.empty() || arguments.has("apart") ? "" : saved + "/merged";
  const double lr = std::stod(arguments.text("lr", "0.01"));
  if (arguments.text("task", "") == "causal_lm") {
    const auto module = std::make_shared<levin::HuggingFaceLM>(
        levin::HuggingFaceLMOptions{.path = path, .dropout = 0.0, .lr = lr, .save_to = merged});
    return {module, module->model()};
  }
  const int64_t labels = levin::PretrainedConfig::read(path).num_labels();
  const auto module = std::make_shared<levin::HuggingFaceClassifier>(levin::HuggingFaceClassifierOptions{
      .path = path, .num_labels = labels, .dropout = 0.0, .lr = lr, .save_to = merged});
  return {module, module->model()};
}

levin::LoRAOptions lora_options(const RunArguments& arguments) {
  levin::LoRAOptions options;
  options.path = arguments.text("adapter", "");
  options.target_modules = list_of(arguments.text("targets", ""));
  options.modules_to_save = list_of(arguments.text("save", ""));
  if (arguments.has("r")) options.r = arguments.number("r", 8);
  if (arguments.has("alpha")) options.lora_alpha = std::stod(arguments.text("alpha", ""));
  if (arguments.has("rslora")) options.use_rslora = true;
  if (arguments.has("dora")) options.use_dora = true;
  for (const auto& [name, value] : numbers_of(arguments.text("ranks", ""))) {
    options.rank_pattern[name] = static_cast<int64_t>(value);
  }
  options.alpha_pattern = numbers_of(arguments.text("alphas", ""));
  options.bias = choice<levin::LoRABias>(arguments.text("bias", "none"));
  options.quantize = choice<levin::Quantize>(arguments.text("quantize", "none"));
  return options;
}

void make(const RunArguments& arguments) {
  torch::manual_seed(arguments.number("seed", 1));
  const Task task = make_module(arguments);
  levin::apply_lora(*task.model, lora_options(arguments));
  {
    const torch::NoGradGuard no_grad;
    for (const auto& [name, layer] : levin::lora_layers(*task.model)) {
      layer->lora_B().normal_(0, 0.1);
      if (layer->use() != levin::WeightUse::linear) layer->lora_A().normal_(0, 0.3);
    }
  }
  levin::save_lora(*task.model, arguments.text("saved", ""));
}

levin::TrainerOptions trainer_options(const RunArguments& arguments, std::vector<float>& losses) {
  levin::LoRAOptions lora = lora_options(arguments);
  lora.save_to = arguments.text("saved", "") + "/adapter";
  levin::TrainerOptions options;
  options.max_epochs = 1;
  options.logger = false;
  options.enable_checkpointing = false;
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.accelerator = "cpu";
  options.devices = arguments.number("devices", 1);
  options.callbacks = {levin::LoRA(lora),
                       levin::LambdaCallback({.on_train_batch_end = [&](auto&, auto&, auto& loss, auto&, int64_t) {
                         losses.push_back(loss.template item<float>());
                       }})};
  if (arguments.text("strategy", "") == "fsdp") {
    options.strategy = levin::FSDP({.stage = arguments.number("stage", 3), .unit_mb = 0.001});
  } else if (arguments.text("strategy", "") == "ddp") {
    options.strategy = levin::DDP();
  }
  if (arguments.has("recompute"))
    options.recompute = levin::RecomputeOptions{.modules = {arguments.text("recompute", "")}};
  return options;
}

void train(const RunArguments& arguments) {
  const Tensors tensors = read(arguments.text("tensors", ""));
  std::vector<at::Tensor> columns;
  for (const char* name : {"input_ids", "pixel_values", "attention_mask", "labels"}) {
    if (tensors.contains(name)) columns.push_back(tensors.at(name));
  }
  std::vector<float> losses;
  const Task task = make_module(arguments);
  levin::Trainer trainer(trainer_options(arguments, losses));
  trainer.fit(*task.module, {std::make_shared<levin::DataLoader>(
                                std::make_shared<levin::TensorDataset>(columns),
                                levin::DataLoaderOptions{.batch_size = arguments.number("batch", 4)})});
  if (trainer.is_global_zero())
    levin::write_safetensors(arguments.text("out", ""), {{"losses", torch::tensor(losses)}});
}

void forward(const RunArguments& arguments) {
  const torch::NoGradGuard no_grad;
  const bool is_exported = arguments.text("task", "") == "exported";
  const auto program = is_exported ? std::make_shared<levin::ExportedProgram>(arguments.text("model", "")) : nullptr;
  const Task task = is_exported ? Task{nullptr, program} : make_module(arguments);
  task.model->eval();
  if (arguments.has("adapter")) levin::apply_lora(*task.model, lora_options(arguments));
  if (arguments.has("merge")) levin::merge_lora(*task.model);
  const Tensors tensors = read(arguments.text("tensors", ""));
  const at::Tensor x = tensors.at(tensors.contains("pixel_values") ? "pixel_values" : "input_ids");
  const at::Tensor logits = is_exported ? program->forward({x}).at(0) : task.module->forward(x);
  levin::write_safetensors(arguments.text("out", ""), {{"logits", logits}});
}

int run(const std::vector<std::string>& all) {
  const RunArguments arguments(all);
  if (arguments.has("make")) {
    make(arguments);
  } else if (arguments.has("train")) {
    train(arguments);
  } else if (arguments.has("forward")) {
    forward(arguments);
  } else {
    return 2;
  }
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto guarded = [](const std::vector<std::string>& arguments) {
    return levin::main_guard([&] { return run(arguments); });
  };
  return levin::test::run_or_serve(argc, argv, guarded);
}

}  // namespace lora_program
