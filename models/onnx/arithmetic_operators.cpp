#include <cmath>
#include <limits>
#include <numbers>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

bool is_real(at::ScalarType dtype) {
  return at::isFloatingType(dtype);
}

std::string times(OperatorCall& call, const std::string& name, const std::string& factor, at::ScalarType dtype) {
  if (!call.has(factor)) return name;
  if (!call.is_tensor(factor) && call.real(factor) == 1.0) return name;
  return call.graph().add("Mul", {name, call.in(factor, dtype)});
}

// One node on both, in the type of the result.
template <const char* kOp>
void simple(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  call.give(call.graph().add(kOp, {call.in("self", dtype), call.in("other", dtype)}));
}

constexpr char kMul[] = "Mul", kMax[] = "Max", kMin[] = "Min";

void add(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  if (dtype == at::kBool) throw NotTranslated("of two bool tensors; write logical_or");
  call.give(call.graph().add("Add", {call.in("self", dtype), times(call, call.in("other", dtype), "alpha", dtype)}));
}

void sub(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  call.give(call.graph().add("Sub", {call.in("self", dtype), times(call, call.in("other", dtype), "alpha", dtype)}));
}

void rsub(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  call.give(call.graph().add("Sub", {call.in("other", dtype), times(call, call.in("self", dtype), "alpha", dtype)}));
}

void mul(OperatorCall& call) {
  if (call.result().dtype != at::kBool) return simple<kMul>(call);
  call.give(call.graph().add("And", {call.in("self", at::kBool), call.in("other", at::kBool)}));
}

// Towards minus infinity; ONNX divides whole numbers towards zero.
std::string floor_division(OperatorCall& call, const std::string& a, const std::string& b, at::ScalarType dtype) {
  GraphBuilder& graph = call.graph();
  const std::string quotient = graph.add("Div", {a, b});
  if (is_real(dtype)) return graph.add("Floor", {quotient});
  const std::string zero = graph.whole_number(0, dtype);
  const std::string rest = graph.add("Sub", {a, graph.add("Mul", {quotient, b})});
  const std::string is_inexact = graph.add("Not", {graph.add("Equal", {rest, zero})});
  const std::string differ = graph.add("Xor", {graph.add("Less", {rest, zero}), graph.add("Less", {b, zero})});
  const std::string less = graph.cast(graph.add("And", {is_inexact, differ}), dtype);
  return graph.add("Sub", {quotient, less});
}

std::string without_fraction(GraphBuilder& graph, const std::string& x) {
  return graph.add("Mul", {graph.add("Sign", {x}), graph.add("Floor", {graph.add("Abs", {x})})});
}

void div(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  const std::string a = call.in("self", dtype), b = call.in("other", dtype);
  const std::string rounding = call.text("rounding_mode", "");
  if (rounding == "floor") return call.give(floor_division(call, a, b, dtype));
  const std::string quotient = call.graph().add("Div", {a, b});
  call.give(rounding == "trunc" && is_real(dtype) ? without_fraction(call.graph(), quotient) : quotient);
}

void floor_divide(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  call.give(floor_division(call, call.in("self", dtype), call.in("other", dtype), dtype));
}

// With the sign of the divisor, as Python's %.
void remainder(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  GraphBuilder& graph = call.graph();
  const std::string a = call.in("self", dtype), b = call.in("other", dtype);
  if (!is_real(dtype)) return call.give(graph.add("Mod", {a, b}));
  call.give(graph.add("Sub", {a, graph.add("Mul", {b, graph.add("Floor", {graph.add("Div", {a, b})})})}));
}

void fmod(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  call.give(call.graph().add("Mod", {call.in("self", dtype), call.in("other", dtype)}, {{"fmod", int64_t{1}}}));
}

void pow(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  const bool is_number = !call.is_tensor("exponent");
  if (is_number && call.real("exponent") == 2.0) {
    const std::string x = call.in("self", dtype);
    return call.give(call.graph().add("Mul", {x, x}));
  }
  if (is_number && call.real("exponent") == 0.5) return call.give(call.graph().add("Sqrt", {call.in("self", dtype)}));
  call.give(call.graph().add("Pow", {call.in("self", dtype), call.in("exponent", dtype)}));
}

void square(OperatorCall& call) {
  const std::string x = call.in("self");
  call.give(call.graph().add("Mul", {x, x}));
}

// start + weight * (end - start)
void lerp(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  GraphBuilder& graph = call.graph();
  const std::string start = call.in("self", dtype);
  const std::string step = graph.add("Sub", {call.in("end", dtype), start});
  call.give(graph.add("Add", {start, graph.add("Mul", {call.in("weight", dtype), step})}));
}

template <const char* kOp>
void add_combined(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  const std::string both = call.graph().add(kOp, {call.in("tensor1", dtype), call.in("tensor2", dtype)});
  call.give(call.graph().add("Add", {call.in("self", dtype), times(call, both, "value", dtype)}));
}

constexpr char kDiv[] = "Div";

