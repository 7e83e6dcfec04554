// The convolutional net of PyTorch's distributed MNIST example, with the command line of its script:
//
//   05_mnist_distributed --init-method tcp://10.0.0.1:23456 --rank 0 --world-size 2      # and --rank 1 elsewhere
//   05_mnist_distributed --devices 2                                                     # both ranks on this machine
//   05_mnist_distributed --help
#include <levin/levin.h>

#include <chrono>

struct Arguments {
  int64_t batch_size = 1024;
  int64_t test_batch_size = 1000;
  int64_t epochs = 20;
  double lr = 0.01;
  double momentum = 0.5;
  bool no_cuda = false;
  int64_t seed = 1;
  int64_t log_interval = 10;
  // The following options are not in the script.
  double dropout = 0.5;
  std::optional<int64_t> devices = std::nullopt;
  std::string accelerator = "auto";
  std::string data_root = "";
  std::optional<int64_t> limit_batches = std::nullopt;

  static auto fields() {
    using A = Arguments;
    return levin::fields(
        levin::field("batch_size", &A::batch_size, "images of a batch, on every rank").min(1),
        levin::field("test_batch_size", &A::test_batch_size, "images of a batch of the test, on every rank").min(1),
        levin::field("epochs", &A::epochs, "passes over the training images").min(1),
        levin::field("lr", &A::lr, "SGD's step size").above(0.0),
        levin::field("momentum", &A::momentum, "SGD's momentum").min(0.0).below(1.0),
        levin::field("no_cuda", &A::no_cuda, "train on CPUs, also where there is a GPU"),
        levin::field("seed", &A::seed, "of the weights, the order of the images and dropout").min(0),
        levin::field("log_interval", &A::log_interval, "batches between two lines about the loss").min(1),
        levin::field("dropout", &A::dropout, "share of channels and units dropped while training").min(0.0).below(1.0),
        levin::field("devices", &A::devices, "ranks to start on this machine, instead of --rank and --world-size"),
        levin::field("accelerator", &A::accelerator, "cpu, gpu or auto"),
        levin::field("data_root", &A::data_root, "folder of MNIST's archives; \"\": Fashion-MNIST as Debian packs it"),
        levin::field("limit_batches", &A::limit_batches, "batches of an epoch and of a test; null: all"));
  }
};

/// As in the script, --rank and --world-size without an address use its default address.
std::vector<std::string> with_meeting_point(std::vector<std::string> words) {
  const auto has = [&](const std::string& option) {
    return std::any_of(words.begin(), words.end(), [&](const auto& word) { return word.starts_with(option); });
  };
  if (has("--rank") && has("--world-size") && !has("--init-method")) {
    words.insert(words.end(), {"--init-method", "tcp://127.0.0.1:23456"});
  }
  return words;
}

/// "--batch-size 64", "--batch-size=64": {batch_size: 64}; "--no-cuda": {no_cuda: true}
Arguments read_arguments(const std::vector<std::string>& words) {
  levin::ConfigNode node = levin::ConfigNode::map();
  for (size_t k = 0; k < words.size(); ++k) {
    const size_t equals = words[k].find('=');
    std::string name = words[k].substr(0, equals);
    if (words[k] == "--no-cuda") {
      node.set("no_cuda", levin::ConfigNode::scalar("true"));
      continue;
    }
    const bool has_value = equals != std::string::npos || k + 1 < words.size();
    if (!name.starts_with("--") || !has_value) {
      throw levin::ConfigError("\"" + levin::cut_text(words[k]) + "\": expected --NAME VALUE. See --help.");
    }
    auto value = levin::ConfigNode::scalar(equals != std::string::npos ? words[k].substr(equals + 1) : words[++k]);
    value.mark.source = name;
    std::replace(name.begin(), name.end(), '-', '_');
    node.set(name.substr(2), value, value.mark);
  }
  Arguments arguments;
  levin::Problems problems;
  levin::read_options(node, arguments, "", problems);
  problems.throw_if_any();
  return arguments;
}

void print_help() {
  std::cout << "options, with their defaults:\n  --init-method tcp://127.0.0.1:23456 --rank R --world-size N\n";
  for (auto option : levin::describe_options<Arguments>()) {
    std::replace(option.name.begin(), option.name.end(), '_', '-');
    const std::string value = option.name == "no-cuda" ? "" : " " + option.default_text;
    std::cout << "  --" << option.name << value << "    " << option.doc << "\n";
  }
}

