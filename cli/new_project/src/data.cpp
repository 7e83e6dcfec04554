// The data: points of a noisy wave. Read files of your own in setup().
#include <levin/levin.h>

namespace {

struct WavesOptions {
  int64_t batch_size = 50;

  static auto fields() {
    return levin::fields(levin::field("batch_size", &WavesOptions::batch_size, "points in a batch").min(1));
  }
};

class Waves : public levin::DataModule {
 public:
  using Options = WavesOptions;

  explicit Waves(WavesOptions options = {}) : options_(levin::checked(options, "WavesOptions")) {
    save_hyperparameters(options_);
  }

  void setup(levin::Stage) override {
    train_ = std::make_shared<levin::TensorDataset>(points(2000, 1));
    val_ = std::make_shared<levin::TensorDataset>(points(500, 2));
  }

  std::shared_ptr<levin::Loader> train_dataloader() override {
    return levin::DataLoader(train_, {.batch_size = options_.batch_size, .shuffle = true});
  }
  levin::Loaders val_dataloader() override { return levin::DataLoader(val_, {.batch_size = options_.batch_size}); }
  levin::Loaders predict_dataloader() override { return val_dataloader(); }

 private:
  static levin::TensorDataset points(int64_t count, uint64_t seed) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    auto x = torch::rand({count, 1}, generator) * 6 - 3;
    auto y = torch::sin(3 * x) + 0.1 * torch::randn({count, 1}, generator);
    return {x, y};
  }

  WavesOptions options_;
  std::shared_ptr<levin::Dataset> train_, val_;
};

LEVIN_REGISTER_DATA(Waves, "a noisy wave");

}  // namespace
