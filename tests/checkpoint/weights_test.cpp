// Weights from files into modules: names, shapes, types, shards, rules, and what happens when they do not fit.
#include "levin/checkpoint/weights.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <functional>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/checkpoint/weights_source.h"
#include "levin/core/files/files.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/field_count.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::weights_test {
namespace {

using test::error_of;
using test::has;
using test::TemporaryFolder;
using Tensors = std::map<std::string, at::Tensor>;

// body.0.weight (2, 3), body.0.bias (2), head.weight (1, 2), steps: int64 ().
struct Net : torch::nn::Module {
  torch::nn::Sequential body{torch::nn::Linear(3, 2)};
  torch::nn::Linear head{torch::nn::LinearOptions(2, 1).bias(false)};
  at::Tensor steps = torch::zeros({}, at::kLong);
  Net() {
    register_module("body", body);
    register_module("head", head);
    register_buffer("steps", steps);
  }
  Tensors copy() const {
    Tensors all;
    for (const auto& item : named_parameters()) all[item.key()] = item.value().detach().clone();
    for (const auto& item : named_buffers()) all[item.key()] = item.value().clone();
    return all;
  }
};

Tensors numbers() {
  return {{"body.0.weight", torch::arange(6, at::kFloat).view({2, 3}) + 0.5},
          {"body.0.bias", torch::tensor({-1.0F, 1e-3F})},
          {"head.weight", torch::tensor({{3.0F, 4.0F}})},
          {"steps", torch::tensor(7, at::kLong)}};
}

bool equal(const Tensors& a, const Tensors& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const auto& item) {
           return b.contains(item.first) && torch::equal(item.second, b.at(item.first));
         });
}

TEST(LoadWeights, TakesEveryParameterAndBufferInPlace) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a.safetensors", numbers());
  Net net;
  const void* place = net.head->weight.const_data_ptr();
  const WeightsReport report = load_weights(net, {.path = folder / "a.safetensors"});
  EXPECT_EQ(report.loaded, 4U);
  EXPECT_EQ(report.str(), "");
  EXPECT_TRUE(equal(net.copy(), numbers()));
  EXPECT_EQ(net.head->weight.const_data_ptr(), place);
  EXPECT_TRUE(net.head->weight.requires_grad());
  EXPECT_TRUE(net.head->weight.is_leaf());
}

TEST(LoadWeights, ConvertsTypesAsLoadStateDict) {
  const TemporaryFolder folder;
  Tensors tensors = numbers();
  tensors["body.0.weight"] = tensors["body.0.weight"].to(at::kDouble);
  tensors["body.0.bias"] = tensors["body.0.bias"].to(at::kHalf);
  tensors["head.weight"] = tensors["head.weight"].to(at::kBFloat16);
  tensors["steps"] = torch::tensor(7.9);
  write_safetensors(folder / "a.safetensors", tensors);
  Net net;
  load_weights(net, {.path = folder / "a.safetensors"});
  EXPECT_EQ(net.head->weight.scalar_type(), at::kFloat);
  EXPECT_TRUE(torch::equal(net.head->weight, numbers()["head.weight"]));
  EXPECT_TRUE(torch::equal(net.body[0]->as<torch::nn::Linear>()->weight, numbers()["body.0.weight"]));
  const at::Tensor bias = net.body[0]->as<torch::nn::Linear>()->bias;
  EXPECT_EQ(bias[1].item<float>(), 0.0010004043579101562F);  // the float16 nearest to 1e-3
  EXPECT_EQ(net.steps.item<int64_t>(), 7);
}

// One tensor is missing, one has a different shape, one is too many.
Tensors misfits() {
  Tensors tensors = numbers();
  tensors.erase("body.0.bias");
  tensors["head.weight"] = torch::ones({5, 2});
  tensors["extra.weight"] = torch::ones({4});
  return tensors;
}

TEST(LoadWeights, ListsAllThatDoesNotFitAndChangesNothing) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a.safetensors", misfits());
  Net net;
  const Tensors before = net.copy();
  const std::string error = error_of([&] { load_weights(net, {.path = folder / "a.safetensors"}); });
  for (const char* part : {"a.safetensors", "missing body.0.bias (2)", "unexpected extra.weight (4)",
                           "head.weight is (5, 2) in the file and (1, 2) in the module", "strict: false"}) {
    EXPECT_TRUE(has(error, part)) << part << " in " << error;
  }
  EXPECT_TRUE(equal(net.copy(), before));
}

