// levin::recompute_sequential: torch.utils.checkpoint.checkpoint_sequential.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "recompute/segments.h"

namespace levin::recompute_sequential_test {
namespace {

using test::error_of;
using test::expect_parts;
using test::expect_same_bits;
using test::gradients;
using test::input;

// Counts the passes of one block.
struct CountingImpl : torch::nn::Module {
  explicit CountingImpl(std::vector<int64_t>& into, size_t index) : counts(into), place(index) {}
  at::Tensor forward(const at::Tensor& x) {
    ++counts[place];
    return linear->forward(x).sin();
  }
  std::vector<int64_t>& counts;
  size_t place;
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(8, 8))};
};
TORCH_MODULE(Counting);

torch::nn::Sequential blocks(std::vector<int64_t>& counts) {
  torch::manual_seed(5);
  torch::nn::Sequential list;
  for (size_t k = 0; k < counts.size(); ++k) list->push_back(Counting(counts, k));
  list->push_back(torch::nn::Dropout(0.5));
  list->push_back(torch::nn::BatchNorm1d(8));
  return list;
}

// checkpoint_sequential cuts n blocks into k segments of n / k, and the last takes the rest and runs once.
TEST(RecomputeSequential, CutsAsPyTorchDoesAndComputesTheLastPartOnce) {
  for (const auto& [segments, expected] : std::vector<std::pair<int64_t, std::vector<int64_t>>>{
           {1, {1, 1, 1, 1, 1}}, {2, {2, 2, 2, 1, 1}}, {3, {2, 2, 2, 2, 1}}, {7, {2, 2, 2, 2, 2}}}) {
    std::vector<int64_t> counts(5);  // seven blocks with dropout and norm
    recompute_sequential(blocks(counts), segments, input()).sum().backward();
    EXPECT_EQ(counts, expected) << segments;
  }
}

TEST(RecomputeSequential, IsBitwiseIdentical) {
  std::vector<int64_t> counts(5);
  const at::Tensor x = input();
  const auto run = [&](int64_t segments) {
    auto list = blocks(counts);
    auto of = list->parameters();
    of.push_back(x);
    auto found =
        gradients(of, [&] { return segments == 0 ? list->forward(x) : recompute_sequential(list, segments, x); });
    for (const at::Tensor& buffer : list->buffers()) found.push_back(buffer);
    return found;
  };
  const auto plain = run(0);
  for (const int64_t segments : {1, 2, 3, 7}) expect_same_bits(run(segments), plain);
}

TEST(RecomputeSequential, WantsAsManySegmentsAsThereAreBlocksAtMost) {
  std::vector<int64_t> counts(1);
  for (const int64_t segments : {0, 4}) {
    expect_parts(
        error_of([&] { recompute_sequential(blocks(counts), segments, input()); }),
        {"recompute_sequential: " + std::to_string(segments) + " segments of a Sequential of 3 blocks", "Give 1 to 3"});
  }
}

}  // namespace
}  // namespace levin::recompute_sequential_test
