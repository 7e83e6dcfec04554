#include <cmath>
#include <limits>
#include <numbers>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

using Call = OperatorCall&;

bool is_real(Call call) {
  return at::isFloatingType(call.result().dtype);
}

// ---- functions of one tensor ---------------------------------------------------------------------------------------

// One node on the input, which PyTorch converts to float32 if it holds integers.
constexpr std::pair<const char*, const char*> kOneNode[] = {{"relu", "Relu"},
                                                            {"sigmoid", "Sigmoid"},
                                                            {"tanh", "Tanh"},
                                                            {"exp", "Exp"},
                                                            {"log", "Log"},
                                                            {"sqrt", "Sqrt"},
                                                            {"neg", "Neg"},
                                                            {"abs", "Abs"},
                                                            {"erf", "Erf"},
                                                            {"sin", "Sin"},
                                                            {"cos", "Cos"},
                                                            {"tan", "Tan"},
                                                            {"asin", "Asin"},
                                                            {"acos", "Acos"},
                                                            {"atan", "Atan"},
                                                            {"sinh", "Sinh"},
                                                            {"cosh", "Cosh"},
                                                            {"asinh", "Asinh"},
                                                            {"acosh", "Acosh"},
                                                            {"atanh", "Atanh"},
                                                            {"floor", "Floor"},
                                                            {"ceil", "Ceil"},
                                                            {"sign", "Sign"},
                                                            {"sgn", "Sign"},
                                                            {"reciprocal", "Reciprocal"},
                                                            {"softsign", "Softsign"}};

Term input_of(Call call) {
  return {call, call.in("self", call.result().dtype)};
}

// A function of the input.
Translation function(Term (*of)(const Term& x)) {
  return [of](Call call) { call.give(of(input_of(call))); };
}

// One node with a number as attribute: an argument of the call, or its default.
Translation with_attribute(const char* op, const char* attribute, const char* argument, double otherwise) {
  return [=](Call call) {
    call.give(call.graph().add(op, {input_of(call)}, {{attribute, call.real(argument, otherwise)}}));
  };
}

Term clipped(const Term& x, double low, double high) {
  return node("Clip", {x, low, high});
}

Term without_fraction(const Term& x) {
  return node("Sign", {x}) * node("Floor", {node("Abs", {x})});
}

// (x + 3) / 6, between 0 and 1
Term hard_gate(const Term& x) {
  return clipped((x + 3) / 6, 0, 1);
}

// Rounds halves to even numbers, as ONNX does.
void round(Call call) {
  if (call.whole_number("decimals", 0) != 0) throw NotTranslated("only to whole numbers");
  call.give(node("Round", {input_of(call)}));
}

// x tanh(log(1 + exp(x)))
void mish(Call call) {
  const Term x = input_of(call);
  if (call.graph().opset() >= 18) return call.give(node("Mish", {x}));
  call.give(x * node("Tanh", {node("Softplus", {x})}));
}

// Hendrycks and Gimpel, Gaussian error linear units, 2016: x times the normal distribution function, or its
// approximation by a tanh.
void gelu(Call call) {
  const std::string kind = call.text("approximate", "none");
  const Term x = input_of(call);
  if (call.graph().opset() >= 20) return call.give(call.graph().add("Gelu", {x}, {{"approximate", kind}}));
  const Term twice = kind == "tanh" ? node("Tanh", {(x + x * (x * x) * 0.044715) * std::sqrt(2 * std::numbers::inv_pi)})
                                    : node("Erf", {x * (std::numbers::sqrt2 / 2)});
  call.give(x * 0.5 * (twice + 1));
}

// scale * (x if x > 0, else alpha * (exp(x * input_scale) - 1))
void elu(Call call) {
  const double scale = call.real("scale", 1);
  if (call.real("input_scale", 1) != 1) throw NotTranslated("only with input_scale 1");
  const Term y(call, call.graph().add("Elu", {input_of(call)}, {{"alpha", call.real("alpha", 1)}}));
  call.give(scale == 1 ? y : y * scale);
}

