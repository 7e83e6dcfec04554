// A damaged .pt2 file is an Error with the reason, before anything runs.
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <sstream>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/models/exported/allowed_operators.h"
#include "levin/models/exported/exported_program.h"
#include "levin/models/exported_model.h"
#include "models/forged_archive.h"
#include "models/forged_program.h"
#include "models/hostile_calls.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::damaged_program_test {
namespace {

using test::ForgedArchive;
using test::holds;

const std::string kGood = test::source_dir() + "/tests/models/data/mlp.pt2";
const std::string kModel = "models/model.json", kWeights = "data/weights/model_weights_config.json";

// The Error of loading it, "" if it loads; other exceptions pass and fail the test.
std::string load(const std::string& path) {
  return test::error_of<Error>([&] { ExportedProgram program(path); });
}

// A good archive in which one string of a file is replaced.
std::string with(const std::string& file, const std::string& old_text, const std::string& text) {
  const test::TemporaryFolder folder;
  ForgedArchive archive(kGood);
  EXPECT_TRUE(archive.replace(file, old_text, text)) << old_text;
  return load(archive.write(folder / "net.pt2"));
}

// mlp.pt2 with these calls instead of its own: see forged_program.h. Returns its path.
std::string program_of(const test::TemporaryFolder& folder, const std::string& calls) {
  ForgedArchive archive(kGood);
  auto model = nlohmann::json::parse(archive[kModel]);
  nlohmann::json all = test::tensor_calls();
  for (const auto& call : nlohmann::json::parse(calls)) all.push_back(call);
  test::replace_calls(model, all);
  archive[kModel] = model.dump();
  return archive.write(folder / "net.pt2");
}

at::Tensor result_of(const std::string& path, const ExportedProgramOptions& options = {}) {
  return ExportedProgram(path, options).forward({at::ones({3, 4})}).at(0);
}

TEST(DamagedProgram, AForgedArchiveWithNothingChangedLoads) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(load(ForgedArchive(kGood).write(folder / "net.pt2")), "");
}

TEST(DamagedProgram, CutAnywhereItIsRefused) {
  const test::TemporaryFolder folder;
  const std::string whole = read_file(kGood);
  for (size_t bytes = 0; bytes < whole.size(); bytes += 211) {
    const std::string message = load(folder.write("cut.pt2", whole.substr(0, bytes)));
    ASSERT_TRUE(holds(message, {"cut.pt2 has", "save it again with torch.export.save"})) << bytes;
  }
}

TEST(DamagedProgram, AChangedByteOfAWeightIsAWrongChecksum) {
  const test::TemporaryFolder folder;
  std::string whole = read_file(kGood);
  const size_t name = whole.find("data/weights/weight_0");
  for (size_t at = name; at < name + 200; ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    (void)load(folder.write("changed.pt2", changed));  // an Error or none: padding may hold anything
  }
  ForgedArchive archive(kGood);
  const std::string path = archive.write(folder / "net.pt2");
  whole = read_file(path);
  const std::string content = archive["data/weights/weight_0"];
  whole[whole.find(content)] = static_cast<char>(whole[whole.find(content)] ^ 1);
  EXPECT_TRUE(holds(load(folder.write("net.pt2", whole)), {"has a wrong checksum of \"data/weights/weight_0\""}));
}

TEST(DamagedProgram, OtherFilesAreNamedForWhatTheyAre) {
  const test::TemporaryFolder folder;
  EXPECT_TRUE(holds(load(folder / "none.pt2"), {"cannot open", "none.pt2: No such file"}));
  EXPECT_TRUE(holds(load(folder.path()), {"is a folder"}));
  const auto renamed = [&](const std::string& file) {
    ForgedArchive archive(kGood);
    archive.remove(kModel);
    archive[file] = "";
    return load(archive.write(folder / "net.pt2"));
  };
  EXPECT_TRUE(holds(renamed("serialized_exported_program.json"), {"before 2.9", "save it again"}));
  EXPECT_TRUE(holds(renamed("data.pkl"), {"torch.save or TorchScript", "torch.export.save"}));
  EXPECT_TRUE(holds(renamed("data/aotinductor/x.so"), {"no models/model.json", "compiled package"}));
  ForgedArchive compressed(kGood);
  EXPECT_TRUE(holds(load(compressed.write(folder / "net.pt2", 8)), {"is compressed"}));
  ForgedArchive big_endian(kGood);
  big_endian["byteorder"] = "big";
  EXPECT_TRUE(holds(load(big_endian.write(folder / "net.pt2")), {"little-endian"}));
  ForgedArchive several(kGood);
  several["models/a.json"] = several["models/b.json"] = "{}";
  several.remove(kModel);
  EXPECT_TRUE(holds(load(several.write(folder / "net.pt2")), {"several models (a, b)"}));
}

