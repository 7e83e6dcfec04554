// Compares weights in 8 and 4 bits with their definitions, and layers that hold them with layers of the dequantized
// matrix.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/adapters/lora.h"
#include "levin/adapters/lora_layer.h"
#include "levin/libtorch/observed_weight.h"
#include "levin/models/huggingface/layers.h"
#include "support/error_text.h"

namespace levin::quantized_weight_test {
namespace {

using test::error_of;
using test::holds;

struct Net : torch::nn::Module {
  explicit Net(int64_t in = 64, int64_t out = 32) {
    first = register_module("first", torch::nn::Linear(in, out));
    second = register_module("second", torch::nn::Linear(out, in));
  }
  at::Tensor forward(const at::Tensor& x) { return second->forward(torch::relu(first->forward(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

QuantizedForm form_of(const at::Tensor& matrix, Quantize kind, bool is_in_out = false) {
  return {kind, matrix.sizes().vec(), is_in_out, matrix.scalar_type()};
}

TEST(QuantizedWeights, Int8RoundsToTheLargestOfEachOutput) {
  torch::manual_seed(1);
  const at::Tensor matrix = torch::randn({7, 10});
  for (const bool is_in_out : {false, true}) {
    const auto form = form_of(matrix, Quantize::int8, is_in_out);
    const QuantizedWeight bits = quantize_weight(matrix, form);
    EXPECT_EQ(bits.values.scalar_type(), torch::kChar);
    EXPECT_EQ(bits.values.abs().max().item<int64_t>(), 127);
    const at::Tensor step = matrix.abs().amax(is_in_out ? 0 : 1, /*keepdim=*/true) / 127;
    const at::Tensor error = (dequantize_weight(bits, form, at::kFloat) - matrix).abs();
    EXPECT_TRUE((error <= step * 0.50001).all().item<bool>());
    EXPECT_GT(error.max().item<double>(), 0);
  }
  const at::Tensor zeros = torch::zeros({3, 4});
  const auto form = form_of(zeros, Quantize::int8);
  EXPECT_TRUE(dequantize_weight(quantize_weight(zeros, form), form, at::kFloat).equal(zeros));
}

TEST(QuantizedWeights, Nf4TakesTheNearestLevelOfEachBlock) {
  torch::manual_seed(2);
  const at::Tensor matrix = torch::randn({8, 32});
  const auto form = form_of(matrix, Quantize::nf4);
  const QuantizedWeight bits = quantize_weight(matrix, form);
  EXPECT_EQ(bits.values.sizes(), at::IntArrayRef({8, 16}));
  EXPECT_EQ(bits.values.scalar_type(), torch::kByte);
  EXPECT_EQ(bits.scales.numel(), 4);
  const at::Tensor again = dequantize_weight(bits, form, at::kFloat);
  // The 16 levels again, in the definition's words: of every block the nearest to number / largest.
  const at::Tensor levels = torch::tensor(
      {-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
       -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
       0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0},
      torch::kFloat);
  const at::Tensor blocks = matrix.view({4, 64});
  const at::Tensor largest = blocks.abs().amax(1, true);
  const at::Tensor nearest = (blocks / largest).unsqueeze(-1).sub(levels).abs().argmin(-1);
  EXPECT_LE((levels.index({nearest}) * largest - again.view({4, 64})).abs().max().item<double>(), 1e-6);
  EXPECT_TRUE(quantize_weight(again, form).values.equal(bits.values)) << "what is on a level stays there";
}

TEST(QuantizedWeights, LayersComputeWithTheDequantizedMatrix) {
  for (const Quantize kind : {Quantize::int8, Quantize::nf4}) {
    torch::manual_seed(3);
    Net module, plain;
    apply_lora(module, {.target_modules = {"all-linear"}, .r = 4, .quantize = kind});
    const torch::NoGradGuard no_grad;
    for (const auto& item : lora_layers(module)) item.second->lora_B().normal_(0, 0.3);
    const auto merged = merged_parameters(module);
    for (const auto& [name, value] : merged) plain.named_parameters()[name].copy_(value);
    for (const auto& shape : {std::vector<int64_t>{40, 64}, std::vector<int64_t>{2, 3, 64}}) {
      const torch::AutoGradMode gradients(true);
      const at::Tensor x = torch::randn(shape), one = x.clone().set_requires_grad(true);
      const at::Tensor other = x.clone().set_requires_grad(true);
      const at::Tensor y = module.forward(one), wanted = plain.forward(other);
      EXPECT_LE((y - wanted).abs().max().item<double>(), 1e-5);
      y.square().sum().backward();
      wanted.square().sum().backward();
      EXPECT_LE((one.grad() - other.grad()).abs().max().item<double>(), 1e-5 * other.grad().abs().max().item<double>());
    }
  }
}

TEST(QuantizedWeights, FewRowsInBfloat16UseTheKernelAndAgree) {
  torch::manual_seed(4);
  const at::Tensor matrix = torch::randn({33, 64});
  const auto form = form_of(matrix, Quantize::int8);
  const QuantizedWeight bits = quantize_weight(matrix, form);
  const at::Tensor x = torch::randn({100, 64}).to(at::kBFloat16);
  const at::Tensor all = quantized_linear(x, bits, form).to(at::kFloat);  // more rows than the kernel is for
  const at::Tensor some = quantized_linear(x.slice(0, 0, 8).view({2, 4, 64}), bits, form).to(at::kFloat);
  EXPECT_EQ(some.sizes(), at::IntArrayRef({2, 4, 33}));
  EXPECT_LE((some.view({8, 33}) - all.slice(0, 0, 8)).abs().max().item<double>(),
            0.02 * all.abs().max().item<double>());
}

TEST(QuantizedWeights, TheMemoryOfWeightsFallsAndTheGraphKeepsOnlyTheQuantizedBits) {
  torch::manual_seed(5);
  const auto bytes_of = [](const torch::nn::Module& module) {
    int64_t bytes = 0;
    for (const auto& parameter : module.parameters()) bytes += static_cast<int64_t>(parameter.storage().nbytes());
    for (const auto& buffer : module.buffers()) bytes += static_cast<int64_t>(buffer.storage().nbytes());
    return bytes;
  };
  Net full(1024, 1024), eight(1024, 1024), four(1024, 1024);
  apply_lora(eight, {.target_modules = {"all-linear"}, .r = 1, .quantize = Quantize::int8});
  apply_lora(four, {.target_modules = {"all-linear"}, .r = 1, .quantize = Quantize::nf4});
  EXPECT_LT(bytes_of(eight), bytes_of(full) * 0.26);
  EXPECT_LT(bytes_of(four), bytes_of(full) * 0.145);
}

TEST(QuantizedWeights, ToADifferentTypeKeepsTheBits) {
  Net module;
  apply_lora(module, {.target_modules = {"first"}, .r = 2, .quantize = Quantize::int8});
  module.to(torch::kDouble);
  EXPECT_EQ(module.first->weight.scalar_type(), torch::kChar);
  EXPECT_EQ(module.second->weight.scalar_type(), torch::kDouble);
  EXPECT_EQ(module.forward(torch::randn({2, 64}, torch::kDouble)).scalar_type(), torch::kDouble);
}

TEST(QuantizedWeights, MergeGivesWeightsOfTheFirstType) {
  torch::manual_seed(6);
  Net module;
  apply_lora(module, {.target_modules = {"all-linear"}, .r = 2, .quantize = Quantize::nf4});
  {
    const torch::NoGradGuard no_grad;
    for (const auto& item : lora_layers(module)) item.second->lora_B().normal_(0, 0.3);
  }
  const at::Tensor x = torch::randn({5, 64}), adapted = module.forward(x).detach();
  merge_lora(module);
  EXPECT_EQ(module.first->weight.scalar_type(), torch::kFloat);
  EXPECT_TRUE(module.buffers().empty());
  EXPECT_LE((module.forward(x) - adapted).abs().max().item<double>(), 1e-5);
}

TEST(QuantizedWeights, OtherUsesAndOtherShapesAreErrors) {
  Net module;
  apply_lora(module, {.target_modules = {"first"}, .r = 2, .quantize = Quantize::int8});
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)(module.first->weight * 2); }),
                    {"LoRA: aten::mul computes with the weight of first", "quantized", "exclude_modules"}));
  Net odd(9, 6);
  EXPECT_TRUE(
      holds(error_of<ConfigError>([&] { apply_lora(odd, {.target_modules = {"first"}, .quantize = Quantize::nf4}); }),
            {"LoRAOptions.quantize: nf4 cannot hold first.weight (6, 9)", "multiple of 64", "int8"}));
  EXPECT_TRUE(odd.first->weight.requires_grad()) << "the module is unchanged";
  EXPECT_TRUE(lora_layers(odd).empty());
}

}  // namespace
}  // namespace levin::quantized_weight_test
