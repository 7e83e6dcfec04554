// The planner's memory model against hand-counted chains, and its choice of segments by trying all of them.
#include "levin/recompute/chain_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace levin::chain_plan_test {
namespace {

// Blocks that keep 10 bytes inside and pass on 1, which backward needs; 1 more is held at times in forward, 2 in
// backward.
BlockCost plain_block(const std::string& name) {
  BlockCost block;
  block.name = name;
  block.chain = 0;
  block.kept = 10;
  block.output = block.output_gradient = 1;
  block.keeps_input = true;
  block.forward_peak = 12;
  block.segment_forward_peak = 5;
  block.again_peak = 12;
  block.backward_peak = 2;
  block.forward_s = block.segment_forward_s = block.again_s = 1;
  block.backward_s = 2;
  return block;
}

BlockCost loss_block() {
  BlockCost block;
  block.name = "loss";
  block.forward_s = block.backward_s = 1;
  block.keeps_input = true;
  return block;
}

ChainCost plain_chain(size_t blocks) {
  ChainCost cost;
  for (size_t k = 0; k < blocks; ++k) cost.blocks.push_back(plain_block("h." + std::to_string(k)));
  cost.blocks.push_back(loss_block());
  return cost;
}

TEST(ChainCost, WithoutSegmentsEveryBlockIsKept) {
  ChainCost cost = plain_chain(4);
  cost.parameters = 1000;
  cost.optimizer_state = 2000;
  cost.inputs = 7;
  // In the last block's backward: 4 insides, the 3 borders between them, the gradient that came, and 2.
  const MemoryPrediction all = predict_memory(cost, {});
  EXPECT_EQ(all.peak, 3007 + 4 * 10 + 3 + 1 + 2);
  EXPECT_EQ(all.at, "backward of h.3");
  EXPECT_DOUBLE_EQ(all.seconds, 4 * 3 + 2);
}

TEST(ChainCost, WhatLibrariesAndCallbacksKeepIsHeldThroughoutTheStep) {
  ChainCost cost = plain_chain(4);
  const int64_t peak = predict_memory(cost, {}).peak;
  const int64_t least = least_peak(cost);
  cost.workspaces = 500;
  cost.callbacks = 60;
  EXPECT_EQ(predict_memory(cost, {}).peak, peak + 560);
  EXPECT_EQ(predict_memory(cost, {}).curve.back().bytes, 560);
  EXPECT_EQ(least_peak(cost), least + 560);
}

TEST(ChainCost, SegmentsKeepTheirInputsAndOneInside) {
  const ChainCost cost = plain_chain(4);
  // In the last segment's backward: 3 borders, its own inside, the gradient that came, and 2.
  const MemoryPrediction each = predict_memory(cost, each_block(cost));
  EXPECT_EQ(each.peak, 3 + 10 + 1 + 2);
  EXPECT_EQ(each.at, "computing again of h.3");  // as much: its inside, its output, 1, and the gradient that came
  EXPECT_DOUBLE_EQ(each.seconds, 4 * 4 + 2);     // a third more
  // Two segments of two: the input of the second, two insides, the border between, the gradient that came, and 2.
  EXPECT_EQ(predict_memory(cost, {{0, 1}, {2, 3}}).peak, 1 + 20 + 1 + 1 + 2);
}

TEST(ChainCost, ABorderThatNobodyNeedsIsGivenBack) {
  ChainCost cost = plain_chain(3);
  for (auto& block : cost.blocks) block.keeps_input = false;  // as a ReLU, which needs what it made
  cost.blocks[0].keeps_output = true;
  EXPECT_EQ(predict_memory(cost, {}).peak, 3 * 10 + 1 + 1 + 2);
  EXPECT_EQ(predict_memory(cost, {{2, 2}}).peak, 20 + 1 + 1 + 10 + 1 + 2);  // which now needs the border before it
}

TEST(ChainCost, GradientsGrowInBackwardUnlessTheyStay) {
  ChainCost cost = plain_chain(4);
  for (auto& block : cost.blocks) block.gradients = block.chain == kFixedBlock ? 0 : 100;
  cost.gradients = 400;
  cost.optimizer_peak = 5;
  EXPECT_EQ(predict_memory(cost, {}).peak, 400 + 4 * 10 + 4 + 1);  // gradients of the previous step, until forward ends
  cost.blocks[0].backward_peak = 150;
  EXPECT_EQ(predict_memory(cost, {}).peak, 300 + 10 + 1 + 150);
  cost.gradients_stay = true;
  EXPECT_EQ(predict_memory(cost, {}).peak, 400 + 10 + 1 + 150);
  cost.optimizer_peak = 500;
  EXPECT_EQ(predict_memory(cost, {}).at, "the optimizer's step");
}

TEST(ChainCost, ADifferentBatchIsOnTheLineThroughTheTwoThatWereMeasured) {
  ChainCost eight = plain_chain(2);
  ChainCost four = plain_chain(2);
  eight.batch = 8;
  four.batch = 4;
  eight.inputs = 80;
  four.inputs = 40;
  four.blocks[0].kept = 6;  // 2 and 1 a sample
  four.blocks[0].forward_s = 0.75;
  const ChainCost sixteen = at_batch(eight, four, 16);
  EXPECT_EQ(sixteen.inputs, 160);
  EXPECT_EQ(sixteen.blocks[0].kept, 18);
  EXPECT_EQ(sixteen.blocks[1].kept, 10);
  EXPECT_DOUBLE_EQ(sixteen.blocks[0].forward_s, 1.5);
  const int64_t peak = predict_memory(sixteen, {}).peak;
  EXPECT_EQ(largest_batch(eight, four, {}, peak), 16);
  EXPECT_EQ(largest_batch(eight, four, {}, peak - 1), 15);
  EXPECT_EQ(largest_batch(eight, four, {}, 1), 0);
}

// ---- all segmentations ---------------------------------------------------------------------------------------------

// Every way to cut blocks k … into ones that are kept and segments.
void for_each_choice(const ChainCost& cost, size_t k, Segments& chosen, const std::function<void()>& look) {
  if (k == cost.blocks.size()) return look();
  for_each_choice(cost, k + 1, chosen, look);
  if (cost.blocks[k].chain == kFixedBlock || !cost.blocks[k].begins_segments) return;
  for (size_t last = k; last < cost.blocks.size() && cost.blocks[last].chain == cost.blocks[k].chain; ++last) {
    chosen.push_back({k, last});
    for_each_choice(cost, last + 1, chosen, look);
    chosen.pop_back();
  }
}

struct Tried {
  int64_t peak = 0;
  double seconds = 0;
};

std::vector<Tried> try_all(const ChainCost& cost) {
  std::vector<Tried> all;
  Segments chosen;
  for_each_choice(cost, 0, chosen, [&] {
    const MemoryPrediction seen = predict_memory(cost, chosen);
    all.push_back({seen.peak, seen.seconds});
  });
  return all;
}

ChainCost random_chain(std::mt19937& random) {
  auto number = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random); };
  ChainCost cost;
  cost.parameters = number(50);
  cost.gradients_stay = number(1) == 1;
  cost.gradients_apart = number(1) == 1;
  cost.segment_bytes = number(3);
  cost.optimizer_peak = number(20);
  const int64_t count = 1 + number(6);
  int64_t chain = 0;
  for (int64_t k = 0; k < count; ++k) {
    BlockCost block;
    block.name = std::to_string(k);
    chain += number(4) == 0 ? 1 : 0;
    block.chain = number(5) == 0 ? kFixedBlock : chain;
    block.kept = number(40);
    block.output = number(12);
    block.keeps_input = number(1) == 1;
    block.begins_segments = number(5) != 0;
    block.keeps_output = number(2) == 0;
    block.output_gradient = number(9) == 0 ? 0 : block.output;
    block.forward_peak = block.kept + block.output + number(15);
    block.segment_forward_peak = block.output + number(20);
    block.again_peak = block.kept + block.output + number(25);
    block.backward_peak = number(30);
    block.gradients = number(10);
    cost.gradients += block.gradients;
    block.again_s = 1.0 + static_cast<double>(number(9));
    block.forward_s = 1.0 + static_cast<double>(number(9));
    block.segment_forward_s = block.forward_s + 0.125 * static_cast<double>(number(3));
    block.backward_s = 2.0;
    cost.blocks.push_back(block);
  }
  return cost;
}

