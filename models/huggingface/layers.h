// The layers that Hugging Face's models are made of. They are made without starting weights, which init_weights()
// draws where a file has none: drawing them first would take longer than reading a large file.
#pragma once

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace levin::huggingface {

/// A module that knows how its own parameters start.
class HasStartingWeights {
 public:
  virtual ~HasStartingWeights() = default;
  /// Fills the parameter called `name` within the module. `deviation`: the config's initializer_range. Without
  /// gradients.
  virtual void start(const std::string& name, at::Tensor& parameter, double deviation) = 0;
};

/// Fills a weight with normal numbers of mean 0 and this standard deviation, and a "bias" with zeros.
void start_linear(const std::string& name, at::Tensor& parameter, double deviation);

/// Normal weights and a bias of zeros. Adds its bias within the matrix product, which torch::nn::Linear does for two
/// dimensions only.
class Linear : public torch::nn::LinearImpl, public HasStartingWeights {
 public:
  Linear(int64_t in, int64_t out, bool has_bias = true);
  at::Tensor forward(const at::Tensor& x);  // (…, in) to (…, out)
  void start(const std::string& name, at::Tensor& parameter, double deviation) override;
};

/// GPT-2's linear layer: its weight is (in, out).
class Conv1D : public torch::nn::Module, public HasStartingWeights {
 public:
  /// `start_scale`: of the deviation of its starting weights.
  Conv1D(int64_t in, int64_t out, double start_scale = 1);
  at::Tensor forward(const at::Tensor& x);  // (…, in) to (…, out)
  void start(const std::string& name, at::Tensor& parameter, double deviation) override;

 private:
  at::Tensor weight_;
  at::Tensor bias_;
  double start_scale_;
};

/// `padding`: a row that starts as zeros and learns nothing.
class Embedding : public torch::nn::EmbeddingImpl, public HasStartingWeights {
 public:
  Embedding(int64_t rows, int64_t width, std::optional<int64_t> padding = std::nullopt);
  at::Tensor forward(const at::Tensor& ids);  // (…) int64 to (…, width)
  void start(const std::string& name, at::Tensor& parameter, double deviation) override;

 private:
  int64_t padding_;
};

/// Positions that start as sines and cosines of wavelengths from 2 pi to 20,000 pi (Vaswani et al. 2017).
class SinusoidalEmbedding : public Embedding {
 public:
  using Embedding::Embedding;
  void start(const std::string& name, at::Tensor& parameter, double deviation) override;
};

class LayerNorm : public torch::nn::LayerNormImpl, public HasStartingWeights {
 public:
  LayerNorm(int64_t width, double eps);
  void start(const std::string& name, at::Tensor& parameter, double deviation) override;
};

/// x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019), computed in float32; Gemma's with 1 + weight.
class RMSNorm : public torch::nn::Module, public HasStartingWeights {
 public:
  RMSNorm(int64_t width, double eps, bool is_gemma = false);
  at::Tensor forward(const at::Tensor& x);  // (…, width)
  void start(const std::string& name, at::Tensor& parameter, double deviation) override;

 private:
  at::Tensor weight_;
  double eps_;
  bool is_gemma_;
};

/// A module that only holds others: "attention" of attention.self.query.
std::shared_ptr<torch::nn::Module> add_part(torch::nn::Module& module, const std::string& name);

/// Makes a layer and registers it.
template <class Layer, class... Args>
std::shared_ptr<Layer> add_layer(torch::nn::Module& module, const std::string& name, Args&&... args) {
  return module.register_module(name, std::make_shared<Layer>(std::forward<Args>(args)...));
}

/// `count` blocks in a list: NAME.0, NAME.1, …. Each is made of `args` and, if it takes one more number, its own.
template <class Layer, class... Args>
std::vector<std::shared_ptr<Layer>> add_layers(torch::nn::Module& module, const std::string& name, int64_t count,
                                               const Args&... args) {
  const auto list = add_part(module, name);
  std::vector<std::shared_ptr<Layer>> layers;
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_constructible_v<Layer, const Args&..., int64_t>) {
      layers.push_back(add_layer<Layer>(*list, std::to_string(i), args..., i));
    } else {
      layers.push_back(add_layer<Layer>(*list, std::to_string(i), args...));
    }
  }
  return layers;
}

}  // namespace levin::huggingface