TEST(LoadWeights, NamesAPathWhereNothingIs) {
  torch::nn::Linear layer(2, 2);
  EXPECT_EQ(error_of<CheckpointError>([&] { (void)load_weights(*layer, {.path = "no/such/folder"}); }),
            "cannot read weights: there is no file or folder no/such/folder.");
}

TEST(LoadWeights, NotStrictLoadsWhatFitsAndTellsTheRest) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a.safetensors", misfits());
  Net net;
  const Tensors before = net.copy();
  const test::CapturedConsole console;
  const WeightsReport report = load_weights(net, {.path = folder / "a.safetensors", .strict = false});
  EXPECT_EQ(report.loaded, 2U);
  EXPECT_EQ(report.missing, std::vector<std::string>{"body.0.bias (2)"});
  EXPECT_EQ(report.unexpected, std::vector<std::string>{"extra.weight (4)"});
  EXPECT_EQ(report.mis_shaped.size(), 1U);
  EXPECT_TRUE(console.has("2 tensors were loaded")) << console.text();
  EXPECT_TRUE(console.has("unexpected extra.weight (4)"));
  EXPECT_TRUE(torch::equal(net.copy()["body.0.weight"], numbers()["body.0.weight"]));
  EXPECT_TRUE(torch::equal(net.copy()["body.0.bias"], before.at("body.0.bias")));
  write_safetensors(folder / "b.safetensors", {{"other", torch::ones({1})}});
  EXPECT_TRUE(has(error_of([&] { load_weights(net, {.path = folder / "b.safetensors", .strict = false}); }),
                  "none of them fits"));
}

TEST(LoadWeights, AWeightThatTheModuleHoldsTwiceNeedBeInTheFileOnce) {
  const TemporaryFolder folder;
  Net net;
  net.head->register_parameter("tied", net.body[0]->as<torch::nn::Linear>()->bias);
  write_safetensors(folder / "a.safetensors", numbers());
  EXPECT_EQ(load_weights(net, {.path = folder / "a.safetensors"}).str(), "");
  EXPECT_TRUE(torch::equal(net.head->named_parameters()["tied"], numbers()["body.0.bias"]));
}

TEST(LoadWeights, ADamagedTensorChangesNothing) {
  const TemporaryFolder folder;
  State state;
  state.put("model", State{ConfigNode::map(), numbers()});
  state.tensors["optimizers.0.x"] = torch::ones({2});
  write_checkpoint(folder / "a.ckpt", state);
  Net net;
  EXPECT_EQ(load_weights(net, {.path = folder / "a.ckpt"}).loaded, 4U);
  EXPECT_TRUE(equal(net.copy(), numbers()));
  std::string bytes = read_file(folder / "a.ckpt");
  const CheckpointFile file(folder / "a.ckpt");
  const auto& entries = file.file().entries();
  for (const auto& entry : entries) {
    if (entry.name == "model.head.weight") bytes[entry.begin] ^= 1;
  }
  write_file_durably(folder / "b.ckpt", bytes);
  Net other;
  const Tensors before = other.copy();
  const std::string error = error_of([&] { load_weights(other, {.path = folder / "b.ckpt"}); });
  EXPECT_TRUE(has(error, "\"model.head.weight\"") && has(error, "damaged")) << error;
  EXPECT_TRUE(equal(other.copy(), before));
}

// ---- rules -------------------------------------------------------------------------------------------------------

TEST(RenameRule, ReplacesWholePartsAtTheStart) {
  const std::vector<RenameRule> rules{
      {"bert.encoder", "encoder"}, {"head", std::nullopt}, {"a.b", ""}, {"only", "x.y"}};
  EXPECT_EQ(renamed("bert.encoder.layer.0.weight", rules), "encoder.layer.0.weight");
  EXPECT_EQ(renamed("bert.encoders.weight", rules), "bert.encoders.weight");
  EXPECT_EQ(renamed("head.weight", rules), std::nullopt);
  EXPECT_EQ(renamed("header.weight", rules), "header.weight");
  EXPECT_EQ(renamed("a.b.c", rules), "c");
  EXPECT_EQ(renamed("only", rules), "x.y");
  EXPECT_EQ(renamed("w", {{"", "model"}}), "model.w");
  EXPECT_EQ(renamed("a.w", {{"a", "b"}, {"b", "c"}}), "b.w");  // one rule a name
}

