// A step recorded as a tape is bitwise identical to the step itself in every replay; what cannot be repeated is named.
#include "levin/strategies/tape/step_tape.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/strategies/tape/tape_memory.h"
#include "support/allocations.h"
#include "support/error_text.h"

namespace levin::step_tape_test {
namespace {

using namespace test;
namespace nn = torch::nn;

using Loss = std::function<at::Tensor(nn::Module&, const at::Tensor&, const at::Tensor&)>;

// Forward, loss, backward and momentum's update, the gradients made anew.
struct Training {
  Training(std::shared_ptr<nn::Module> m, Loss l, at::Tensor x, at::Tensor y)
      : module(std::move(m)), loss_of(std::move(l)), input(std::move(x)), target(std::move(y)) {
    for (const auto& p : module->parameters()) momenta.push_back(torch::zeros_like(p));
  }
  void step() {
    for (auto& p : module->parameters()) p.mutable_grad() = at::Tensor();
    const at::Tensor root = loss_of(*module, input, target);
    root.backward();
    loss = root.detach();
    const torch::NoGradGuard no_grad;
    std::vector<at::Tensor> parameters = module->parameters(), gradients;
    for (auto& p : parameters) gradients.push_back(p.grad());
    at::_fused_sgd_(parameters, gradients, momenta, 0, 0.9, 0.05, 0, false, false, false);
  }
  std::vector<at::Tensor> state() const {
    std::vector<at::Tensor> all = {loss};
    for (const auto& p : module->parameters()) all.push_back(p.detach());
    for (const auto& b : module->buffers()) all.push_back(b);
    return all;
  }
  std::shared_ptr<nn::Module> module;
  Loss loss_of;
  at::Tensor input, target, loss;
  std::vector<at::Tensor> momenta;
};

// Six steps of both kinds, on new inputs and the same random numbers.
void expect_same_steps(const std::function<Training()>& make) {
  torch::manual_seed(1);
  Training plain = make();
  torch::manual_seed(1);
  Training taped = make();
  TapeRecorder recorder;
  std::unique_ptr<Recording> tape;
  for (int64_t k = 0; k < 6; ++k) {
    torch::manual_seed(10 + k);
    if (plain.input.is_floating_point()) plain.input.normal_();
    taped.input.copy_(plain.input);
    const auto random = at::globalContext().defaultGenerator(at::kCPU).get_state();
    plain.step();
    const float next = torch::rand({1}).item<float>();
    auto generator = at::globalContext().defaultGenerator(at::kCPU);
    generator.set_state(random);
    if (tape != nullptr) {
      tape->replay();
    } else if (k == 2) {
      tape = recorder.record([&] { taped.step(); });
      ASSERT_NE(tape, nullptr) << recorder.refusal();
    } else {
      taped.step();
    }
    EXPECT_EQ(torch::rand({1}).item<float>(), next) << "as many random numbers were drawn";
    const auto expected = plain.state(), seen = taped.state();
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_TRUE(torch::equal(expected[i], seen[i])) << "step " << k << ", tensor " << i;
    }
  }
}

at::Tensor classify(nn::Module& module, const at::Tensor& x, const at::Tensor& y) {
  return nn::functional::cross_entropy(module.as<nn::Sequential>()->forward(x), y);
}

at::Tensor classes(int64_t count) {
  return torch::arange(count).remainder(4);
}

TEST(StepTape, TrainsAPerceptronWithDropout) {
  expect_same_steps([] {
    nn::Sequential net(nn::Linear(16, 32), nn::ReLU(), nn::Dropout(0.3), nn::Linear(32, 32), nn::GELU(),
                       nn::Linear(32, 4));
    return Training(net.ptr(), classify, torch::randn({8, 16}), classes(8));
  });
}

TEST(StepTape, TrainsConvolutionsWithBatchNormalization) {
  expect_same_steps([] {
    nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)), nn::BatchNorm2d(8), nn::ReLU(),
                       nn::MaxPool2d(2), nn::Conv2d(8, 8, 3), nn::BatchNorm2d(8), nn::AdaptiveAvgPool2d(1),
                       nn::Flatten(), nn::Linear(8, 4));
    return Training(net.ptr(), classify, torch::randn({4, 3, 12, 12}), classes(4));
  });
}