TEST(ChainPlan, IsTheBestOfAllSegmentationsUnderEveryBudget) {
  std::mt19937 random(7);
  for (int chains = 0; chains < 150; ++chains) {
    const ChainCost cost = random_chain(random);
    const std::vector<Tried> all = try_all(cost);
    int64_t least = all[0].peak;
    for (const Tried& one : all) least = std::min(least, one.peak);
    ASSERT_EQ(least_peak(cost), least) << "chain " << chains;
    EXPECT_FALSE(best_segments(cost, least - 1).has_value());
    for (int64_t budget = least; budget <= all[0].peak; ++budget) {  // all[0]: nothing is computed again
      double fastest = 1e9;
      for (const Tried& one : all) fastest = one.peak <= budget ? std::min(fastest, one.seconds) : fastest;
      const auto chosen = best_segments(cost, budget);
      ASSERT_TRUE(chosen.has_value()) << "chain " << chains << ", budget " << budget;
      const MemoryPrediction seen = predict_memory(cost, *chosen);
      ASSERT_LE(seen.peak, budget) << "chain " << chains;
      ASSERT_DOUBLE_EQ(seen.seconds, fastest) << "chain " << chains << ", budget " << budget;
    }
  }
}

TEST(ChainPlan, ComputesNothingAgainWhereEverythingFits) {
  const ChainCost cost = plain_chain(6);
  EXPECT_EQ(best_segments(cost, predict_memory(cost, {}).peak), Segments());
}