TEST(RenameRule, AStarStandsForOnePart) {
  const std::vector<RenameRule> rules{{"layers.*.attn.*", "blocks.*.*_proj"}, {"h.*.mlp.*.w", "m.*.k.*"}};
  EXPECT_EQ(renamed("h.11.mlp.2.w.bias", rules), "m.11.k.2.bias");
  EXPECT_EQ(renamed("h.11.mlp", rules), "h.11.mlp");
  Net net;
  EXPECT_TRUE(has(error_of([&] { load_weights(net, {.path = "x", .map = {{"a.*", "b"}}}); }), "as many *"));
  EXPECT_TRUE(has(error_of([&] { load_weights(net, {}); }), "WeightsOptions.path: must be set"));
}

TEST(RenameRule, ServesLoadWeights) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a.safetensors", {{"net.fc.0.w.weight", numbers()["body.0.weight"]},
                                               {"net.fc.0.w.bias", numbers()["body.0.bias"]},
                                               {"top.weight", numbers()["head.weight"]},
                                               {"count", numbers()["steps"]},
                                               {"ids.table", torch::ones({1})}});
  Net net;
  load_weights(net, {.path = folder / "a.safetensors",
                     .map = {{"net.fc.*.w", "body.*"}, {"top", "head"}, {"count", "steps"}, {"ids", std::nullopt}}});
  EXPECT_TRUE(equal(net.copy(), numbers()));
  const std::string twice = error_of([&] {
    load_weights(net, {.path = folder / "a.safetensors", .map = {{"count", "x"}, {"ids.table", "x"}}});
  });
  EXPECT_TRUE(has(twice, "\"count\" and \"ids.table\" both become \"x\"")) << twice;
  const std::string message = error_of([&] {
    load_weights(net, {.path = folder / "a.safetensors", .map = {{"top", "tap"}}});
  });
  EXPECT_TRUE(has(message, "tap.weight (1, 2) (top.weight in the file)")) << message;
}

// ---- shards ------------------------------------------------------------------------------------------------------

void write_shards(const TemporaryFolder& folder) {
  const Tensors all = numbers();
  write_safetensors(folder / "model-00001-of-00002.safetensors",
                    {{"body.0.weight", all.at("body.0.weight")}, {"steps", all.at("steps")}});
  write_safetensors(folder / "model-00002-of-00002.safetensors",
                    {{"body.0.bias", all.at("body.0.bias")}, {"head.weight", all.at("head.weight")}});
  write_file_durably(folder / "model.safetensors.index.json",
                     R"({"metadata": {"total_size": 48}, "weight_map": {
    "body.0.weight": "model-00001-of-00002.safetensors", "steps": "model-00001-of-00002.safetensors",
    "body.0.bias": "model-00002-of-00002.safetensors", "head.weight": "model-00002-of-00002.safetensors"}})");
}

TEST(LoadWeights, ReadsShardsByTheirIndexOrFolder) {
  const TemporaryFolder folder;
  write_shards(folder);
  for (const std::string& path : {folder.path(), folder / "model.safetensors.index.json"}) {
    Net net;
    EXPECT_EQ(load_weights(net, {.path = path}).loaded, 4U);
    EXPECT_TRUE(equal(net.copy(), numbers()));
  }
}

TEST(LoadWeights, RefusesAnIndexThatLeadsElsewhere) {
  const TemporaryFolder folder;
  write_shards(folder);
  std::filesystem::create_directory(folder / "in");
  const std::string index = folder / "in/model.safetensors.index.json";
  Net net;
  const Tensors before = net.copy();
  for (const std::string& shard : {std::string("../model-00002-of-00002.safetensors"), std::string("a/../../x"),
                                   folder / "model-00002-of-00002.safetensors", std::string("")}) {
    write_file_durably(index, R"({"weight_map": {"head.weight": ")" + shard + "\"}}");
    const std::string error = error_of([&] { load_weights(net, {.path = folder / "in"}); });
    EXPECT_TRUE(has(error, index) && has(error, "not a file inside")) << error;
  }
  write_file_durably(index, R"({"weight_map": {"head.weight": "model.safetensors"}})");
  EXPECT_TRUE(has(error_of([&] { load_weights(net, {.path = index}); }), "in/model.safetensors: cannot be read"));
  write_file_durably(index, R"({"weights": {}})");
  EXPECT_TRUE(has(error_of([&] { load_weights(net, {.path = index}); }), "no map \"weight_map\""));
  write_file_durably(index, R"({"weight_map": {"a": "x", "a": "y"}})");
  EXPECT_TRUE(has(error_of([&] { load_weights(net, {.path = index}); }), "twice"));
  std::filesystem::copy(folder / "model-00002-of-00002.safetensors", folder / "in/x");
  write_file_durably(index, R"({"weight_map": {"head.weight": "x", "nowhere": "x"}})");
  EXPECT_TRUE(has(error_of([&] { load_weights(net, {.path = index}); }), "\"nowhere\" in x"));
  EXPECT_TRUE(equal(net.copy(), before));
}

