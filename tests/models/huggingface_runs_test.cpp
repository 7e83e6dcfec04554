// HuggingFaceClassifier and HuggingFaceLM in runs.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/data/sets/image_folder_data.h"
#include "levin/data/sets/text_csv.h"
#include "levin/models/huggingface_classifier.h"
#include "levin/models/huggingface_lm.h"
#include "levin/models/token_sampling.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/field_count.h"
#include "support/paths.h"
#include "support/temporary_folder.h"
#include "support/tensor_loader.h"

namespace levin::huggingface_runs_test {
namespace {

using test::error_of;
using test::holds;

std::string folder_of(const std::string& name) {
  return test::source_dir() + "/tests/models/data/" + name;
}

Loaders loader(std::vector<at::Tensor> tensors, int64_t batch_size = 8) {
  return {std::make_shared<test::TensorLoader>(std::move(tensors), batch_size)};
}

// Texts whose class is whether token 7 is in them, so easy that a model learns it from any start (45 seeds were tried).
std::vector<at::Tensor> texts() {
  torch::manual_seed(5);
  auto ids = torch::randint(8, 20, {64, 6}, torch::kLong);
  const auto label = torch::randint(0, 2, {64}, torch::kLong);
  ids.slice(1, 1, 4).masked_fill_(label.to(torch::kBool).unsqueeze(1), 7);
  ids.slice(1, 5).fill_(0);
  return {ids, label};
}

double loss_of(Trainer& trainer, HuggingFaceModule& module, const Loaders& loaders) {
  return trainer.validate(module, loaders).at(0).at("val_loss");
}

TEST(HuggingFaceRuns, OptionsAreListed) {
  EXPECT_EQ(levin::testing::field_count<HuggingFaceClassifierOptions>(),
            field_names<HuggingFaceClassifierOptions>().size());
  EXPECT_EQ(levin::testing::field_count<HuggingFaceLMOptions>(), field_names<HuggingFaceLMOptions>().size());
  EXPECT_TRUE(levin::testing::in_declared_order<HuggingFaceLMOptions>());
  EXPECT_EQ(levin::testing::field_count<HuggingFaceSettings>() + 2,
            levin::testing::field_count<HuggingFaceClassifierOptions>());
}

TEST(HuggingFaceRuns, ClassifierLearnsAndWritesAFolderThatReadsBack) {
  const test::TemporaryFolder folder;
  const test::CapturedConsole console;
  torch::manual_seed(1);
  HuggingFaceClassifier module({.path = folder_of("bert"),
                                .num_labels = 2,
                                .ignore_mismatched_sizes = true,
                                .lr = 0.01,
                                .warmup_steps = 2,
                                .freeze = {"model.bert.embeddings.position*"},
                                .save_to = folder / "tuned"});
  const auto positions = module.named_parameters()["model.bert.embeddings.position_embeddings.weight"].clone();
  Trainer trainer(test::quiet(40, {}, folder.path()));
  const double before = loss_of(trainer, module, loader(texts()));
  trainer.fit(module, loader(texts()));
  const double after = loss_of(trainer, module, loader(texts()));
  EXPECT_LT(after, 0.3 * before);
  EXPECT_GT(trainer.callback_metrics().at("val_acc"), 0.9);
  EXPECT_TRUE(module.named_parameters()["model.bert.embeddings.position_embeddings.weight"].equal(positions));
  EXPECT_TRUE(console.has("tuned, a folder for from_pretrained"));
  HuggingFaceClassifier again({.path = folder / "tuned"});
  EXPECT_DOUBLE_EQ(loss_of(trainer, again, loader(texts())), after);
  EXPECT_EQ(again.model()->config().num_labels(), 2) << "as its config.json says";
  const auto predictions = trainer.predict(again, loader(texts()));
  EXPECT_EQ(predictions[0][0].sizes(), at::IntArrayRef({8}));
}

// Whether the folder that save_to wrote holds a checkpoint's weights, bitwise identical.
bool holds_weights_of(const std::string& folder, const std::string& checkpoint) {
  const HuggingFaceClassifier module({.path = folder, .num_labels = 2});
  const State saved = read_checkpoint(checkpoint).part("model");
  const auto weights = module.named_parameters();
  return std::all_of(weights.begin(), weights.end(),
                     [&](const auto& item) { return item.value().equal(saved.tensor(item.key())); });
}

TEST(HuggingFaceRuns, SaveToHoldsTheBestCheckpointsWeightsOrTheLast) {
  const auto train = [](const test::TemporaryFolder& folder, WhichCheckpoint which, const std::string& monitor,
                        const std::function<void()>& before_end = {}) {
    const test::CapturedConsole console;
    torch::manual_seed(1);
    HuggingFaceClassifier module({.path = folder_of("bert"),
                                  .num_labels = 2,
                                  .dropout = 0.0,
                                  .ignore_mismatched_sizes = true,
                                  .lr = 0.01,
                                  .save_to = folder / "tuned",
                                  .save_weights = which});
    const ModelCheckpoint keep({.dirpath = folder / "ck",
                                .filename = "best",
                                .monitor = monitor,
                                .save_last = true,
                                .mode = MonitorMode::max});  // the highest loss is the first
    LambdaCallback last({.on_train_end = [&](auto& trainer, auto&) {
      trainer.finish_checkpoints();
      if (before_end) before_end();
    }});
    Trainer trainer(test::quiet(3, {ModelCheckpoint(keep), last}, folder.path()));
    trainer.fit(module, loader(texts()), loader(texts()));
    return console.text();
  };
  const test::TemporaryFolder best, last, unmonitored, damaged;
  std::string output = train(best, WhichCheckpoint::best, "val_loss");
  EXPECT_TRUE(holds_weights_of(best / "tuned", best / "ck/best.ckpt"));
  EXPECT_FALSE(holds_weights_of(best / "tuned", best / "ck/last.ckpt"));
  EXPECT_TRUE(holds(output, {"from_pretrained, with the best checkpoint's weights (val_loss ", best / "ck/best.ckpt"}));
  output = train(last, WhichCheckpoint::last, "val_loss");
  EXPECT_TRUE(holds_weights_of(last / "tuned", last / "ck/last.ckpt"));
  EXPECT_TRUE(holds(output, {"with the last weights; the best checkpoint has val_loss ", last / "ck/best.ckpt"}));
  output = train(unmonitored, WhichCheckpoint::best, "");
  EXPECT_TRUE(holds_weights_of(unmonitored / "tuned", unmonitored / "ck/last.ckpt"));
  EXPECT_TRUE(holds(output, {"with the last weights"}));
  output = train(damaged, WhichCheckpoint::best, "val_loss",
                 [&] { std::filesystem::resize_file(damaged / "ck/best.ckpt", 100); });
  EXPECT_TRUE(holds_weights_of(damaged / "tuned", damaged / "ck/last.ckpt"));
  EXPECT_TRUE(holds(output, {"warning: ", damaged / "ck/best.ckpt", "the last weights are taken instead"}));
}

TEST(HuggingFaceRuns, ClassifierTakesMasksAndImages) {
  const test::TemporaryFolder folder;
  Trainer trainer(test::quiet(1, {}, folder.path()));
  HuggingFaceClassifier text({.path = folder_of("bert"), .num_labels = 3});
  const auto tensors = texts();
  const auto padded = loss_of(trainer, text, loader(tensors));
  const auto mask = tensors[0].ne(0).to(torch::kLong);
  EXPECT_DOUBLE_EQ(loss_of(trainer, text, loader({tensors[0], mask, tensors[1]})), padded);
  EXPECT_NE(loss_of(trainer, text, loader({tensors[0], torch::ones_like(mask), tensors[1]})), padded);
  HuggingFaceClassifier image({.path = folder_of("vit"), .from_scratch = true, .num_labels = 4, .lr = 1e-3});
  trainer.fit(image, loader({torch::randn({8, 3, 8, 8}), torch::randint(0, 4, {8}, torch::kLong)}));
  EXPECT_EQ(trainer.global_step(), 1);
}

TEST(HuggingFaceRuns, ClassifierTakesItsClassesFromTheData) {
  const test::TemporaryFolder folder;
  const test::CapturedConsole console;
  const std::string path = folder.write("t.csv", "text,label\nab,dog\ncd,cat\nef,dog\ngh,owl\n");
  PretrainedConfig config = PretrainedConfig::read(folder_of("roberta"));
  config.set("vocab_size", int64_t{260});
  std::filesystem::create_directory(folder / "model");
  folder.write("model/config.json", config.json());
  Trainer trainer(test::quiet(1, {}, folder.path()));
  const TextCsvOptions data{.path = path, .max_length = 8, .batch_size = 2, .val_fraction = 0};
  HuggingFaceClassifier module({.path = folder / "model", .from_scratch = true, .save_to = folder / "saved"});
  trainer.fit(module, TextCsv(data));
  EXPECT_EQ(PretrainedConfig::read(folder / "saved").labels(), (std::vector<std::string>{"cat", "dog", "owl"}));
  Trainer other(test::quiet(1, {}, folder.path()));
  HuggingFaceClassifier two({.path = folder / "model", .from_scratch = true, .num_labels = 2});
  EXPECT_EQ(
      error_of<ConfigError>([&] { other.fit(two, TextCsv(data)); }),
      "HuggingFaceClassifierOptions.num_labels: 2 is less than the 3 classes of the data. Set it to that number, or "
      "to 0.");
  HuggingFaceClassifier small({.path = folder_of("bert")});
  EXPECT_TRUE(holds(error_of<ConfigError>([&] { other.fit(small, TextCsv(data)); }),
                    {"data/bert/config.json: vocab_size: 20 is too small for the 260 tokens of byte",
                     "pad_token_id: 0, but TextCsv pads with 1 for the tokenizer byte"}));
}

// Of a classifier of three labels; "" for a problem_type: config.json has none.
double problem_loss(const std::string& problem_type, const at::Tensor& label,
                    const HuggingFaceClassifierOptions& more) {
  const test::TemporaryFolder folder;
  PretrainedConfig config = PretrainedConfig::read(folder_of("bert"));
  if (!problem_type.empty()) config.set("problem_type", problem_type);
  folder.write("config.json", config.json());
  std::filesystem::copy_file(folder_of("bert") + "/model.safetensors", folder / "model.safetensors");
  HuggingFaceClassifierOptions options = more;
  options.path = folder.path();
  options.ignore_mismatched_sizes = true;
  HuggingFaceClassifier module(options);
  Trainer trainer(test::quiet(1, {}, folder.path()));
  return loss_of(trainer, module, loader({texts()[0].slice(0, 0, 8), label}));
}

// Logits of the same samples by the same weights.
at::Tensor problem_logits(int64_t labels) {
  torch::manual_seed(9);
  const torch::NoGradGuard no_grad;
  HuggingFaceClassifier module({.path = folder_of("bert"), .num_labels = labels, .ignore_mismatched_sizes = true});
  module.eval();
  return module.forward(texts()[0].slice(0, 0, 8)).to(torch::kDouble);
}

TEST(HuggingFaceRuns, TheLossFollowsTheProblemType) {
  const at::Tensor logits = problem_logits(3);
  const at::Tensor classes = torch::arange(8).remainder(3), numbers = torch::randn({8, 3});
  const at::Tensor yes = numbers.gt(0).to(torch::kFloat);
  const double cross_entropy = -logits.log_softmax(-1).gather(1, classes.unsqueeze(1)).mean().item<double>();
  const at::Tensor p = logits.sigmoid();
  const double binary = -(yes * p.log() + (1 - yes) * (1 - p).log()).mean().item<double>();
  const double squared = (logits - numbers).square().mean().item<double>();
  EXPECT_NEAR(problem_loss("", classes, {.num_labels = 3}), cross_entropy, 1e-5);
  EXPECT_NEAR(problem_loss("single_label_classification", classes, {.num_labels = 3}), cross_entropy, 1e-5);
  EXPECT_NEAR(problem_loss("", classes.unsqueeze(1), {.num_labels = 3}), cross_entropy, 1e-5);
  EXPECT_NEAR(problem_loss("multi_label_classification", yes, {.num_labels = 3}), binary, 1e-5);
  EXPECT_NEAR(problem_loss("multi_label_classification", yes.to(torch::kLong), {.num_labels = 3}), binary, 1e-5);
  EXPECT_NEAR(problem_loss("", yes, {.num_labels = 3}), binary, 1e-5) << "of real numbers, as transformers finds it";
  EXPECT_NEAR(problem_loss("regression", numbers, {.num_labels = 3}), squared, 1e-5);
  EXPECT_NEAR(
      problem_loss("regression", yes, {.num_labels = 3, .problem_type = ProblemType::multi_label_classification}),
      binary, 1e-5)
      << "the option counts";
  const at::Tensor one = torch::randn(8);
  const double of_one = (problem_logits(1).squeeze(-1) - one).square().mean().item<double>();
  for (const char* type : {"", "regression"}) {
    torch::manual_seed(9);  // of the new head
    EXPECT_NEAR(problem_loss(type, one, {.num_labels = 1}), of_one, 1e-5) << "one label is a regression";
    torch::manual_seed(9);
    EXPECT_NEAR(problem_loss(type, one.unsqueeze(1), {.num_labels = 1}), of_one, 1e-5);
  }
}

TEST(HuggingFaceRuns, ClassifiersPredictWhatTheirProblemTypeIs) {
  const auto ids = texts()[0].slice(0, 0, 8);
  const auto predict = [&](ProblemType type, int64_t labels) {
    torch::manual_seed(9);
    const torch::NoGradGuard no_grad;
    HuggingFaceClassifier module(
        {.path = folder_of("bert"), .num_labels = labels, .problem_type = type, .ignore_mismatched_sizes = true});
    module.eval();
    return module.predict_step({ids, torch::zeros(8)});
  };
  EXPECT_TRUE(predict(ProblemType::single_label_classification, 3).equal(problem_logits(3).argmax(-1)));
  EXPECT_TRUE(predict(ProblemType::multi_label_classification, 3).equal(problem_logits(3).gt(0).to(torch::kLong)));
  EXPECT_TRUE(predict(ProblemType::regression, 3).to(torch::kDouble).allclose(problem_logits(3)));
  EXPECT_TRUE(predict(ProblemType::regression, 1).to(torch::kDouble).allclose(problem_logits(1).squeeze(-1)));
}

TEST(HuggingFaceRuns, LabelsThatAreNotOfTheProblemTypeAreErrors) {
  const at::Tensor classes = torch::arange(8).remainder(3);
  EXPECT_TRUE(holds(error_of<Error>([&] { problem_loss("multi_label_classification", classes, {.num_labels = 3}); }),
                    {"multi_label_classification compares logits (8, 3)", "they are (8)", "set problem_type"}));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      problem_loss("", torch::ones({8, 3}, torch::kLong), {.num_labels = 3});
                    }),
                    {"these are (8, 3)", "set problem_type: multi_label_classification"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { problem_loss("regression", classes, {.num_labels = 3}); }),
                    {"regression compares logits (8, 3)"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([&] { problem_loss("ranking", classes, {.num_labels = 3}); }),
                    {"config.json", "problem_type", "ranking", "multi_label_classification"}));
  const test::TemporaryFolder folder;
  const test::CapturedConsole console;
  PretrainedConfig config = PretrainedConfig::read(folder_of("roberta"));
  config.set("vocab_size", int64_t{260});
  config.set("problem_type", std::string("regression"));
  std::filesystem::create_directory(folder / "model");
  folder.write("model/config.json", config.json());
  const TextCsvOptions data{.path = folder.write("t.csv", "text,label\nab,3\ncd,1\nef,3\ngh,2\n"),
                            .max_length = 8,
                            .batch_size = 2,
                            .val_fraction = 0};
  Trainer trainer(test::quiet(1, {}, folder.path()));
  HuggingFaceClassifier module({.path = folder / "model", .from_scratch = true});
  EXPECT_TRUE(holds(error_of<ConfigError>([&] { trainer.fit(module, TextCsv(data)); }),
                    {"model/config.json: problem_type: regression, but the labels of the data are numbers of classes",
                     "1, 2, 3", "single_label_classification"}));
}