// Klambauer et al., Self-normalizing neural networks, 2017
void selu(Call call) {
  call.give(
      call.graph().add("Selu", {input_of(call)},
                       {{"alpha", 1.6732632423543772848170429916717}, {"gamma", 1.0507009873554804934193349852946}}));
}

// In evaluation mode, a leaky ReLU with the mean of its slopes.
void rrelu(Call call) {
  if (call.flag("training")) throw NotTranslated("in training mode; put the model into evaluation mode (eval())");
  const double slope = (call.real("lower", 1.0 / 8) + call.real("upper", 1.0 / 3)) / 2;
  call.give(call.graph().add("LeakyRelu", {input_of(call)}, {{"alpha", slope}}));
}

// log(x / (1 - x)), of x between eps and 1 - eps
void logit(Call call) {
  Term x = input_of(call);
  if (call.has("eps")) x = clipped(x, call.real("eps"), 1 - call.real("eps"));
  call.give(node("Log", {x / (1 - x)}));
}

// A weight per channel, the second dimension.
void prelu(Call call) {
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
void softplus(Call call) {
  const double beta = call.real("beta", 1), threshold = call.real("threshold", 20);
  const Term x = input_of(call), scaled = beta == 1 ? x : x * beta, soft = node("Softplus", {scaled});
  call.give(node("Where", {node("Greater", {scaled, threshold}), x, beta == 1 ? soft : soft / beta}));
}

void hardtanh(Call call) {
  call.give(clipped(input_of(call), call.real("min_val", -1), call.real("max_val", 1)));
}

void threshold(Call call) {
  const Term x = input_of(call), limit(call, call.in("threshold", call.result().dtype));
  call.give(node("Where", {node("Greater", {x, limit}), x, Term(call, call.in("value", call.result().dtype))}));
}

void shrink(Call call, bool is_soft) {
  const double lambda = call.real("lambd", 0.5);
  call.give(call.graph().add("Shrink", {input_of(call)}, {{"lambd", lambda}, {"bias", is_soft ? lambda : 0.0}}));
}

// The first half along a dimension, times the sigmoid of the second.
void glu(Call call) {
  GraphBuilder& graph = call.graph();
  const int64_t dim = call.dimension("dim");
  const BatchNumber half = call.result().sizes.at(static_cast<size_t>(dim));
  const auto halves =
      graph.add_several(2, "Split", {call.in("self"), graph.batch_numbers({half, half})}, {{"axis", dim}});
  call.give(graph.add("Mul", {halves[0], graph.add("Sigmoid", {halves[1]})}));
}

void square(Call call) {
  const Term x(call, call.in("self"));
  call.give(x * x);
}

void nan_to_num(Call call) {
  const at::ScalarType dtype = call.result().dtype;
  if (dtype != at::kFloat && dtype != at::kDouble) throw NotTranslated("only of float32 and float64");
  const double largest = dtype == at::kFloat ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
  const Term x = input_of(call), numbers = node("Where", {node("IsNaN", {x}), call.real("nan", 0), x});
  const auto replaced = [&](const Term& of, double infinity, double by) {
    return node("Where", {node("Equal", {of, infinity}), by, of});
  };
  call.give(
      replaced(replaced(numbers, HUGE_VAL, call.real("posinf", largest)), -HUGE_VAL, call.real("neginf", -largest)));
}

// ---- arithmetic on two tensors, or a tensor and a number -----------------------------------------------------------

Term argument(Call call, const char* name) {
  return {call, call.in(name, call.result().dtype)};
}

// A function of both arguments, in the type of the result.
Translation function(Term (*of)(const Term& a, const Term& b)) {
  return [of](Call call) {
    const Term a = argument(call, "self");
    call.give(of(a, argument(call, "other")));
  };
}

Translation both(const char* op) {
  return [op](Call call) {
    const Term a = argument(call, "self");
    call.give(node(op, {a, argument(call, "other")}));
  };
}

Term times(Call call, const Term& x, const char* factor) {
  if (!call.has(factor) || (!call.is_tensor(factor) && call.real(factor) == 1.0)) return x;
  return x * argument(call, factor);
}

// first + alpha * second, or the difference
void sum(Call call, const char* op, const char* first, const char* second) {
  if (call.result().dtype == at::kBool && op == std::string("Add")) {
    throw NotTranslated("of two bool tensors; write logical_or");
  }
  const Term a = argument(call, first);
  call.give(node(op, {a, times(call, argument(call, second), "alpha")}));
}

// self + value * (tensor1 op tensor2)
void add_combined(Call call, const char* op) {
  const Term one = argument(call, "tensor1"), combined = node(op, {one, argument(call, "tensor2")});
  const Term x = argument(call, "self");
  call.give(x + times(call, combined, "value"));
}

// Towards minus infinity; ONNX divides integers towards zero.
Term floor_division(Call call, const Term& a, const Term& b) {
  const Term quotient = a / b;
  if (is_real(call)) return node("Floor", {quotient});
  const Term rest = a - quotient * b, is_inexact = node("Not", {node("Equal", {rest, 0})});
  const Term differ = node("Xor", {node("Less", {rest, 0}), node("Less", {b, 0})});
  return quotient - Term(call, call.graph().cast(node("And", {is_inexact, differ}), call.result().dtype));
}

void div(Call call) {
  const Term a = argument(call, "self"), b = argument(call, "other");
  const std::string rounding = call.text("rounding_mode", "");
  if (rounding == "floor") return call.give(floor_division(call, a, b));
  const Term quotient = a / b;
  call.give(rounding == "trunc" && is_real(call) ? without_fraction(quotient) : quotient);
}

void floor_divide(Call call) {
  const Term a = argument(call, "self");
  call.give(floor_division(call, a, argument(call, "other")));
}

// With the sign of the divisor, as Python's %.
void remainder(Call call) {
  const Term a = argument(call, "self"), b = argument(call, "other");
  call.give(is_real(call) ? a - b * node("Floor", {a / b}) : node("Mod", {a, b}));
}

void fmod(Call call) {
  const Term a = argument(call, "self");
  call.give(call.graph().add("Mod", {a, argument(call, "other")}, {{"fmod", int64_t{1}}}));
}

void pow(Call call) {
  const bool is_number = !call.is_tensor("exponent");
  const Term x = argument(call, "self");
  if (is_number && call.real("exponent") == 2.0) return call.give(x * x);
  if (is_number && call.real("exponent") == 0.5) return call.give(node("Sqrt", {x}));
  call.give(node("Pow", {x, argument(call, "exponent")}));
}

// start + weight * (end - start)
void lerp(Call call) {
  const Term start = argument(call, "self"), step = argument(call, "end") - start;
  call.give(start + argument(call, "weight") * step);
}

// The angle of the point (other, self), from -pi to pi. A zero has a sign, which only its reciprocal shows.
Term atan2(const Term& self, const Term& other) {
  constexpr double pi = std::numbers::pi;
  const auto where = [](const Operand& condition, const Operand& yes, const Operand& no) {
    return node("Where", {condition, yes, no});
  };
  const auto is_zero = [](const Term& z) { return node("Equal", {z, 0}); };
  const auto is_negative = [&](const Term& z) {
    return node("Less", {where(is_zero(z), node("Reciprocal", {z}), z), 0});
  };
  const Term are_infinite = node("And", {node("IsInf", {other}), node("IsInf", {self})});
  const Term y = where(are_infinite, node("Sign", {self}), self), x = where(are_infinite, node("Sign", {other}), other);
  const Term ratio = where(is_zero(y), y, y / x), no_turn = y.number(0);
  const Term half_turn = where(is_negative(y), y.number(-pi), pi);
  return node("Atan", {ratio}) + where(is_negative(x), half_turn, no_turn);
}

// The larger or smaller number; of a NaN and a number, the number.
Translation extreme_number(const char* op) {
  return [op](Call call) {
    const Term a = argument(call, "self"), b = argument(call, "other"), found = node(op, {a, b});
    if (!is_real(call)) return call.give(found);
    call.give(node("Where", {node("IsNaN", {a}), b, node("Where", {node("IsNaN", {b}), a, found})}));
  };
}

void clamp(Call call) {
  Term x = argument(call, "self");
  if (call.has("min")) x = node("Max", {x, argument(call, "min")});
  if (call.has("max")) x = node("Min", {x, argument(call, "max")});
  call.give(x);
}

// ---- comparisons, conditions, bits ---------------------------------------------------------------------------------

// Compares both in the type in which PyTorch does. ONNX orders numbers only.
Translation compared(const char* op, bool is_negated = false) {
  return [=](Call call) {
    at::ScalarType dtype = call.common_type("self", "other");
    if (dtype == at::kBool && op != std::string("Equal")) dtype = at::kInt;
    const std::string result = call.graph().add(op, {call.in("self", dtype), call.in("other", dtype)});
    call.give(is_negated ? call.graph().add("Not", {result}) : result);
  };
}

Translation logical(const char* op) {
  return [op](Call call) {
    call.give(call.graph().add(op, {call.in("self", at::kBool), call.in("other", at::kBool)}));
  };
}

void logical_not(Call call) {
  call.give(call.graph().add("Not", {call.in("self", at::kBool)}));
}

void needs_18(Call call) {
  if (call.graph().opset() < 18) throw NotTranslated("of whole numbers needs --opset 18");
}

// On bools and on integers.
Translation bitwise(const char* op, const char* of_integers) {
  return [=](Call call) {
    if (call.result().dtype == at::kBool) return logical(op)(call);
    needs_18(call);
    both(of_integers)(call);
  };
}

void bitwise_not(Call call) {
  if (call.result().dtype == at::kBool) return logical_not(call);
  needs_18(call);
  call.give(call.graph().add("BitwiseNot", {call.in("self")}));
}

Translation where(const char* condition, const char* yes, const char* no) {
  return [=](Call call) {
    const at::ScalarType dtype = call.result().dtype;
    call.give(call.graph().add("Where", {call.in(condition, at::kBool), call.in(yes, dtype), call.in(no, dtype)}));
  };
}

Translation test(const char* op) {
  return [op](Call call) { call.give(call.graph().add(op, {call.in("self")})); };
}

}  // namespace