template <class Rnn>
void expect_recurrent() {
  expect_same_steps([] {
    struct Net : nn::Module {
      Net() { register_module("rnn", rnn), register_module("head", head); }
      Rnn rnn{8, 16};
      nn::Linear head{16, 4};
    };
    return Training(
        std::make_shared<Net>(),
        [](nn::Module& m, const at::Tensor& x, const at::Tensor& y) {
          auto& net = static_cast<Net&>(m);
          return nn::functional::cross_entropy(net.head->forward(std::get<0>(net.rnn->forward(x))[-1]), y);
        },
        torch::randn({5, 6, 8}), classes(6));
  });
}
TEST(StepTape, TrainsAnLstm) {
  expect_recurrent<nn::LSTM>();
}
TEST(StepTape, TrainsAGru) {
  expect_recurrent<nn::GRU>();
}

TEST(StepTape, TrainsAttentionOverAnEmbedding) {
  expect_same_steps([] {
    struct Net : nn::Module {
      Net() {
        register_module("words", words), register_module("qkv", qkv), register_module("norm", norm);
        register_module("head", head);
      }
      nn::Embedding words{20, 16};
      nn::Linear qkv{16, 48}, head{16, 4};
      nn::LayerNorm norm{nn::LayerNormOptions({16})};
    };
    return Training(
        std::make_shared<Net>(),
        [](nn::Module& m, const at::Tensor& x, const at::Tensor& y) {
          auto& net = static_cast<Net&>(m);
          const at::Tensor h = net.words->forward(x);
          const auto parts = net.qkv->forward(net.norm->forward(h)).view({4, 6, 3, 2, 8}).permute({2, 0, 3, 1, 4});
          const at::Tensor mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
          const at::Tensor out = h + mixed.transpose(1, 2).reshape({4, 6, 16});
          return nn::functional::cross_entropy(net.head->forward(out.mean(1)), y);
        },
        torch::arange(24).view({4, 6}).remainder(20), classes(4));
  });
}

Training perceptron(Loss loss = classify) {
  torch::manual_seed(1);
  nn::Sequential net(nn::Linear(16, 32), nn::ReLU(), nn::Linear(32, 4));
  return Training(net.ptr(), std::move(loss), torch::randn({8, 16}), classes(8));
}

std::string refusal_of(Loss loss) {
  Training training = perceptron(std::move(loss));
  TapeRecorder recorder;
  const at::Tensor before = training.module->parameters()[0].detach().clone();
  EXPECT_EQ(recorder.record([&] { training.step(); }), nullptr);
  EXPECT_FALSE(torch::equal(before, training.module->parameters()[0])) << "the step has run";
  return recorder.refusal();
}

TEST(StepTape, NamesTheOperatorThatCannotBeRepeated) {
  EXPECT_EQ(refusal_of([](nn::Module& m, const at::Tensor& x, const at::Tensor& y) {
              const at::Tensor loss = classify(m, x, y);
              return loss * (loss.item<float>() > 100 ? 2 : 1);
            }),
            "aten::_local_scalar_dense reads a number of a tensor on the host");
  EXPECT_EQ(refusal_of([](nn::Module& m, const at::Tensor& x, const at::Tensor& y) {
              return classify(m, x, y) * (x > 0).nonzero().numel();
            }),
            "aten::nonzero has a result whose shape depends on the numbers");
  EXPECT_EQ(refusal_of([](nn::Module& m, const at::Tensor& x, const at::Tensor& y) {
              return classify(m, x, y) + at::mm(torch::eye(2).to_sparse(), torch::ones({2, 2})).sum() * 0;
            }),
            "aten::_to_sparse has a tensor that is not strided");
}

struct Beside {
  explicit Beside(Loss loss) : training(perceptron(std::move(loss))) {
    training.step();
    tape = recorder.record([this] { training.step(); });
  }
  std::string run() {
    return tape->run_beside([this] { training.step(); });
  }
  Training training;
  TapeRecorder recorder;
  std::unique_ptr<Recording> tape;
};