TEST(HuggingFaceRuns, CausalModelsLearnAndMaskedOnesToo) {
  const test::TemporaryFolder folder;
  const auto row = torch::arange(3, 15).repeat({16, 1});  // what follows a token is the next
  const Loaders data = loader({row.slice(1, 0, 11).contiguous(), row.slice(1, 1).contiguous()});
  for (const char* name : {"llama", "gpt2"}) {
    Trainer trainer(test::quiet(25, {}, folder.path()));
    HuggingFaceLM causal({.path = folder_of(name), .dropout = 0.0, .lr = 0.02});
    EXPECT_FALSE(causal.is_masked());
    const double before = loss_of(trainer, causal, data);
    trainer.fit(causal, data);
    EXPECT_LT(loss_of(trainer, causal, data), 0.3 * before) << name;
    trainer.test(causal, data);
    EXPECT_TRUE(trainer.callback_metrics().contains("test_loss"));
  }
  torch::manual_seed(1);
  Trainer trainer(test::quiet(25, {}, folder.path()));
  HuggingFaceLM masked({.path = folder_of("bert_mlm"), .mask_token_id = 3, .dropout = 0.0, .lr = 0.02});
  EXPECT_TRUE(masked.is_masked());
  const double before = loss_of(trainer, masked, data);
  trainer.fit(masked, data);
  EXPECT_LT(loss_of(trainer, masked, data), 0.6 * before);
}

