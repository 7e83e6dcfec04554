// libFuzzer target: files of models that other programs wrote. The first byte of an input selects the kind of the rest:
//
//   s  model.safetensors                       i  model.safetensors.index.json, next to a good shard
//   h  a Hugging Face folder: config.json and, after a line "%%%%", model.safetensors
//   p  a PEFT folder: adapter_config.json and, after a line "%%%%", adapter_model.safetensors
//   m  the description in a compiled step and, after a line "%%%%", /proc/cpuinfo
//   0… a tensor as JSON; the digit selects its type
//
// For any bytes, the weights are no larger than the file and are copied into a module, models and adapters run forward,
// or Error names the file.
#include <ATen/Parallel.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>

#include "fuzz_support.h"
#include "guarded_memory.h"
#include "levin/adapters/lora.h"
#include "levin/adapters/peft_folder.h"
#include "levin/checkpoint/safetensors.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/checkpoint/weights.h"
#include "levin/checkpoint/weights_source.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/inference/json_tensor.h"
#include "levin/models/compiled/step_file.h"
#include "levin/models/huggingface/auto_model.h"
#include "support/temporary_folder.h"

namespace levin::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBytes = 64 << 20;

const std::string& folder() {
  static const test::TemporaryFolder made;
  return made.path();
}

void new_folder() {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder())) fs::remove_all(entry.path(), ignored);
}

void write(const std::string& name, std::string_view bytes) {
  std::ofstream(folder() + "/" + name, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// The names that safetensors_seed() in fuzz_seeds.cpp writes.
struct Module : torch::nn::Module {
  Module() {
    register_module("first", torch::nn::Linear(4, 3));
    register_module("words", torch::nn::Embedding(5, 4));
  }
};

void check_source(const std::string& path, size_t file_bytes) {
  const WeightsSource source(path);
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : source.tensors()) {
    const at::Tensor values = tensor.read();
    expect(values.sizes() == at::IntArrayRef(tensor.shape) && values.nbytes() == tensor.bytes, "a tensor is whole",
           name);
    bytes += values.nbytes();
  }
  expect(bytes <= file_bytes, "the tensors are no larger than the files");
}

void load_into_module(const std::string& path) {
  Module module;
  const WeightsReport report =
      load_weights(module, {.path = path, .map = {{"model", ""}, {"skip", std::nullopt}}, .strict = false});
  expect(report.loaded > 0, "what is loaded is counted");
  ++Counts::instance().whole;
}

void read_weights(std::string_view bytes) {
  write("model.safetensors", bytes);
  check_source(folder() + "/model.safetensors", bytes.size());
  load_into_module(folder());
}

void read_index(std::string_view bytes) {
  for (const char* name : {"a.safetensors", "b.safetensors"}) {
    write_safetensors(folder() + "/" + name, {{std::string(1, *name), at::ones({2, 2})},
                                              {"first." + std::string(*name == 'a' ? "weight" : "bias"),
                                               *name == 'a' ? at::ones({3, 4}) : at::ones({3})}});
  }
  write("model.safetensors.index.json", bytes);
  check_source(folder(), 10'000);
  load_into_module(folder());
}

void run_model(PretrainedModel& model) {
  ModelInputs inputs;
  inputs.input_ids = at::ones({2, 3}, at::kLong);
  inputs.attention_mask = at::ones({2, 3}, at::kLong);
  inputs.pixel_values = at::ones({1, 3, 8, 8});
  const ModelOutput output = model.forward(inputs);
  expect(output.last_hidden_state.defined() || output.logits.defined(), "a model has an output");
  ++Counts::instance().whole;
}

void read_model(const std::vector<std::string>& files) {
  using huggingface::Task;
  write("config.json", files[0]);
  if (files.size() > 1) write("model.safetensors", files[1]);
  const PretrainedConfig config = PretrainedConfig::read(folder());
  (void)config.labels();
  (void)config.pad_token_id();
  expect(PretrainedConfig::parse(config.json(), "written").json() == config.json(), "a config reads back to the same");
  for (const Task task : {Task::base, Task::sequence_classification, Task::causal_lm, Task::masked_lm,
                          Task::token_classification, Task::image_classification}) {
    if (!huggingface::has_task(config.model_type(), task)) continue;
    try {
      const auto model = huggingface::model_from_pretrained(folder(), task, {.ignore_mismatched_sizes = true});
      run_model(*model);
    } catch (const c10::Error&) {
      // the sizes of a config may not fit each other, or the fuzzer's memory
    }
  }
}

void read_adapter(const std::vector<std::string>& files) {
  write("adapter_config.json", files[0]);
  if (files.size() > 1) write("adapter_model.safetensors", files[1]);
  const PeftFolder adapter = read_peft_folder(folder());
  expect(adapter.tensors.empty() || files.size() > 1, "tensors are those of a file");
  torch::nn::Sequential model(torch::nn::Linear(4, 3), torch::nn::Linear(3, 2));
  apply_lora(*model, {.path = folder()});
  (void)model->forward(at::ones({2, 4}));
  save_lora(*model, folder() + "/saved");
  (void)read_peft_folder(folder() + "/saved");
  merge_lora(*model);
  (void)model->forward(at::ones({2, 4}));
  ++Counts::instance().whole;
}

void read_step(const std::vector<std::string>& texts) {
  const StepManifest manifest = read_step_manifest(texts[0], "step.pt2");
  ++Counts::instance().whole;
  check_compiled_for(manifest, "step.pt2", texts.size() > 1 ? texts[1] : "flags : avx2 fma");
}

void read_tensor(char kind, const std::string& text) {
  constexpr std::array types{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                             at::kInt,   at::kShort,  at::kChar, at::kByte,     at::kBool};
  const at::ScalarType type = types.at(static_cast<size_t>(kind - '0'));
  const at::Tensor tensor = tensor_from_json(text, type);
  expect(tensor.scalar_type() == type && tensor.numel() <= static_cast<int64_t>(text.size()),
         "a tensor has no more numbers than its text");
  const at::Tensor again = tensor_from_json(tensor_to_json(tensor), type);
  expect(tensor.equal(again), "what is printed reads back to the same", text);
  ++Counts::instance().whole;
}

void read_kind(char kind, std::string_view rest) {
  switch (kind) {
    case 's': return read_weights(rest);
    case 'i': return read_index(rest);
    case 'h': return read_model(sections_of(rest, 2));
    case 'p': return read_adapter(sections_of(rest, 2));
    case 'm': return read_step(sections_of(rest, 2));
    default:
      if (kind >= '0' && kind <= '9') read_tensor(kind, std::string(rest));
  }
}

}  // namespace

void run_one(std::string_view input) {
  ++Counts::instance().inputs;
  if (input.empty()) return;
  GuardedMemory::install().set_budget(kMaxBytes);
  at::set_num_threads(1);
  new_folder();
  try {
    read_kind(input[0], input.substr(1));
  } catch (const Error& error) {
    std::string message = error.what();
    std::replace(message.begin(), message.end(), '\n', ' ');  // a list of problems has a line for each
    expect_good_message(message, 100'000);
    check_planted(message, "do not fit its shape");
  }
}

void begin() {
  Counts::print_at_exit();
  Console::instance().capture([](const std::string& text) { expect_good_message(text, 100'000); });
}

}  // namespace levin::fuzz
