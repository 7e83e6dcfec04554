// levin::call: the plain forward pass, or with actions.
#include "levin/core/module_call.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "levin/recompute/sequential_calls.h"

namespace levin::module_call_test {
namespace {

// Multiplies inputs and outputs, and notes the order of its calls.
class Scaling final : public CallAction {
 public:
  Scaling(double factor, std::string name, std::vector<std::string>& order)
      : factor_(factor), name_(std::move(name)), order_(order) {}
  TensorList around(const ModuleForward& forward, const TensorList& inputs, ChainPosition place) override {
    order_.push_back(name_ + (place.begins ? " begins" : "") + (place.ends ? " ends" : ""));
    TensorList scaled;
    for (const auto& input : inputs) scaled.push_back(input * factor_);
    TensorList outputs = forward(scaled, nullptr);
    order_.push_back(name_ + " done");
    return outputs;
  }

 private:
  double factor_;
  std::string name_;
  std::vector<std::string>& order_;
};

struct Twice : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, int64_t more) { return x * 2 + more; }
};

struct Pair : torch::nn::Module {
  std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& x, const at::Tensor& y) {
    return {x + y, {x, y}};
  }
};

// An action that goes with the test.
class Acting {
 public:
  Acting(const torch::nn::Module& module, std::shared_ptr<CallAction> action)
      : module_(&module), action_(std::move(action)) {
    CallActions::add(module_, action_);
  }
  ~Acting() { CallActions::remove(module_, action_.get()); }
  Acting(const Acting&) = delete;
  Acting& operator=(const Acting&) = delete;

 private:
  const torch::nn::Module* module_;
  std::shared_ptr<CallAction> action_;
};

TEST(Call, IsForwardWhereNothingActs) {
  EXPECT_FALSE(CallActions::any());
  torch::nn::Linear holder(3, 2);
  const at::Tensor x = torch::ones({1, 3});
  EXPECT_TRUE(levin::call(holder, x).equal(holder->forward(x)));
  EXPECT_TRUE(levin::call(*holder, x).equal(holder->forward(x)));
  EXPECT_TRUE(levin::call(holder.ptr(), x).equal(holder->forward(x)));
  Twice twice;
  EXPECT_EQ(levin::call(twice, torch::tensor(3), 4).item<int64_t>(), 10);
  EXPECT_EQ(levin::call(&twice, torch::tensor(3), 4).item<int64_t>(), 10);
}

TEST(Call, RunsActionsFromTheOutermostAndForgetsThemAgain) {
  std::vector<std::string> order;
  Twice twice, other;
  {
    const Acting outer(twice, std::make_shared<Scaling>(10, "outer", order));
    const Acting inner(twice, std::make_shared<Scaling>(3, "inner", order));
    EXPECT_TRUE(CallActions::any());
    EXPECT_EQ(levin::call(twice, torch::tensor(1), 1).item<double>(), 61);
    EXPECT_EQ(order, (std::vector<std::string>{"outer begins ends", "inner begins ends", "inner done", "outer done"}));
    EXPECT_EQ(levin::call(other, torch::tensor(1), 1).item<int64_t>(), 3);
  }
  EXPECT_FALSE(CallActions::any());
  EXPECT_EQ(levin::call(twice, torch::tensor(1), 1).item<int64_t>(), 3);
}

TEST(Call, TakesAndReturnsSeveralTensors) {
  std::vector<std::string> order;
  Pair pair;
  const Acting action(pair, std::make_shared<Scaling>(10, "a", order));
  const auto [sum, both] = levin::call(pair, torch::tensor(1.0), torch::tensor(2.0));
  EXPECT_EQ(sum.item<double>(), 30);
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[1].item<double>(), 20);

  torch::nn::LSTM lstm(2, 3);
  const Acting on_lstm(*lstm, std::make_shared<Scaling>(1, "lstm", order));
  const at::Tensor x = torch::ones({4, 1, 2});
  const auto [expected, state] = lstm->forward(x);
  const auto [y, own_state] = levin::call(lstm, x);
  EXPECT_TRUE(y.equal(expected));
  EXPECT_TRUE(std::get<1>(own_state).equal(std::get<1>(state)));
}