// What follows a token is the next number, wherever it is.
TEST(HuggingFaceRuns, CausalModelsContinueAPrompt) {
  const test::TemporaryFolder folder;
  const auto rows = torch::arange(12) + (3 + torch::arange(16).remainder(4)).unsqueeze(1);
  const Loaders data = loader({rows.slice(1, 0, 11).contiguous(), rows.slice(1, 1).contiguous()});
  const Loaders prompt = loader({torch::tensor({{4, 5, 6}, {6, 7, 8}}, torch::kLong)});
  for (const char* name : {"llama", "gpt2"}) {
    torch::manual_seed(1);
    Trainer trainer(test::quiet(40, {}, folder.path()));
    HuggingFaceLM module({.path = folder_of(name), .max_new_tokens = 5, .temperature = 0, .dropout = 0.0, .lr = 0.02});
    trainer.fit(module, data);
    const at::Tensor continued = trainer.predict(module, prompt)[0][0];
    EXPECT_TRUE(continued.equal(torch::stack({torch::arange(4, 12), torch::arange(6, 14)}))) << name << continued;
    HuggingFaceLM logits({.path = folder_of(name)});
    EXPECT_EQ(trainer.predict(logits, prompt)[0][0].sizes(), at::IntArrayRef({2, 3, 20})) << name;
  }
  HuggingFaceLM longer({.path = folder_of("gpt2"), .max_new_tokens = 40});
  Trainer trainer(test::quiet(1, {}, folder.path()));
  EXPECT_EQ(trainer.predict(longer, prompt)[0][0].size(1), 43) << "more tokens than its 12 positions";
  EXPECT_TRUE(holds(error_of<ConfigError>([] {
                      HuggingFaceLM masked({.path = folder_of("bert_mlm"), .mask_token_id = 3, .max_new_tokens = 5});
                    }),
                    {"HuggingFaceLMOptions.max_new_tokens: only causal models", "bert", "Leave it at 0"}));
}

