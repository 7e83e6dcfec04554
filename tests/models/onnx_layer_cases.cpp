#include "levin/models/huggingface/auto_model.h"
#include "models/onnx_cases.h"

namespace levin::test {

namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using Tensors = std::vector<at::Tensor>;

class LayerCases {
 public:
  template <class Holder>
  void add(const std::string& name, Holder layer, const at::Tensor& example) {
    all.push_back(
        {name, layer.ptr(), [layer](const Tensors& x) mutable { return Tensors{layer->forward(x.at(0))}; }, {example}});
  }
  template <class Holder, class Forward>
  void with(const std::string& name, Holder layer, const Tensors& example, Forward forward) {
    all.push_back(
        {name, layer.ptr(), [layer, forward](const Tensors& x) mutable { return forward(layer, x); }, example});
  }
  OnnxCases all = {};
};

void take_any_length(OnnxCases& cases) {
  for (OnnxCase& one : cases) one.any_length = true;
}

void set_statistics(nn::Module& module) {
  for (auto& item : module.named_buffers()) {
    if (item.key().ends_with("running_mean")) item.value().normal_();
    if (item.key().ends_with("running_var")) item.value().uniform_(0.5, 2);
  }
}

// Weights that are computed of parameters, by operators that have no translation.
struct ComputedWeightsImpl : nn::Module {
  ComputedWeightsImpl() {
    register_module("lstm", lstm);
    register_module("linear", linear);
    magnitudes = register_parameter("magnitudes", at::rand({5, 1}) + 0.5);
    square = register_parameter("square", at::randn({5, 5}) + 4 * at::eye(5));
  }
  Tensors forward(const at::Tensor& x) {
    const at::Tensor weight = at::_weight_norm(linear->weight, magnitudes, 0);
    const at::Tensor y = at::linear(x, weight, linear->bias);
    std::vector<at::Tensor> weights;
    for (const at::Tensor& one : lstm->parameters())
      weights.push_back(one.dim() == 2 ? at::polar(one, one).abs() : one);
    const at::Tensor none = at::zeros({1, x.size(0), 5});
    const auto sequence = at::lstm(y, {none, none}, weights, true, 1, 0, false, false, true);
    return {at::matmul(y, at::linalg_inv(square)) + square.sum(0, true).digamma(), std::get<0>(sequence)};
  }
  nn::Linear linear{6, 5};
  nn::LSTM lstm{nn::LSTMOptions(5, 5)};
  at::Tensor magnitudes, square;
};
TORCH_MODULE(ComputedWeights);

void add_dense(LayerCases& cases) {
  nn::Sequential dropouts(nn::Linear(6, 16), nn::Dropout(nn::DropoutOptions(0.5).inplace(true)),
                          nn::AlphaDropout(nn::AlphaDropoutOptions(0.5).inplace(true)),
                          nn::FeatureAlphaDropout(nn::FeatureAlphaDropoutOptions(0.5).inplace(true)));
  cases.add("dropouts", dropouts, at::randn({4, 6}));
  cases.add("dropout_of_channels", nn::Dropout2d(nn::Dropout2dOptions(0.5).inplace(true)), at::randn({4, 6, 3, 3}));
  cases.with("computed_weights", ComputedWeights(), {at::randn({4, 3, 6})},
             [](auto& layer, const Tensors& x) { return layer->forward(x.at(0)); });
  nn::InstanceNorm2d kept(nn::InstanceNorm2dOptions(6).affine(true).track_running_stats(true));
  set_statistics(*kept);
  cases.add("instance_norm_with_statistics", kept, at::randn({4, 6, 5, 5}));
  cases.add("batch_norm_without_statistics", nn::BatchNorm2d(nn::BatchNorm2dOptions(6).track_running_stats(false)),
            at::randn({4, 6, 5, 5}));
  nn::Sequential mlp(nn::Linear(6, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Dropout(0.5), nn::Linear(16, 3));
  set_statistics(*mlp);
  cases.add("mlp", mlp, at::randn({4, 6}));
  cases.add("layer_norm", nn::LayerNorm(nn::LayerNormOptions({5, 6})), at::randn({4, 5, 6}));
  cases.add("layer_norm_plain", nn::LayerNorm(nn::LayerNormOptions({6}).elementwise_affine(false)),
            at::randn({4, 5, 6}));
  cases.add("group_norm", nn::GroupNorm(nn::GroupNormOptions(3, 6)), at::randn({4, 6, 5, 5}));
  cases.add("instance_norm", nn::InstanceNorm2d(nn::InstanceNorm2dOptions(6).affine(true)), at::randn({4, 6, 5, 5}));
  cases.add("prelu", nn::PReLU(nn::PReLUOptions().num_parameters(6)), at::randn({4, 6, 5}));
  cases.add("embedding", nn::Embedding(11, 5), at::randint(0, 11, {4, 3}, at::kLong));
  cases.with("bilinear", nn::Bilinear(4, 5, 3), {at::randn({4, 4}), at::randn({4, 5})},
             [](auto& layer, const Tensors& x) { return Tensors{layer->forward(x.at(0), x.at(1))}; });
  cases.with("cosine", nn::CosineSimilarity(nn::CosineSimilarityOptions().dim(1)),
             {at::randn({4, 5}), at::randn({4, 5})},
             [](auto& layer, const Tensors& x) { return Tensors{layer->forward(x.at(0), x.at(1))}; });
}

struct BlockImpl : nn::Module {
  BlockImpl(int64_t in, int64_t out, int64_t stride) {
    conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false)));
    bn1 = register_module("bn1", nn::BatchNorm2d(out));
    conv2 = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(out, out, 3).padding(1).groups(2)));
    bn2 = register_module("bn2", nn::BatchNorm2d(out));
    skip = register_module("skip", nn::Conv2d(nn::Conv2dOptions(in, out, 1).stride(stride)));
  }
  at::Tensor forward(const at::Tensor& x) {
    return torch::relu(bn2->forward(conv2->forward(torch::relu(bn1->forward(conv1->forward(x))))) + skip->forward(x));
  }
  nn::Conv2d conv1{nullptr}, conv2{nullptr}, skip{nullptr};
  nn::BatchNorm2d bn1{nullptr}, bn2{nullptr};
};
TORCH_MODULE(Block);

