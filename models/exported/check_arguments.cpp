#include "levin/models/exported/check_arguments.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <type_traits>

#include "levin/core/error.h"

namespace levin::exported {

namespace {

constexpr int64_t kMaxInteger = INT32_MAX, kMaxSize = int64_t{1} << 40;

// The arguments of a call by their names in the schema. What the schema does not have is None.
class CallArguments {
 public:
  CallArguments(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values)
      : schema_(schema), values_(values) {}

  [[nodiscard]] const c10::IValue& at(const std::string& name) const {
    static const c10::IValue none;
    const auto index = schema_.argumentIndexWithName(name);
    return index ? values_.at(static_cast<size_t>(*index)) : none;
  }
  /// Undefined if the argument is None.
  [[nodiscard]] at::Tensor tensor(const std::string& name) const {
    const c10::IValue& value = at(name);
    return value.isTensor() ? value.toTensor() : at::Tensor();
  }
  [[nodiscard]] at::Tensor defined_tensor(const std::string& name) const {
    at::Tensor found = tensor(name);
    if (!found.defined()) throw Error(name + " is not a tensor.");
    return found;
  }
  /// A list of tensors, or one tensor as a list of one.
  [[nodiscard]] std::vector<at::Tensor> tensors(const std::string& name) const {
    return at(name).isTensor() ? std::vector{tensor(name)} : at(name).toTensorVector();
  }
  [[nodiscard]] int64_t integer(const std::string& name) const { return at(name).toInt(); }
  [[nodiscard]] bool boolean(const std::string& name) const { return at(name).isBool() && at(name).toBool(); }
  [[nodiscard]] std::vector<int64_t> integers(const std::string& name) const { return at(name).toIntVector(); }

