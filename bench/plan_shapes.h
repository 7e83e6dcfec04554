// Models of the kinds that the planner is tested on, small in tests and larger in `./dev bench plan`: an MLP, a GPT, an
// encoder whose blocks take a mask, a residual network, and XLM-R's layers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/module_call.h"
#include "levin/levin.h"
#include "models/gpt.h"
#include "models/resnet.h"
#include "models/text_classifier.h"

namespace plan_shapes {

// One Sequential of Linear and ReLU.
class Mlp : public levin::LightningModule {
 public:
  Mlp(int64_t width, int64_t blocks) {
    for (int64_t k = 0; k < blocks; ++k) {
      layers_->push_back(torch::nn::Linear(width, width));
      layers_->push_back(torch::nn::ReLU());
    }
    register_module("layers", layers_);
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    return torch::mse_loss(layers_->forward(batch[0]), batch[1]);
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::AdamW(parameters(), {.lr = 1e-3}); }

 private:
  torch::nn::Sequential layers_;
};

// Attention and an MLP, with a mask passed to every block.
struct EncoderLayerImpl : torch::nn::Module {
  explicit EncoderLayerImpl(int64_t width) : width_(width) {
    qkv_ = register_module("qkv", torch::nn::Linear(width, 3 * width));
    out_ = register_module("out", torch::nn::Linear(width, width));
    norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    up_ = register_module("up", torch::nn::Linear(width, 4 * width));
    down_ = register_module("down", torch::nn::Linear(4 * width, width));
    last_ = register_module("last", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  }
  // x: (B, T, C); mask: (B, 1, 1, T), 0 or a large negative number
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    const auto parts = qkv_->forward(x).view({x.size(0), x.size(1), 3, 2, width_ / 2}).permute({2, 0, 3, 1, 4});
    const auto weights = torch::softmax(at::matmul(parts[0], parts[1].transpose(-2, -1)) + mask, -1);
    const auto seen = at::matmul(at::dropout(weights, 0.1, is_training()), parts[2]).transpose(1, 2);
    const auto after = norm_->forward(x + at::dropout(out_->forward(seen.reshape(x.sizes())), 0.1, is_training()));
    return last_->forward(after + at::dropout(down_->forward(at::gelu(up_->forward(after))), 0.1, is_training()));
  }
  int64_t width_;
  torch::nn::Linear qkv_{nullptr}, out_{nullptr}, up_{nullptr}, down_{nullptr};
  torch::nn::LayerNorm norm_{nullptr}, last_{nullptr};
};
TORCH_MODULE(EncoderLayer);

class Encoder : public levin::LightningModule {
 public:
  explicit Encoder(int64_t width) : words_(50, width), head_(width, 4) {
    torch::nn::ModuleList list;
    for (int64_t k = 0; k < 6; ++k) {
      layers_.emplace_back(width);
      list->push_back(layers_.back());
    }
    register_module("words", words_);
    register_module("layer", list);
    register_module("head", head_);
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    const auto mask = (batch[0] == 0).to(at::kFloat).mul(-1e4).unsqueeze(1).unsqueeze(1);
    const auto x = levin::call_chain(layers_, words_->forward(batch[0]), mask);
    return torch::nn::functional::cross_entropy(head_->forward(x.select(1, 0)), batch[1]);
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::SGD(parameters(), {.lr = 0.1, .momentum = 0.9});
  }

 private:
  torch::nn::Embedding words_;
  std::vector<EncoderLayer> layers_;
  torch::nn::Linear head_;
};

struct Shape {
  std::string name;
  std::function<std::shared_ptr<levin::LightningModule>()> make;
  std::vector<at::Tensor> data;
  int64_t batch = 16;
  std::string precision = "32-true";
};

// Six of XLM-R's layers: in an eighth of base's width, or in all of it. Its 250,002 words would only add weights.
inline Shape xlm_r(int64_t size, const std::string& precision) {
  TextClassifierOptions options;
  options.num_hidden_layers = 6;
  options.vocab_size = 260;
  options.num_classes = 2;
  if (size == 1) {
    options.hidden_size = 96;
    options.num_attention_heads = 3;
    options.intermediate_size = 384;
    options.max_position_embeddings = 66;
  }
  const int64_t tokens = 64;
  return {"XLM-R, " + precision,
          [options] { return std::make_shared<TextClassifier>(options); },
          {torch::randint(4, 260, {12 * size, tokens}), torch::randint(2, {12 * size})},
          4 * size,
          precision};
}

// Three batches each. `size`: 1 for tests; 2 is twice as wide, with blocks of twice as many tokens or pixels a side.
inline std::vector<Shape> shapes(int64_t size) {
  torch::manual_seed(3);
  ResNetOptions resnet;
  resnet.width = 8 * size;
  resnet.blocks = {3, 3};
  GPTOptions gpt;
  gpt.vocab_size = 40;
  gpt.block_size = 32 * size;
  gpt.n_layer = 6;
  gpt.n_embd = 32 * size;
  gpt.dropout = 0.1;
  const int64_t width = 64 * size, tokens = 32 * size, side = 16 * size;
  return {{"MLP",
           [width] { return std::make_shared<Mlp>(width, 16); },
           {torch::randn({768, width}), torch::randn({768, width})},
           256},
          {"GPT",
           [gpt] { return std::make_shared<GPT>(gpt); },
           {torch::randint(40, {48, tokens}), torch::randint(40, {48, tokens})}},
          {"encoder",
           [size] { return std::make_shared<Encoder>(32 * size); },
           {torch::randint(50, {48, tokens}), torch::randint(4, {48})}},
          {"ResNet",
           [resnet] { return std::make_shared<ResNet>(resnet); },
           {torch::randn({48, 1, side, side}), torch::randint(10, {48})}},
          xlm_r(size, "32-true"),
          xlm_r(size, "bf16-mixed")};
}

}  // namespace plan_shapes