void add_images(LayerCases& cases) {
  nn::Sequential resnet(nn::Conv2d(nn::Conv2dOptions(3, 8, 7).stride(2).padding(3)), nn::BatchNorm2d(8),
                        nn::ReLU(nn::ReLUOptions(true)), nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)),
                        Block(8, 8, 1), Block(8, 16, 2), nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(16, 5));
  set_statistics(*resnet);
  cases.add("resnet", resnet, at::randn({4, 3, 32, 32}));
  const at::Tensor x = at::randn({4, 4, 12, 12});
  cases.add("same_padding_dilated", nn::Conv2d(nn::Conv2dOptions(4, 6, {3, 4}).padding(torch::kSame).dilation({2, 3})),
            x);
  cases.add("avg_pool_ceil", nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(2).padding(1).ceil_mode(true)), x);
  cases.add("avg_pool_divided", nn::AvgPool2d(nn::AvgPool2dOptions({3, 2}).stride(2).padding(1).divisor_override(4)),
            x);
  cases.add("max_pool_ceil_padded", nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1).ceil_mode(true)), x);
  cases.add("circular_padding", nn::Conv2d(nn::Conv2dOptions(4, 6, 3).padding(2).padding_mode(torch::kCircular)), x);
  cases.add("dilated", nn::Conv2d(nn::Conv2dOptions(4, 6, 3).dilation(2).padding({1, 2})), x);
  cases.add("same_padding", nn::Conv2d(nn::Conv2dOptions(4, 6, {3, 4}).padding(torch::kSame)), x);
  cases.add("conv1d", nn::Conv1d(nn::Conv1dOptions(4, 6, 3).stride(2)), x.select(2, 0));
  cases.add("conv3d", nn::Conv3d(nn::Conv3dOptions(4, 2, 3).padding(1)), at::randn({4, 4, 5, 6, 7}));
  cases.add("conv_transpose",
            nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 6, 3).stride(2).padding(1).output_padding(1)), x);
  cases.add("avg_pool", nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(2).padding(1)), x);
  cases.add("avg_pool_without_pad",
            nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(2).padding(1).count_include_pad(false)), x);
  cases.add("max_pool_ceil", nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).ceil_mode(true)), x);
  cases.add("max_pool1d", nn::MaxPool1d(2), x.select(2, 0));
  cases.add("adaptive_avg_pool", nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({4, 3})), x);
  cases.add("adaptive_max_pool", nn::AdaptiveMaxPool2d(nn::AdaptiveMaxPool2dOptions({1, 1})), x);
  cases.add("upsample_nearest",
            nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest)), x);
  cases.add(
      "upsample_bilinear",
      nn::Upsample(
          nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kBilinear).align_corners(false)),
      x);
  cases.add(
      "upsample_aligned",
      nn::Upsample(nn::UpsampleOptions().size(std::vector<int64_t>{17, 20}).mode(torch::kBilinear).align_corners(true)),
      x);
  cases.add(
      "upsample_bicubic",
      nn::Upsample(
          nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kBicubic).align_corners(false)),
      x);
  cases.add("pixel_shuffle", nn::PixelShuffle(2), x);
}

