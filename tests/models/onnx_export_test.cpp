#include "levin/models/onnx_export.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "loggers/event_reader.h"
#include "support/error_text.h"
#include "support/field_count.h"
#include "support/temporary_folder.h"

namespace levin::onnx_export_test {
namespace {

namespace nn = torch::nn;
using test::error_of;
using test::Fields;
using test::fields_of;
using test::holds;
using Tensors = std::vector<at::Tensor>;

// A file's graph, as far as tests look at it.
struct Read {
  std::vector<std::string> nodes, initializers, inputs;
};

Read read(const std::string& path) {
  Read graph;
  Fields inner = fields_of(fields_of(read_file(path))[7].at(0));
  for (const std::string& node : inner[1]) graph.nodes.push_back(fields_of(node)[4].at(0));
  for (const std::string& tensor : inner[5]) graph.initializers.push_back(fields_of(tensor)[8].at(0));
  for (const std::string& port : inner[11]) graph.inputs.push_back(fields_of(port)[1].at(0));
  return graph;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class OnnxExport : public ::testing::Test {
 protected:
  OnnxReport write(const std::function<at::Tensor(const at::Tensor&)>& function, const OnnxOptions& options = {}) {
    const auto forward = [&](const Tensors& x) { return Tensors{function(x.at(0))}; };
    return export_onnx(path(), module_, forward, {{"x", example_}}, options);
  }
  std::string error(const std::function<at::Tensor(const at::Tensor&)>& function, const OnnxOptions& options = {}) {
    const std::string message = error_of<Error>([&] { write(function, options); });
    EXPECT_FALSE(std::filesystem::exists(path())) << "a failed export leaves nothing";
    return message;
  }
  [[nodiscard]] std::string path() const { return folder_ / "model.onnx"; }

  test::TemporaryFolder folder_;
  nn::Module module_;
  at::Tensor example_ = torch::arange(24, torch::kFloat).view({4, 6});
};

struct Net : LightningModule {
  Net() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("drop", drop);
  }
  at::Tensor forward(const at::Tensor& x) override { return drop->forward(norm->forward(first->forward(x))).relu(); }
  nn::Linear first{6, 5};
  nn::BatchNorm1d norm{5};
  nn::Dropout drop{0.5};
};

TEST_F(OnnxExport, OfAModuleHasItsParametersAndBuffersByName) {
  Net net;
  net.train();
  net.norm->eval();
  const at::Tensor before = net.norm->running_mean.clone();
  const OnnxReport report = export_onnx(path(), net, {{"x", example_}});
  const Read graph = read(path());
  for (const char* name :
       {"first.weight", "first.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"}) {
    EXPECT_TRUE(contains(graph.initializers, name)) << name;
  }
  EXPECT_FALSE(contains(graph.initializers, "norm.num_batches_tracked")) << "nothing reads it";
  EXPECT_EQ(graph.inputs, std::vector<std::string>{"x"});
  EXPECT_EQ(report.inputs, std::vector<std::string>{"x: float32 (batch, 6)"});
  EXPECT_EQ(report.outputs, std::vector<std::string>{"output: float32 (batch, 5)"});
  EXPECT_EQ(report.nodes, static_cast<int64_t>(graph.nodes.size()));
  EXPECT_TRUE(net.is_training() && net.drop->is_training() && !net.norm->is_training()) << "each in its mode again";
  EXPECT_TRUE(net.norm->running_mean.equal(before));
}

TEST_F(OnnxExport, OptionsAreListed) {
  EXPECT_EQ(levin::testing::field_count<OnnxOptions>(), field_names<OnnxOptions>().size());
}

TEST_F(OnnxExport, KeepsABatchFixedOnRequest) {
  EXPECT_EQ(write(
                [](const at::Tensor& x) {
                  return x.view({2, 12});
                },
                {.fixed_batch = true})
                .inputs,
            std::vector<std::string>{"x: float32 (4, 6)"});
}

TEST_F(OnnxExport, ComputesConstantsOnce) {
  write([](const at::Tensor& x) { return x + torch::arange(6).to(torch::kFloat).cos() * 2; });
  EXPECT_EQ(read(path()).nodes, (std::vector<std::string>{"Add", "Identity"}));
}

TEST_F(OnnxExport, TakesSamplesOfAnyLengthOnRequest) {
  const auto positions = [](const at::Tensor& x) { return x + torch::arange(x.size(1)); };
  EXPECT_EQ(write(positions, {.dynamic_length = true}).inputs, std::vector<std::string>{"x: float32 (batch, length)"});
  EXPECT_TRUE(contains(read(path()).nodes, "Range"));
  EXPECT_EQ(write(
                [](const at::Tensor& x) {
                  return x.flatten().view({-1, 1});
                },
                {.dynamic_length = true})
                .outputs,
            std::vector<std::string>{"output: float32 (batch*length, 1)"});
}

TEST_F(OnnxExport, LeavesOutWhatNoOutputNeeds) {
  const auto forward = [](const Tensors& x) {
    (void)x.at(1).digamma();  // without a translation
    return Tensors{x.at(0).relu()};
  };
  export_onnx(path(), module_, forward, {{"x", example_}, {"y", torch::eye(4)}});
  EXPECT_EQ(read(path()).inputs, std::vector<std::string>{"x"});
  EXPECT_EQ(read(path()).nodes, (std::vector<std::string>{"Relu", "Identity"}));
}

TEST_F(OnnxExport, UndoesWritesIntoParameters) {
  at::Tensor steps = module_.register_buffer("steps", torch::zeros({6}));
  write([&](const at::Tensor& x) {
    steps.add_(1);
    return x + steps;
  });
  EXPECT_TRUE(steps.equal(torch::zeros({6})));
  EXPECT_EQ(read(path()).nodes, (std::vector<std::string>{"Add", "Add", "Identity"}));
}

TEST_F(OnnxExport, ListsAllOperatorsWithoutATranslation) {
  module_.register_parameter("weight", torch::ones({6}));
  const std::string message = error([&](const at::Tensor& x) {
    const at::Tensor y = torch::digamma(x + 1) + torch::digamma(x + 2);
    return torch::bernoulli(torch::sigmoid(torch::i0(y * module_.named_parameters()["weight"])));
  });
  EXPECT_TRUE(
      holds(message, {"the model calls operators that cannot be exported", "aten::digamma (2 times): no translation.",
                      "aten::i0 (1 time, first after weight): no translation.", "aten::bernoulli",
                      "first after weight): it draws random numbers", "docs/export.md"}));
}

TEST_F(OnnxExport, RefusesTrainingLayers) {
  EXPECT_TRUE(holds(error([](const at::Tensor& x) { return torch::dropout(x, 0.5, /*train=*/true); }),
                    {"aten::dropout (1 time): in training mode; put the model into evaluation mode"}));
}

TEST_F(OnnxExport, RefusesWhatDependsOnTheBatchSize) {
  const std::string calls = error([](const at::Tensor& x) { return x.size(0) > 2 ? x.relu() : x.tanh(); });
  EXPECT_TRUE(
      holds(calls, {"the batch size decides what the model calls: aten::tanh with 2 samples, aten::relu with 3 samples",
                    "--fixed_batch"}));
  EXPECT_TRUE(holds(error([](const at::Tensor& x) { return torch::ones({x.size(0) * x.size(0)}) * x.sum(); }),
                    {"aten::ones (1 time): its result has 4 elements along dimension 0 with 2 samples and 9 with 3 "
                     "samples, which is not in proportion"}));
  EXPECT_TRUE(holds(error([](const at::Tensor& x) { return x * (1.0 / static_cast<double>(x.size(0))); }),
                    {"aten::mul", "not in proportion to the inputs' sizes"}));
}

TEST_F(OnnxExport, RefusesWhatDependsOnTheLength) {
  const OnnxOptions any{.dynamic_length = true};
  EXPECT_TRUE(
      holds(error([](const at::Tensor& x) { return x.size(1) > 5 ? x.relu() : x.tanh(); }, any),
            {"the length decides what the model calls: aten::relu with 2 samples of length 6, aten::tanh with 2 "
             "samples of length 5",
             "no --dynamic_length"}));
  EXPECT_TRUE(holds(error([](const at::Tensor& x) { return x; }, {.fixed_batch = true, .dynamic_length = true}),
                    {"OnnxOptions.dynamic_length: excludes fixed_batch"}));
  example_ = torch::ones({4, 3});
  EXPECT_TRUE(holds(error([](const at::Tensor& x) { return x; }, any),
                    {"the first input must have a second dimension of at least 4, got (4, 3)"}));
}

TEST_F(OnnxExport, RefusesAntialiasedResizingWithAlignedCorners) {
  example_ = torch::rand({4, 1, 8, 8});
  EXPECT_TRUE(holds(error([](const at::Tensor& x) {
                      return at::_upsample_bilinear2d_aa(x, {3, 5}, true);
                    }),
                    {"aten::_upsample_bilinear2d_aa (1 time): with align_corners"}));
}

TEST_F(OnnxExport, RefusesNumbersThatAreReadOfComputedTensors) {
  EXPECT_TRUE(holds(error([](const at::Tensor& x) { return x.sum().item<float>() > 0 ? x : -x; }),
                    {"reads a number of a computed tensor", "at::where"}));
  write([&](const at::Tensor& x) { return x * torch::arange(3).sum().item<int64_t>(); });  // of a constant
}

TEST_F(OnnxExport, RefusesWritesThatItCannotFollow) {
  EXPECT_TRUE(
      holds(error([](const at::Tensor& x) {
              at::Tensor y = x + 0;
              y.diagonal().fill_(1);
              return y;
            }),
            {"aten::fill_.Scalar writes in place into the result of aten::diagonal, and an output reads the viewed "
             "memory afterwards",
             "without the last underscore"}));
  EXPECT_TRUE(holds(error([](const at::Tensor& x) {
                      at::Tensor y = x + 0;
                      y.view(torch::kInt).fill_(1);
                      return y * x;
                    }),
                    {"into the result of aten::view.dtype, and aten::mul.Tensor reads"}));
}

TEST_F(OnnxExport, RefusesComplexNumbers) {
  const char* why = "with tensors of type ComplexFloat, with which ONNX's operators do not compute";
  EXPECT_TRUE(holds(error([](const at::Tensor& x) { return at::view_as_real(x.to(torch::kComplexFloat)) * 2; }),
                    {"aten::to.dtype (1 time): ", why, "aten::view_as_real (1 time): "}));
  EXPECT_TRUE(
      holds(error([](const at::Tensor& x) { return torch::fft_rfft(x).abs(); }), {"aten::_fft_r2c (1 time): ", why}));
  example_ = example_.to(torch::kComplexFloat);
  EXPECT_TRUE(holds(error([](const at::Tensor& x) { return x; }), {"output \"output\" cannot be exported ", why}));
}

TEST_F(OnnxExport, NamesTheOperatorOfAResultThatItLacks) {
  EXPECT_TRUE(holds(error([](const at::Tensor& x) { return std::get<1>(x.cummax(1)); }),
                    {"output \"output\" cannot be exported with result 2 of aten::cummax, which has no translation"}));
  EXPECT_TRUE(holds(error([](const at::Tensor& x) { return std::get<1>(x.cummax(1)) + 1; }),
                    {"aten::add.Scalar (1 time): with result 2 of aten::cummax, which has no translation"}));
  EXPECT_TRUE(holds(error([](const at::Tensor&) { return at::Tensor(); }), {"depends on none of its inputs"}));
  const auto also_nothing = [](const Tensors& x) { return Tensors{x.at(0), at::Tensor()}; };
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      export_onnx(path(), module_, also_nothing, {{"x", example_}}, {.output_names = {"y", "z"}});
                    }),
                    {"output \"z\" cannot be exported with an undefined tensor"}));
}

