#include <ATen/ops/full.h>

#include <limits>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

// A weight or bias of so many numbers, or the constant that changes nothing.
std::string weight_or(OperatorCall& call, const std::string& argument, const std::vector<int64_t>& sizes,
                      double number) {
  if (call.has(argument)) return call.in(argument);
  return call.graph().constant(at::full(sizes, number, at::TensorOptions().dtype(call.result().dtype)));
}

std::vector<int64_t> channels_of(OperatorCall& call) {
  const BatchNumber channels = call.value("input").sizes.at(1);
  if (!channels.is_fixed()) throw NotTranslated("the number of channels depends on the batch size");
  return {channels.rest};
}

// By the statistics of training, which the module keeps.
void give_by_kept_statistics(OperatorCall& call) {
  const auto channels = channels_of(call);
  call.give(call.graph().add("BatchNormalization",
                             {call.in("input"), weight_or(call, "weight", channels, 1),
                              weight_or(call, "bias", channels, 0), call.in("running_mean"), call.in("running_var")},
                             {{"epsilon", call.real("eps")}}));
}

// (C) as (C, 1, 1, …), for tensors (N, C, …)
std::string per_channel(OperatorCall& call, const std::string& argument, int64_t channels) {
  BatchNumbers sizes{BatchNumber{0, channels}};
  sizes.resize(static_cast<size_t>(call.rank("input")) - 1, BatchNumber{0, 1});
  return call.reshaped(call.in(argument), sizes);
}

std::string scaled_and_shifted(OperatorCall& call, std::string y, int64_t channels) {
  if (call.has("weight")) y = call.graph().add("Mul", {y, per_channel(call, "weight", channels)});
  if (call.has("bias")) y = call.graph().add("Add", {y, per_channel(call, "bias", channels)});
  return y;
}

// Without kept statistics, evaluation takes those of the batch too.
void batch_norm(OperatorCall& call) {
  if (call.has("running_mean") && !call.flag("training")) return give_by_kept_statistics(call);
  if (call.has("running_mean")) {
    throw NotTranslated("by the statistics of a batch; put the model into evaluation mode (eval())");
  }
  GraphBuilder& graph = call.graph();
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < call.rank("input"); ++dim) dims.push_back(dim);
  const std::string x = call.in("input");
  const std::string distance = graph.add("Sub", {x, call.reduced("ReduceMean", x, dims, /*keepdim=*/true)});
  const std::string variance =
      call.reduced("ReduceMean", graph.add("Mul", {distance, distance}), dims, /*keepdim=*/true);
  const std::string root =
      graph.add("Sqrt", {graph.add("Add", {variance, graph.number(call.real("eps"), call.result().dtype)})});
  call.give(scaled_and_shifted(call, graph.add("Div", {distance, root}), channels_of(call).at(0)));
}

void layer_norm(OperatorCall& call) {
  const auto shape = call.whole_numbers("normalized_shape");
  std::vector<std::string> inputs{call.in("input"), weight_or(call, "weight", shape, 1)};
  if (call.has("bias")) inputs.push_back(call.in("bias"));
  call.give(call.graph().add("LayerNormalization", inputs,
                             {{"axis", -static_cast<int64_t>(shape.size())}, {"epsilon", call.real("eps")}}));
}

// x / sqrt(mean(x^2) + eps) * weight
void rms_norm(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const double smallest =
      dtype == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  std::vector<int64_t> dims;
  const int64_t rank = call.rank("input");
  for (auto k = rank - static_cast<int64_t>(call.whole_numbers("normalized_shape").size()); k < rank; ++k)
    dims.push_back(k);
  const std::string x = call.in("input");
  const std::string mean = call.reduced("ReduceMean", graph.add("Mul", {x, x}), dims, /*keepdim=*/true);
  const std::string root =
      graph.add("Sqrt", {graph.add("Add", {mean, graph.number(call.real("eps", smallest), dtype)})});
  const std::string y = graph.add("Div", {x, root});
  call.give(call.has("weight") ? graph.add("Mul", {y, call.in("weight", dtype)}) : y);
}

// Wu and He, Group normalization, 2018: an instance normalization of (N, groups, the rest).
void group_norm(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const int64_t groups = call.whole_number(call.has("group") ? "group" : "num_groups"),
                channels = channels_of(call).at(0);
  const auto of_groups = [&](double number) { return graph.constant(at::full({groups}, number, dtype)); };
  const std::string grouped = graph.add("Reshape", {call.in("input"), graph.numbers({0, groups, -1})});
  const std::string normed =
      graph.add("InstanceNormalization", {grouped, of_groups(1), of_groups(0)}, {{"epsilon", call.real("eps")}});
  call.give(scaled_and_shifted(call, call.reshaped(normed, call.value("input").sizes), channels));
}

void instance_norm(OperatorCall& call) {
  if (!call.flag("use_input_stats")) return give_by_kept_statistics(call);
  const auto channels = channels_of(call);
  call.give(
      call.graph().add("InstanceNormalization",
                       {call.in("input"), weight_or(call, "weight", channels, 1), weight_or(call, "bias", channels, 0)},
                       {{"epsilon", call.real("eps")}}));
}

template <const char* kOp>
void softmax(OperatorCall& call) {
  call.give(call.graph().add(kOp, {call.in("self", call.result().dtype)}, {{"axis", call.dimension("dim")}}));
}

constexpr char kSoftmax[] = "Softmax", kLogSoftmax[] = "LogSoftmax";

void dropout(OperatorCall& call) {
  const bool is_training = !call.has("train") || call.flag("train");
  if (is_training && call.real("p") != 0)
    throw NotTranslated("in training mode; put the model into evaluation mode (eval())");
  call.give(call.in("input"));
}

}  // namespace

Translations normalization_translations() {
  return {{"batch_norm", batch_norm},
          {"native_batch_norm", batch_norm},
          {"_native_batch_norm_legit", batch_norm},
          {"_native_batch_norm_legit_no_training", batch_norm},
          {"layer_norm", layer_norm},
          {"native_layer_norm", layer_norm},
          {"rms_norm", rms_norm},
          {"_fused_rms_norm", rms_norm},
          {"group_norm", group_norm},
          {"native_group_norm", group_norm},
          {"instance_norm", instance_norm},
          {"softmax", softmax<kSoftmax>},
          {"_softmax", softmax<kSoftmax>},
          {"log_softmax", softmax<kLogSoftmax>},
          {"_log_softmax", softmax<kLogSoftmax>},
          {"dropout", dropout},
          {"native_dropout", dropout},
          {"alpha_dropout", dropout},
          {"feature_dropout", dropout},
          {"feature_alpha_dropout", dropout}};
}

}  // namespace levin::onnx
