// tools/convert_checkpoint.py on what LibTorch itself pickles. (Archives as Lightning writes them, and hostile ones,
// are in tests/tools/convert_checkpoint_test.py.)
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/checkpoint/weights.h"
#include "levin/core/files/files.h"
#include "support/paths.h"
#include "support/run_program.h"
#include "support/temporary_folder.h"

namespace levin::convert_checkpoint_test {
namespace {

struct Net : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(3, 2))};
  at::Tensor steps = register_buffer("steps", torch::zeros({2}, at::kLong));
};

TEST(ConvertCheckpoint, TakesWhatLibTorchPickles) {
  const test::TemporaryFolder folder;
  c10::Dict<std::string, at::Tensor> weights;
  weights.insert("layer.weight", torch::arange(6, at::kDouble).view({3, 2}).t() / 4);  // not dense
  weights.insert("layer.bias", torch::tensor({1.5F, -2.0F}).to(at::kBFloat16));
  weights.insert("steps", torch::arange(9).slice(0, 3, 5));  // in the middle of its storage
  c10::impl::GenericDict checkpoint(c10::StringType::get(), c10::AnyType::get());
  checkpoint.insert("epoch", 3);
  checkpoint.insert("state_dict", weights);
  const std::vector<char> bytes = torch::pickle_save(checkpoint);
  write_file_durably(folder / "in.ckpt", std::string(bytes.begin(), bytes.end()));
  const test::Ran ran = test::run_program(LEVIN_PYTHON " -B " + test::source_dir() + "/tools/convert_checkpoint.py " +
                                          folder / "in.ckpt" + " " + folder / "out.safetensors");
  ASSERT_EQ(ran.status, 0) << ran.output;
  Net net;
  EXPECT_EQ(load_weights(net, {.path = folder / "out.safetensors"}).loaded, 3U);
  EXPECT_TRUE(torch::equal(net.layer->weight, torch::tensor({{0.0F, 0.5F, 1.0F}, {0.25F, 0.75F, 1.25F}})));
  EXPECT_TRUE(torch::equal(net.layer->bias, torch::tensor({1.5F, -2.0F})));
  EXPECT_TRUE(torch::equal(net.steps, torch::tensor({int64_t{3}, int64_t{4}})));
}

TEST(ConvertCheckpoint, RefusesAModuleThatTorchSaveWrote) {
  const test::TemporaryFolder folder;
  torch::save(torch::nn::Linear(2, 2), folder / "in.pt");
  const test::Ran ran = test::run_program(LEVIN_PYTHON " -B " + test::source_dir() + "/tools/convert_checkpoint.py " +
                                          folder / "in.pt" + " " + folder / "out.safetensors");
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.output.find("TorchScript"), std::string::npos) << ran.output;
  EXPECT_EQ(folder.names(), std::vector<std::string>{"in.pt"});
}

}  // namespace
}  // namespace levin::convert_checkpoint_test