TEST(ContinueTokens, RefusesValuesThatCannotBeDrawnWith) {
  const auto refusal = [](const TokenSampling& sampling) {
    return error_of<Error>([&] {
      (void)continue_tokens(
          torch::zeros({1, 2}, torch::kLong),
          [](const at::Tensor&) {
            return torch::zeros({1, 5});
          },
          sampling, 1);
    });
  };
  const double nan = std::nan("");
  for (const TokenSampling& wrong :
       {TokenSampling{.max_new_tokens = 1, .temperature = -1}, TokenSampling{.max_new_tokens = 1, .temperature = nan},
        TokenSampling{.max_new_tokens = 1, .top_k = -1}}) {
    EXPECT_TRUE(holds(refusal(wrong), {"continue_tokens: temperature and top_k must be 0 or more, got "}));
  }
}

// With weights of 0 every one of the 20 tokens has the same probability.
std::shared_ptr<HuggingFaceLM> masked_model_of_zeros(double mlm_probability) {
  auto module = std::make_shared<HuggingFaceLM>(HuggingFaceLMOptions{
      .path = folder_of("bert_mlm"), .mlm_probability = mlm_probability, .mask_token_id = 3, .dropout = 0.0});
  const torch::NoGradGuard no_grad;
  for (auto& parameter : module->parameters()) parameter.zero_();
  return module;
}

