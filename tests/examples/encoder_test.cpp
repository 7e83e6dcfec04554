#include "models/encoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "levin/core/module_call.h"
#include "models/masked_lm.h"
#include "models/text_classifier.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::encoder_test {
namespace {

using test::error_of;

// The sizes of reference/encoder_weights.py.
TextClassifierOptions small(bool roberta) {
  TextClassifierOptions options;
  options.architecture = roberta ? Architecture::xlmr_base : Architecture::bert_large;
  options.num_hidden_layers = 2;
  options.hidden_size = 16;
  options.num_attention_heads = 4;
  options.intermediate_size = 24;
  options.vocab_size = 13;
  options.max_position_embeddings = roberta ? 10 : 8;
  options.num_classes = 3;
  options.dropout = 0;
  return options;
}

int64_t count(const torch::nn::Module& module) {
  int64_t all = 0;
  for (const auto& parameter : module.parameters()) all += parameter.numel();
  return all;
}

void fill_as_reference(TextClassifier& model) {
  const torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> sorted;
  for (const auto& item : model.named_parameters()) sorted[item.key()] = item.value();
  double place = 0;
  for (auto& [name, parameter] : sorted) {
    const bool is_scale = name.find("LayerNorm") != std::string::npos && name.ends_with("weight");
    const auto values = torch::sin(torch::arange(parameter.numel(), torch::kDouble) * 0.7 + place) * 0.3;
    parameter.copy_((values + (is_scale ? 1.0 : 0.0)).view(parameter.sizes()));
    ++place;
  }
}

// What reference/encoder.py recorded of the kind.
struct Recorded {
  nlohmann::json numbers;
  torch::Tensor ids, labels;  // (3, 7) and (3) int64