TEST(DamagedProgram, TensorsMustLieWithinTheirStorage) {
  EXPECT_TRUE(
      holds(with(kWeights, "{\"as_int\": 6}", "{\"as_int\": 7}"), {"is a tensor that the", "bytes of", "do not hold"}));
  EXPECT_TRUE(holds(with(kWeights, "{\"as_int\": 6}", "{\"as_int\": 4611686018427387904}"), {"do not hold"}));
  EXPECT_TRUE(holds(with(kWeights, "{\"as_int\": 6}", "{\"as_int\": -6}"), {"is negative"}));
  EXPECT_TRUE(holds(with(kWeights, "\"storage_offset\": {\"as_int\": 0}", "\"storage_offset\": {\"as_int\": 1}"),
                    {"do not hold"}));
  EXPECT_TRUE(holds(with(kWeights, "\"dtype\": 7", "\"dtype\": 99"), {"is 99, which is not a dtype"}));
  EXPECT_TRUE(holds(with(kWeights, "\"dtype\": 7", "\"dtype\": 12"),
                    {"is of bool, and \"data/weights/weight_0\" holds a byte other than 0 and 1"}));
  EXPECT_TRUE(holds(with(kWeights, "\"layout\": 7", "\"layout\": 2"), {"layout 2", "strided"}));
  EXPECT_TRUE(holds(with(kWeights, "\"strides\": [{\"as_int\": 4}, ", "\"strides\": ["),
                    {"different numbers of sizes and strides"}));
  EXPECT_TRUE(holds(with(kWeights, "weight_0", "weight_9"),
                    {"names \"data/weights/weight_9\", which the archive does not have"}));
}

TEST(DamagedProgram, NothingIsUnpickled) {
  EXPECT_TRUE(holds(with(kWeights, "\"use_pickle\": false", "\"use_pickle\": true"),
                    {"is a Python object, which Levin never unpickles"}));
}

TEST(DamagedProgram, TheGraphMustBeWhole) {
  EXPECT_TRUE(holds(with(kModel, "{", "["), {"models/model.json is not JSON at byte"}));
  EXPECT_TRUE(holds(with(kModel, "\"major\": 8", "\"major\": 9"), {"schema_version is 9.", "Levin reads version 8"}));
  EXPECT_TRUE(holds(with(kModel, "\"nodes\"", "\"knots\""), {"graph_module.graph has no \"nodes\""}));
  EXPECT_TRUE(
      holds(with(kModel, "\"arg\": {\"as_tensor\": {\"name\": \"x\"}}", "\"arg\": {\"as_tensor\": {\"name\": \"y\"}}"),
            {"graph_module.graph.nodes[0]", "uses \"y\", which nothing before it defines"}));
  EXPECT_TRUE(holds(
      with(kModel, "{\"as_tensor\": {\"name\": \"p_first_bias\"}}", "{\"as_tensor\": {\"name\": \"p_first_weight\"}}"),
      {"defines \"p_first_weight\" a second time"}));
  EXPECT_TRUE(holds(with(kModel, "\"parameter_name\": \"first.weight\"", "\"parameter_name\": \"first..weight\""),
                    {"which cannot name a tensor"}));
  EXPECT_TRUE(holds(with(kModel, "\"parameter_name\": \"first.weight\"", "\"parameter_name\": \"other\""),
                    {"has no tensor \"other\""}));
  EXPECT_TRUE(
      holds(with(kModel, "{\"as_float\": 0.5}", "{\"as_float\": \"half\"}"), {"must be a number, not \"half\""}));
  EXPECT_TRUE(
      holds(with(kModel, "{\"as_float\": 0.5}", "{\"as_pair\": 0.5}"), {"is \"as_pair\", which Levin does not know"}));
}