// In most batches of one short text no token is hidden.
TEST(HuggingFaceRuns, AMaskedModelsLossDoesNotDependOnTheBatchSize) {
  const test::TemporaryFolder folder;
  torch::manual_seed(3);
  const at::Tensor ids = torch::randint(4, 20, {64, 6}, torch::kLong);
  const auto module = masked_model_of_zeros(0.15);
  for (const int64_t batch_size : {1, 3, 64}) {
    Trainer trainer(test::quiet(1, {}, folder.path()));
    EXPECT_NEAR(loss_of(trainer, *module, loader({ids}, batch_size)), std::log(20.0), 1e-5) << batch_size;
    trainer.test(*module, loader({ids}, batch_size));
    EXPECT_NEAR(trainer.callback_metrics().at("test_loss"), std::log(20.0), 1e-5) << batch_size;
  }
}

// Texts of five tokens 5, of one token 6, and of none; all are predicted. The gradient of a token's bias is its
// probability minus its fraction of the labels, 5/6 and 1/6.
TEST(HuggingFaceRuns, AMaskedModelsBatchesCountByTheirPredictedTokens) {
  const test::TemporaryFolder folder;
  const at::Tensor ids = torch::tensor({{5, 5, 5, 5, 5, 0}, {6, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}}, torch::kLong);
  for (const bool in_parts : {false, true}) {
    const auto module = masked_model_of_zeros(1.0);
    at::Tensor bias;
    const LambdaCallback keeps({.on_before_optimizer_step = [&](Trainer&, LightningModule& m, Optimizer&) {
      for (const auto& item : m.named_parameters()) {
        if (item.key().ends_with("predictions.bias")) bias = item.value().grad().clone();
      }
    }});
    TrainerOptions options = test::quiet(1, {keeps}, folder.path());
    if (in_parts) options.micro_batch_size = 1;
    if (!in_parts) options.accumulate_grad_batches = 3;
    Trainer(options).fit(*module, loader({ids}, in_parts ? 3 : 1));
    ASSERT_TRUE(bias.defined());
    EXPECT_NEAR(bias[5].item<double>(), 0.05 - 5.0 / 6, 1e-5) << in_parts;
    EXPECT_NEAR(bias[6].item<double>(), 0.05 - 1.0 / 6, 1e-5) << in_parts;
  }
}