  explicit Recorded(bool roberta) {
    std::ifstream file(test::source_dir() + "/tests/examples/reference/encoder.json");
    numbers = nlohmann::json::parse(file)["cases"][roberta ? 0 : 1];
    std::vector<int64_t> flat;
    for (const auto& row : numbers["ids"]) {
      for (const auto& id : row) flat.push_back(id.get<int64_t>());
    }
    ids = torch::tensor(flat).view({3, 7});
    labels = torch::tensor(numbers["labels"].get<std::vector<int64_t>>());
  }
};

TEST(TextClassifier, ComputesWhatPyTorchDoes) {
  for (const bool roberta : {true, false}) {
    const Recorded recorded(roberta);
    TextClassifier model(small(roberta));
    fill_as_reference(model);
    EXPECT_EQ(count(model), recorded.numbers["parameters"].get<int64_t>());
    const auto logits = model.forward(recorded.ids);
    const auto expected = torch::tensor(recorded.numbers["logits"].get<std::vector<float>>()).view({3, 3});
    EXPECT_TRUE(torch::allclose(logits, expected, 1e-4, 1e-5)) << logits << expected;
    const auto loss = torch::nn::functional::cross_entropy(logits, recorded.labels);
    EXPECT_NEAR(loss.item<double>(), recorded.numbers["losses"][0].get<double>(), 1e-5);
    loss.backward();
    const auto norms = recorded.numbers["gradient_norms"].get<std::map<std::string, double>>();
    EXPECT_EQ(model.named_parameters().size(), norms.size());
    for (const auto& item : model.named_parameters()) {
      ASSERT_TRUE(norms.count(item.key()) == 1) << item.key();
      const double norm = norms.at(item.key());
      EXPECT_NEAR(item.value().grad().norm().item<double>(), norm, 1e-4 * norm + 1e-6) << item.key();
    }
  }
}

// Three steps of the Trainer: the optimizer's two groups, the schedule and the losses are PyTorch's.
TEST(TextClassifier, TrainsAsPyTorchDoes) {
  torch::set_num_threads(1);  // a model this small only waits for more
  for (const bool roberta : {true, false}) {
    const Recorded recorded(roberta);
    const test::TemporaryFolder folder;
    const test::CapturedConsole quiet;
    TextClassifierOptions options = small(roberta);
    options.lr = 1e-2;
    TextClassifier model(options);
    fill_as_reference(model);
    struct Losses : Callback {
      void on_train_batch_end(Trainer&, LightningModule&, const at::Tensor& loss, const Batch&, int64_t) override {
        all.push_back(loss.item<double>());
      }
      std::vector<double> all;
    };
    const auto losses = std::make_shared<Losses>();
    Trainer trainer(TrainerOptions{.max_epochs = 3,
                                   .logger = false,
                                   .callbacks = {losses},
                                   .enable_checkpointing = false,
                                   .default_root_dir = folder.path()});
    trainer.fit(model, std::make_shared<DataLoader>(
                           std::make_shared<TensorDataset>(std::vector<torch::Tensor>{recorded.ids, recorded.labels}),
                           DataLoaderOptions{.batch_size = 3}));
    ASSERT_EQ(losses->all.size(), 3U);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(losses->all[i], recorded.numbers["losses"][i].get<double>(), 2e-5) << i;
  }
}

TEST(TextClassifier, LooksAtNoPadding) {
  for (const bool roberta : {true, false}) {
    const Recorded recorded(roberta);
    TextClassifier model(small(roberta));
    fill_as_reference(model);
    model.eval();
    const torch::NoGradGuard no_grad;
    const auto padded = model.forward(recorded.ids.narrow(0, 1, 1));  // 4 tokens, 3 of padding
    const auto alone = model.forward(recorded.ids.narrow(0, 1, 1).narrow(1, 0, 4));
    EXPECT_TRUE(torch::allclose(padded, alone, 1e-5, 1e-6)) << padded << alone;
    auto other = recorded.ids.narrow(0, 1, 1).clone();
    other[0][3] = 3;
    EXPECT_FALSE(torch::allclose(model.forward(other), padded, 1e-3, 1e-4));
  }
}

// Parameters of the encoder.
int64_t closed_form(const EncoderShape& shape) {
  const int64_t width = shape.hidden_size, wide = shape.intermediate_size;
  const int64_t tables = (shape.vocab_size + shape.max_position_embeddings + shape.type_vocab_size) * width + 2 * width;
  const int64_t layer = 4 * (width * width + width) + 2 * width * wide + wide + width + 4 * width;
  return tables + shape.num_hidden_layers * layer;
}

// Hugging Face counts 278043648, 559890432, 109482240 and 335141888 parameters, with poolers.
TEST(EncoderShape, HasThePublishedSizes) {
  const auto pooler = [](int64_t width) { return width * width + width; };
  EXPECT_EQ(closed_form(EncoderShape::of(Architecture::xlmr_base)) + pooler(768), 278043648);
  EXPECT_EQ(closed_form(EncoderShape::of(Architecture::xlmr_large)) + pooler(1024), 559890432);
  EXPECT_EQ(closed_form(EncoderShape::of(Architecture::bert_base)) + pooler(768), 109482240);
  EXPECT_EQ(closed_form(EncoderShape::of(Architecture::bert_large)) + pooler(1024), 335141888);
  EXPECT_EQ(EncoderShape::of(Architecture::xlmr_large).max_tokens(), 512);
  EXPECT_EQ(EncoderShape::of(Architecture::bert_large).max_tokens(), 512);
  for (const bool pools : {true, false}) {
    EncoderShape shape = EncoderShape::of(Architecture::bert_base);
    shape.num_hidden_layers = 3;
    shape.hidden_size = 24;
    shape.intermediate_size = 40;
    shape.vocab_size = 31;
    EXPECT_EQ(count(*Encoder(shape, pools)), closed_form(shape) + (pools ? pooler(24) : 0));
  }
}

TEST(TextClassifier, StartsAsBertDoes) {
  torch::manual_seed(5);
  TextClassifierOptions options = small(true);
  options.vocab_size = 500;
  options.hidden_size = 64;
  TextClassifier model(options);
  for (const auto& item : model.named_parameters()) {
    const auto& value = item.value();
    if (item.key().ends_with("bias")) {
      EXPECT_EQ(value.abs().max().item<double>(), 0) << item.key();
    } else if (item.key().find("LayerNorm") != std::string::npos) {
      EXPECT_TRUE(torch::equal(value, torch::ones_like(value))) << item.key();
    } else if (value.numel() > 1000) {
      EXPECT_NEAR(value.std().item<double>(), 0.02, 0.002) << item.key();
    }
  }
  const auto tables = model.named_parameters();
  EXPECT_EQ(tables["roberta.embeddings.word_embeddings.weight"][1].abs().max().item<double>(), 0);  // padding
  EXPECT_EQ(tables["roberta.embeddings.position_embeddings.weight"][1].abs().max().item<double>(), 0);
}

// What recomputation and placement act through, by the names of the layers.
TEST(TextClassifier, CallsItsLayersSoThatActionsReachThem) {
  struct Counter : CallAction {
    TensorList around(const ModuleForward& forward, const TensorList& inputs, ChainPosition) override {
      ++calls;
      return forward(inputs, nullptr);
    }
    int64_t calls = 0;
  };
  const Recorded recorded(true);
  TextClassifier model(small(true));
  const auto layer = model.named_modules("", /*include_self=*/false)["roberta.encoder.layer.1"];
  const auto counter = std::make_shared<Counter>();
  CallActions::add(layer.get(), counter);
  (void)model.forward(recorded.ids);
  CallActions::remove(layer.get(), counter.get());
  (void)model.forward(recorded.ids);
  EXPECT_EQ(counter->calls, 1);
}

// The Trainer refuses a fit that calls none of the segments it was given.
TEST(TextClassifier, TrainsBitwiseIdenticallyWithRecomputedLayers) {
  torch::set_num_threads(1);
  const test::CapturedConsole quiet;
  const auto train = [](bool roberta, const RecomputeChoice& recompute) {
    const Recorded recorded(roberta);
    TextClassifierOptions options = small(roberta);
    options.dropout = 0.1;
    options.lr = 1e-2;
    seed_everything(7);
    TextClassifier model(options);
    TrainerOptions trainer{.max_epochs = 3, .logger = false, .enable_checkpointing = false};
    trainer.recompute = recompute;
    Trainer(trainer).fit(model, std::make_shared<DataLoader>(std::make_shared<TensorDataset>(std::vector<torch::Tensor>{
                                                                 recorded.ids, recorded.labels}),
                                                             DataLoaderOptions{.batch_size = 3}));
    std::vector<torch::Tensor> weights;
    for (const auto& parameter : model.parameters()) weights.push_back(parameter.detach().flatten());
    return torch::cat(weights);
  };
  for (const bool roberta : {true, false}) {
    const std::string layers = std::string(roberta ? "roberta" : "bert") + ".encoder.layer.";
    const auto plain = train(roberta, {});
    EXPECT_TRUE(torch::equal(plain, train(roberta, RecomputeOptions{.modules = {layers + "*"}})));
    EXPECT_TRUE(torch::equal(plain, train(roberta, RecomputeOptions{.modules = {layers + "0.." + layers + "1"}})));
    EXPECT_TRUE(torch::equal(plain, train(roberta, RecomputeOptions{.checkpoints = {layers + "0"}})));
  }
}

TEST(TextClassifier, DropsWhileTrainingOnly) {
  const Recorded recorded(true);
  TextClassifierOptions options = small(true);
  options.dropout = 0.5;
  TextClassifier model(options);
  EXPECT_FALSE(torch::equal(model.forward(recorded.ids), model.forward(recorded.ids)));
  model.eval();
  EXPECT_TRUE(torch::equal(model.forward(recorded.ids), model.forward(recorded.ids)));
}

TEST(TextClassifier, WarmsUpAndFallsToZeroAtTheEnd) {
  torch::set_num_threads(1);
  const test::CapturedConsole quiet;
  TextClassifierOptions options = small(true);
  options.lr = 1.0;
  options.warmup_steps = 2;
  TextClassifier model(options);
  struct Rates : Callback {
    void on_train_batch_start(Trainer& trainer, LightningModule&, const Batch&, int64_t) override {
      all.push_back(trainer.optimizers()[0].optimizer().param_groups()[0].lr);
    }
    std::vector<double> all;
  };
  const auto rates = std::make_shared<Rates>();
  const auto ids = torch::full({6, 5}, 4, torch::kLong), labels = torch::zeros({6}, torch::kLong);
  Trainer trainer(
      TrainerOptions{.max_epochs = 2, .logger = false, .callbacks = {rates}, .enable_checkpointing = false});
  trainer.fit(model,
              std::make_shared<DataLoader>(std::make_shared<TensorDataset>(std::vector<torch::Tensor>{ids, labels}),
                                           DataLoaderOptions{.batch_size = 2}));
  const std::vector<double> expected = {0, 0.5, 1, 0.75, 0.5, 0.25};  // up in 2 steps, down in 4
  ASSERT_EQ(rates->all.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(rates->all[i], expected[i], 1e-12) << i;
}

// A whole run: the class says whether the text contains a question mark.
TEST(TextClassifier, LearnsToClassifyText) {
  torch::set_num_threads(1);
  const test::TemporaryFolder folder;
  const test::CapturedConsole quiet;
  seed_everything(11);
  std::string csv = "label,text\n", test = csv;
  for (int i = 0; i < 240; ++i) {
    std::string text;
    for (int k = 0; k < 6; ++k) text += static_cast<char>('a' + (i * 7 + k * k * 3 + i / 5) % 26);
    const bool asks = i % 2 == 0;
    if (asks) text[static_cast<size_t>(i / 2 % 6)] = '?';
    (i < 200 ? csv : test) += (asks ? "question," : "none,") + text + "\n";
  }
  std::ofstream(folder.path() + "/train.csv") << csv;
  std::ofstream(folder.path() + "/test.csv") << test;
  TextClassifierOptions options = small(true);
  options.num_classes = 0;  // the data's
  options.vocab_size = 260;
  options.hidden_size = 32;
  options.lr = 3e-3;
  TextClassifier model(options);
  TextCsv data({.path = folder.path() + "/train.csv",
                .test_path = folder.path() + "/test.csv",
                .max_length = 8,
                .batch_size = 20});
  Trainer trainer(TrainerOptions{
      .max_epochs = 12, .logger = false, .enable_checkpointing = false, .default_root_dir = folder.path()});
  trainer.fit(model, data);
  trainer.test(model, data);
  EXPECT_GT(trainer.callback_metrics().at("test_acc"), 0.9);
  const auto predictions = trainer.predict(model, data);
  EXPECT_EQ(predictions[0][0].sizes(), (std::vector<int64_t>{20}));
  const std::string first = data.prediction_text(predictions[0][0])[0];
  EXPECT_TRUE(first == "question" || first == "none") << first;
}

TEST(TextClassifier, NamesOptionsThatDoNotFit) {
  const test::CapturedConsole quiet;
  const auto expect_parts = [](const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  };
  TextClassifierOptions odd = small(true);
  odd.hidden_size = 18;
  odd.max_position_embeddings = 2;
  odd.pad_token_id = 13;
  expect_parts(
      error_of([&] { TextClassifier model(odd); }),
      {"hidden_size: must be a multiple of num_attention_heads (4), got 18",
       "pad_token_id: must be below vocab_size (13), got 13", "max_position_embeddings: must be above", "got 2"});
  const auto fit = [&](const TextClassifierOptions& options) {
    return error_of([&] {
      const test::TemporaryFolder folder;
      std::ofstream(folder.path() + "/a.csv") << "text,label\na,b\n";
      TextClassifier model(options);
      TextCsv data({.path = folder.path() + "/a.csv", .val_fraction = 0});
      Trainer(TrainerOptions{.logger = false, .enable_checkpointing = false}).fit(model, data);
    });
  };
  expect_parts(fit(small(false)), {"vocab_size: 13 is too small for the 260 tokens of byte",
                                   "max_position_embeddings: 8 is too small for the data's max_length of 128",
                                   "pad_token_id: 0, but TextCsv pads with 1"});
  TextClassifierOptions open = small(true);
  open.num_classes = 0;
  const auto ids = torch::full({2, 5}, 4, torch::kLong);
  expect_parts(error_of([&] {
                 TextClassifier model(open);
                 Trainer(TrainerOptions{.logger = false, .enable_checkpointing = false})
                     .predict(model, Loaders(std::make_shared<DataLoader>(
                                         std::make_shared<TensorDataset>(std::vector<torch::Tensor>{ids}))));
               }),
               {"num_classes: 0 takes the number from TextCsv"});
  TextClassifier model(small(true));
  expect_parts(error_of([&] {
                 (void)model.forward(torch::full({1, 9}, 4, torch::kLong));
               }),
               {"samples of 9 tokens", "10 positions", "enough for 8", "max_length"});
}

// In most batches of one short text no token is hidden. With weights of 0 every one of 13 tokens is equally probable.
TEST(MaskedLM, HasALossThatDoesNotDependOnTheBatchSize) {
  torch::manual_seed(3);
  const auto ids =
      std::make_shared<TensorDataset>(std::vector<torch::Tensor>{torch::randint(12, {48, 6}, torch::kLong)});
  const auto texts = [&](int64_t batch_size) {
    return std::make_shared<DataLoader>(ids, DataLoaderOptions{.batch_size = batch_size});
  };
  TrainerOptions options{.max_steps = 30, .logger = false, .enable_checkpointing = false};
  options.enable_progress_bar = options.enable_model_summary = false;
  MaskedLM model({.num_hidden_layers = 1,
                  .hidden_size = 16,
                  .num_attention_heads = 2,
                  .intermediate_size = 24,
                  .vocab_size = 13,
                  .dropout = 0});
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model.parameters()) parameter.zero_();
  }
  for (const int64_t batch_size : {1, 48}) {
    EXPECT_NEAR(Trainer(options).validate(model, texts(batch_size)).at(0).at("val_loss"), std::log(13.0), 1e-5);
  }
  Trainer(options).fit(model, texts(1));  // whose loss was NaN in a batch without a hidden token
  for (const auto& parameter : model.parameters()) EXPECT_TRUE(parameter.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace levin::encoder_test