TEST(DamagedProgram, TheProgramOfEvaluationMustBeOfTheSameModel) {
  const test::TemporaryFolder folder;
  const std::string data = test::source_dir() + "/tests/models/data/", evaluation = "models/evaluation.json";
  ForgedArchive other(data + "modes.pt2");
  EXPECT_TRUE(other.replace(evaluation, "\"buffer_name\": \"first", "\"buffer_name\": \"last"));
  EXPECT_TRUE(holds(load(other.write(folder / "net.pt2")), {"has no tensor \"last.", "damaged"}));
  ForgedArchive norms(data + "norms.pt2"), good(kGood);
  good[evaluation] = norms[kModel];
  EXPECT_TRUE(holds(load(good.write(folder / "net.pt2")),
                    {"its program of evaluation takes 3 inputs, and its program of training takes 1", "of one model"}));
  good[evaluation] = "{";
  EXPECT_TRUE(holds(load(good.write(folder / "net.pt2")), {"models/evaluation.json is not JSON"}));
}

TEST(DamagedProgram, OperatorsMustBeThereAndTakeWhatTheyGet) {
  const std::string relu = "torch.ops.aten.relu.default";
  const auto target = [&](const std::string& name) { return with(kModel, relu, name); };
  EXPECT_TRUE(holds(target("torch.ops.aten.rleu.default"),
                    {"needs what Levin does not have", "the operator aten.rleu.default", "does not have"}));
  EXPECT_TRUE(holds(target("torch.ops.mylib.relu.default"),
                    {"the custom operator mylib.relu.default", "TORCH_LIBRARY", "\"mylib\""}));
  EXPECT_TRUE(holds(target("torch.ops.aten.from_file.default"), {"aten::from_file, which opens files"}));
  EXPECT_TRUE(holds(target("os.system"), {"the function os.system, which is not an ATen operator"}));
  EXPECT_TRUE(holds(target("torch.ops.aten.linear.default"), {"aten.linear.default", "has no argument \"self\""}));
  EXPECT_TRUE(holds(with(kModel, "{\"as_float\": 0.5}", "{\"as_string\": \"x\"}"),
                    {"aten.dropout.default does not take", "\"p\""}));
}

TEST(DamagedProgram, CallsThatWouldReachOutsideOfTheirTensorsAreRefused) {
  const test::TemporaryFolder folder;
  for (const test::HostileCall& hostile : test::kHostileCalls) {
    const std::string path = program_of(folder, hostile.calls);
    EXPECT_TRUE(holds(test::error_of<std::exception>([&] { (void)result_of(path); }), {hostile.error}))
        << hostile.calls;
  }
}

TEST(DamagedProgram, AnErrorNamesTheOperatorAndHowToAllowIt) {
  const test::TemporaryFolder folder;
  const std::string path =
      program_of(folder, R"([["_reshape_alias.default", {"self": "$x", "size": [12], "stride": [1]}, "y"]])");
  EXPECT_TRUE(holds(load(path), {"net.pt2 needs what Levin does not have", "the operator aten._reshape_alias.default",
                                 "trust: true", "operator_namespaces", "at \"call\""}));
  EXPECT_TRUE(holds(test::error_of([&] { ExportedModule({.path = path}); }), {"aten._reshape_alias.default"}));
}

TEST(DamagedProgram, ATrustedFileMayCallAnyOperator) {
  const test::TemporaryFolder folder;
  const std::string path =
      program_of(folder, R"([["_reshape_alias.default", {"self": "$x", "size": [12], "stride": [1]}, "y"]])");
  EXPECT_TRUE(result_of(path, {.operator_namespaces = {"aten"}}).equal(at::ones({12})));
  EXPECT_NO_THROW(ExportedModule({.path = path, .trust = true}));
}

