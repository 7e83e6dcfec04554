#include <cmath>
#include <numbers>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

// Of whole numbers PyTorch computes in float32.
std::string input_of(OperatorCall& call) {
  return call.in("self", call.result().dtype);
}

std::string constant_of(OperatorCall& call, double number) {
  return call.graph().number(number, call.result().dtype);
}

template <const char* kOp>
void one_node(OperatorCall& call) {
  call.give(call.graph().add(kOp, {input_of(call)}));
}

// "aten::logical_not" and the like: of the input's own type
template <const char* kOp>
void test_node(OperatorCall& call) {
  call.give(call.graph().add(kOp, {call.in("self")}));
}

constexpr char kRelu[] = "Relu", kSigmoid[] = "Sigmoid", kTanh[] = "Tanh", kExp[] = "Exp", kLog[] = "Log",
               kSqrt[] = "Sqrt", kNeg[] = "Neg", kAbs[] = "Abs", kErf[] = "Erf", kSin[] = "Sin", kCos[] = "Cos",
               kTan[] = "Tan", kAsin[] = "Asin", kAcos[] = "Acos", kAtan[] = "Atan", kSinh[] = "Sinh", kCosh[] = "Cosh",
               kAsinh[] = "Asinh", kAcosh[] = "Acosh", kAtanh[] = "Atanh", kFloor[] = "Floor", kCeil[] = "Ceil",
               kSign[] = "Sign", kReciprocal[] = "Reciprocal", kSoftsign[] = "Softsign", kIsNaN[] = "IsNaN",
               kIsInf[] = "IsInf";

void rsqrt(OperatorCall& call) {
  call.give(call.graph().add("Reciprocal", {call.graph().add("Sqrt", {input_of(call)})}));
}

// Halves to even numbers, in both.
void round(OperatorCall& call) {
  if (call.whole_number("decimals", 0) != 0) throw NotTranslated("only to whole numbers");
  call.give(call.graph().add("Round", {input_of(call)}));
}

std::string towards_zero(OperatorCall& call, const std::string& x) {
  GraphBuilder& graph = call.graph();
  return graph.add("Mul", {graph.add("Sign", {x}), graph.add("Floor", {graph.add("Abs", {x})})});
}

void trunc(OperatorCall& call) {
  call.give(towards_zero(call, input_of(call)));
}

void frac(OperatorCall& call) {
  const std::string x = input_of(call);
  call.give(call.graph().add("Sub", {x, towards_zero(call, x)}));
}

void log1p(OperatorCall& call) {
  call.give(call.graph().add("Log", {call.graph().add("Add", {input_of(call), constant_of(call, 1)})}));
}

void expm1(OperatorCall& call) {
  call.give(call.graph().add("Sub", {call.graph().add("Exp", {input_of(call)}), constant_of(call, 1)}));
}

void log_to_base(OperatorCall& call, double base) {
  const std::string natural = call.graph().add("Log", {input_of(call)});
  call.give(call.graph().add("Mul", {natural, constant_of(call, 1 / std::log(base))}));
}

void log2(OperatorCall& call) {
  log_to_base(call, 2);
}

void log10(OperatorCall& call) {
  log_to_base(call, 10);
}

void exp2(OperatorCall& call) {
  call.give(call.graph().add("Exp", {call.graph().add("Mul", {input_of(call), constant_of(call, std::numbers::ln2)})}));
}

void erfc(OperatorCall& call) {
  call.give(call.graph().add("Sub", {constant_of(call, 1), call.graph().add("Erf", {input_of(call)})}));
}

// x tanh(log(1 + exp(x)))
void mish(OperatorCall& call) {
  const std::string x = input_of(call);
  if (call.graph().opset() >= 18) return call.give(call.graph().add("Mish", {x}));
  call.give(call.graph().add("Mul", {x, call.graph().add("Tanh", {call.graph().add("Softplus", {x})})}));
}

void silu(OperatorCall& call) {
  const std::string x = input_of(call);
  call.give(call.graph().add("Mul", {x, call.graph().add("Sigmoid", {x})}));
}

