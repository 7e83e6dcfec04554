// What huggingface_peers_test.py has Levin compute:
//
//   huggingface_program forward FOLDER TASK INPUTS OUTPUTS
//   huggingface_program embed FOLDER INPUTS OUTPUTS
//   huggingface_program train FOLDER TASK INPUTS OUTPUTS LR [SAVED]
//   huggingface_program save FOLDER TASK SAVED MAX_SHARD_SIZE
//
// INPUTS and OUTPUTS are safetensors files; train's have one more dimension in front, the steps.
#include <torch/torch.h>

#include <iostream>
#include <map>

#include "levin/checkpoint/safetensors.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/core/process/main_guard.h"
#include "levin/models/huggingface/auto_model.h"
#include "support/forked_runs.h"

namespace huggingface_program {
namespace {

using levin::huggingface::Task;
using Tensors = std::map<std::string, at::Tensor>;

Task task_of(const std::string& name) {
  const std::map<std::string, Task> tasks{{"base", Task::base},
                                          {"sequence_classification", Task::sequence_classification},
                                          {"token_classification", Task::token_classification},
                                          {"masked_lm", Task::masked_lm},
                                          {"causal_lm", Task::causal_lm},
                                          {"image_classification", Task::image_classification}};
  return tasks.at(name);
}

Tensors read(const std::string& path) {
  Tensors tensors;
  const levin::SafetensorsFile file(path);
  for (const auto& entry : file.entries()) tensors[entry.name] = file.read(entry);
  return tensors;
}

std::shared_ptr<levin::PretrainedModel> load(const std::string& folder, const std::string& task) {
  return levin::huggingface::model_from_pretrained(folder, task_of(task), {});
}

levin::ModelInputs inputs_of(const Tensors& tensors, std::optional<int64_t> step = std::nullopt) {
  const auto get = [&](const char* name) {
    const auto place = tensors.find(name);
    if (place == tensors.end()) return at::Tensor();
    return step ? place->second.select(0, *step) : place->second;
  };
  return {get("input_ids"), get("attention_mask"), get("token_type_ids"), get("pixel_values")};
}

void forward(const std::string& folder, const std::string& task, const std::string& in, const std::string& out) {
  const torch::NoGradGuard no_grad;
  const auto output = load(folder, task)->forward(inputs_of(read(in)));
  Tensors tensors;
  const auto add = [&](const char* name, const at::Tensor& tensor) {
    if (tensor.defined()) tensors[name] = tensor;
  };
  add("last_hidden_state", output.last_hidden_state);
  add("pooler_output", output.pooler_output);
  add("logits", output.logits);
  levin::write_safetensors(out, tensors);
}

// Means over the tokens, of length 1: sentence-transformers' embeddings.
void embed(const std::string& folder, const std::string& in, const std::string& out) {
  const torch::NoGradGuard no_grad;
  const auto inputs = inputs_of(read(in));
  const auto features = levin::AutoModel::from_pretrained(folder)->forward(inputs).last_hidden_state;
  const auto weights = inputs.attention_mask.unsqueeze(-1).to(torch::kFloat);
  const auto means = (features * weights).sum(1) / weights.sum(1).clamp_min(1e-9);
  levin::write_safetensors(out, {{"embeddings", torch::nn::functional::normalize(means)}});
}

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& labels, Task task) {
  const bool shifts = task == Task::causal_lm;
  const auto seen = shifts ? logits.slice(1, 0, -1) : logits;
  const auto wanted = shifts ? labels.slice(1, 1) : labels;
  return torch::nn::functional::cross_entropy(seen.reshape({-1, seen.size(-1)}), wanted.reshape({-1}));
}

void train(const std::string& folder, const std::string& task, const std::string& in, const std::string& out, double lr,
           const std::string& saved) {
  const auto model = load(folder, task);
  const Tensors tensors = read(in);
  torch::optim::SGD optimizer(model->parameters(), lr);
  std::vector<float> losses;
  for (int64_t step = 0; step < tensors.at("labels").size(0); ++step) {
    optimizer.zero_grad();
    const auto logits = model->forward(inputs_of(tensors, step)).logits;
    const auto loss = loss_of(logits, tensors.at("labels").select(0, step), task_of(task));
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<float>());
  }
  levin::write_safetensors(out, {{"losses", torch::tensor(losses)}});
  if (!saved.empty()) model->save_pretrained(saved);
}

int run(const std::vector<std::string>& arguments) {
  const std::string& what = arguments.at(0);
  if (what == "forward") {
    forward(arguments.at(1), arguments.at(2), arguments.at(3), arguments.at(4));
  } else if (what == "embed") {
    embed(arguments.at(1), arguments.at(2), arguments.at(3));
  } else if (what == "train") {
    train(arguments.at(1), arguments.at(2), arguments.at(3), arguments.at(4), std::stod(arguments.at(5)),
          arguments.size() > 6 ? arguments[6] : "");
  } else if (what == "save") {
    load(arguments.at(1), arguments.at(2))
        ->save_pretrained(arguments.at(3), {.max_shard_size = levin::parse_byte_size(arguments.at(4))});
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

}  // namespace huggingface_program