// LibTorch's own error names neither, and is not a c10::Error.
TEST(ExportedProgram, ANumberThatTheTypeOfTheRunCannotHoldIsAnErrorWithTheRemedy) {
  const test::TemporaryFolder folder;
  ExportedProgram program(program_of(folder, R"([["gt.Scalar", {"self": "$x", "other": 0}, "where"],
      ["masked_fill.Scalar", {"self": "$x", "mask": "$where", "value": -3.4028234663852886e38}, "y"]])"));
  program.to(at::kBFloat16);
  EXPECT_TRUE(holds(test::error_of([&] {
                      (void)program.forward({at::ones({3, 4}, at::kBFloat16)});
                    }),
                    {"masked_fill", "cannot be converted to type", "recorded in float32 and computes in bfloat16",
                     "tools/export_model.py --precision bf16-true"}));
}

// The operators that LibTorch itself calls the core of exported programs.
TEST(DamagedProgram, AllCoreOperatorsOfLibTorchAreAllowed) {
  size_t count = 0;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !op->hasTag(at::Tag::core) || name.name.find("_backward") != std::string::npos) continue;
    if (name.name == "aten::resize_" || name.name == "aten::sym_is_contiguous") continue;
    if (name.overload_name == "out") continue;  // of atan2 alone, which has the same without it
    EXPECT_TRUE(exported::is_allowed_operator(op->schema())) << name.name << "." << name.overload_name;
    ++count;
  }
  EXPECT_GT(count, 180U);
}

// Of PyTorch's layers and functions, torchvision and transformers, as record_operators.py found them.
TEST(DamagedProgram, AllOperatorsOfRecordedExportsAreAllowed) {
  std::istringstream lines(read_file(test::source_dir() + "/tests/models/data/exported_operators.txt"));
  size_t count = 0;
  for (std::string name, overload; lines >> name >> overload; ++count) {
    const auto op = c10::Dispatcher::singleton().findSchema({"aten::" + name, overload == "default" ? "" : overload});
    ASSERT_TRUE(op) << name << "." << overload;
    EXPECT_TRUE(exported::is_allowed_operator(op->schema())) << name << "." << overload;
  }
  EXPECT_GT(count, 500U);
}

TEST(DamagedProgram, WhatIsAllocatedHoldsNothingOfOtherMemory) {
  const test::TemporaryFolder folder;
  const std::string path = program_of(folder, R"([["full.default", {"size": [5000], "fill_value": 7.0}, "a"],
      ["add.Scalar", {"self": "$a", "other": 1}, "a2"], ["empty.memory_format", {"size": [5000]}, "y"]])");
  EXPECT_EQ(result_of(path).abs().sum().item<double>(), 0);
}

TEST(DamagedProgram, AWriteThroughASecondNameOfAWeightIsAnError) {
  const test::TemporaryFolder folder;
  ForgedArchive archive(kGood);
  auto weights = nlohmann::json::parse(archive[kWeights]);
  weights["config"]["norm.running_mean"]["path_name"] = weights["config"]["first.bias"]["path_name"];
  archive[kWeights] = weights.dump();
  auto model = nlohmann::json::parse(archive[kModel]);
  test::replace_calls(model, nlohmann::json::parse(R"([
      ["mul.Tensor", {"self": "$p_first_bias", "other": "$p_first_bias"}, "y"],
      ["fill_.Scalar", {"self": "$b_norm_running_mean", "value": 3}]])"));
  archive[kModel] = model.dump();
  ExportedProgram program(archive.write(folder / "net.pt2"));
  EXPECT_TRUE(holds(test::error_of([&] {
                      (void)program.forward({at::ones({3, 4})});
                    }),
                    {"a leaf Variable that requires grad is being used in an in-place operation", "fill_.Scalar"}));
  weights["config"]["norm.running_mean"]["path_name"] = weights["config"]["norm.num_batches_tracked"]["path_name"];
  weights["config"]["norm.running_mean"]["tensor_meta"]["dtype"] = 12;
  archive[kWeights] = weights.dump();
  EXPECT_TRUE(holds(load(archive.write(folder / "net.pt2")), {"with a tensor of a different type", "is bool"}));
}

}  // namespace
}  // namespace levin::damaged_program_test