// Records its input and keeps its forward pass, which holds the actions around it: this one too, until it is asked
// to forget.
class Keeping final : public CallAction {
 public:
  TensorList around(const ModuleForward& forward, const TensorList& inputs, ChainPosition) override {
    ++calls;
    kept = forward;
    return forward(inputs, nullptr);
  }
  void forget() { kept = nullptr; }
  int64_t calls = 0;
  ModuleForward kept;
};

TEST(Call, GivesAForwardPassThatMayBeKeptAndHoldsNoTensor) {
  Twice twice;
  const auto around = std::make_shared<Keeping>(), keeping = std::make_shared<Keeping>();
  const Acting outer(twice, around);
  const Acting inner(twice, keeping);
  at::Tensor x = torch::tensor(1);
  EXPECT_EQ(levin::call(twice, x, 5).item<int64_t>(), 7);
  EXPECT_EQ(x.use_count(), 1U);
  EXPECT_EQ(keeping->kept({torch::tensor(2)}, nullptr).at(0).item<int64_t>(), 9);
  Twice other;
  EXPECT_EQ(keeping->kept({torch::tensor(3)}, &other).at(0).item<int64_t>(), 11);
  for (const auto& action : {around, keeping}) action->forget();
}

TEST(Call, PassesTensorsThatMayBeMissing) {
  struct Maybe : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& y) { return y ? x + *y : x; }
  } maybe;
  std::vector<std::string> order;
  const Acting action(maybe, std::make_shared<Scaling>(10, "a", order));
  EXPECT_EQ(levin::call(maybe, torch::tensor(1), std::optional(torch::tensor(2))).item<int64_t>(), 30);
}

// Gives what it gets.
class Passing final : public CallAction {
 public:
  TensorList around(const ModuleForward& forward, const TensorList& inputs, ChainPosition) override {
    return forward(inputs, nullptr);
  }
};

TEST(Call, OnOneThreadContinuesWhileAnotherChangesTheActionsOfOtherModules) {
  Twice with_action, plain;
  const Acting kept(with_action, std::make_shared<Passing>());
  std::atomic<bool> over = false;
  std::atomic<int64_t> calls = 0;
  bool right = true;
  std::thread caller([&] {
    while (!over) {
      const at::Tensor x = torch::tensor(3);
      right = right && levin::call(with_action, x, 4).item<int64_t>() == 10;
      right = right && levin::call(plain, x, 4).item<int64_t>() == 10;
      ++calls;
    }
  });
  while (calls < 5000) {
    std::vector<std::unique_ptr<Twice>> others;
    std::vector<std::unique_ptr<Acting>> actions;
    for (int k = 0; k < 10; ++k) {
      others.push_back(std::make_unique<Twice>());
      actions.push_back(std::make_unique<Acting>(*others.back(), std::make_shared<Passing>()));
    }
  }
  over = true;
  caller.join();
  EXPECT_TRUE(right);
}

TEST(CallChain, IsTheBlocksOneAfterTheOther) {
  std::vector<Twice> blocks(3);
  EXPECT_EQ(levin::call_chain(blocks, torch::tensor(1), 1).item<int64_t>(), 15);
  std::vector<std::string> order;
  const Acting action(blocks[1], std::make_shared<Scaling>(10, "middle", order));
  EXPECT_EQ(levin::call_chain(blocks, torch::tensor(1), 1).item<double>(), 123);
  EXPECT_EQ(order, (std::vector<std::string>{"middle begins ends", "middle done"}));
}

