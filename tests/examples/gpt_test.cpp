#include "models/gpt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::gpt_test {
namespace {

using test::error_of;

GPTOptions small() {
  GPTOptions options;
  options.vocab_size = 11;
  options.block_size = 6;
  options.n_layer = options.n_head = 2;
  options.n_embd = 8;
  return options;
}

int64_t count(GPT& model) {
  int64_t all = 0;
  for (const auto& parameter : model.parameters()) all += parameter.numel();
  return all;
}

// Tokens and positions, 12 C^2 + 13 C of a block, the last norm: 124,439,808 for GPT-2 small.
int64_t closed_form(int64_t vocab, int64_t block, int64_t layers, int64_t width) {
  return (vocab + block) * width + layers * (12 * width * width + 13 * width) + 2 * width;
}

// reference/gpt.py fills a GPT written from torch's functions alone with the same numbers.
void fill_as_reference(GPT& model) {
  const torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> sorted;
  for (const auto& item : model.named_parameters()) sorted[item.key()] = item.value();
  double place = 0;
  for (auto& [name, parameter] : sorted) {
    const bool is_scale = name.find("ln_") != std::string::npos && name.ends_with("weight");
    const auto values = torch::sin(torch::arange(parameter.numel(), torch::kDouble) * 0.7 + place) * 0.3;
    parameter.copy_((values + (is_scale ? 1.0 : 0.0)).view(parameter.sizes()));
    ++place;
  }
}

nlohmann::json reference() {
  std::ifstream file(test::source_dir() + "/tests/examples/reference/gpt.json");
  return nlohmann::json::parse(file);
}

TEST(GPT, HasAsManyParametersAsGpt2) {
  EXPECT_EQ(closed_form(50257, 1024, 12, 768), 124439808);
  GPT model(small());
  EXPECT_EQ(count(model), closed_form(11, 6, 2, 8));
  GPTOptions wide = small();
  wide.n_embd = 32;
  wide.n_layer = 3;
  GPT wider(wide);
  EXPECT_EQ(count(wider), closed_form(11, 6, 3, 32));
}

// Trains on the same text with the same model and seed; returns the weights after a few steps.
std::vector<torch::Tensor> train_with(RecomputeChoice recompute, double dropout) {
  const test::CapturedConsole quiet;
  const test::TemporaryFolder folder;
  std::ofstream(folder / "text") << std::string(600, 'a') + "recompute what is cheap, keep what is dear. ";
  GPTOptions options = small();
  options.vocab_size = 256;
  options.n_layer = 5;
  options.dropout = dropout;
  seed_everything(3);
  GPT model(options);
  TextFile data({.path = folder / "text", .block_size = 6, .batch_size = 4, .val_fraction = 0});
  TrainerOptions run;
  run.max_steps = 4;
  run.recompute = std::move(recompute);
  run.logger = false;
  run.enable_checkpointing = run.enable_progress_bar = run.enable_model_summary = false;
  Trainer(run).fit(model, data);
  return model.parameters();
}

TEST(GPT, TrainsBitwiseIdenticallyWithRecomputedBlocks) {
  for (const double dropout : {0.0, 0.3}) {
    const auto plain = train_with({}, dropout);
    for (const RecomputeOptions& form :
         {RecomputeOptions{.modules = {"h.*"}}, RecomputeOptions{.modules = {"h"}, .segments = 2},
          RecomputeOptions{.checkpoints = {"h.1", "h.3"}},
          RecomputeOptions{.modules = {"h.1..h.3", "h.2"}, .offload = true},
          RecomputeOptions{.modules = {"h.*"}, .keep = Keep::matmul}}) {
      const auto again = train_with(form, dropout);
      ASSERT_EQ(again.size(), plain.size());
      for (size_t k = 0; k < plain.size(); ++k) EXPECT_TRUE(again[k].equal(plain[k])) << k;
    }
  }
}

TEST(GPT, ComputesWhatPyTorchDoes) {
  const auto expected = reference();
  torch::Tensor tokens = torch::empty({2, 6}, torch::kLong);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t t = 0; t < 6; ++t) {
      tokens[b][t] = expected["tokens"][static_cast<size_t>(b)][static_cast<size_t>(t)].get<int64_t>();
    }
  }
  for (const auto& one : expected["cases"]) {
    GPTOptions options = small();
    options.bias = one["bias"];
    options.tie_embeddings = one["tied"];
    GPT model(options);
    fill_as_reference(model);
    EXPECT_EQ(count(model), one["parameters"].get<int64_t>());
    const auto x = tokens.narrow(1, 0, 5), y = tokens.narrow(1, 1, 5);
    const auto logits = model.forward(x);
    EXPECT_TRUE(torch::allclose(logits.flatten(), torch::tensor(one["logits"].get<std::vector<float>>()), 1e-4, 1e-5));
    const auto loss = torch::nn::functional::cross_entropy(logits.flatten(0, 1), y.flatten());
    EXPECT_NEAR(loss.item<double>(), one["losses"][0].get<double>(), 1e-5);
    loss.backward();
    const auto norms = one["gradient_norms"].get<std::map<std::string, double>>();
    EXPECT_EQ(model.named_parameters().size(), norms.size());
    for (const auto& item : model.named_parameters()) {
      ASSERT_TRUE(norms.count(item.key()) == 1) << item.key();
      const double norm = norms.at(item.key());
      EXPECT_NEAR(item.value().grad().norm().item<double>(), norm, 1e-4 * norm + 1e-6) << item.key();
    }
  }
}

