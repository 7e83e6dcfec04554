#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

// A tensor whose shape depends on the batch, full of one number; others are constants of the graph.
void full_of(OperatorCall& call, const std::string& number) {
  call.give(call.expanded(number, call.result().sizes));
}

void zeros(OperatorCall& call) {
  full_of(call, call.graph().whole_number(0, call.result().dtype));
}

void ones(OperatorCall& call) {
  full_of(call, call.graph().whole_number(1, call.result().dtype));
}

template <const char* kNumber>
void full(OperatorCall& call) {
  full_of(call, call.in(kNumber, call.result().dtype));
}

constexpr char kFillValue[] = "fill_value", kValue[] = "value";

void scalar_tensor(OperatorCall& call) {
  call.give(call.in("s", call.result().dtype));
}

void arange(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const std::string start = call.has("start") ? call.in("start", dtype) : graph.whole_number(0, dtype);
  const std::string step = call.has("step") ? call.in("step", dtype) : graph.whole_number(1, dtype);
  call.give(graph.add("Range", {start, call.in("end", dtype), step}));
}

}  // namespace

Translations creation_translations() {
  return {{"zeros", zeros},
          {"zeros_like", zeros},
          {"new_zeros", zeros},
          {"zero", zeros},
          {"ones", ones},
          {"ones_like", ones},
          {"new_ones", ones},
          {"full", full<kFillValue>},
          {"full_like", full<kFillValue>},
          {"new_full", full<kFillValue>},
          {"fill", full<kValue>},
          {"scalar_tensor", scalar_tensor},
          {"arange", arange}};
}

}  // namespace levin::onnx
