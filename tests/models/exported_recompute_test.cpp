// trainer.recompute of submodules of an exported program: bitwise identical to a run without it, in less memory; clear
// errors.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "callbacks/quiet_trainer.h"
#include "levin/models/exported/exported_program.h"
#include "levin/models/exported_model.h"
#include "levin/recompute/chain_plan.h"
#include "levin/recompute/recomputation.h"
#include "levin/trainer/loops/entry.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/trainer.h"
#include "models/forged_archive.h"
#include "support/allocations.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"
#include "support/tensor_loader.h"
#include "support/trained.h"

namespace levin::exported_recompute_test {
namespace {

using test::error_of;
using test::holds;

const std::string kData = test::source_dir() + "/tests/models/data/";
const std::string kTransformer = kData + "transformer.pt2", kCalls = kData + "calls.pt2";

at::Tensor tokens(int64_t rows = 3, int64_t length = 7) {
  return torch::arange(rows * length).view({rows, length}).remainder(20);
}

at::Tensor numbers() {
  return torch::arange(24, torch::kFloat).view({6, 4}).cos();
}

struct Passed {
  std::vector<at::Tensor> tensors = {};  // the output, gradients, buffers, and the next random numbers
  int64_t calls = 0, recomputed = 0;     // of segments
};

// One forward and backward pass in training mode, of an unchanged program of a file.
Passed pass(const std::string& path, const at::Tensor& input, const RecomputeOptions& options = {},
            bool recomputes = true) {
  ExportedProgram net(path);
  std::unique_ptr<Recomputation> recomputation;
  if (recomputes) recomputation = std::make_unique<Recomputation>(net, options);
  torch::manual_seed(5);
  const at::Tensor output = net.forward({input}).at(0);
  (output * output.detach().cos()).sum().backward();
  Passed passed;
  if (recomputation) passed.calls = recomputation->calls();
  if (recomputation) passed.recomputed = recomputation->recomputed();
  passed.tensors.push_back(output.detach());
  for (const auto& parameter : net.parameters()) passed.tensors.push_back(parameter.grad());
  for (const auto& buffer : net.buffers()) passed.tensors.push_back(buffer.clone());
  passed.tensors.push_back(torch::rand({2}));
  return passed;
}

void expect_same(const Passed& one, const Passed& other) {
  ASSERT_EQ(one.tensors.size(), other.tensors.size());
  for (size_t k = 0; k < one.tensors.size(); ++k) {
    ASSERT_EQ(one.tensors[k].defined(), other.tensors[k].defined()) << k;
    if (!one.tensors[k].defined()) continue;
    EXPECT_TRUE(one.tensors[k].equal(other.tensors[k])) << k;
  }
}

std::string calls_error(const std::string& module) {
  return error_of([&] { (void)pass(kCalls, numbers(), {.modules = {module}}); });
}

TEST(ExportedRecompute, HasASubmoduleForEachModuleThatPythonCalls) {
  const ExportedProgram net(kTransformer);
  const auto modules = net.named_modules("", false);
  for (const std::string name : {"drop", "h", "h.0", "h.1.attn.out", "h.1.mlp", "h.1.mlp.1", "h.1.mlp.3", "head"}) {
    EXPECT_TRUE(modules.contains(name)) << name;
  }
  EXPECT_EQ(net.named_children().keys(), (std::vector<std::string>{"tokens", "places", "drop", "h", "norm", "head"}));
  EXPECT_EQ(modules["h.0.mlp"]->named_children().keys(), (std::vector<std::string>{"0", "1", "2", "3"}));
  const auto names = net.named_parameters().keys();  // in Python's order, with tied weights under their first name
  EXPECT_EQ(names.front(), "tokens.weight");
  EXPECT_EQ(names.back(), "norm.bias");
}

TEST(ExportedRecompute, IsBitwiseIdenticalInEveryForm) {
  const Passed plain = pass(kTransformer, tokens(), {}, false);
  const std::vector<std::pair<RecomputeOptions, int64_t>> forms = {
      {{.modules = {"h.*"}}, 2},
      {{.modules = {"h"}}, 1},
      {{.modules = {"h.0..h.1"}}, 1},
      {{.modules = {"h", "h.*", "h.*", "h.?.mlp", "h.0.mlp.0..h.0.mlp.2", "h.0.attn"}}, 7},
      {{.modules = {"h", "h.0.mlp"}, .segments = 2}, 2},
      {{.checkpoints = {"h.0", "norm"}}, 2},
      {{.modules = {"h.*", "head", "tokens"}, .keep = Keep::matmul, .offload = true}, 4},
  };
  for (const auto& [form, segments] : forms) {
    const Passed again = pass(kTransformer, tokens(), form);
    expect_same(again, plain);
    EXPECT_EQ(again.calls, segments);
    EXPECT_GT(again.recomputed, 0);
  }
}

TEST(ExportedRecompute, WorksWithSeveralCallsBatchNormsAndWhatIsInPlaceWithin) {
  const Passed plain = pass(kCalls, numbers(), {}, false);
  const std::vector<std::pair<RecomputeOptions, int64_t>> forms = {
      {{.modules = {"one"}}, 3},
      {{.modules = {"one", "one.0..one.1", "one.2"}}, 9},
      {{.modules = {"net", "net.1"}}, 2},
      {{.modules = {"net.0..net.2"}}, 1},
      {{.modules = {"down", "up.3", "middle"}}, 3},
      {{.modules = {"net", "one"}, .segments = 2}, 4},
  };
  for (const auto& [form, segments] : forms) {
    const Passed again = pass(kCalls, numbers(), form);
    expect_same(again, plain);
    EXPECT_EQ(again.calls, segments) << form.modules[0];
  }
}

TEST(ExportedRecompute, EvaluationAndInferenceAreNotChanged) {
  ExportedProgram net(kTransformer);
  net.eval();
  const at::Tensor plain = net.forward({tokens()}).at(0).detach();
  const Recomputation recomputation(net, {.modules = {"h.*"}});
  EXPECT_TRUE(net.forward({tokens()}).at(0).equal(plain));
  const c10::InferenceMode inference;
  EXPECT_TRUE(net.forward({tokens()}).at(0).equal(plain));
}

int64_t peak_of(const std::vector<std::string>& modules) {
  ExportedProgram net(kTransformer);
  std::unique_ptr<Recomputation> recomputation;
  if (!modules.empty()) {
    recomputation = std::make_unique<Recomputation>(net, RecomputeOptions{.modules = modules});
  }
  const at::Tensor batch = tokens(64, 32);
  test::Allocations memory;
  net.forward({batch}).at(0).sum().backward();
  return memory.peak();
}

// Width 8, times 4 in the middle of the MLP, two heads: a block keeps its input, two norms, queries, keys and values,
// attention's weights (of 32 tokens) and output, and the MLP; recomputed, its input.
TEST(ExportedRecompute, NeedsLessMemory) {
  const int64_t plain = peak_of({}), blocks = peak_of({"h.*"}), parts = peak_of({"h.*.mlp"});
  EXPECT_LT(blocks, plain * 2 / 3);
  EXPECT_LT(parts, plain);
  EXPECT_LT(blocks, parts);
}

TrainerOptions options_of(RecomputeChoice recompute) {
  TrainerOptions options = test::quiet(2, {});
  options.accelerator = "cpu";
  options.devices = 1;
  options.recompute = std::move(recompute);
  return options;
}

std::shared_ptr<Loader> data() {
  const at::Tensor batch = tokens(12);
  return std::make_shared<test::TensorLoader>(std::vector<at::Tensor>{batch, batch.roll(-1, 1)}, 4);
}

MeasuredChain measure(const std::string& path = kTransformer) {
  ExportedModule model({.path = path});
  Trainer trainer(options_of({}));
  return measure_fit(trainer, model, data())->chain;
}

test::Trained train(TrainerOptions options, const std::string& path = kTransformer) {
  ExportedModule model({.path = path});
  const auto loader = data();
  seed_everything(7);
  Trainer trainer(std::move(options));
  trainer.fit(model, loader, {loader});
  EXPECT_FALSE(CallActions::any());
  return test::trained_by(trainer, model);
}

TEST(ExportedRecompute, ARunEndsBitwiseIdentically) {
  const test::Trained plain = train(options_of({}));
  EXPECT_EQ(plain.steps, 6);
  for (const RecomputeOptions& form :
       {RecomputeOptions{.modules = {"h.*"}}, RecomputeOptions{.modules = {"h"}, .keep = Keep::matmul}}) {
    test::expect_same_bits(train(options_of(form)), plain);
  }
  const auto in_bf16 = [](RecomputeChoice recompute) {
    auto options = options_of(std::move(recompute));
    options.precision = "bf16-mixed";
    options.accumulate_grad_batches = 3;
    return train(options);
  };
  test::expect_same_bits(in_bf16(RecomputeOptions{.modules = {"h.*", "h.0.mlp"}}), in_bf16({}));
}

std::vector<std::string> names_of(const std::vector<BlockCost>& blocks) {
  std::vector<std::string> names;
  for (const BlockCost& block : blocks) names.push_back(block.name);
  return names;
}

TEST(ExportedRecompute, ThePlannerChoosesBlocks) {
  const MeasuredChain measured = measure();
  const auto names = names_of(measured.cost.blocks);
  for (const std::string name : {"drop", "h.0", "h.1", "norm"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name << " of " << ::testing::PrintToString(names);
  }
  RecomputeOptions least;
  least.budget = ByteSize{least_peak(measured.cost)};
  const test::CapturedConsole console;
  test::expect_same_bits(train(options_of(least)), train(options_of({})));
  EXPECT_TRUE(holds(console.text(), {"recompute: ", "h.0"}));
}

// As torch.export records a model within a module that only calls it.
std::string write_wrapped(const std::string& path) {
  test::ForgedArchive archive(kTransformer);
  std::string& text = archive["models/model.json"];
  const std::string root = "\"nn_module_stack\": \"L__self__,,";
  for (size_t at = text.find(root); at != std::string::npos; at = text.find(root, at + 1)) {
    const size_t end = std::min(text.find(';', at), text.find('"', at + root.size()));
    text.insert(end, ";L__self___model,model,Inner;L__self___model_net,model.net,Net");
  }
  return archive.write(path);
}

TEST(ExportedRecompute, ThePlannerSeesTheBlocksWithinAWrapper) {
  const test::TemporaryFolder folder;
  const std::string path = write_wrapped(folder / "net.pt2");
  const Passed plain = pass(kTransformer, tokens(), {}, false);
  const Passed whole = pass(path, tokens(), {.modules = {"model.net"}});
  expect_same(whole, plain);
  EXPECT_EQ(whole.calls, 1) << "the wrapper is a module that can be computed again";
  const MeasuredChain measured = measure(path);
  const auto names = names_of(measured.cost.blocks);
  for (const std::string name : {"h.0", "h.1"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name << " of " << ::testing::PrintToString(names);
  }
}

TEST(ExportedRecompute, NamesAreCheckedAndThoseWithoutOperatorsReported) {
  EXPECT_TRUE(holds(error_of([] { (void)train(options_of(RecomputeOptions{.modules = {"g.*"}})); }),
                    {"TrainerOptions.recompute.modules[0]", "no submodule's name matches \"g.*\"", "h.0"}));
  // A list that begins inside another list is ignored.
  ExportedProgram net(kCalls);
  Recomputation recomputation(net, {.modules = {"still", "up"}});
  (void)net.forward({numbers()});
  EXPECT_TRUE(
      holds(error_of([&] { recomputation.check_called(); }),
            {"called no segment", "still, up.0..up.3", "a submodule of an exported program that Python calls"}));
}

TEST(ExportedRecompute, WhatChangesTensorsOutsideOfItIsRefused) {
  EXPECT_TRUE(holds(calls_error("add"), {"add has changed its input 0", "in place"}));
  EXPECT_TRUE(holds(calls_error("count"), {"count of the exported program changes count.seen in place", "add__",
                                           "neither computed again", "Name the module around both"}));
}

TEST(ExportedRecompute, AFileWithoutModulesLoadsAndHasNoSegments) {
  const test::TemporaryFolder folder;
  const at::Tensor plain = pass(kTransformer, tokens(), {}, false).tensors[0];
  const std::string model = "models/model.json";
  const std::vector<std::string> stacks = {"7",
                                           "[\"L__self__\"]",
                                           "null",
                                           "\"\"",
                                           "\";;,,;\"",
                                           "\"L__self__\"",
                                           "\"a,b,c;d,e,f\"",
                                           "\"L__self__,,N;x,h.,N;y,.h,N;z,h..0,N;w,h(0),N\""};
  for (const std::string& stack : stacks) {
    test::ForgedArchive archive(kTransformer);
    std::string& text = archive[model];
    const std::string key = "\"nn_module_stack\": ";
    for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
      const size_t from = at + key.size();
      text.replace(from, text.find('"', from + 1) + 1 - from, stack);
    }
    const std::string path = archive.write(folder / "net.pt2");
    EXPECT_TRUE(pass(path, tokens(), {}, false).tensors[0].equal(plain)) << stack;
    ExportedProgram net(path);
    Recomputation recomputation(net, {.modules = {"h.*"}});
    (void)net.forward({tokens()});
    EXPECT_TRUE(holds(error_of([&] { recomputation.check_called(); }), {"called no segment"})) << stack;
  }
}

// Nested deeper than a stack of calls would hold, and modules that come back and leave again with every operator.
TEST(ExportedRecompute, RegionsOfAnyStacksNest) {
  const test::TemporaryFolder folder;
  const Passed plain = pass(kTransformer, tokens(), {}, false);
  test::ForgedArchive archive(kTransformer);
  std::string& text = archive["models/model.json"];
  const std::string key = "\"nn_module_stack\": ";
  const std::vector<std::string> modules = {"h.0", "h.1", "norm", "h.0.mlp", "tokens"};
  std::string deep = "L__self__,,N";
  for (int k = 0; k < 100'000; ++k) deep += ";a" + std::to_string(k) + ",h.0,N";
  size_t count = 0;
  for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
    std::string stack = "L__self__,,N";
    for (size_t k = 0; k < count % 4; ++k) {
      const std::string& name = modules[(count * 7 + k * 3) % modules.size()];
      stack += ";" + name + "," + name + ",N";
    }
    if (++count == 20) stack = deep;
    const size_t from = at + key.size();
    text.replace(from, text.find('"', from + 1) + 1 - from, "\"" + stack + "\"");
  }
  const std::string path = archive.write(folder / "net.pt2");
  for (const auto& names : {std::vector<std::string>{"h.0"}, {"h.*", "norm"}, {"tokens", "h.0.mlp", "h"}}) {
    const Passed again = pass(path, tokens(), {.modules = names});
    expect_same(again, plain);
    EXPECT_GT(again.calls, 0);
  }
}

}  // namespace
}  // namespace levin::exported_recompute_test