 private:
  const c10::FunctionSchema& schema_;
  const std::vector<c10::IValue>& values_;
};

[[noreturn]] void refuse(const std::string& problem) {
  throw Error(problem + ". LibTorch would reach outside of its tensors. Export the model again.");
}

// `problem`: a text, or a function that makes one, because this runs before every call.
template <class Problem>
void require(bool holds, const Problem& problem) {
  if (holds) return;
  if constexpr (std::is_invocable_v<Problem>) {
    refuse(problem());
  } else {
    refuse(problem);
  }
}

void require_shape(const at::Tensor& tensor, const std::vector<int64_t>& sizes, const std::string& name) {
  if (tensor.defined() && tensor.sizes() == c10::IntArrayRef(sizes)) return;
  refuse(name + " has the shape " + (tensor.defined() ? c10::str(tensor.sizes()) : "of no tensor") + " and must have " +
         c10::str(c10::IntArrayRef(sizes)));
}

// Nothing for a tensor on another device.
template <class Number>
std::vector<Number> numbers_of(const at::Tensor& tensor, c10::ScalarType dtype) {
  if (!tensor.defined() || !tensor.is_cpu()) return {};
  const at::Tensor plain = (tensor.scalar_type() == dtype ? tensor : tensor.detach().to(dtype)).contiguous();
  const auto* const begin = plain.const_data_ptr<Number>();
  return {begin, begin + plain.numel()};
}

std::vector<int64_t> integers_of(const at::Tensor& tensor) {
  return numbers_of<int64_t>(tensor, c10::kLong);
}

void require_each(c10::IntArrayRef values, int64_t least, int64_t most, const std::string& name) {
  for (const int64_t value : values) {
    if (value >= least && value <= most) continue;
    refuse(name + " holds " + std::to_string(value) + ", which is not within " + std::to_string(least) + " to " +
           std::to_string(most));
  }
}

void require_batch_norm(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const CallArguments call(schema, values);
  const at::Tensor input = call.defined_tensor("input");
  require(input.dim() >= 2, "the input has fewer than 2 dimensions");
  for (const std::string name : {"weight", "bias", "running_mean", "running_var"}) {
    if (call.tensor(name).defined()) require_shape(call.tensor(name), {input.size(1)}, name);
  }
}

void require_group_norm(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const CallArguments call(schema, values);
  const at::Tensor input = call.defined_tensor("input");
  const int64_t samples = call.integer("N"), channels = call.integer("C"), positions = call.integer("HxW");
  const int64_t groups = call.integer("group");
  require(samples >= 0 && channels > 0 && positions >= 0 && groups > 0 && channels % groups == 0, [&] {
    return "N, C, HxW and group are " + c10::str(samples, ", ", channels, ", ", positions, " and ", groups);
  });
  int64_t elements = 0;
  const bool overflows =
      __builtin_mul_overflow(samples, channels, &elements) || __builtin_mul_overflow(elements, positions, &elements);
  require(!overflows && elements == input.numel(), "N, C and HxW differ from the size of the input");
  for (const std::string name : {"weight", "bias"}) {
    if (call.tensor(name).defined()) require_shape(call.tensor(name), {channels}, name);
  }
}

void require_weight_norm(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const CallArguments call(schema, values);
  const at::Tensor v = call.defined_tensor("v"), g = call.defined_tensor("g");
  const int64_t dim = call.integer("dim");
  if (dim != 0 && dim != v.dim() - 1) return;  // computed by operators that check their shapes
  require(v.dim() > 0 && g.numel() == v.size(dim), [&] { return "g has " + std::to_string(g.numel()) + " elements"; });
}

void require_upsample(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const CallArguments call(schema, values);
  if (schema.overload_name() == "vec") return;  // computes the output's sizes from the scales
  const at::Tensor input = call.defined_tensor("self");
  const std::vector<int64_t> sizes = call.integers("output_size");
  const auto spatial = static_cast<int64_t>(sizes.size());
  require(input.dim() == spatial + 2, [&] { return "the input has " + std::to_string(input.dim()) + " dimensions"; });
  const std::vector<std::string> names = spatial == 1   ? std::vector<std::string>{"scales"}
                                         : spatial == 2 ? std::vector<std::string>{"scales_h", "scales_w"}
                                                        : std::vector<std::string>{"scales_d", "scales_h", "scales_w"};
  for (size_t k = 0; k < sizes.size(); ++k) {
    const c10::IValue& scale = call.at(names.at(k));
    if (!scale.isDouble()) continue;
    const double exact = scale.toDouble() * static_cast<double>(input.size(static_cast<int64_t>(k) + 2));
    const double rest = exact - static_cast<double>(sizes[k]);
    require(exact > 0.999 && rest > -1e-3 && rest < 1.001, [&] {
      return "the " + names[k] + " " + std::to_string(scale.toDouble()) + " does not give the size " +
             std::to_string(sizes[k]);
    });
  }
}

void require_fractional_pool(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const CallArguments call(schema, values);
  const at::Tensor input = call.defined_tensor("self");
  const auto spatial = static_cast<int64_t>(call.integers("output_size").size());
  require(input.dim() == spatial + 1 || input.dim() == spatial + 2, "the input has another number of dimensions");
  require(input.numel() > 0, "the input is empty");
  const int64_t samples = input.dim() == spatial + 1 ? 1 : input.size(0), channels = input.size(-spatial - 1);
  require_shape(call.tensor("random_samples"), {samples, channels, spatial}, "random_samples");
  for (const double sample : numbers_of<double>(call.tensor("random_samples"), c10::kDouble)) {
    require(sample >= 0 && sample < 1,
            [&] { return "random_samples holds " + std::to_string(sample) + ", and must be within 0 to 1"; });
  }
  for (const std::string name : {"kernel_size", "output_size"}) {
    require_each(call.integers(name), 1, kMaxInteger, name);
  }
}

void require_ctc_loss(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const CallArguments call(schema, values);
  const at::Tensor log_probs = call.defined_tensor("log_probs"), targets = call.defined_tensor("targets");
  require(log_probs.dim() == 2 || log_probs.dim() == 3, "log_probs must have 2 or 3 dimensions");
  const int64_t steps = log_probs.size(0), classes = log_probs.size(-1);
  const int64_t samples = log_probs.dim() == 3 ? log_probs.size(1) : 1;
  const auto lengths = [&](const std::string& name) {
    return call.at(name).isTensor() ? integers_of(call.tensor(name)) : call.integers(name);
  };
  const std::vector<int64_t> inputs = lengths("input_lengths"), wanted = lengths("target_lengths");
  if (!targets.is_cpu()) return;
  require(static_cast<int64_t>(inputs.size()) == samples && static_cast<int64_t>(wanted.size()) == samples, [&] {
    return "input_lengths and target_lengths must have one item for each of " + std::to_string(samples) + " samples";
  });
  require_each(inputs, 0, steps, "input_lengths");
  const bool is_padded = targets.dim() == 2;
  const int64_t longest = is_padded ? targets.size(1) : targets.numel();
  require(is_padded ? targets.size(0) == samples : targets.dim() == 1, "targets must have one row for each sample");
  require_each(wanted, 0, longest, "target_lengths");
  const std::vector<int64_t> labels = integers_of(targets);
  int64_t begin = 0;
  for (int64_t sample = 0; sample < samples; ++sample) {
    const int64_t count = wanted[static_cast<size_t>(sample)];
    if (is_padded) begin = sample * longest;
    require(begin + count <= static_cast<int64_t>(labels.size()), "target_lengths are longer than targets");
    require_each(c10::IntArrayRef(labels).slice(static_cast<size_t>(begin), static_cast<size_t>(count)), 0, classes - 1,
                 "targets");
    begin += count;
  }
}

void require_embedding_bag(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const CallArguments call(schema, values);
  const at::Tensor weight = call.defined_tensor("weight"), indices = call.defined_tensor("indices");
  const at::Tensor offsets = call.defined_tensor("offsets"), scales = call.tensor("per_sample_weights");
  require(weight.dim() == 2 && indices.dim() == 1 && offsets.dim() == 1,
          "weight, indices and offsets must have 2, 1 and 1 dimensions");
  require(!scales.defined() || scales.sizes() == indices.sizes(), "per_sample_weights and indices differ in shape");
  require_each(call.integer("mode"), 0, 2, "mode");
  if (!indices.is_cpu()) return;
  require_each(integers_of(indices), 0, weight.size(0) - 1, "indices");
  const std::vector<int64_t> begins = integers_of(offsets);
  require_each(begins, 0, indices.numel(), "offsets");
  require(std::is_sorted(begins.begin(), begins.end()), "offsets decrease");
  require(!begins.empty() && begins[0] == 0, "offsets do not begin at 0");
  if (!call.boolean("include_last_offset")) return;
  require(begins.size() >= 2 && begins.back() == indices.numel(),
          "the last of the offsets is not the number of indices");
}

void require_max_unpool(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const CallArguments call(schema, values);
  const at::Tensor input = call.defined_tensor("self"), indices = call.defined_tensor("indices");
  const std::vector<int64_t> sizes = call.integers("output_size");
  const auto spatial = static_cast<int64_t>(sizes.size());
  require(input.dim() == spatial + 1 || input.dim() == spatial + 2, "the input has another number of dimensions");
  require(input.sizes() == indices.sizes(), "indices and the input differ in shape");
  require_each(sizes, 1, kMaxInteger, "output_size");
  int64_t positions = 1;
  for (const int64_t size : sizes) require(!__builtin_mul_overflow(positions, size, &positions), "output_size");
  require_each(integers_of(indices), 0, std::min(positions, kMaxInteger) - 1, "indices");
}

void require_pad(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const CallArguments call(schema, values);
  const at::Tensor input = call.defined_tensor("self");
  const std::vector<int64_t> pads = call.integers("padding");
  const auto spatial = static_cast<int64_t>(pads.size() / 2);
  require(input.dim() == spatial + 1 || input.dim() == spatial + 2, "the input has another number of dimensions");
  for (int64_t k = 0; k < spatial; ++k) {
    const int64_t size = input.size(-1 - k);
    const int64_t before = pads[static_cast<size_t>(2 * k)], after = pads[static_cast<size_t>(2 * k + 1)];
    require(size > 0 && size + before + after > 0, [&] {
      return "padding " + c10::str(c10::IntArrayRef(pads)) + " of the shape " + c10::str(input.sizes()) +
             " leaves nothing";
    });
  }
}

void require_repeat_interleave(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  require_each(integers_of(CallArguments(schema, values).tensor("repeats")), 0, kMaxInteger, "repeats");
}

// Layers, directions and gates fix all shapes: those that torch.nn.LSTM, GRU and RNN give their weights.
void require_recurrent(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const CallArguments call(schema, values);
  const at::Tensor input = call.defined_tensor("input");
  const bool is_lstm = schema.name() == "aten::lstm";
  const int64_t gates = is_lstm ? 4 : (schema.name() == "aten::gru" ? 3 : 1);
  const std::vector<at::Tensor> states = call.tensors("hx"), weights = call.tensors("params");
  const int64_t directions = call.boolean("bidirectional") ? 2 : 1, cells = call.integer("num_layers") * directions;
  require(states.size() == (is_lstm ? 2U : 1U) && input.dim() == 3 && cells > 0, [&] {
    return "hx has " + std::to_string(states.size()) + " tensors, the input " + std::to_string(input.dim()) +
           " dimensions, and num_layers is " + std::to_string(call.integer("num_layers"));
  });
  for (const at::Tensor& state : states) require(state.dim() == 3, "a state must have 3 dimensions");
  const int64_t samples = input.size(call.boolean("batch_first") ? 0 : 1);
  const int64_t hidden = states.back().size(2), result = states[0].size(2);  // the result may be projected
  require_shape(states[0], {cells, samples, result}, "the hidden state");
  require_shape(states.back(), {cells, samples, hidden}, "the state");
  const bool has_biases = call.boolean("has_biases"), projects = hidden != result;
  const size_t count = 2 + (has_biases ? 2 : 0) + (projects ? 1 : 0);
  require(weights.size() == count * static_cast<size_t>(cells), [&] {
    return "there are " + std::to_string(weights.size()) + " weights for " + std::to_string(cells) + " cells";
  });
  for (int64_t cell = 0; cell < cells; ++cell) {
    const auto* const weight = &weights[count * static_cast<size_t>(cell)];
    require_shape(weight[0], {gates * hidden, cell < directions ? input.size(2) : result * directions}, "w_ih");
    require_shape(weight[1], {gates * hidden, result}, "w_hh");
    for (size_t k = 2; has_biases && k < 4; ++k) require_shape(weight[k], {gates * hidden}, "a bias");
    if (projects) require_shape(weight[count - 1], {result, hidden}, "w_hr");
  }
}

void require_recurrent_cell(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const CallArguments call(schema, values);
  const at::Tensor input = call.defined_tensor("input");
  const int64_t gates = schema.name() == "aten::lstm_cell" ? 4 : (schema.name() == "aten::gru_cell" ? 3 : 1);
  const std::vector<at::Tensor> states = call.tensors("hx");
  require(input.dim() == 2 && states.size() == (gates == 4 ? 2U : 1U) && states[0].dim() == 2,
          "the input and the state must have 2 dimensions");
  const int64_t hidden = states[0].size(1);
  for (const at::Tensor& state : states) require_shape(state, {input.size(0), hidden}, "a state");
  require_shape(call.tensor("w_ih"), {gates * hidden, input.size(1)}, "w_ih");
  require_shape(call.tensor("w_hh"), {gates * hidden, hidden}, "w_hh");
  for (const std::string name : {"b_ih", "b_hh"}) {
    if (call.tensor(name).defined()) require_shape(call.tensor(name), {gates * hidden}, name);
  }
}

void require_attention(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const CallArguments call(schema, values);
  const at::Tensor query = call.defined_tensor("query"), key = call.defined_tensor("key");
  const at::Tensor value = call.defined_tensor("value"), mask = call.tensor("attn_mask");
  require(query.dim() >= 2 && key.dim() == query.dim() && value.dim() == query.dim(),
          "query, key and value must have the same number of dimensions, at least 2");
  require(query.size(-1) == key.size(-1) && key.size(-2) == value.size(-2), [&] {
    return "query " + c10::str(query.sizes()) + ", key " + c10::str(key.sizes()) + " and value " +
           c10::str(value.sizes()) + " do not fit together";
  });
  if (!mask.defined()) return;
  const auto fits = [&](int64_t dim, int64_t size) {
    return mask.dim() < -dim || mask.size(dim) == 1 || mask.size(dim) == size;
  };
  require(fits(-1, key.size(-2)) && fits(-2, query.size(-2)),
          [&] { return "attn_mask " + c10::str(mask.sizes()) + " does not fit query and key"; });
}

// It has no form that broadcasts: batches and heads are those of the query.
void require_flash_attention(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  require_attention(schema, values);
  const CallArguments call(schema, values);
  const at::Tensor query = call.defined_tensor("query"), mask = call.tensor("attn_mask");
  require(query.dim() == 4, [&] { return "query has " + std::to_string(query.dim()) + " dimensions and must have 4"; });
  for (const std::string name : {"key", "value"}) {
    const at::Tensor other = call.tensor(name);
    require(other.size(0) == query.size(0) && other.size(1) == query.size(1), [&] {
      return name + " " + c10::str(other.sizes()) + " has other batches or heads than query " + c10::str(query.sizes());
    });
  }
  if (!mask.defined() || mask.dim() == 2) return;
  require(mask.dim() == 4 && (mask.size(0) == 1 || mask.size(0) == query.size(0)) &&
              (mask.size(1) == 1 || mask.size(1) == query.size(1)),
          [&] { return "attn_mask " + c10::str(mask.sizes()) + " does not fit query"; });
}

// What a program reads is what its tensor holds: memory behind it may be another's, of before.
void require_as_strided(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const CallArguments call(schema, values);
  const at::Tensor input = call.defined_tensor("self");
  const auto reach = [](c10::IntArrayRef sizes, c10::IntArrayRef strides) {  // of the last element, from the first
    int64_t last = 0;
    bool overflows = sizes.size() != strides.size();
    for (size_t k = 0; k < sizes.size() && !overflows; ++k) {
      int64_t step = 0;
      overflows = sizes[k] < 0 || strides[k] < 0 ||
                  (sizes[k] > 0 && __builtin_mul_overflow(sizes[k] - 1, strides[k], &step)) ||
                  __builtin_add_overflow(last, step, &last);
    }
    require(!overflows, [&] { return "sizes " + c10::str(sizes) + " with strides " + c10::str(strides); });
    return last;
  };
  const std::vector<int64_t> sizes = call.integers("size"), strides = call.integers("stride");
  const int64_t wanted = reach(sizes, strides), own = reach(input.sizes(), input.strides());
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return;
  const c10::IValue& given = call.at("storage_offset");
  const int64_t begin = given.isInt() ? given.toInt() : input.storage_offset();
  int64_t end = 0;
  require(input.numel() > 0 && begin >= input.storage_offset() && !__builtin_add_overflow(begin, wanted, &end) &&
              end <= input.storage_offset() + own,
          [&] {
            return "sizes " + c10::str(c10::IntArrayRef(sizes)) + " with strides " +
                   c10::str(c10::IntArrayRef(strides)) + " are out of bounds of a tensor of " + c10::str(input.sizes());
          });
}

void require_eigh(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const c10::IValue& triangle = CallArguments(schema, values).at("UPLO");
  require(!triangle.isString() || triangle.toStringRef() == "L" || triangle.toStringRef() == "U",
          "UPLO is neither \"L\" nor \"U\"");
}

void require_rrelu(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const CallArguments call(schema, values);
  const at::Tensor noise = call.defined_tensor("noise");
  require(noise.is_contiguous(), "noise is not contiguous");
  require_shape(noise, call.defined_tensor("self").sizes().vec(), "noise");
}

// A processor ends the program where the least integer is divided by -1.
void require_rounded_division(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const CallArguments call(schema, values);
  const at::Tensor dividend = call.defined_tensor("self");
  if (!c10::isIntegralType(dividend.scalar_type(), /*includeBool=*/false) || !call.at("rounding_mode").isString())
    return;
  const c10::IValue& divisor = call.at("other");
  const bool by_minus_one = divisor.isTensor()
                                ? c10::isIntegralType(divisor.toTensor().scalar_type(), /*includeBool=*/false) &&
                                      divisor.toTensor().is_cpu() && divisor.toTensor().eq(-1).any().item<bool>()
                                : divisor.isInt() && divisor.toInt() == -1;
  if (!by_minus_one || !dividend.is_cpu() || dividend.numel() == 0) return;
  const int64_t least = dividend.min().item<int64_t>();
  require(least != INT64_MIN && least != INT32_MIN, "the least integer is divided by -1");
}

void require_fft(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  const CallArguments call(schema, values);
  const int64_t dims = call.defined_tensor("self").dim();
  std::vector<int64_t> wanted = call.integers("dim");
  require(!wanted.empty(), "dim is empty");
  require_each(wanted, 0, dims - 1, "dim");
  std::sort(wanted.begin(), wanted.end());
  require(std::adjacent_find(wanted.begin(), wanted.end()) == wanted.end(), "dim holds a dimension twice");
}

// A bool other than 0 and 1 would be undefined behaviour in kernels that read it. Numbers that a kernel writes are not
// to become indices that an operator has checked before.
void require_view(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values) {
  if (schema.overload_name() != "dtype") return;
  const CallArguments call(schema, values);
  const auto kind_of = [](c10::ScalarType type) {
    return type == c10::kBool ? "bool" : c10::isIntegralType(type, false) ? "integers" : "floating-point numbers";
  };
  const std::string wanted = kind_of(static_cast<c10::ScalarType>(call.integer("dtype")));
  const std::string own = kind_of(call.defined_tensor("self").scalar_type());
  require(wanted == own, [&] { return "the bytes of " + own + " are viewed as " + wanted; });
}

}  // namespace

IntegerRange integer_range(const c10::Argument& argument) {
  static const std::map<std::string, IntegerRange> by_name = {
      {"start", {}},
      {"end", {}},
      {"from", {}},
      {"to", {}},
      {"low", {}},
      {"high", {}},
      {"size", {-1, kMaxSize}},
      {"shape", {-1, kMaxSize}},
      {"repeats", {-1, kMaxSize}},
      {"output_size", {-1, kMaxSize}},
      {"split_size", {-1, kMaxSize}},
      {"split_sizes", {-1, kMaxSize}},
      {"sizes", {-1, kMaxSize}},
      {"length", {-1, kMaxSize}},
      {"reduction", {0, 2}},
      {"interpolation_mode", {0, 2}},
      {"padding_mode", {0, 2}},
      {"normalization", {0, 2}},
  };
  const auto found = by_name.find(argument.name());
  if (found != by_name.end()) return found->second;
  return {-kMaxInteger, kMaxInteger};
}

ArgumentCheck argument_check(const std::string& name) {
  static const std::map<std::string, ArgumentCheck> checks = {
      {"_embedding_bag", require_embedding_bag},
      {"_embedding_bag_forward_only", require_embedding_bag},
      {"_fft_c2c", require_fft},
      {"_fft_c2r", require_fft},
      {"_fft_r2c", require_fft},
      {"_linalg_eigh", require_eigh},
      {"_native_batch_norm_legit", require_batch_norm},
      {"_native_batch_norm_legit_functional", require_batch_norm},
      {"_native_batch_norm_legit_no_training", require_batch_norm},
      {"_scaled_dot_product_flash_attention_for_cpu", require_flash_attention},
      {"_upsample_bicubic2d_aa", require_upsample},
      {"_upsample_bilinear2d_aa", require_upsample},
      {"_upsample_nearest_exact1d", require_upsample},
      {"_upsample_nearest_exact2d", require_upsample},
      {"_upsample_nearest_exact3d", require_upsample},
      {"_weight_norm", require_weight_norm},
      {"_weight_norm_interface", require_weight_norm},
      {"as_strided", require_as_strided},
      {"as_strided_scatter", require_as_strided},
      {"batch_norm", require_batch_norm},
      {"ctc_loss", require_ctc_loss},
      {"div", require_rounded_division},
      {"div_", require_rounded_division},
      {"divide", require_rounded_division},
      {"divide_", require_rounded_division},
      {"embedding_bag", require_embedding_bag},
      {"fractional_max_pool2d", require_fractional_pool},
      {"fractional_max_pool3d", require_fractional_pool},
      {"gru", require_recurrent},
      {"gru_cell", require_recurrent_cell},
      {"lstm", require_recurrent},
      {"lstm_cell", require_recurrent_cell},
      {"max_unpool2d", require_max_unpool},
      {"max_unpool3d", require_max_unpool},
      {"native_batch_norm", require_batch_norm},
      {"native_group_norm", require_group_norm},
      {"reflection_pad1d", require_pad},
      {"reflection_pad2d", require_pad},
      {"reflection_pad3d", require_pad},
      {"repeat_interleave", require_repeat_interleave},
      {"replication_pad1d", require_pad},
      {"replication_pad2d", require_pad},
      {"replication_pad3d", require_pad},
      {"rrelu_with_noise_functional", require_rrelu},
      {"rnn_relu", require_recurrent},
      {"rnn_relu_cell", require_recurrent_cell},
      {"rnn_tanh", require_recurrent},
      {"rnn_tanh_cell", require_recurrent_cell},
      {"scaled_dot_product_attention", require_attention},
      {"upsample_bicubic2d", require_upsample},
      {"upsample_bilinear2d", require_upsample},
      {"upsample_linear1d", require_upsample},
      {"upsample_nearest1d", require_upsample},
      {"upsample_nearest2d", require_upsample},
      {"upsample_nearest3d", require_upsample},
      {"upsample_trilinear3d", require_upsample},
      {"view", require_view},
  };
  const std::string space = "aten::";
  const auto found = name.starts_with(space) ? checks.find(name.substr(space.size())) : checks.end();
  return found == checks.end() ? nullptr : found->second;
}

}  // namespace levin::exported
