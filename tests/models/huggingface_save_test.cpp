#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "levin/checkpoint/safetensors.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/core/files/files.h"
#include "levin/models/huggingface/auto_model.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::huggingface_save_test {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::holds;

std::string folder_of(const std::string& name) {
  return test::source_dir() + "/tests/models/data/" + name;
}

std::map<std::string, at::Tensor> tensors_in(const std::string& path) {
  const SafetensorsFile file(path);
  std::map<std::string, at::Tensor> tensors;
  for (const auto& entry : file.entries()) tensors[entry.name] = file.read(entry);
  return tensors;
}

void expect_same_weights(const torch::nn::Module& one, const torch::nn::Module& other) {
  const auto wanted = other.named_parameters();
  ASSERT_EQ(one.named_parameters().size(), wanted.size());
  for (const auto& item : one.named_parameters()) EXPECT_TRUE(item.value().equal(wanted[item.key()])) << item.key();
}

std::shared_ptr<PretrainedModel> llama() {
  return AutoModelForCausalLM::from_pretrained(folder_of("llama"));
}

TEST(SavePretrained, WritesTheFilesOfTransformersAgain) {
  const test::TemporaryFolder folder;
  AutoModelForMaskedLM::from_pretrained(folder_of("bert_mlm"))->save_pretrained(folder / "new/saved");
  const SafetensorsFile file(folder / "new/saved/model.safetensors");
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  const auto mine = tensors_in(file.path()), theirs = tensors_in(folder_of("bert_mlm/model.safetensors"));
  EXPECT_EQ(mine.size(), theirs.size()) << "tied weights are there once";
  for (const auto& [name, tensor] : theirs) EXPECT_TRUE(mine.at(name).equal(tensor)) << name;
  EXPECT_EQ(read_file(folder / "new/saved/config.json"), read_file(folder_of("bert_mlm/config.json")));
}

TEST(SavePretrained, SplitsALargeModelIntoShardsWithAnIndex) {
  const test::TemporaryFolder folder;
  const auto model = llama();
  model->save_pretrained(folder.path(), {.max_shard_size = {2000}});
  EXPECT_FALSE(fs::exists(folder / "model.safetensors"));
  const auto index = nlohmann::json::parse(read_file(folder / "model.safetensors.index.json"));
  int64_t parameters = 0;
  for (const auto& parameter : model->parameters()) parameters += parameter.numel();
  EXPECT_EQ(index["metadata"]["total_parameters"], parameters);
  EXPECT_EQ(index["metadata"]["total_size"], parameters * 4);
  for (const auto& [name, file] : index["weight_map"].items()) {
    EXPECT_TRUE(tensors_in(folder / file.get<std::string>()).contains(name));
    EXPECT_LE(SafetensorsFile(folder / file.get<std::string>()).size(), 2000 + 2500) << "tensors and a header";
  }
  expect_same_weights(*AutoModelForCausalLM::from_pretrained(folder.path()), *model);
}

TEST(SavePretrained, ReplacesWhatAnEarlierSaveLeft) {
  const test::TemporaryFolder folder;
  const auto model = llama();
  const auto files = [&] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder.path())) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  };
  model->save_pretrained(folder.path(), {.max_shard_size = {1000}});
  const size_t many = files().size();
  model->save_pretrained(folder.path(), {.max_shard_size = {3500}});
  EXPECT_LT(files().size(), many);
  expect_same_weights(*AutoModelForCausalLM::from_pretrained(folder.path()), *model);
  model->save_pretrained(folder.path());
  EXPECT_EQ(files(), (std::vector<std::string>{"config.json", "model.safetensors"}));
  model->save_pretrained(folder.path(), {.max_shard_size = {3500}});
  EXPECT_FALSE(fs::exists(folder / "model.safetensors"));
  expect_same_weights(*AutoModelForCausalLM::from_pretrained(folder.path()), *model);
}

TEST(SavePretrained, TakesTheTokenizerAlongAndNamesTheType) {
  const test::TemporaryFolder source, folder;
  fs::copy(folder_of("bert"), source.path(), fs::copy_options::recursive);
  source.write("tokenizer.json", "{\"a\": 1}");
  source.write("vocab.txt", "[PAD]\n");
  source.write("notes.txt", "mine");
  const auto model = AutoModelForSequenceClassification::from_pretrained(source.path());
  model->config().set("torch_dtype", std::string("float16"));
  model->to(torch::kBFloat16);
  model->save_pretrained(folder.path());
  EXPECT_EQ(read_file(folder / "tokenizer.json"), "{\"a\": 1}");
  EXPECT_EQ(read_file(folder / "vocab.txt"), "[PAD]\n");
  EXPECT_FALSE(fs::exists(folder / "notes.txt"));
  const auto config = PretrainedConfig::read(folder.path());
  EXPECT_EQ(config.find("dtype")->text, "bfloat16");
  EXPECT_EQ(config.find("torch_dtype"), nullptr);
  model->save_pretrained(source.path());  // onto itself
  EXPECT_EQ(read_file(source / "tokenizer.json"), "{\"a\": 1}");
}

