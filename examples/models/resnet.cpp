#include "resnet.h"

#include <numeric>

namespace nn = torch::nn;
namespace F = torch::nn::functional;

LEVIN_REGISTER_MODEL(ResNet, "classifies small images: a residual network");

namespace {

nn::Conv2d make_conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  nn::Conv2d conv(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
  nn::init::kaiming_normal_(conv->weight, 0.0, torch::kFanOut, torch::kReLU);
  return conv;
}

}  // namespace

ResNetBlockImpl::ResNetBlockImpl(int64_t in, int64_t out, int64_t stride, double drop) : drop_(drop) {
  nn::BatchNorm2d last(out);
  nn::init::zeros_(last->weight);  // a new block changes nothing (Goyal et al. 2017, section 5.1)
  body_ = register_module("body", nn::Sequential(make_conv(in, out, 3, stride), nn::BatchNorm2d(out), nn::ReLU(),
                                                 make_conv(out, out, 3, 1), last));
  if (stride == 1 && in == out) return;
  shortcut_ = register_module("shortcut", nn::Sequential(make_conv(in, out, 1, stride), nn::BatchNorm2d(out)));
}

torch::Tensor ResNetBlockImpl::forward(const torch::Tensor& x) {
  const auto branch = levin::stochastic_depth(body_->forward(x), drop_, levin::DropMode::row, is_training());
  return at::relu(branch + (shortcut_.is_empty() ? x : shortcut_->forward(x)));
}

ResNet::ResNet(ResNetOptions options) : options_(levin::checked(std::move(options), "ResNetOptions")) {
  net_ = nn::Sequential(make_conv(options_.in_channels, options_.width, 3, options_.first_stride),
                        nn::BatchNorm2d(options_.width), nn::ReLU());
  const auto blocks = std::accumulate(options_.blocks.begin(), options_.blocks.end(), int64_t{0});
  int64_t channels = options_.width, block = 0;
  for (size_t stage = 0; stage < options_.blocks.size(); ++stage) {
    const int64_t out = options_.width << stage;
    for (int64_t i = 0; i < options_.blocks[stage]; ++i) {
      const double drop = levin::depth_probability(block++, blocks, options_.stochastic_depth);
      net_->push_back(ResNetBlock(channels, out, stage > 0 && i == 0 ? 2 : 1, drop));
      channels = out;
    }
  }
  net_->push_back(nn::AdaptiveAvgPool2d(1));
  net_->push_back(nn::Flatten());
  net_->push_back(nn::Linear(channels, options_.num_classes));
  register_module("net", net_);
  save_hyperparameters(options_);
}

torch::Tensor ResNet::forward(const torch::Tensor& images) {
  return net_->forward(images);
}

torch::Tensor ResNet::training_step(const levin::Batch& batch) {
  auto [x, y] = batch.unpack<2>();
  const auto loss =
      F::cross_entropy(forward(x), y, F::CrossEntropyFuncOptions().label_smoothing(options_.label_smoothing));
  log("train_loss", loss, {.prog_bar = true});
  return loss;
}

void ResNet::evaluate(const levin::Batch& batch, const std::string& stage) {
  auto [x, y] = batch.unpack<2>();
  const auto logits = forward(x);
  log(stage + "_loss", F::cross_entropy(logits, y), {.prog_bar = true, .sync_dist = true});
  log(stage + "_acc", (logits.argmax(1) == y).to(torch::kFloat).mean(), {.prog_bar = true, .sync_dist = true});
}

void ResNet::validation_step(const levin::Batch& batch) {
  evaluate(batch, "val");
}
void ResNet::test_step(const levin::Batch& batch) {
  evaluate(batch, "test");
}
torch::Tensor ResNet::predict_step(const levin::Batch& batch) {
  return forward(batch[0]).argmax(1);
}

levin::OptimizerConfig ResNet::configure_optimizers() {
  return {
      levin::SGD(
          levin::param_groups(*this, {}, /*no_decay=*/true),
          {.lr = options_.lr, .momentum = options_.momentum, .weight_decay = options_.weight_decay, .nesterov = true}),
      levin::OneCycleLR(
          {.max_lr = options_.lr, .total_steps = trainer().estimated_stepping_batches(), .cycle_momentum = false}),
      {.interval = "step"}};
}