void add_sequences(LayerCases& cases) {
  const at::Tensor x = at::randn({4, 7, 6});
  const auto all_of = [](auto& layer, const Tensors& in) {
    auto [y, state] = layer->forward(in.at(0));
    return Tensors{y, state};
  };
  const auto all_of_lstm = [](auto& layer, const Tensors& in) {
    auto [y, states] = layer->forward(in.at(0));
    return Tensors{y, std::get<0>(states), std::get<1>(states)};
  };
  cases.with("lstm", nn::LSTM(nn::LSTMOptions(6, 5).batch_first(true)), {x}, all_of_lstm);
  cases.with("lstm_deep",
             nn::LSTM(nn::LSTMOptions(6, 5).num_layers(2).bidirectional(true).batch_first(true).dropout(0.5)), {x},
             all_of_lstm);
  cases.with("lstm_without_bias", nn::LSTM(nn::LSTMOptions(6, 5).bias(false).batch_first(true)), {x}, all_of_lstm);
  cases.with("gru", nn::GRU(nn::GRUOptions(6, 5).num_layers(2).batch_first(true)), {x}, all_of);
  cases.with("gru_bidirectional", nn::GRU(nn::GRUOptions(6, 5).bidirectional(true).batch_first(true)), {x}, all_of);
  cases.with("rnn", nn::RNN(nn::RNNOptions(6, 5).batch_first(true)), {x}, all_of);
  cases.with("rnn_relu", nn::RNN(nn::RNNOptions(6, 5).nonlinearity(torch::kReLU).bidirectional(true).batch_first(true)),
             {x}, all_of);
  cases.with("multihead_attention", nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2)), {at::randn({4, 7, 8})},
             [](auto& layer, const Tensors& in) {
               const at::Tensor t = in.at(0).transpose(0, 1);
               return Tensors{std::get<0>(layer->forward(t, t, t)).transpose(0, 1)};
             });
  const auto attend = [](auto& layer, const Tensors& in) {
    const at::Tensor q = in.at(0).transpose(0, 1), k = in.at(1).transpose(0, 1), v = in.at(2).transpose(0, 1);
    const auto [y, weights] = layer->forward(q, k, v);
    return Tensors{y.transpose(0, 1), weights};
  };
  cases.with("attention_of_others", nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2)),
             {at::randn({4, 7, 8}), at::randn({4, 7, 8}), at::randn({4, 7, 8})}, attend);
  cases.with("attention_of_other_widths", nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2).kdim(6).vdim(6)),
             {at::randn({4, 7, 8}), at::randn({4, 7, 6}), at::randn({4, 7, 6})}, attend);
  cases.with("transformer", nn::Transformer(nn::TransformerOptions(8, 2, 1, 2).dim_feedforward(16)),
             {at::randn({4, 7, 8}), at::randn({4, 7, 8})}, [](auto& layer, const Tensors& in) {
               return Tensors{layer->forward(in.at(0).transpose(0, 1), in.at(1).transpose(0, 1)).transpose(0, 1)};
             });
  cases.with("transformer_encoder",
             nn::TransformerEncoder(nn::TransformerEncoderOptions(
                 nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16)), 2)),
             {at::randn({4, 7, 8})}, [](auto& layer, const Tensors& in) {
               return Tensors{layer->forward(in.at(0).transpose(0, 1)).transpose(0, 1)};
             });
}