TEST(CallChain, RunsTheBlocksOfARangeTogetherAndRangesWithinIt) {
  std::vector<Twice> blocks(5);
  const auto outer = std::make_shared<Keeping>(), inner = std::make_shared<Keeping>(),
             other = std::make_shared<Keeping>();
  CallActions::add_range({&blocks[0], &blocks[1], &blocks[2]}, outer);
  CallActions::add_range({&blocks[0], &blocks[1]}, inner);
  CallActions::add_range({&blocks[3], &blocks[1]}, other);  // no neighbours here
  EXPECT_EQ(levin::call_chain(blocks, torch::tensor(1), 0).item<int64_t>(), 32);
  EXPECT_EQ(outer->calls, 1);
  EXPECT_EQ(inner->calls, 1);
  EXPECT_EQ(other->calls, 0);
  EXPECT_EQ(outer->kept({torch::tensor(1)}, nullptr).at(0).item<int64_t>(), 8);
  EXPECT_EQ(inner->calls, 2);
  for (const auto& action : {outer, inner, other}) {
    CallActions::remove_range(action.get());
    action->forget();
  }
  EXPECT_FALSE(CallActions::any());
}

TEST(SequentialCalls, RunTheBlocksOfARangeTogether) {
  struct Root : torch::nn::Module {
    torch::nn::Sequential net{register_module(
        "net", torch::nn::Sequential(torch::nn::ReLU(), torch::nn::Tanh(), torch::nn::Sigmoid(), torch::nn::ReLU()))};
  } root;
  const at::Tensor x = torch::tensor({1.0, -1.0}), expected = root.net->forward(x);
  const auto at = [&](size_t k) { return root.net->ptr(k).get(); };
  const auto outer = std::make_shared<Keeping>(), inner = std::make_shared<Keeping>(),
             one = std::make_shared<Keeping>();
  CallActions::add_range({at(0), at(1), at(2)}, outer);
  CallActions::add_range({at(1), at(2)}, inner);
  const Acting action(*root.net->ptr(1), one);
  {
    const SequentialCalls calls(root);
    EXPECT_TRUE(root.net->forward(x).equal(expected));
    EXPECT_EQ(outer->calls + inner->calls + one->calls, 3);
    EXPECT_EQ(root.net->size(), 4U);
  }
  EXPECT_TRUE(root.net->forward(x).equal(expected));
  EXPECT_EQ(outer->calls, 1);
  // The kept pass calls the blocks themselves, regardless of the current content of the Sequential.
  EXPECT_TRUE(outer->kept({x}, nullptr).at(0).equal(x.relu().tanh().sigmoid()));
  for (const auto& kept : {outer, inner}) CallActions::remove_range(kept.get());
  for (const auto& kept : {outer, inner, one}) kept->forget();
}

TEST(SequentialCalls, CallBlocksByTheirActionsInChainsAndEndAsTheyBegan) {
  std::vector<std::string> order;
  struct Root : torch::nn::Module {
    torch::nn::Sequential net{register_module("net", torch::nn::Sequential(torch::nn::ReLU(), torch::nn::Identity(),
                                                                           torch::nn::Identity(), torch::nn::ReLU()))};
  } root;
  const at::Tensor x = torch::tensor({1.0, -1.0});
  {
    const Acting one(*root.net->ptr(1), std::make_shared<Scaling>(2, "1", order));
    const Acting two(*root.net->ptr(2), std::make_shared<Scaling>(-5, "2", order));
    {
      const SequentialCalls calls(root);
      EXPECT_TRUE(root.net->forward(x).equal(torch::tensor({0.0, 0.0})));
      EXPECT_EQ(order, (std::vector<std::string>{"1 begins", "1 done", "2 ends", "2 done"}));
    }
    order.clear();
    EXPECT_TRUE(root.net->forward(x).equal(torch::tensor({1.0, 0.0})));
  }
  EXPECT_TRUE(order.empty());
  EXPECT_EQ(root.named_children().keys(), (std::vector<std::string>{"net"}));
}

}  // namespace
}  // namespace levin::module_call_test
