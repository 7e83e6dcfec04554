#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

// Both in the type in which PyTorch compares them. ONNX orders numbers only.
std::string compared(OperatorCall& call, const std::string& op) {
  at::ScalarType dtype = call.common_type("self", "other");
  if (dtype == at::kBool && op != "Equal") dtype = at::kInt;
  return call.graph().add(op, {call.in("self", dtype), call.in("other", dtype)});
}

void eq(OperatorCall& call) {
  call.give(compared(call, "Equal"));
}
void ne(OperatorCall& call) {
  call.give(call.graph().add("Not", {compared(call, "Equal")}));
}
void lt(OperatorCall& call) {
  call.give(compared(call, "Less"));
}
void le(OperatorCall& call) {
  call.give(compared(call, "LessOrEqual"));
}
void gt(OperatorCall& call) {
  call.give(compared(call, "Greater"));
}
void ge(OperatorCall& call) {
  call.give(compared(call, "GreaterOrEqual"));
}

void logical_not(OperatorCall& call) {
  call.give(call.graph().add("Not", {call.in("self", at::kBool)}));
}

template <const char* kOp>
void logical(OperatorCall& call) {
  call.give(call.graph().add(kOp, {call.in("self", at::kBool), call.in("other", at::kBool)}));
}

constexpr char kAnd[] = "And", kOr[] = "Or", kXor[] = "Xor", kBitwiseAnd[] = "BitwiseAnd", kBitwiseOr[] = "BitwiseOr",
               kBitwiseXor[] = "BitwiseXor";

void needs_18(OperatorCall& call) {
  if (call.graph().opset() < 18) throw NotTranslated("of whole numbers needs --opset 18");
}

template <const char* kOp, const char* kOfNumbers>
void bitwise(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  if (dtype == at::kBool) return logical<kOp>(call);
  needs_18(call);
  call.give(call.graph().add(kOfNumbers, {call.in("self", dtype), call.in("other", dtype)}));
}

void bitwise_not(OperatorCall& call) {
  if (call.result().dtype == at::kBool) return logical_not(call);
  needs_18(call);
  call.give(call.graph().add("BitwiseNot", {call.in("self")}));
}

void where(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  call.give(
      call.graph().add("Where", {call.in("condition", at::kBool), call.in("self", dtype), call.in("other", dtype)}));
}

void masked_fill(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  call.give(call.graph().add("Where", {call.in("mask", at::kBool), call.in("value", dtype), call.in("self", dtype)}));
}

}  // namespace

Translations comparison_translations() {
  return {{"eq", eq},
          {"ne", ne},
          {"lt", lt},
          {"le", le},
          {"gt", gt},
          {"ge", ge},
          {"logical_not", logical_not},
          {"logical_and", logical<kAnd>},
          {"logical_or", logical<kOr>},
          {"logical_xor", logical<kXor>},
          {"bitwise_and", bitwise<kAnd, kBitwiseAnd>},
          {"bitwise_or", bitwise<kOr, kBitwiseOr>},
          {"bitwise_xor", bitwise<kXor, kBitwiseXor>},
          {"__and__", bitwise<kAnd, kBitwiseAnd>},
          {"__or__", bitwise<kOr, kBitwiseOr>},
          {"__xor__", bitwise<kXor, kBitwiseXor>},
          {"bitwise_not", bitwise_not},
          {"where", where},
          {"masked_fill", masked_fill}};
}

}  // namespace levin::onnx