void add_pretrained(OnnxCases& cases, const std::string& name, const std::shared_ptr<PretrainedModel>& model,
                    const Tensors& example) {
  cases.push_back({name, model,
                   [model](const Tensors& x) {
                     ModelInputs inputs;
                     (x.at(0).is_floating_point() ? inputs.pixel_values : inputs.input_ids) = x.at(0);
                     if (x.size() > 1) inputs.attention_mask = x[1];
                     const ModelOutput output = model->forward(inputs);
                     return Tensors{output.logits.defined() ? output.logits : output.last_hidden_state};
                   },
                   example});
}

}  // namespace

OnnxCases layer_cases() {
  LayerCases cases;
  add_sequences(cases);
  take_any_length(cases.all);
  add_dense(cases);
  add_images(cases);
  return std::move(cases.all);
}

OnnxCases pretrained_cases(const std::string& data) {
  OnnxCases cases;
  const at::Tensor ids = at::randint(3, 20, {4, 6}, at::kLong);
  at::Tensor mask = at::ones({4, 6}, at::kLong);
  mask.slice(0, 1, 3).slice(1, 4).zero_();
  const Tensors both{ids, mask};
  add_pretrained(cases, "bert", AutoModel::from_pretrained(data + "bert"), both);
  add_pretrained(cases, "bert_classifier", AutoModelForSequenceClassification::from_pretrained(data + "bert"), both);
  add_pretrained(cases, "bert_mlm", AutoModelForMaskedLM::from_pretrained(data + "bert_mlm"), {ids});
  add_pretrained(cases, "roberta", AutoModel::from_pretrained(data + "roberta"), both);
  add_pretrained(cases, "gpt2", AutoModelForCausalLM::from_pretrained(data + "gpt2"), {ids});
  add_pretrained(cases, "gpt2_masked", AutoModelForCausalLM::from_pretrained(data + "gpt2"), both);
  add_pretrained(cases, "llama", AutoModelForCausalLM::from_pretrained(data + "llama"), {ids});
  add_pretrained(cases, "llama_masked", AutoModelForCausalLM::from_pretrained(data + "llama"), both);
  add_pretrained(cases, "mistral", AutoModelForCausalLM::from_pretrained(data + "mistral"), both);
  add_pretrained(cases, "qwen3", AutoModelForCausalLM::from_pretrained(data + "qwen3"), both);
  take_any_length(cases);
  const auto vit = AutoModelForImageClassification::from_pretrained(data + "vit");
  const ConfigNode* size = vit->config().find("image_size");
  int64_t side = 0;
  if (size == nullptr || !detail::parse_int(*size, side)) throw Error("vit: no image_size");
  add_pretrained(cases, "vit", vit, {at::randn({4, 3, side, side})});
  return cases;
}

}  // namespace levin::test
