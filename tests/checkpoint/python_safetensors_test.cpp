// Levin's files in the hands of Python's safetensors package, and its files in Levin's.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/weights.h"
#include "support/paths.h"
#include "support/run_program.h"
#include "support/temporary_folder.h"

namespace levin::python_safetensors_test {
namespace {

using test::TemporaryFolder;

std::string script(const std::string& words) {
  return std::string(LEVIN_PYTHON) + " -B " + test::source_dir() +
         "/tests/checkpoint/python_safetensors.py " LEVIN_PYTHON_PACKAGES " " + words;
}

bool is_installed() {
  return std::filesystem::is_directory(LEVIN_PYTHON_PACKAGES "/safetensors");
}

std::string hex_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  const auto* bytes = static_cast<const unsigned char*>(dense.const_data_ptr());
  std::string text;
  char digits[3];
  for (size_t i = 0; i < dense.nbytes(); ++i) {
    std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
    text += digits;
  }
  return text;
}

TEST(PythonSafetensors, ReadsACheckpointAsItWasWritten) {
  if (!is_installed()) GTEST_SKIP() << "no safetensors package in " LEVIN_PYTHON_PACKAGES ". Run ./dev setup.";
  const TemporaryFolder folder;
  State state;
  state.set<int64_t>("epoch", 3);
  state.set<std::string>("note", "h\xc3\xa9 \"quoted\"\n");
  state.tensors["model.weight"] = torch::arange(6, at::kFloat).view({2, 3}) / 8;
  state.tensors["model.transposed"] = torch::arange(6, at::kDouble).view({2, 3}).t();
  state.tensors["model.half"] = torch::tensor({1.5F, -2.0F}).to(at::kHalf);
  state.tensors["model.bfloat"] = torch::tensor({{1.5F, -3.0F, 1e30F}}).to(at::kBFloat16);
  state.tensors["ids"] = torch::tensor({int64_t{1} << 60, int64_t{-1}});
  state.tensors["small"] = torch::tensor({-5}, at::kChar);
  state.tensors["flags"] = torch::tensor({true, false});
  state.tensors["none"] = torch::empty({0, 7}, at::kShort);
  state.tensors["scalar"] = torch::tensor(9, at::kInt);
  state.tensors["wave"] = torch::complex(torch::ones({2}), torch::zeros({2}));
  write_checkpoint(folder / "a.ckpt", state);
  const test::Ran ran = test::run_program(script("read " + folder / "a.ckpt"));
  ASSERT_EQ(ran.status, 0) << ran.output;
  const auto found = nlohmann::json::parse(ran.output);
  const std::map<std::string, std::string> dtypes{{"model.weight", "F32"}, {"model.transposed", "F64"},
                                                  {"model.half", "F16"},   {"model.bfloat", "BF16"},
                                                  {"ids", "I64"},          {"small", "I8"},
                                                  {"flags", "BOOL"},       {"none", "I16"},
                                                  {"scalar", "I32"},       {"wave", "C64"}};
  ASSERT_EQ(found["tensors"].size(), state.tensors.size());
  for (const auto& [name, tensor] : state.tensors) {
    const auto& item = found["tensors"][name];
    EXPECT_EQ(item["dtype"], dtypes.at(name)) << name;
    EXPECT_EQ(item["shape"].get<std::vector<int64_t>>(), tensor.sizes().vec()) << name;
    EXPECT_EQ(item["hex"], hex_of(tensor)) << name;
  }
  EXPECT_EQ(found["tensors"]["model.weight"]["values"], nlohmann::json::parse("[[0,0.125,0.25],[0.375,0.5,0.625]]"));
  EXPECT_EQ(found["tensors"]["model.transposed"]["values"], nlohmann::json::parse("[[0,3],[1,4],[2,5]]"));
  EXPECT_EQ(found["tensors"]["ids"]["values"], nlohmann::json::parse("[1152921504606846976,-1]"));
  EXPECT_EQ(found["tensors"]["flags"]["values"], nlohmann::json::parse("[true,false]"));
  EXPECT_EQ(found["metadata"]["levin.format"], "1");
  EXPECT_EQ(nlohmann::json::parse(found["metadata"]["levin.values"].get<std::string>()),
            nlohmann::json({{"epoch", 3}, {"note", "h\xc3\xa9 \"quoted\"\n"}}));
}

struct Net : torch::nn::Module {
  torch::nn::Sequential body{torch::nn::Linear(3, 2)};
  torch::nn::Linear head{torch::nn::LinearOptions(2, 1).bias(false)};
  at::Tensor steps = torch::zeros({}, at::kLong);
  Net() {
    register_module("body", body);
    register_module("head", head);
    register_buffer("steps", steps);
  }
};

TEST(PythonSafetensors, WritesWeightsThatLoad) {
  if (!is_installed()) GTEST_SKIP() << "no safetensors package in " LEVIN_PYTHON_PACKAGES ". Run ./dev setup.";
  const TemporaryFolder folder;
  const test::Ran ran = test::run_program(script("write " + folder.path()));
  ASSERT_EQ(ran.status, 0) << ran.output;
  for (const std::string& path : {folder / "weights.safetensors", folder / "model.safetensors.index.json"}) {
    Net net;
    EXPECT_EQ(load_weights(net, {.path = path}).loaded, 4U);
    const auto* linear = net.body[0]->as<torch::nn::Linear>();
    EXPECT_TRUE(torch::equal(linear->weight, torch::tensor({{0.0F, 0.125F, 0.25F}, {1.0F, 1.125F, 1.25F}}))) << path;
    EXPECT_TRUE(torch::equal(linear->bias, torch::tensor({-2.0F, 5.0F}))) << path;
    EXPECT_TRUE(torch::equal(net.head->weight, torch::tensor({{1.5F, -3.0F}}))) << path;
    EXPECT_EQ(net.steps.item<int64_t>(), 1234567890123) << path;
  }
}

}  // namespace
}  // namespace levin::python_safetensors_test