// log(exp(a) + exp(b)), from the larger one
void logaddexp(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  GraphBuilder& graph = call.graph();
  const std::string a = call.in("self", dtype), b = call.in("other", dtype);
  const std::string apart = graph.add("Neg", {graph.add("Abs", {graph.add("Sub", {a, b})})});
  const std::string more = graph.add("Log", {graph.add("Add", {graph.add("Exp", {apart}), graph.number(1, dtype)})});
  call.give(graph.add("Add", {graph.add("Max", {a, b}), more}));
}

// The angle of the point (other, self), from -pi to pi. A zero has a sign, which only its reciprocal shows.
void atan2(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  GraphBuilder& graph = call.graph();
  std::string y = call.in("self", dtype), x = call.in("other", dtype);
  const auto number = [&](double value) { return graph.number(value, dtype); };
  const auto is_zero = [&](const std::string& z) { return graph.add("Equal", {z, number(0)}); };
  const auto is_negative = [&](const std::string& z) {
    const std::string signed_part = graph.add("Where", {is_zero(z), graph.add("Reciprocal", {z}), z});
    return graph.add("Less", {signed_part, number(0)});
  };
  const std::string are_infinite = graph.add("And", {graph.add("IsInf", {x}), graph.add("IsInf", {y})});
  y = graph.add("Where", {are_infinite, graph.add("Sign", {y}), y});
  x = graph.add("Where", {are_infinite, graph.add("Sign", {x}), x});
  const std::string ratio = graph.add("Where", {is_zero(y), y, graph.add("Div", {y, x})});
  const std::string half_turn =
      graph.add("Where", {is_negative(y), number(-std::numbers::pi), number(std::numbers::pi)});
  const std::string turn = graph.add("Where", {is_negative(x), half_turn, number(0)});
  call.give(graph.add("Add", {graph.add("Atan", {ratio}), turn}));
}

// The larger or smaller one; of a NaN and a number, the number.
template <const char* kOp>
void extreme_number(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  if (!is_real(dtype)) return simple<kOp>(call);
  GraphBuilder& graph = call.graph();
  const std::string a = call.in("self", dtype), b = call.in("other", dtype);
  const std::string unless_b = graph.add("Where", {graph.add("IsNaN", {b}), a, graph.add(kOp, {a, b})});
  call.give(graph.add("Where", {graph.add("IsNaN", {a}), b, unless_b}));
}

void hypot(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  GraphBuilder& graph = call.graph();
  const std::string a = call.in("self", dtype), b = call.in("other", dtype);
  call.give(graph.add("Sqrt", {graph.add("Add", {graph.add("Mul", {a, a}), graph.add("Mul", {b, b})})}));
}

// x log(y), and 0 where x is 0 and y a number
void xlogy(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  GraphBuilder& graph = call.graph();
  const std::string x = call.in("self", dtype), y = call.in("other", dtype), zero = graph.number(0, dtype);
  const std::string is_zero =
      graph.add("And", {graph.add("Equal", {x, zero}), graph.add("Not", {graph.add("IsNaN", {y})})});
  call.give(graph.add("Where", {is_zero, zero, graph.add("Mul", {x, graph.add("Log", {y})})}));
}

void clamp(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  std::string x = call.in("self", dtype);
  if (call.has("min")) x = call.graph().add("Max", {x, call.in("min", dtype)});
  if (call.has("max")) x = call.graph().add("Min", {x, call.in("max", dtype)});
  call.give(x);
}

void nan_to_num(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  if (dtype != at::kFloat && dtype != at::kDouble) throw NotTranslated("only of float32 and float64");
  const double most = dtype == at::kFloat ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
  GraphBuilder& graph = call.graph();
  const std::string x = call.in("self");
  const std::string numbers =
      graph.add("Where", {graph.add("IsNaN", {x}), graph.number(call.real("nan", 0), dtype), x});
  const auto replaced = [&](const std::string& of, double infinity, double by) {
    return graph.add("Where", {graph.add("Equal", {of, graph.number(infinity, dtype)}), graph.number(by, dtype), of});
  };
  const std::string below = replaced(numbers, HUGE_VAL, call.real("posinf", most));
  call.give(replaced(below, -HUGE_VAL, call.real("neginf", -most)));
}

}  // namespace

Translations arithmetic_translations() {
  return {{"add", add},
          {"sub", sub},
          {"rsub", rsub},
          {"mul", mul},
          {"div", div},
          {"floor_divide", floor_divide},
          {"remainder", remainder},
          {"fmod", fmod},
          {"pow", pow},
          {"square", square},
          {"lerp", lerp},
          {"addcmul", add_combined<kMul>},
          {"addcdiv", add_combined<kDiv>},
          {"maximum", simple<kMax>},
          {"minimum", simple<kMin>},
          {"logaddexp", logaddexp},
          {"atan2", atan2},
          {"hypot", hypot},
          {"fmax", extreme_number<kMax>},
          {"fmin", extreme_number<kMin>},
          {"xlogy", xlogy},
          {"clamp", clamp},
          {"clamp_min", clamp},
          {"clamp_max", clamp},
          {"nan_to_num", nan_to_num}};
}

}  // namespace levin::onnx
