#include "levin/models/exported/exported_program.h"

#include <nlohmann/json.hpp>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "support/error_text.h"
#include "support/paths.h"

namespace levin::exported_program_test {
namespace {

using test::error_of;
using test::holds;

const std::string kData = test::source_dir() + "/tests/models/data/";

at::Tensor example() {
  return at::arange(12, at::kFloat).view({3, 4}).cos();
}

at::Tensor expected(const std::string& name, const std::string& part = "") {
  static const auto all = nlohmann::json::parse(read_file(kData + "expected.json"));
  const auto& value = part.empty() ? all[name] : all[name][part];
  std::vector<double> numbers;
  std::vector<int64_t> sizes;
  if (value.is_array()) sizes.push_back(static_cast<int64_t>(value.size()));
  if (value.is_array() && value[0].is_array()) sizes.push_back(static_cast<int64_t>(value[0].size()));
  for (const auto& item : value.flatten()) numbers.push_back(item.get<double>());
  return torch::tensor(numbers, at::kDouble).view(sizes);
}

void expect_close(const at::Tensor& given, const at::Tensor& wanted) {
  ASSERT_EQ(given.sizes(), wanted.sizes());
  EXPECT_TRUE(at::allclose(given.to(at::kDouble), wanted, 1e-5, 1e-6)) << given << wanted;
}

TEST(ExportedProgram, EvaluatesAsPython) {
  ExportedProgram net(kData + "mlp.pt2");
  net.eval();
  expect_close(net.forward({example()}).at(0), expected("mlp_eval"));
}

TEST(ExportedProgram, NamesParametersBuffersInputsAndOutputsAsPython) {
  const ExportedProgram net(kData + "mlp.pt2");
  const std::vector<std::string> parameters = {"first.weight", "first.bias",    "norm.weight",
                                               "norm.bias",    "second.weight", "second.bias"};
  EXPECT_EQ(net.named_parameters().keys(), parameters);
  const std::vector<std::string> buffers = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"};
  EXPECT_EQ(net.named_buffers().keys(), buffers);
  EXPECT_EQ(net.input_names(), std::vector<std::string>{"x"});
  EXPECT_EQ(net.output_names(), std::vector<std::string>{"linear_1"});
}

TEST(ExportedProgram, OneSubmoduleMayEvaluateWhileTheOthersTrain) {
  ExportedProgram net(kData + "mlp.pt2");
  net.train();
  net.named_children()["drop"]->eval();
  expect_close(net.forward({example()}).at(0), expected("mlp_without_dropout"));
  expect_close(net.named_buffers()["norm.running_mean"], expected("running_mean"));
  EXPECT_EQ(net.named_buffers()["norm.num_batches_tracked"].item<int64_t>(), 1);
}

TEST(ExportedProgram, EvaluationChangesNoBuffer) {
  for (const std::string name : {"mlp", "mlp_eval", "mlp_functional"}) {
    ExportedProgram net(kData + name + ".pt2");
    net.eval();
    (void)net.forward({example()});
    EXPECT_EQ(net.named_buffers()["norm.num_batches_tracked"].item<int64_t>(), 0) << name;
    EXPECT_EQ(net.named_buffers()["norm.running_mean"].abs().sum().item<double>(), 0) << name;
  }
}

TEST(ExportedProgram, TrainingDropsDifferentUnitsEachTime) {
  ExportedProgram net(kData + "mlp.pt2");
  net.train();
  const at::Tensor first = net.forward({example()}).at(0), second = net.forward({example()}).at(0);
  EXPECT_FALSE(at::allclose(first, second));
}

TEST(ExportedProgram, AProgramExportedInEvaluationModeTrainsAndReportsWhatItLacks) {
  ExportedProgram net(kData + "mlp_eval.pt2");
  ASSERT_EQ(net.notes().size(), 1U);
  EXPECT_NE(net.notes()[0].find("exported in evaluation mode"), std::string::npos);
  net.train();
  net.named_children()["drop"]->eval();
  expect_close(net.forward({example()}).at(0), expected("mlp_without_dropout"));
}

TEST(ExportedProgram, BuffersThatAFunctionalProgramReturnsAreCopiedBack) {
  ExportedProgram net(kData + "mlp_functional.pt2");
  net.train();
  const auto outputs = net.forward({example()});
  EXPECT_EQ(outputs.size(), 1U);
  expect_close(net.named_buffers()["norm.running_mean"], expected("running_mean"));
  EXPECT_EQ(net.named_buffers()["norm.num_batches_tracked"].item<int64_t>(), 1);
}

TEST(ExportedProgram, HasStateTiedWeightsSizesAndSeveralOutputsAsPython) {
  ExportedProgram net(kData + "state.pt2");
  EXPECT_EQ(net.named_parameters().keys(), std::vector<std::string>{"a.weight"});
  ASSERT_EQ(net.tied_names().size(), 1U);
  EXPECT_EQ(net.tied_names()[0], std::pair(std::string("b.weight"), std::string("a.weight")));
  const at::Tensor x = example();
  const auto outputs = net.forward({x, at::ones({4})});
  ASSERT_EQ(outputs.size(), 5U);
  expect_close(outputs[0], expected("state", "h"));
  expect_close(outputs[1], expected("state", "mean"));
  EXPECT_EQ(outputs[2].item<int64_t>(), 1);
  EXPECT_TRUE(outputs[3].is_same(x));
  expect_close(outputs[4], expected("state", "second"));
  EXPECT_EQ(net.named_buffers()["count"].sum().item<double>(), 4);
}

// Python trained one step, with the same random numbers, between two evaluations.
TEST(ExportedProgram, EvaluationIsTheModelsOwnWithTheTrainedBuffers) {
  ExportedProgram net(kData + "modes.pt2");
  EXPECT_TRUE(net.notes().empty());
  net.eval();
  auto outputs = net.forward({example()});
  ASSERT_EQ(outputs.size(), 1U);
  expect_close(outputs[0], expected("modes", "before"));
  net.train();
  torch::manual_seed(1);
  outputs = net.forward({example()});
  ASSERT_EQ(outputs.size(), 2U);
  expect_close(outputs[0], expected("modes", "training"));
  expect_close(outputs[1], expected("modes", "auxiliary"));
  net.eval();
  expect_close(net.forward({example()}).at(0), expected("modes", "after"));
}

TEST(ExportedProgram, EvaluationHasTheTrainedWeightsOnTheModulesType) {
  ExportedProgram net(kData + "modes.pt2");
  net.to(torch::kDouble);
  {
    const at::NoGradGuard no_grad;
    net.named_parameters()["head.bias"].add_(1);
  }
  net.eval();
  expect_close(net.forward({example().to(at::kDouble)}).at(0), expected("modes", "before") + 1);
}

TEST(ExportedProgram, AFileWithOneGraphWhoseModesDifferTrainsAndIsNotEvaluated) {
  ExportedProgram net(kData + "modes_training.pt2");
  EXPECT_EQ(net.forward({example()}).size(), 2U);
  net.eval();
  EXPECT_TRUE(holds(error_of([&] { (void)net.forward({example()}); }),
                    {"modes_training.pt2 holds one graph", "changes first.parametrizations.weight.0._u",
                     "record_programs.py:", "draws random numbers and 1 more", "Export it again",
                     "python3 tools/export_model.py MODULE:NAME --inputs 'float32[2, 4]' --output "}));
}

TEST(ExportedProgram, AFileWithOneGraphReportsThatEvaluationIsAGuess) {
  const auto notes = ExportedProgram(kData + "mlp.pt2").notes();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(holds(notes[0], {"it holds one graph", "dropout and batch norm switched off", "tools/export_model.py"}));
  EXPECT_TRUE(ExportedProgram(kData + "state.pt2").notes().empty());
}

TEST(ExportedProgram, ABatchNormWithoutRunningStatisticsHasTheBatchsInEvaluationToo) {
  ExportedProgram net(kData + "norms.pt2");
  const at::Tensor y = example().view({1, 4, 3}).repeat({2, 1, 1});
  for (const bool trains : {true, false}) {
    net.train(trains);
    expect_close(net.forward({example(), y, at::ones({5, 4})}).at(0), expected("batch_norm_without_statistics"));
  }
}

// Python: ValueError of torch.nn.functional.
TEST(ExportedProgram, NormsRefuseTheInputsThatPythonsLayersRefuse) {
  ExportedProgram mlp(kData + "mlp.pt2"), norms(kData + "norms.pt2");
  EXPECT_TRUE(holds(
      error_of<Error>([&] {
        (void)mlp.forward({at::ones({1, 4})});
      }),
      {"in batch_norm", "Expected more than 1 value per channel when training, got input size [1, 6]", "drop_last"}));
  EXPECT_FALSE(mlp.named_buffers()["norm.running_var"].isnan().any().item<bool>());
  const auto error = [&](const at::Tensor& x, const at::Tensor& y, const at::Tensor& z) {
    return error_of<Error>([&] { (void)norms.forward({x, y, z}); });
  };
  const at::Tensor x = at::ones({3, 4}), y = at::ones({2, 4, 2}), z = at::ones({5, 4});
  norms.eval();
  EXPECT_EQ(error(x, y, z), "");
  EXPECT_TRUE(holds(error(x[0].unsqueeze(0), y, z), {"more than 1 value per channel", "[1, 4]"}));
  EXPECT_TRUE(
      holds(error(x, at::ones({2, 4, 1}), z), {"in instance_norm", "more than 1 spatial element", "[2, 4, 1]"}));
  EXPECT_TRUE(holds(error(x, y, z[0].unsqueeze(0)), {"in group_norm", "more than 1 value per channel", "[1, 4]"}));
}

TEST(ExportedProgram, AnErrorInADifferentPrecisionNamesTheTypesOfTheExportAndTheRemedy) {
  ExportedProgram net(kData + "types.pt2");
  const at::Tensor x = example().view({1, 3, 4});
  net.to(torch::kDouble);
  EXPECT_TRUE(holds(error_of([&] { (void)net.forward({x.to(at::kDouble)}); }),
                    {"in gru", "was recorded in float32 and computes in float64", "perhaps in zeros",
                     "tools/export_model.py --precision 64-true"}));
  net.to(torch::kBFloat16);
  EXPECT_TRUE(holds(error_of([&] { (void)net.forward({x.to(at::kBFloat16)}); }), {"--precision bf16-true"}));
}

TEST(ExportedProgram, GradientsEqualTheSameStepsInCpp) {
  ExportedProgram net(kData + "state.pt2");
  at::Tensor weight = net.named_parameters()["a.weight"];
  net.forward({example(), at::ones({4})}).at(0).pow(2).sum().backward();
  const at::Tensor own = weight.detach().clone().set_requires_grad(true);
  const at::Tensor scale = torch::tensor({1.F, 2.F, 3.F, 4.F}), sign = torch::tensor({1.F, -1.F, 1.F, -1.F});
  const at::Tensor h = at::linear(at::linear(example(), own) * scale, own) + 1 + sign;
  h.pow(2).sum().backward();
  EXPECT_TRUE(at::allclose(weight.grad(), own.grad()));
}

TEST(ExportedProgram, ConvertsBuffersThatAreNotSavedToo) {
  ExportedProgram net(kData + "state.pt2");
  net.to(torch::kDouble);
  const auto outputs = net.forward({example().to(at::kDouble), at::ones({4}, at::kDouble)});
  EXPECT_EQ(outputs[0].scalar_type(), at::kDouble);
  expect_close(outputs[0], expected("state", "h"));
}

TEST(ExportedProgram, TakesBatchesOfAnySizeWhereTheExportDoes) {
  ExportedProgram net(kData + "mlp.pt2");
  net.eval();
  for (const int64_t batch : {1, 2, 9}) EXPECT_EQ(net.forward({at::ones({batch, 4})}).at(0).size(0), batch);
}

TEST(ExportedProgram, InputsThatTheProgramDoesNotTakeAreRefused) {
  ExportedProgram net(kData + "mlp.pt2");
  const auto error = [&](const std::vector<at::Tensor>& inputs) {
    return error_of([&] { (void)net.forward(inputs); });
  };
  EXPECT_TRUE(holds(error({}), {"mlp.pt2 takes 1 input (x), and got 0"}));
  EXPECT_TRUE(holds(error({at::ones({3, 5})}),
                    {"input \"x\" has the shape (3, 5)", "exported for (s", ", 4)", "dynamic_shapes"}));
  EXPECT_TRUE(holds(error({at::ones({3, 4}, at::kLong)}), {"input \"x\" is Long", "exported for Float"}));
  EXPECT_TRUE(holds(error({at::Tensor()}), {"input \"x\" is an undefined tensor"}));
}

TEST(ExportedProgram, ListsAllThatItCannotRunAtOnce) {
  EXPECT_TRUE(holds(error_of([] { ExportedProgram net(kData + "branch.pt2"); }),
                    {"branch.pt2 needs what Levin does not have", "the higher-order operator cond",
                     "without control flow", "and 1 more place"}));
}

}  // namespace
}  // namespace levin::exported_program_test