TEST(HuggingFaceRuns, MaskedTokensAreBerts) {
  torch::manual_seed(2);
  auto ids = torch::randint(5, 1000, {200, 100}, torch::kLong);
  ids.slice(1, 90).fill_(0);
  const MaskedTokens masked = mask_tokens(ids, 0.15, /*mask_token_id=*/4, /*vocab_size=*/1000, /*pad=*/0);
  const auto chosen = masked.labels.ne(-100);
  const auto share = [](const at::Tensor& of, const at::Tensor& all) {
    return of.logical_and(all).sum().item<double>() / all.sum().item<double>();
  };
  EXPECT_NEAR(share(chosen, ids.ne(0)), 0.15, 0.01);
  EXPECT_EQ(share(chosen, ids.eq(0)), 0) << "padding is not predicted";
  EXPECT_TRUE(masked.labels.masked_select(chosen).equal(ids.masked_select(chosen)));
  EXPECT_NEAR(share(masked.ids.eq(4), chosen), 0.8, 0.03);
  EXPECT_NEAR(share(masked.ids.eq(ids), chosen), 0.1, 0.03);
  EXPECT_TRUE(masked.ids.eq(ids).logical_or(chosen).all().item<bool>());
}

TEST(HuggingFaceRuns, FindTheMaskTokenOfTheFolder) {
  const test::TemporaryFolder folder;
  std::filesystem::copy(folder_of("bert_mlm"), folder / "m");
  const auto make = [&] { HuggingFaceLM lm({.path = folder / "m"}); };
  EXPECT_TRUE(holds(error_of<ConfigError>(make), {"HuggingFaceLMOptions.mask_token_id", "Set the number"}));
  folder.write("m/tokenizer.json",
               R"({"added_tokens": [{"id": 0, "content": "[PAD]"}, {"id": 20, "content": "[MASK]"}]})");
  EXPECT_TRUE(holds(error_of<ConfigError>(make), {"mask_token_id: must be below vocab_size (20), got 20"}));
  folder.write("m/tokenizer.json", R"({"added_tokens": [{"id": 4, "content": "[MASK]"}]})");
  EXPECT_EQ(error_of(make), "");
}