// Three steps of the Trainer with the module's own optimizer: its two groups and the losses are PyTorch's.
TEST(GPT, TrainsAsPyTorchDoes) {
  const auto expected = reference();
  const auto one = expected["cases"][0];
  const auto rows = expected["tokens"].get<std::vector<std::vector<int64_t>>>();
  std::vector<int64_t> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  const auto tokens = torch::tensor(flat).view({2, 6}).repeat({3, 1});
  const test::TemporaryFolder folder;
  const test::CapturedConsole quiet;
  torch::set_num_threads(1);  // a model this small only waits for more
  GPTOptions options = small();
  options.lr = 1e-2;
  options.warmup_steps = 0;
  options.min_lr = 1.0;
  GPT model(options);
  fill_as_reference(model);
  struct Losses : Callback {
    void on_train_batch_end(Trainer&, LightningModule&, const at::Tensor& loss, const Batch&, int64_t) override {
      all.push_back(loss.item<double>());
    }
    std::vector<double> all;
  };
  const auto losses = std::make_shared<Losses>();
  Trainer trainer(TrainerOptions{.max_epochs = 1,
                                 .logger = false,
                                 .callbacks = {losses},
                                 .enable_checkpointing = false,
                                 .default_root_dir = folder.path()});
  trainer.fit(model, std::make_shared<DataLoader>(std::make_shared<TensorDataset>(std::vector<torch::Tensor>{
                                                      tokens.narrow(1, 0, 5), tokens.narrow(1, 1, 5)}),
                                                  DataLoaderOptions{.batch_size = 2}));
  ASSERT_EQ(losses->all.size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(losses->all[i], one["losses"][i].get<double>(), 2e-5) << i;
  const auto& groups = trainer.optimizers()[0].optimizer().param_groups();
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].weight_decay, 0.1);
  EXPECT_EQ(groups[1].weight_decay, 0.0);
  for (const auto& parameter : groups[0].params) EXPECT_GE(parameter.dim(), 2);
  for (const auto& parameter : groups[1].params) EXPECT_EQ(parameter.dim(), 1);
}

TEST(GPT, LooksBackOnly) {
  torch::manual_seed(1);
  GPT model(small());
  model.eval();
  const torch::NoGradGuard no_grad;
  const auto tokens = torch::randint(0, 11, {1, 6}, torch::kLong);
  const auto before = model.forward(tokens);
  for (int64_t t = 0; t < 6; ++t) {
    auto changed = tokens.clone();
    changed[0][t] = (changed[0][t] + 1) % 11;
    const auto after = model.forward(changed);
    EXPECT_TRUE(torch::allclose(after.narrow(1, 0, t), before.narrow(1, 0, t), 1e-6, 1e-7)) << t;
    EXPECT_FALSE(torch::allclose(after.narrow(1, t, 6 - t), before.narrow(1, t, 6 - t), 1e-3, 1e-4)) << t;
  }
}

TEST(GPT, StartsOutKnowingNothing) {
  torch::manual_seed(2);
  GPTOptions options = small();
  options.vocab_size = 256;
  options.n_embd = 64;
  GPT model(options);
  const auto logits = model.forward(torch::randint(0, 256, {32, 6}, torch::kLong));
  const auto loss =
      torch::nn::functional::cross_entropy(logits.flatten(0, 1), torch::randint(0, 256, {192}, torch::kLong));
  EXPECT_NEAR(loss.item<double>(), std::log(256.0), 0.05);
}

TEST(GPT, WarmsUpAndFollowsACosineOverTheWholeRun) {
  const test::CapturedConsole quiet;
  torch::set_num_threads(1);  // a model this small only waits for more
  GPTOptions options = small();
  options.lr = 1.0;
  options.warmup_steps = 4;
  options.min_lr = 0.2;
  GPT model(options);
  struct Rates : Callback {
    void on_train_batch_start(Trainer& trainer, LightningModule&, const Batch&, int64_t) override {
      all.push_back(trainer.optimizers()[0].optimizer().param_groups()[0].lr);
    }
    std::vector<double> all;
  };
  const auto rates = std::make_shared<Rates>();
  const auto tokens = torch::zeros({12, 5}, torch::kLong);
  Trainer trainer(
      TrainerOptions{.max_epochs = 2, .logger = false, .callbacks = {rates}, .enable_checkpointing = false});
  trainer.fit(model,
              std::make_shared<DataLoader>(std::make_shared<TensorDataset>(std::vector<torch::Tensor>{tokens, tokens}),
                                           DataLoaderOptions{.batch_size = 2}));
  ASSERT_EQ(rates->all.size(), 12U);
  for (int64_t step = 0; step < 12; ++step) {
    const double x = static_cast<double>(step);
    const double expected = step < 4 ? (x + 1) / 5 : 0.2 + 0.4 * (1 + std::cos(M_PI * (x - 4) / 8));
    EXPECT_NEAR(rates->all[static_cast<size_t>(step)], expected, 1e-12) << step;
  }
}