TEST_F(OnnxExport, ComputesOnceWhatDependsOnWeightsAloneWhereThereIsNoTranslation) {
  const at::Tensor weight = module_.register_parameter("weight", torch::rand({6}) + 1);
  at::Tensor steps = module_.register_buffer("steps", torch::ones({6}));
  write([&](const at::Tensor& x) { return x * weight.digamma(); });
  EXPECT_EQ(read(path()).nodes, (std::vector<std::string>{"Mul", "Identity"}));
  write([&](const at::Tensor& x) {
    steps.digamma_();
    return x * steps;
  });
  EXPECT_TRUE(contains(read(path()).initializers, "constant")) << "the buffer itself is unchanged";
  EXPECT_TRUE(steps.equal(torch::ones({6})));
  std::filesystem::remove(path());
  EXPECT_TRUE(holds(error([&](const at::Tensor& x) { return x * (weight * static_cast<double>(x.size(0))).digamma(); }),
                    {"aten::digamma (1 time, first after weight): no translation", "aten::mul"}));
}

TEST_F(OnnxExport, NamesInputsInTheirOrder) {
  const auto forward = [](const Tensors& x) { return Tensors{x.at(1) + x.at(2)}; };
  const OnnxExample three{{"a", example_}, {"b", example_}, {"c", example_}};
  const auto inputs = [&](const std::vector<std::string>& names) {
    export_onnx(path(), module_, forward, three, {.input_names = names});
    return read(path()).inputs;
  };
  EXPECT_EQ(inputs({}), (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(inputs({"p", "q"}), (std::vector<std::string>{"p", "q"})) << "of the inputs that the output depends on";
  EXPECT_EQ(inputs({"p", "q", "r"}), (std::vector<std::string>{"q", "r"})) << "of all";
  EXPECT_TRUE(holds(error_of<ConfigError>([&] { inputs({"p"}); }),
                    {"OnnxOptions.input_names (--input_names): got 1 name for 2 inputs (b, c)."}));
}

TEST_F(OnnxExport, RefusesAnOutputOfNoInput) {
  EXPECT_TRUE(holds(error([](const at::Tensor&) { return torch::ones({3}); }), {"depends on none of its inputs"}));
}

TEST_F(OnnxExport, ChecksItsExampleAndOptions) {
  const auto forward = [](const Tensors& x) { return x; };
  EXPECT_TRUE(holds(error_of<Error>([&] { export_onnx(path(), module_, forward, {}); }), {"the example has no input"}));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      export_onnx(path(), module_, forward, {{"x", torch::ones({})}});
                    }),
                    {"input \"x\" must hold samples along its first dimension"}));
  nn::Module elsewhere;
  elsewhere.register_parameter("weight", torch::empty({2}, torch::kMeta));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      export_onnx(path(), elsewhere, forward, {{"x", example_}});
                    }),
                    {"weight is on meta", "to the CPU"}));
  EXPECT_TRUE(holds(error([](const at::Tensor& x) { return x; }, {.opset = 12}), {"OnnxOptions.opset", ">= 17", "12"}));
  EXPECT_TRUE(holds(error([](const at::Tensor& x) { return x; }, {.output_names = {"a", "b"}}),
                    {"OnnxOptions.output_names: there are 2 names for 1 outputs"}));
}

}  // namespace
}  // namespace levin::onnx_export_test