TEST(HuggingFaceRuns, NameWhatIsWrong) {
  EXPECT_TRUE(holds(error_of<ConfigError>([] { HuggingFaceClassifier bad({}); }),
                    {"HuggingFaceClassifierOptions.path: must be set"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] {
                      HuggingFaceClassifier bad({.path = folder_of("bert"), .num_labels = 3, .freeze = {"bert.*"}});
                    }),
                    {"freeze: no parameter matches \"bert.*\"", "model.bert"}));
  HuggingFaceClassifier unmade({.path = folder_of("bert")});
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      (void)unmade.forward(torch::ones({1, 3}, torch::kLong));
                    }),
                    {"HuggingFaceClassifier: the model is not made yet"}));
  EXPECT_TRUE(
      holds(error_of<Error>([&] { unmade.save_pretrained("x"); }), {"save_pretrained x: the model is not made"}));
}

TEST(HuggingFaceRuns, BlocksAreRecomputedByName) {
  const test::TemporaryFolder folder;
  const auto losses = [&](bool recomputed) {
    torch::manual_seed(9);
    HuggingFaceClassifier module({.path = folder_of("bert"), .num_labels = 3, .lr = 0.01});
    TrainerOptions options = test::quiet(2, {}, folder.path());
    if (recomputed) options.recompute = RecomputeOptions{.modules = {"model.bert.encoder.layer.*"}};
    Trainer trainer(std::move(options));
    trainer.fit(module, loader(texts()));
    return loss_of(trainer, module, loader(texts()));
  };
  EXPECT_DOUBLE_EQ(losses(true), losses(false));
}

}  // namespace
}  // namespace levin::huggingface_runs_test