class Net : public levin::LightningModule {
 public:
  explicit Net(const Arguments& arguments) : arguments_(arguments) {
    namespace nn = torch::nn;
    net_ = nn::Sequential(nn::Conv2d(1, 10, 5), nn::MaxPool2d(2), nn::ReLU(),                                     //
                          nn::Conv2d(10, 20, 5), nn::Dropout2d(arguments.dropout), nn::MaxPool2d(2), nn::ReLU(),  //
                          nn::Flatten(), nn::Linear(320, 50), nn::ReLU(), nn::Dropout(arguments.dropout),         //
                          nn::Linear(50, 10), nn::LogSoftmax(1));
    register_module("net", net_);
  }

  torch::Tensor training_step(const levin::Batch& batch) override {
    return torch::nll_loss(net_->forward(batch[0]), batch[1]);
  }
  // One average over the test images of all ranks: every image counts once.
  void validation_step(const levin::Batch& batch) override {
    auto [x, y] = batch.unpack<2>();
    auto output = net_->forward(x);
    log("test_loss", torch::nll_loss(output, y), {.sync_dist = true});
    log("test_acc", (output.argmax(1) == y).to(torch::kFloat).mean(), {.sync_dist = true});
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::SGD(parameters(), {.lr = arguments_.lr, .momentum = arguments_.momentum});
  }

  void on_train_epoch_start() override { start_ = Clock::now(); }
  void on_train_batch_end(const torch::Tensor& loss, const levin::Batch&, int64_t batch_idx) override {
    if (batch_idx % arguments_.log_interval != 0) return;
    say("epoch %ld, batch %ld of %ld: loss %.4f", current_epoch() + 1, batch_idx, trainer().num_training_batches(),
        loss.item<double>());
  }
  void on_validation_start() override {  // the epoch's training is over
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    all_seconds_ += seconds;
    say("Epoch %ld of %ld took %.3f s", current_epoch() + 1, arguments_.epochs, seconds);
  }
  void on_validation_end() override {
    auto metrics = trainer().callback_metrics();
    say("Test set: average loss %.4f, accuracy %.2f %%", metrics["test_loss"], 100 * metrics["test_acc"]);
  }
  void on_train_end() override {
    const int64_t ranks = trainer().world_size();
    say("Trained on %ld rank%s for %.3f s", ranks, ranks == 1 ? "" : "s", all_seconds_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  template <class... Values>
  void say(const char* format, Values... values) const {
    std::array<char, 200> line = {};
    std::snprintf(line.data(), line.size(), format, values...);
    print(line.data());  // on rank 0
  }

  Arguments arguments_;
  torch::nn::Sequential net_{nullptr};
  Clock::time_point start_ = {};
  double all_seconds_ = 0;
};

/// All training images, and the test images after every epoch.
class Images : public levin::DataModule {
 public:
  explicit Images(const Arguments& arguments) : test_batch_size_(arguments.test_batch_size) {
    const levin::MnistOptions options{
        .root = arguments.data_root, .batch_size = arguments.batch_size, .val_size = 0, .download = false};
    if (arguments.data_root.empty()) images_ = std::make_unique<levin::FashionMnist>(options);
    if (!arguments.data_root.empty()) images_ = std::make_unique<levin::Mnist>(options);
  }
  void prepare_data() override { images_->prepare_data(); }
  void setup(levin::Stage) override {
    images_->setup(levin::Stage::fit);
    images_->setup(levin::Stage::test);
  }
  std::shared_ptr<levin::Loader> train_dataloader() override { return images_->train_dataloader(); }
  levin::Loaders val_dataloader() override {
    levin::Loaders loaders = images_->test_dataloader();
    for (const auto& loader : loaders) loader->set_batch_size(test_batch_size_);
    return loaders;
  }

 private:
  std::unique_ptr<levin::DataModule> images_ = nullptr;
  int64_t test_batch_size_;
};

void run(const Arguments& arguments) {
  levin::TrainerOptions options{.max_epochs = arguments.epochs,
                                .accelerator = arguments.no_cuda ? "cpu" : arguments.accelerator,
                                .num_sanity_val_steps = 0,
                                .logger = false,
                                .enable_checkpointing = false,
                                .enable_progress_bar = false,
                                .enable_model_summary = false};
  if (arguments.devices) options.devices = *arguments.devices;
  if (arguments.limit_batches) options.limit_train_batches = options.limit_val_batches = *arguments.limit_batches;
  levin::Trainer trainer(options);  // starts the other ranks if --devices asks for them
  levin::seed_everything(static_cast<uint64_t>(arguments.seed));
  Net model(arguments);
  Images images(arguments);
  trainer.fit(model, images);
}

int main(int argc, char** argv) {
  return levin::main_guard([&] {
    const auto words = levin::take_init_method(with_meeting_point({argv + 1, argv + argc}));
    if (std::find(words.begin(), words.end(), "--help") != words.end()) {
      print_help();
    } else {
      run(read_arguments(words));
    }
  });
}