TEST(ChainPlan, ComputesNothingAgainForNothing) {
  ChainCost cost = plain_chain(3);
  for (auto& block : cost.blocks) block.again_s = 0;  // too little to be measured
  EXPECT_EQ(best_segments(cost, predict_memory(cost, {}).peak), Segments());
}

TEST(ChainPlan, SquareRootSegmentsLeaveTheLastOne) {
  EXPECT_EQ(square_root_segments(plain_chain(16)), (Segments{{0, 3}, {4, 7}, {8, 11}}));
  EXPECT_EQ(square_root_segments(plain_chain(1)), Segments());
  ChainCost in_place = plain_chain(6);
  for (const size_t k : {1U, 3U, 5U}) in_place.blocks[k].begins_segments = false;
  EXPECT_EQ(each_block(in_place), (Segments{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(square_root_segments(in_place), (Segments{{0, 3}}));  // two parts of three would cut before block 3
}

TEST(ChainPlan, ManyBlocksTakeAboutASquareRootOfTheMemory) {
  ChainCost cost = plain_chain(1000);
  for (size_t k = 0; k < cost.blocks.size(); ++k) cost.blocks[k].again_s = 1 + 1e-6 * static_cast<double>(k % 7);
  const int64_t least = least_peak(cost);
  // Segments may shrink from the front to the back, where fewer borders are held already: with s segments of s, s - 1,
  // … blocks of 11 bytes s² / 2 is 1000 / 11 … at least √(2 · 11 · 1000) bytes.
  EXPECT_NEAR(static_cast<double>(least), std::sqrt(2 * 11 * 1000.0), 15);
  const auto chosen = best_segments(cost, 2 * least);
  ASSERT_TRUE(chosen.has_value());
  EXPECT_LE(predict_memory(cost, *chosen).peak, 2 * least);
}

TEST(ChainPlan, NamesTheRangesOfBlocks) {
  EXPECT_EQ(module_ranges(plain_chain(6), {{0, 0}, {2, 5}}), (std::vector<std::string>{"h.0", "h.2..h.5"}));
}

}  // namespace
}  // namespace levin::chain_plan_test