TEST(StepTape, SaysNothingOfAStepThatIsTheSame) {
  Beside beside(classify);
  EXPECT_EQ(beside.run(), "");
}

TEST(StepTape, NamesWhatTheHostDoesDifferently) {
  int64_t calls = 0;
  Beside branch([&](nn::Module& m, const at::Tensor& x, const at::Tensor& y) {
    return classify(m, x, y) * (++calls < 3 ? x.mean() : x.sum());
  });
  EXPECT_TRUE(has(branch.run(), "it called aten::sum where aten::mean was recorded"));
  double factor = 0.5;
  Beside number([&](nn::Module& m, const at::Tensor& x, const at::Tensor& y) {
    return at::leaky_relu(classify(m, x, y), factor);
  });
  factor = 0.25;
  EXPECT_EQ(number.run(), "aten::leaky_relu got 0.25 where 0.5 was recorded as negative_slope");
  Beside made([&](nn::Module& m, const at::Tensor& x, const at::Tensor& y) {
    return classify(m, x, y) * torch::tensor(factor);
  });
  factor = 2;
  EXPECT_EQ(made.run(), "aten::scalar_tensor got 2. where 0.25 was recorded as s");
  at::Tensor numbers = torch::tensor({1.0F, 2.0F});
  Beside other_memory(
      [&](nn::Module& m, const at::Tensor& x, const at::Tensor& y) { return classify(m, x, y) * numbers.sum(); });
  numbers = torch::tensor({1.0F, 3.0F});
  EXPECT_EQ(other_memory.run(), "aten::sum got a tensor that the host has made anew with other numbers as self");
}

TEST(StepTape, AReplayOfAPerceptronAllocatesNothing) {
  Training training = perceptron();
  training.step();
  TapeRecorder recorder;
  const auto tape = recorder.record([&] { training.step(); });
  ASSERT_NE(tape, nullptr);
  tape->replay();
  const Allocations allocations;
  tape->replay();
  EXPECT_EQ(allocations.peak(), 0);
}

TEST(StepTape, ResultsShareOneBlock) {
  Training training = perceptron();
  training.step();
  TapeRecorder recorder;
  Allocations allocations;
  training.step();
  const int64_t peak = allocations.peak();
  const auto tape = recorder.record([&] { training.step(); });
  const auto& made = dynamic_cast<const StepTape&>(*tape);
  EXPECT_GT(made.block_bytes(), 0U);
  EXPECT_LE(static_cast<int64_t>(made.block_bytes()), peak) << "no more than the step itself needs";
}

TEST(BlockPlan, PiecesWhoseLivesOverlapDoNot) {
  std::vector<MemoryPiece> pieces;
  for (size_t k = 0; k < 60; ++k) pieces.push_back({(k * 37 % 11) * 50 + 1, k % 17, k % 17 + k % 5});
  const BlockPlan plan = plan_block(pieces);
  size_t busiest = 0;
  for (size_t moment = 0; moment < 25; ++moment) {
    size_t bytes = 0;
    for (const auto& piece : pieces) bytes += piece.first <= moment && moment <= piece.last ? piece.bytes : 0;
    busiest = std::max(busiest, bytes);
  }
  EXPECT_GE(plan.bytes, busiest);
  for (size_t a = 0; a < pieces.size(); ++a) {
    EXPECT_EQ(plan.offsets[a] % 64, 0U);
    EXPECT_LE(plan.offsets[a] + pieces[a].bytes, plan.bytes);
    for (size_t b = 0; b < a; ++b) {
      if (pieces[a].first > pieces[b].last || pieces[b].first > pieces[a].last) continue;
      EXPECT_TRUE(plan.offsets[a] + pieces[a].bytes <= plan.offsets[b] ||
                  plan.offsets[b] + pieces[b].bytes <= plan.offsets[a])
          << a << " and " << b;
    }
  }
  EXPECT_EQ(plan_block({{100, 0, 1}, {100, 2, 3}, {100, 4, 5}}).bytes, 128U) << "one after another";
  EXPECT_EQ(plan_block({}).bytes, 0U);
}

}  // namespace
}  // namespace levin::step_tape_test