// Hendrycks and Gimpel, Gaussian error linear units, 2016: x times the normal distribution function, or its
// approximation by a tanh.
void gelu(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const std::string x = input_of(call), kind = call.text("approximate", "none");
  if (graph.opset() >= 20) return call.give(graph.add("Gelu", {x}, {{"approximate", kind}}));
  std::string share;
  if (kind == "tanh") {
    const std::string cubic =
        graph.add("Mul", {graph.add("Mul", {x, graph.add("Mul", {x, x})}), constant_of(call, 0.044715)});
    const std::string inner =
        graph.add("Mul", {graph.add("Add", {x, cubic}), constant_of(call, std::sqrt(2 * std::numbers::inv_pi))});
    share = graph.add("Tanh", {inner});
  } else {
    share = graph.add("Erf", {graph.add("Mul", {x, constant_of(call, std::numbers::sqrt2 / 2)})});
  }
  const std::string half = graph.add("Mul", {x, constant_of(call, 0.5)});
  call.give(graph.add("Mul", {half, graph.add("Add", {share, constant_of(call, 1)})}));
}

// scale * (x if x > 0, else alpha * (exp(x * input_scale) - 1))
void elu(OperatorCall& call) {
  const double scale = call.real("scale", 1), input_scale = call.real("input_scale", 1);
  GraphBuilder& graph = call.graph();
  if (input_scale != 1) throw NotTranslated("only with input_scale 1");
  const std::string y = graph.add("Elu", {input_of(call)}, {{"alpha", call.real("alpha", 1)}});
  call.give(scale == 1 ? y : graph.add("Mul", {y, constant_of(call, scale)}));
}

// Klambauer et al., Self-normalizing neural networks, 2017
void selu(OperatorCall& call) {
  call.give(
      call.graph().add("Selu", {input_of(call)},
                       {{"alpha", 1.6732632423543772848170429916717}, {"gamma", 1.0507009873554804934193349852946}}));
}

void celu(OperatorCall& call) {
  call.give(call.graph().add("Celu", {input_of(call)}, {{"alpha", call.real("alpha", 1)}}));
}

void leaky_relu(OperatorCall& call) {
  call.give(call.graph().add("LeakyRelu", {input_of(call)}, {{"alpha", call.real("negative_slope", 0.01)}}));
}

// In evaluation mode, a leaky ReLU with the mean of its slopes.
void rrelu(OperatorCall& call) {
  if (call.flag("training")) throw NotTranslated("in training mode; put the model into evaluation mode (eval())");
  const double slope = (call.real("lower", 1.0 / 8) + call.real("upper", 1.0 / 3)) / 2;
  call.give(call.graph().add("LeakyRelu", {input_of(call)}, {{"alpha", slope}}));
}

// log(x / (1 - x)), of x between eps and 1 - eps
void logit(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  std::string x = input_of(call);
  if (call.has("eps"))
    x = graph.add("Clip", {x, constant_of(call, call.real("eps")), constant_of(call, 1 - call.real("eps"))});
  call.give(graph.add("Log", {graph.add("Div", {x, graph.add("Sub", {constant_of(call, 1), x})})}));
}

// A weight per channel, the second dimension.
void prelu(OperatorCall& call) {
  std::string weight = call.in("weight");
  if (call.rank("self") == 0) weight = call.reshaped(weight, {});
  if (call.rank("self") > 2 && call.value("weight").sizes.at(0).rest > 1) {
    BatchNumbers sizes{call.value("weight").sizes[0]};
    sizes.resize(static_cast<size_t>(call.rank("self")) - 1, BatchNumber{0, 1});
    weight = call.reshaped(weight, sizes);
  }
  call.give(call.graph().add("PRelu", {call.in("self"), weight}));
}

// log(1 + exp(beta x)) / beta; x itself where beta x > threshold
void softplus(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const double beta = call.real("beta", 1), threshold = call.real("threshold", 20);
  const std::string x = input_of(call);
  const std::string scaled = beta == 1 ? x : graph.add("Mul", {x, constant_of(call, beta)});
  const std::string soft = graph.add("Softplus", {scaled});
  const std::string divided = beta == 1 ? soft : graph.add("Div", {soft, constant_of(call, beta)});
  call.give(graph.add("Where", {graph.add("Greater", {scaled, constant_of(call, threshold)}), x, divided}));
}

// -log(1 + exp(-x))
void log_sigmoid(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  call.give(graph.add("Neg", {graph.add("Softplus", {graph.add("Neg", {input_of(call)})})}));
}

std::string clipped(OperatorCall& call, const std::string& x, double low, double high) {
  return call.graph().add("Clip", {x, constant_of(call, low), constant_of(call, high)});
}