TEST(SavePretrained, NamesWhatIsWrong) {
  const test::TemporaryFolder folder;
  const auto model = llama();
  EXPECT_TRUE(holds(error_of<Error>([&] { model->save_pretrained(folder.write("file", "") + "/in"); }), {"file"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([&] { model->save_pretrained(folder.path(), {.max_shard_size = {0}}); }),
                    {"max_shard_size", "> 0"}));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      model->save_tensors(folder.path(), {{"lm_head.weight", torch::ones(1)}});
                    }),
                    {"save_pretrained", "model.embed_tokens.weight is missing"}));
}

// ---- reading
// ---------------------------------------------------------------------------------------------------------

class Changed {
 public:
  explicit Changed(const std::string& name) : tensors(tensors_in(folder_of(name + "/model.safetensors"))) {
    fs::copy_file(folder_of(name + "/config.json"), folder_ / "config.json");
  }
  const std::string& write() const {
    write_safetensors(folder_ / "model.safetensors", tensors);
    return folder_.path();
  }
  std::map<std::string, at::Tensor> tensors;

 private:
  test::TemporaryFolder folder_;
};

TEST(LoadPretrained, TakesOldNamesAndLeavesOldBuffers) {
  Changed gpt("gpt2"), bert("bert_mlm");
  gpt.tensors["transformer.h.0.attn.bias"] = torch::ones({1, 1, 12, 12});
  gpt.tensors["transformer.h.0.attn.masked_bias"] = torch::ones({});
  std::map<std::string, at::Tensor> bare;  // as the file "gpt2" itself: without the prefix
  for (const auto& [name, tensor] : gpt.tensors) bare[name.substr(std::string("transformer.").size())] = tensor;
  gpt.tensors = bare;
  expect_same_weights(*AutoModelForCausalLM::from_pretrained(gpt.write()),
                      *AutoModelForCausalLM::from_pretrained(folder_of("gpt2")));
  auto norm = bert.tensors.extract("bert.embeddings.LayerNorm.weight");
  norm.key() = "bert.embeddings.LayerNorm.gamma";
  bert.tensors.insert(std::move(norm));
  bert.tensors["bert.embeddings.position_ids"] = torch::arange(12).unsqueeze(0);
  bert.tensors["cls.predictions.decoder.weight"] = bert.tensors["bert.embeddings.word_embeddings.weight"].clone();
  auto bias = bert.tensors.extract("cls.predictions.bias");
  bias.key() = "cls.predictions.decoder.bias";
  bert.tensors.insert(std::move(bias));
  expect_same_weights(*AutoModelForMaskedLM::from_pretrained(bert.write()),
                      *AutoModelForMaskedLM::from_pretrained(folder_of("bert_mlm")));
}

TEST(LoadPretrained, RefusesTiedWeightsThatDiffer) {
  Changed gpt("gpt2");
  gpt.tensors["lm_head.weight"] = gpt.tensors["transformer.wte.weight"] * 2;
  const std::string folder = gpt.write();
  EXPECT_TRUE(holds(error_of<CheckpointError>([&] { (void)AutoModelForCausalLM::from_pretrained(folder); }),
                    {folder, "ties lm_head.weight to transformer.wte.weight", "\"tie_word_embeddings\": false"}));
}

TEST(LoadPretrained, RefusesFilesOfADifferentModel) {
  Changed gpt("gpt2");
  gpt.tensors = {{"encoder.weight", torch::ones(3)}};
  const std::string folder = gpt.write();
  EXPECT_TRUE(holds(error_of<CheckpointError>([&] { (void)AutoModelForCausalLM::from_pretrained(folder); }),
                    {folder, "none of its tensors fits the model of its config.json", "encoder.weight", "more"}));
  const test::TemporaryFolder empty;
  fs::copy_file(folder_of("gpt2/config.json"), empty / "config.json");
  EXPECT_TRUE(holds(error_of<CheckpointError>([&] { (void)AutoModelForCausalLM::from_pretrained(empty.path()); }),
                    {empty.path(), "no *.safetensors"}));
  const auto load_error = [&] {
    return error_of<CheckpointError>([&] { (void)AutoModelForCausalLM::from_pretrained(empty.path()); });
  };
  (void)empty.write("training_args.bin", "x");
  EXPECT_TRUE(holds(load_error(), {"the folder holds no *.safetensors"}));
  (void)empty.write("pytorch_model.bin", "x");
  EXPECT_TRUE(holds(load_error(), {"the folder holds pytorch_model.bin, a pickle of Python",
                                   "Convert it: python3 tools/convert_checkpoint.py " + (empty / "pytorch_model.bin") +
                                       " " + (empty / "model.safetensors")}));
  (void)empty.write("pytorch_model-00002-of-00002.bin", "x");
  EXPECT_TRUE(holds(load_error(), {"pytorch_model-00002-of-00002.bin", "save_pretrained"}));
}

}  // namespace
}  // namespace levin::huggingface_save_test