TranslationRows elementwise_translations() {
  using T = const Term&;
  TranslationRows rows = {
      {function([](T x) { return node("Reciprocal", {node("Sqrt", {x})}); }), "rsqrt"},
      {function([](T x) { return without_fraction(x); }), "trunc"},
      {function([](T x) { return x - without_fraction(x); }), "frac"},
      {function([](T x) { return node("Log", {x + 1}); }), "log1p"},
      {function([](T x) { return node("Exp", {x}) - 1; }), "expm1"},
      {function([](T x) { return node("Log", {x}) * (1 / std::log(2)); }), "log2"},
      {function([](T x) { return node("Log", {x}) * (1 / std::log(10)); }), "log10"},
      {function([](T x) { return node("Exp", {x * std::numbers::ln2}); }), "exp2"},
      {function([](T x) { return 1 - node("Erf", {x}); }), "erfc"},
      {function([](T x) { return x * node("Sigmoid", {x}); }), "silu"},
      {function([](T x) { return node("Neg", {node("Softplus", {node("Neg", {x})})}); }),
       "log_sigmoid log_sigmoid_forward"},
      {function([](T x) { return clipped(x, 0, 6); }), "relu6"},
      {function([](T x) { return hard_gate(x); }), "hardsigmoid"},
      {function([](T x) { return x * hard_gate(x); }), "hardswish"},
      {with_attribute("Celu", "alpha", "alpha", 1), "celu"},
      {with_attribute("LeakyRelu", "alpha", "negative_slope", 0.01), "leaky_relu"},
      {[](Call call) { shrink(call, true); }, "softshrink"},
      {[](Call call) { shrink(call, false); }, "hardshrink"},
      {test("IsNaN"), "isnan"},
      {test("IsInf"), "isinf"},
      {[](Call call) { sum(call, "Add", "self", "other"); }, "add"},
      {[](Call call) { sum(call, "Sub", "self", "other"); }, "sub"},
      {[](Call call) { sum(call, "Sub", "other", "self"); }, "rsub"},
      {[](Call call) { (call.result().dtype == at::kBool ? logical("And") : both("Mul"))(call); }, "mul"},
      {[](Call call) { add_combined(call, "Mul"); }, "addcmul"},
      {[](Call call) { add_combined(call, "Div"); }, "addcdiv"},
      {both("Max"), "maximum"},
      {both("Min"), "minimum"},
      // log(exp(a) + exp(b)), from the larger one
      {function([](T a, T b) {
         const Term more = node("Log", {node("Exp", {node("Neg", {node("Abs", {a - b})})}) + 1});
         return node("Max", {a, b}) + more;
       }),
       "logaddexp"},
      {function(atan2), "atan2"},
      {function([](T a, T b) { return node("Sqrt", {a * a + b * b}); }), "hypot"},
      // x log(y), and 0 where x is 0 and y a number
      {function([](T x, T y) {
         const Term is_zero = node("And", {node("Equal", {x, 0}), node("Not", {node("IsNaN", {y})})});
         return node("Where", {is_zero, 0, x * node("Log", {y})});
       }),
       "xlogy"},
      {extreme_number("Max"), "fmax"},
      {extreme_number("Min"), "fmin"},
      {compared("Equal"), "eq"},
      {compared("Equal", /*is_negated=*/true), "ne"},
      {compared("Less"), "lt"},
      {compared("LessOrEqual"), "le"},
      {compared("Greater"), "gt"},
      {compared("GreaterOrEqual"), "ge"},
      {logical("And"), "logical_and"},
      {logical("Or"), "logical_or"},
      {logical("Xor"), "logical_xor"},
      {bitwise("And", "BitwiseAnd"), "bitwise_and __and__"},
      {bitwise("Or", "BitwiseOr"), "bitwise_or __or__"},
      {bitwise("Xor", "BitwiseXor"), "bitwise_xor __xor__"},
      {where("condition", "self", "other"), "where"},
      {where("mask", "value", "self"), "masked_fill"}};
  const TranslationRows others = {{round, "round"},
                                  {mish, "mish"},
                                  {gelu, "gelu"},
                                  {elu, "elu"},
                                  {selu, "selu"},
                                  {rrelu, "rrelu rrelu_with_noise"},
                                  {logit, "logit"},
                                  {prelu, "prelu _prelu_kernel"},
                                  {softplus, "softplus"},
                                  {hardtanh, "hardtanh"},
                                  {glu, "glu"},
                                  {threshold, "threshold"},
                                  {square, "square"},
                                  {nan_to_num, "nan_to_num"},
                                  {div, "div"},
                                  {lerp, "lerp"},
                                  {floor_divide, "floor_divide"},
                                  {remainder, "remainder"},
                                  {fmod, "fmod"},
                                  {pow, "pow"},
                                  {clamp, "clamp clamp_min clamp_max"},
                                  {logical_not, "logical_not"},
                                  {bitwise_not, "bitwise_not"}};
  rows.insert(rows.end(), others.begin(), others.end());
  for (const auto& [name, op] : kOneNode) {
    rows.emplace_back([op = op](Call call) { call.give(node(op, {input_of(call)})); }, name);
  }
  return rows;
}

}  // namespace levin::onnx