// What a whole run does: learns a tiny text by heart and, asked for its beginning, says the rest.
TEST(GPT, LearnsATextByHeartAndContinuesIt) {
  const test::TemporaryFolder folder;
  const test::CapturedConsole quiet;
  const std::string text = "In the beginning God created the heaven and the earth.\n";
  std::string repeated;
  for (int i = 0; i < 40; ++i) repeated += text;
  const std::string path = folder.path() + "/text.txt";
  std::ofstream(path) << repeated;
  torch::set_num_threads(1);  // a model this small only waits for more
  seed_everything(3);
  GPTOptions options;
  options.block_size = 32;
  options.n_layer = options.n_head = 2;
  options.n_embd = 32;
  options.lr = 1e-2;
  options.warmup_steps = 5;
  options.max_new_tokens = 22;
  options.temperature = 0;
  GPT model(options);  // vocab_size is the data's
  TextFile data({.path = path, .block_size = 32, .batch_size = 8, .val_fraction = 0.1, .prompt = "In the beg"});
  Trainer trainer(TrainerOptions{
      .max_epochs = 30, .logger = false, .enable_checkpointing = false, .default_root_dir = folder.path()});
  trainer.fit(model, data);
  const auto metrics = trainer.callback_metrics();
  EXPECT_LT(metrics.at("val_loss"), 0.5);  // the first bytes of a block stay a guess
  EXPECT_NEAR(metrics.at("val_bits_per_byte"), metrics.at("val_loss") / std::log(2.0), 1e-5);
  const auto predictions = trainer.predict(model, data);
  EXPECT_EQ(data.prediction_text(predictions[0][0])[0], text.substr(0, 32));
}

TEST(GPT, SamplesAsSeedTemperatureAndTopKSay) {
  const test::CapturedConsole quiet;
  const auto sample = [](uint64_t seed, double temperature, int64_t top_k) {
    GPTOptions options = small();
    options.temperature = temperature;
    options.top_k = top_k;
    options.max_new_tokens = 20;
    torch::manual_seed(4);
    GPT model(options);
    seed_everything(seed);
    Trainer trainer(TrainerOptions{.logger = false, .enable_checkpointing = false});
    const auto prompts = torch::tensor({1, 2, 3}, torch::kLong).expand({2, 3});
    return trainer.predict(model, Loaders(std::make_shared<DataLoader>(
                                      std::make_shared<TensorDataset>(std::vector<torch::Tensor>{prompts}),
                                      DataLoaderOptions{.batch_size = 2})))[0][0];
  };
  const auto one = sample(1, 1.0, 0);
  EXPECT_EQ(one.sizes(), (std::vector<int64_t>{2, 23}));
  EXPECT_TRUE(torch::equal(one.narrow(1, 0, 3), torch::tensor({1, 2, 3}, torch::kLong).expand({2, 3})));
  EXPECT_TRUE(torch::equal(one, sample(1, 1.0, 0)));
  EXPECT_FALSE(torch::equal(one, sample(2, 1.0, 0)));
  EXPECT_FALSE(torch::equal(one[0], one[1]));
  const auto likeliest = sample(1, 0, 0);
  EXPECT_TRUE(torch::equal(likeliest, sample(2, 0, 0)));
  EXPECT_TRUE(torch::equal(likeliest, sample(1, 1.0, 1)));
}

TEST(GPT, NamesOptionsThatDoNotFit) {
  const test::CapturedConsole quiet;
  GPTOptions odd = small();
  odd.n_embd = 9;
  EXPECT_NE(error_of([&] { GPT model(odd); }).find("n_embd: must be a multiple of n_head (2), got 9"),
            std::string::npos);
  const auto predict = [&](GPTOptions options, TextFileOptions text) {
    return error_of([&] {
      GPT model(options);
      TextFile data(text);
      Trainer(TrainerOptions{.logger = false, .enable_checkpointing = false}).predict(model, data);
    });
  };
  EXPECT_NE(predict(small(), {}).find("GPTOptions.vocab_size: 11 is too small for the 256 tokens of byte"),
            std::string::npos);
  GPTOptions options = small();
  options.vocab_size = 0;
  EXPECT_NE(predict(options, {}).find("GPTOptions.block_size: 6 is too small for the data's blocks of 128"),
            std::string::npos);
  GPT model(small());
  EXPECT_NE(error_of([&] {
              (void)model.forward(torch::zeros({1, 7}, torch::kLong));
            }).find("got 7 tokens, and block_size is 6"),
            std::string::npos);
}

}  // namespace
}  // namespace levin::gpt_test