void hardtanh(OperatorCall& call) {
  call.give(clipped(call, input_of(call), call.real("min_val", -1), call.real("max_val", 1)));
}

void relu6(OperatorCall& call) {
  call.give(clipped(call, input_of(call), 0, 6));
}

// (x + 3) / 6, between 0 and 1
std::string hard_gate(OperatorCall& call, const std::string& x) {
  return clipped(
      call, call.graph().add("Div", {call.graph().add("Add", {x, constant_of(call, 3)}), constant_of(call, 6)}), 0, 1);
}

void hardsigmoid(OperatorCall& call) {
  call.give(hard_gate(call, input_of(call)));
}

void hardswish(OperatorCall& call) {
  const std::string x = input_of(call);
  call.give(call.graph().add("Mul", {x, hard_gate(call, x)}));
}

void threshold(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const std::string x = input_of(call);
  call.give(graph.add("Where", {graph.add("Greater", {x, call.in("threshold", dtype)}), x, call.in("value", dtype)}));
}

void softshrink(OperatorCall& call) {
  const double lambda = call.real("lambd", 0.5);
  call.give(call.graph().add("Shrink", {input_of(call)}, {{"lambd", lambda}, {"bias", lambda}}));
}

void hardshrink(OperatorCall& call) {
  call.give(call.graph().add("Shrink", {input_of(call)}, {{"lambd", call.real("lambd", 0.5)}, {"bias", 0.0}}));
}

// The first half along a dimension, times the sigmoid of the second.
void glu(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const int64_t dim = call.dimension("dim");
  const BatchNumber half = call.result().sizes.at(static_cast<size_t>(dim));
  const auto halves =
      graph.add_several(2, "Split", {call.in("self"), graph.batch_numbers({half, half})}, {{"axis", dim}});
  call.give(graph.add("Mul", {halves[0], graph.add("Sigmoid", {halves[1]})}));
}

}  // namespace

Translations activation_translations() {
  return {{"relu", one_node<kRelu>},
          {"sigmoid", one_node<kSigmoid>},
          {"tanh", one_node<kTanh>},
          {"exp", one_node<kExp>},
          {"log", one_node<kLog>},
          {"sqrt", one_node<kSqrt>},
          {"neg", one_node<kNeg>},
          {"abs", one_node<kAbs>},
          {"erf", one_node<kErf>},
          {"sin", one_node<kSin>},
          {"cos", one_node<kCos>},
          {"tan", one_node<kTan>},
          {"asin", one_node<kAsin>},
          {"acos", one_node<kAcos>},
          {"atan", one_node<kAtan>},
          {"sinh", one_node<kSinh>},
          {"cosh", one_node<kCosh>},
          {"asinh", one_node<kAsinh>},
          {"acosh", one_node<kAcosh>},
          {"atanh", one_node<kAtanh>},
          {"floor", one_node<kFloor>},
          {"ceil", one_node<kCeil>},
          {"sign", one_node<kSign>},
          {"sgn", one_node<kSign>},
          {"reciprocal", one_node<kReciprocal>},
          {"mish", mish},
          {"softsign", one_node<kSoftsign>},
          {"isnan", test_node<kIsNaN>},
          {"isinf", test_node<kIsInf>},
          {"rsqrt", rsqrt},
          {"round", round},
          {"trunc", trunc},
          {"frac", frac},
          {"log1p", log1p},
          {"expm1", expm1},
          {"log2", log2},
          {"log10", log10},
          {"exp2", exp2},
          {"erfc", erfc},
          {"silu", silu},
          {"gelu", gelu},
          {"elu", elu},
          {"selu", selu},
          {"celu", celu},
          {"leaky_relu", leaky_relu},
          {"prelu", prelu},
          {"_prelu_kernel", prelu},
          {"softplus", softplus},
          {"log_sigmoid", log_sigmoid},
          {"log_sigmoid_forward", log_sigmoid},
          {"rrelu", rrelu},
          {"rrelu_with_noise", rrelu},
          {"logit", logit},
          {"hardtanh", hardtanh},
          {"relu6", relu6},
          {"hardsigmoid", hardsigmoid},
          {"hardswish", hardswish},
          {"threshold", threshold},
          {"softshrink", softshrink},
          {"hardshrink", hardshrink},
          {"glu", glu}};
}

}  // namespace levin::onnx
