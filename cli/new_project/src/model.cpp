// The model: its options, its layers, what a step computes, and its optimizer.
#include <levin/levin.h>

namespace {

struct NetOptions {
  int64_t width = 64;
  double lr = 5e-3;

  static auto fields() {
    return levin::fields(levin::field("width", &NetOptions::width, "units of a hidden layer").min(1),
                         levin::field("lr", &NetOptions::lr, "AdamW's step size").above(0.0));
  }
};

class Net : public levin::LightningModule {
 public:
  using Options = NetOptions;

  explicit Net(NetOptions options = {}) : options_(levin::checked(options, "NetOptions")) {
    save_hyperparameters(options_);
    const int64_t width = options_.width;
    net_ = register_module(
        "net", torch::nn::Sequential(torch::nn::Linear(1, width), torch::nn::Tanh(), torch::nn::Linear(width, width),
                                     torch::nn::Tanh(), torch::nn::Linear(width, 1)));
  }

  torch::Tensor forward(const torch::Tensor& x) override { return net_->forward(x); }

  torch::Tensor training_step(const levin::Batch& batch) override {
    auto [x, y] = batch.unpack<2>();
    auto loss = torch::mse_loss(forward(x), y);
    log("train_loss", loss, {.prog_bar = true});
    return loss;
  }

  void validation_step(const levin::Batch& batch) override {
    auto [x, y] = batch.unpack<2>();
    log("val_loss", torch::mse_loss(forward(x), y), {.prog_bar = true, .sync_dist = true});
  }

  levin::OptimizerConfig configure_optimizers() override { return levin::AdamW(parameters(), {.lr = options_.lr}); }

 private:
  NetOptions options_;
  torch::nn::Sequential net_ = nullptr;
};

LEVIN_REGISTER_MODEL(Net, "a small net that learns a curve");

}  // namespace