TEST(LoadWeights, ChoosesTheFileOfAFolderOrListsIt) {
  const TemporaryFolder folder;
  Net net;
  EXPECT_TRUE(has(error_of([&] { load_weights(net, {.path = folder.path()}); }), "no *.safetensors"));
  write_file_durably(folder / "pytorch_model.bin", "a pickle");
  EXPECT_TRUE(has(error_of([&] { load_weights(net, {.path = folder.path()}); }),
                  "convert_checkpoint.py " + (folder / "pytorch_model.bin") + " " + (folder / "model.safetensors")));
  write_file_durably(folder / "pytorch_model-2.bin", "another");
  EXPECT_TRUE(has(error_of([&] { load_weights(net, {.path = folder.path()}); }), "save_pretrained"));
  write_safetensors(folder / "unet.safetensors", numbers());
  EXPECT_EQ(load_weights(net, {.path = folder.path()}).loaded, 4U);
  write_safetensors(folder / "vae.safetensors", numbers());
  EXPECT_TRUE(has(error_of([&] { load_weights(net, {.path = folder.path()}); }), "unet.safetensors, vae.safetensors"));
  write_safetensors(folder / "model.safetensors", numbers());
  EXPECT_EQ(load_weights(net, {.path = folder.path()}).loaded, 4U);
  EXPECT_TRUE(has(error_of([&] { load_weights(net, {.path = folder / "absent"}); }), "no file or folder"));
}

// ---- in a run ----------------------------------------------------------------------------------------------------

// Makes its layer late, as configure_model is for.
struct LateModule : LightningModule {
  torch::nn::Linear layer = nullptr;
  at::Tensor at_start;
  void configure_model() override {
    if (layer.is_empty()) layer = register_module("layer", torch::nn::Linear(4, 1));
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    if (!at_start.defined()) at_start = layer->weight.detach().clone();
    return torch::mse_loss(layer->forward(batch[0]), batch[1]);
  }
  void validation_step(const Batch&, int64_t) override {}
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.1}); }
};

TrainerOptions quiet(const TemporaryFolder& folder) {
  TrainerOptions options;
  options.max_epochs = 1;
  options.logger = false;
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.enable_checkpointing = false;
  options.default_root_dir = folder.path();
  return options;
}

TEST(StartFrom, TheFirstEntryPointReadsTheWeightsAfterConfigureModel) {
  const TemporaryFolder folder;
  const at::Tensor weight = torch::tensor({{1.0F, 2.0F, 3.0F, 4.0F}});
  write_safetensors(folder / "w.safetensors", {{"layer.weight", weight}, {"layer.bias", torch::zeros({1})}});
  const test::CapturedConsole console;
  LateModule module;
  Trainer trainer(quiet(folder));
  trainer.start_from({.path = folder / "w.safetensors"});
  trainer.fit(module, test::tiny_loader(8));
  EXPECT_TRUE(torch::equal(module.at_start, weight));
  const at::Tensor trained = module.layer->weight.detach().clone();
  EXPECT_FALSE(torch::equal(trained, weight));
  trainer.validate(module, {test::tiny_loader(8)});  // not from the file again
  EXPECT_TRUE(torch::equal(module.layer->weight, trained));
}

TEST(StartFrom, ACheckpointWinsAndTheFileIsNotEvenOpened) {
  const TemporaryFolder folder;
  const test::CapturedConsole console;
  LateModule first;
  Trainer writer(quiet(folder));
  writer.fit(first, test::tiny_loader(8));
  writer.save_checkpoint(folder / "a.ckpt");
  LateModule module;
  Trainer trainer(quiet(folder));
  trainer.start_from({.path = folder / "absent"});
  trainer.validate(module, {test::tiny_loader(8)}, folder / "a.ckpt");
  EXPECT_TRUE(torch::equal(module.layer->weight, first.layer->weight));
  Trainer another(quiet(folder));
  another.start_from({.path = folder / "absent"});
  EXPECT_TRUE(has(error_of([&] { another.fit(module, test::tiny_loader(8)); }), "weights.path: there is no file"));
}

TEST(WeightsOptions, ListAllTheirFields) {
  EXPECT_EQ(testing::field_count<WeightsOptions>(), field_names<WeightsOptions>().size());
  EXPECT_EQ(testing::field_count<RenameRule>(), field_names<RenameRule>().size());
}

}  // namespace
}  // namespace levin::weights_test
