#include "levin/models/exported/allowed_operators.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>

#include "levin/core/options/error.h"

namespace levin::exported {

namespace {

// Names without "aten::", each for all overloads or, after a dot, for one; an in-place form ("add_") is allowed with
// its name. fuzz.exported fuzzes each operator that is added here, and finds the argument checks that it needs.
constexpr const char* kAllowed = R"(
__and__ __lshift__ __or__ __rshift__ __xor__ _adaptive_avg_pool2d _adaptive_avg_pool3d _assert_async _assert_scalar
_cdist_forward _conj _embedding_bag _embedding_bag_forward_only _fft_c2c _fft_c2r _fft_r2c _fused_rms_norm _linalg_det
_linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd _local_scalar_dense _log_softmax _native_batch_norm_legit
_native_batch_norm_legit_functional _native_batch_norm_legit_no_training _pdist_forward _prelu_kernel _safe_softmax
_scaled_dot_product_flash_attention_for_cpu _softmax _to_copy _trilinear _unique2 _unsafe_index _unsafe_index_put
_unsafe_view _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d
_upsample_nearest_exact3d _weight_norm _weight_norm_interface abs absolute acos acosh adaptive_avg_pool1d
adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d add addbmm addcdiv
addcmul addmm addmv addr adjoint affine_grid_generator alias all allclose alpha_dropout amax amin aminmax angle any
arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort argwhere as_strided
as_strided_scatter asin asinh atan atan2 atanh atleast_1d atleast_2d atleast_3d avg_pool1d avg_pool2d avg_pool3d
baddbmm bartlett_window batch_norm bernoulli bilinear binary_cross_entropy binary_cross_entropy_with_logits bincount
bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor blackman_window block_diag bmm
broadcast_tensors broadcast_to bucketize cartesian_prod cat cauchy cdist ceil celu chain_matmul channel_shuffle
cholesky cholesky_inverse cholesky_solve chunk clamp clamp_max clamp_min clip clone col2im column_stack combinations
complex concat concatenate conj conj_physical constant_pad_nd contiguous conv1d conv2d conv3d conv_tbc
conv_transpose1d conv_transpose2d conv_transpose3d convolution copy copysign corrcoef cos cosh cosine_embedding_loss
cosine_similarity count_nonzero cov cross cross_entropy_loss ctc_loss cummax cummin cumprod cumsum
cumulative_trapezoid deg2rad det detach diag diag_embed diagflat diagonal diagonal_scatter diff digamma dist div
div.out divide dot dropout dsplit dstack einsum elu embedding embedding_bag embedding_renorm empty empty_like
empty_permuted empty_strided eq equal erf erfc erfinv exp exp2 expand expand_as expm1 exponential eye
feature_alpha_dropout feature_dropout fft_fft fft_fft2 fft_fftfreq fft_fftn fft_fftshift fft_hfft fft_hfft2 fft_hfftn
fft_ifft fft_ifft2 fft_ifftn fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn fft_rfft
fft_rfft2 fft_rfftfreq fft_rfftn fill fill_diagonal fix flatten flip fliplr flipud float_power floor floor_divide fmax
fmin fmod frac fractional_max_pool2d fractional_max_pool3d frexp frobenius_norm full full_like gather gcd ge gelu
geometric ger glu gradient greater greater_equal grid_sampler grid_sampler_2d grid_sampler_3d group_norm gru.input
gru_cell gt hamming_window hann_window hardshrink hardsigmoid hardswish hardtanh heaviside hinge_embedding_loss histc
hsplit hstack huber_loss hypot i0 igamma igammac im2col imag index index_add index_copy index_fill index_put
index_reduce index_select inner instance_norm inverse is_nonzero is_same_size isclose isfinite isin isinf isnan
isneginf isposinf isreal istft item kaiser_window kl_div kron kthvalue l1_loss layer_norm lcm ldexp le leaky_relu lerp
less less_equal lgamma lift lift_fresh lift_fresh_copy linalg_cholesky linalg_cholesky_ex linalg_cond linalg_cross
linalg_det linalg_diagonal linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh linalg_inv linalg_inv_ex linalg_lstsq
linalg_lu linalg_matmul linalg_matrix_exp linalg_matrix_norm linalg_matrix_power linalg_matrix_rank linalg_multi_dot
linalg_norm linalg_pinv linalg_qr linalg_slogdet linalg_solve linalg_solve_ex linalg_solve_triangular linalg_svd
linalg_svdvals linalg_vander linalg_vecdot linalg_vector_norm linear linspace log log10 log1p log2 log_normal
log_sigmoid log_sigmoid_forward log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not
logical_or logical_xor logit logspace logsumexp lstm.input lstm_cell lt mH mT margin_ranking_loss masked_fill
masked_scatter masked_select matmul matrix_H matrix_exp matrix_power max max_pool1d max_pool1d_with_indices max_pool2d
max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool2d max_unpool3d maximum mean median meshgrid min
minimum mish mm mode moveaxis movedim mse_loss msort mul multi_margin_loss multilabel_margin_loss multinomial multiply
mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow native_batch_norm native_channel_shuffle
native_dropout native_group_norm native_layer_norm ne neg negative new_empty new_empty_strided new_full new_ones
new_zeros nextafter nll_loss nll_loss2d nll_loss2d_forward nll_loss_forward nll_loss_nd nonzero nonzero_numpy
nonzero_static norm norm_except_dim normal normal_functional not_equal nuclear_norm numpy_T one_hot ones ones_like
outer pad pad_sequence pairwise_distance pdist permute pinverse pixel_shuffle pixel_unshuffle poisson poisson_nll_loss
polar polygamma positive pow prelu prod put quantile rad2deg rand rand_like randint randint_like randn randn_like
random randperm range ravel real reciprocal reflection_pad1d reflection_pad2d reflection_pad3d relu relu6 remainder
renorm repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d reshape reshape_as resolve_conj
resolve_neg rms_norm rnn_relu.input rnn_relu_cell rnn_tanh.input rnn_tanh_cell roll rot90 round row_stack rrelu
rrelu_with_noise_functional rsqrt rsub scalar_tensor scaled_dot_product_attention scatter scatter_add scatter_reduce
searchsorted select select_scatter selu sgn sigmoid sign signbit silu sin sinc sinh size slice slice_scatter slogdet
smooth_l1_loss soft_margin_loss softmax softplus softshrink sort special_bessel_j0 special_bessel_j1 special_digamma
special_entr special_erf special_erfc special_erfcx special_erfinv special_exp2 special_expit special_expm1
special_gammainc special_gammaincc special_gammaln special_i0 special_i0e special_i1 special_i1e special_log1p
special_log_ndtr special_log_softmax special_logit special_logsumexp special_multigammaln special_ndtr special_ndtri
special_polygamma special_psi special_round special_sinc special_softmax special_xlog1py special_xlogy special_zeta
split split_with_sizes sqrt square squeeze stack std std_mean stft sub subtract sum sum_to_size swapaxes swapdims
sym_numel sym_size sym_storage_offset sym_stride t take take_along_dim tan tanh tensor_split tensordot threshold tile
to topk trace transpose trapezoid trapz triangular_solve tril tril_indices triplet_margin_loss triu triu_indices
true_divide trunc type_as unbind unflatten unfold uniform unique_consecutive unique_dim unsqueeze upsample_bicubic2d
upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d
vander var var_mean vdot view view_as view_as_complex view_as_real vsplit vstack where xlogy zero zeros zeros_like
)";

std::set<std::string> split_at_spaces(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

const std::set<std::string>& allowed_names() {
  static const auto names = split_at_spaces(kAllowed);
  return names;
}

// A table by name, from rows of a value and the names that have it, separated by spaces.
template <class Value>
std::map<std::string, Value> by_name(const std::string& prefix,
                                     const std::vector<std::pair<Value, const char*>>& rows) {
  std::map<std::string, Value> table;
  for (const auto& [value, names] : rows) {
    for (const std::string& name : split_at_spaces(names)) table[prefix + name] = value;
  }
  return table;
}

constexpr int64_t kMaxInteger = INT32_MAX, kMaxSize = int64_t{1} << 40;

[[noreturn]] void refuse(const std::string& problem) {
  throw Error(problem + ". LibTorch would reach outside of its tensors. Export the model again.");
}

// `problem`: a string, or a function that returns one: this runs before every call.
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

// With or without a batch dimension.
void require_spatial(const at::Tensor& input, int64_t spatial) {
  require(input.dim() == spatial + 1 || input.dim() == spatial + 2, [&] {
    return "the input has " + std::to_string(input.dim()) + " dimensions, and the operator computes along " +
           std::to_string(spatial);
  });
}

// Those of the call's tensors that are given.
void require_if_given(const CallArguments& call, std::initializer_list<const char*> names, int64_t size) {
  for (const std::string name : names)
    if (call.tensor(name).defined()) require_shape(call.tensor(name), {size}, name);
}

void require_batch_norm(const CallArguments& call) {
  const at::Tensor input = call.defined_tensor("input");
  require(input.dim() >= 2, "the input has fewer than 2 dimensions");
  require_if_given(call, {"weight", "bias", "running_mean", "running_var"}, input.size(1));
  if (!call.boolean("training")) (void)call.defined_tensor("running_mean"), (void)call.defined_tensor("running_var");
}

void require_group_norm(const CallArguments& call) {
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
  require_if_given(call, {"weight", "bias"}, channels);
}

void require_weight_norm(const CallArguments& call) {
  const at::Tensor v = call.defined_tensor("v"), g = call.defined_tensor("g");
  const int64_t dim = call.integer("dim");
  if (dim != 0 && dim != v.dim() - 1) return;  // computed by operators that check their shapes
  require(v.dim() > 0 && g.numel() == v.size(dim), [&] { return "g has " + std::to_string(g.numel()) + " elements"; });
}

void require_upsample(const CallArguments& call) {
  if (call.overload() == "vec") return;  // computes the output's sizes from the scales
  const at::Tensor input = call.defined_tensor("self");
  const std::vector<int64_t> sizes = call.integers("output_size");
  const auto spatial = static_cast<int64_t>(sizes.size());
  require(input.dim() == spatial + 2, [&] { return "the input has " + std::to_string(input.dim()) + " dimensions"; });
  static const std::vector<std::string> kAll = {"scales_d", "scales_h", "scales_w"};
  require(spatial >= 1 && spatial <= 3, "output_size must have 1 to 3 items");
  const auto names = spatial == 1 ? std::vector<std::string>{"scales"} : std::vector(kAll.end() - spatial, kAll.end());
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

void require_fractional_pool(const CallArguments& call) {
  const at::Tensor input = call.defined_tensor("self");
  const auto spatial = static_cast<int64_t>(call.integers("output_size").size());
  require_spatial(input, spatial);
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

void require_ctc_loss(const CallArguments& call) {
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

void require_embedding_bag(const CallArguments& call) {
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

void require_max_unpool(const CallArguments& call) {
  const at::Tensor input = call.defined_tensor("self"), indices = call.defined_tensor("indices");
  const std::vector<int64_t> sizes = call.integers("output_size");
  const auto spatial = static_cast<int64_t>(sizes.size());
  require_spatial(input, spatial);
  require(input.sizes() == indices.sizes(), "indices and the input differ in shape");
  require_each(sizes, 1, kMaxInteger, "output_size");
  int64_t positions = 1;
  for (const int64_t size : sizes) require(!__builtin_mul_overflow(positions, size, &positions), "output_size");
  require_each(integers_of(indices), 0, std::min(positions, kMaxInteger) - 1, "indices");
}

void require_pad(const CallArguments& call) {
  const at::Tensor input = call.defined_tensor("self");
  const std::vector<int64_t> pads = call.integers("padding");
  const auto spatial = static_cast<int64_t>(pads.size() / 2);
  require_spatial(input, spatial);
  for (int64_t k = 0; k < spatial; ++k) {
    const int64_t size = input.size(-1 - k);
    const int64_t before = pads[static_cast<size_t>(2 * k)], after = pads[static_cast<size_t>(2 * k + 1)];
    require(size > 0 && size + before + after > 0, [&] {
      return "padding " + c10::str(c10::IntArrayRef(pads)) + " of the shape " + c10::str(input.sizes()) +
             " leaves nothing";
    });
  }
}

// Layers, directions and gates determine all shapes, as torch.nn.LSTM, GRU and RNN give them to their weights.
void require_recurrent(const CallArguments& call) {
  const at::Tensor input = call.defined_tensor("input");
  const bool is_lstm = call.name() == "aten::lstm";
  const int64_t gates = is_lstm ? 4 : (call.name() == "aten::gru" ? 3 : 1);
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

void require_recurrent_cell(const CallArguments& call) {
  const at::Tensor input = call.defined_tensor("input");
  const int64_t gates = call.name() == "aten::lstm_cell" ? 4 : (call.name() == "aten::gru_cell" ? 3 : 1);
  const std::vector<at::Tensor> states = call.tensors("hx");
  require(input.dim() == 2 && states.size() == (gates == 4 ? 2U : 1U) && states[0].dim() == 2,
          "the input and the state must have 2 dimensions");
  const int64_t hidden = states[0].size(1);
  for (const at::Tensor& state : states) require_shape(state, {input.size(0), hidden}, "a state");
  require_shape(call.tensor("w_ih"), {gates * hidden, input.size(1)}, "w_ih");
  require_shape(call.tensor("w_hh"), {gates * hidden, hidden}, "w_hh");
  require_if_given(call, {"b_ih", "b_hh"}, gates * hidden);
}

void require_attention(const CallArguments& call) {
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

// The kernel does not broadcast: key and value need the query's batches and heads.
void require_flash_attention(const CallArguments& call) {
  require_attention(call);
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

// A program may read what its tensor holds, and no more: memory around it may hold data of someone else.
void require_as_strided(const CallArguments& call) {
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

void require_eigh(const CallArguments& call) {
  const c10::IValue& triangle = call.at("UPLO");
  require(!triangle.isString() || triangle.toStringRef() == "L" || triangle.toStringRef() == "U",
          "UPLO is neither \"L\" nor \"U\"");
}

void require_rrelu(const CallArguments& call) {
  const at::Tensor noise = call.defined_tensor("noise");
  require(noise.is_contiguous(), "noise is not contiguous");
  require_shape(noise, call.defined_tensor("self").sizes().vec(), "noise");
}

// A processor ends the program where the least integer is divided by -1.
void require_rounded_division(const CallArguments& call) {
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

void require_fft(const CallArguments& call) {
  const int64_t dims = call.defined_tensor("self").dim();
  std::vector<int64_t> wanted = call.integers("dim");
  require(!wanted.empty(), "dim is empty");
  require_each(wanted, 0, dims - 1, "dim");
  std::sort(wanted.begin(), wanted.end());
  require(std::adjacent_find(wanted.begin(), wanted.end()) == wanted.end(), "dim holds a dimension twice");
}

// A bool other than 0 and 1 would be undefined behaviour in kernels that read it. Numbers that a kernel writes are not
// to become indices that an operator has checked before.
void require_view(const CallArguments& call) {
  if (call.overload() != "dtype") return;
  const auto kind_of = [](c10::ScalarType type) {
    return type == c10::kBool ? "bool" : c10::isIntegralType(type, false) ? "integers" : "floating-point numbers";
  };
  const std::string wanted = kind_of(static_cast<c10::ScalarType>(call.integer("dtype")));
  const std::string own = kind_of(call.defined_tensor("self").scalar_type());
  require(wanted == own, [&] { return "the bytes of " + own + " are viewed as " + wanted; });
}

using c10::IValue;
using Arguments = std::vector<IValue>;

int64_t product_from(c10::IntArrayRef sizes, size_t first) {
  return sizes.size() <= first ? 1 : c10::multiply_integers(sizes.slice(first));
}

[[noreturn]] void refuse(const char* values, c10::IntArrayRef sizes, const char* remedy) {
  throw Error(std::string("Expected more than 1 ") + values + " when training, got input size " + c10::str(sizes) +
              ". " + remedy);
}

// As torch.nn.functional._verify_batch_size and _verify_spatial_size.
constexpr const char* kLargerBatch =
    "Leave out an epoch's last batch where it is too small (drop_last: true), or choose another batch size.";

void check_batch_norm(const Arguments& arguments) {
  const at::Tensor& input = arguments.at(0).toTensor();
  if (input.dim() >= 2 && input.size(0) * product_from(input.sizes(), 2) == 1) {
    refuse("value per channel", input.sizes(), kLargerBatch);
  }
}

void check_instance_norm(const Arguments& arguments) {
  const at::Tensor& input = arguments.at(0).toTensor();
  if (product_from(input.sizes(), 2) == 1) {
    refuse("spatial element", input.sizes(), "Give it larger inputs, or a model without this instance norm.");
  }
}

void check_group_norm(const Arguments& arguments, int64_t groups) {
  const at::Tensor& input = arguments.at(0).toTensor();
  if (input.dim() < 2 || groups < 1) return;  // the operator's own errors
  if (input.size(0) * input.size(1) / groups * product_from(input.sizes(), 2) == 1) {
    refuse("value per channel", input.sizes(), kLargerBatch);
  }
}

}  // namespace

bool is_allowed_operator(const c10::FunctionSchema& schema) {
  std::string name = schema.name();
  if (!name.starts_with("aten::") || name == "aten::as_strided_") return false;  // it changes the size of weights
  name.erase(0, std::string("aten::").size());
  if (name.ends_with('_') && !name.ends_with("__")) name.pop_back();
  const std::string overload = name + "." + schema.overload_name();
  if (allowed_names().contains(overload)) return true;  // div.out: the power iterations of spectral_norm
  const auto writes_elsewhere = [](const c10::Argument& argument) { return argument.is_out(); };
  if (std::any_of(schema.arguments().begin(), schema.arguments().end(), writes_elsewhere)) return false;
  return allowed_names().contains(name);
}

IntegerRange integer_range(const c10::Argument& argument) {
  static const auto ranges =
      by_name<IntegerRange>("", {{{}, "start end from to low high"},
                                 {{-1, kMaxSize}, "size shape repeats output_size split_size split_sizes sizes length"},
                                 {{0, 2}, "reduction interpolation_mode padding_mode normalization"}});
  const auto found = ranges.find(argument.name());
  if (found != ranges.end()) return found->second;
  return {-kMaxInteger, kMaxInteger};
}

ArgumentCheck argument_check(const std::string& name) {
  static const auto checks = by_name<ArgumentCheck>(
      "aten::",
      {
          {require_embedding_bag, "_embedding_bag _embedding_bag_forward_only embedding_bag"},
          {require_fft, "_fft_c2c _fft_c2r _fft_r2c"},
          {require_eigh, "_linalg_eigh"},
          {require_batch_norm,
           "_native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training "
           "batch_norm "
           "native_batch_norm"},
          {require_group_norm, "native_group_norm"},
          {require_attention, "scaled_dot_product_attention"},
          {require_flash_attention, "_scaled_dot_product_flash_attention_for_cpu"},
          {require_upsample,
           "_upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d "
           "_upsample_nearest_exact3d upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d "
           "upsample_nearest2d upsample_nearest3d upsample_trilinear3d"},
          {require_weight_norm, "_weight_norm _weight_norm_interface"},
          {require_as_strided, "as_strided as_strided_scatter"},
          {require_ctc_loss, "ctc_loss"},
          {require_rounded_division, "div div_ divide divide_"},
          {require_fractional_pool, "fractional_max_pool2d fractional_max_pool3d"},
          {require_recurrent, "gru lstm rnn_relu rnn_tanh"},
          {require_recurrent_cell, "gru_cell lstm_cell rnn_relu_cell rnn_tanh_cell"},
          {require_max_unpool, "max_unpool2d max_unpool3d"},
          {require_pad,
           "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d"},
          {[](const CallArguments& call) {
             require_each(integers_of(call.tensor("repeats")), 0, kMaxInteger, "repeats");
           },
           "repeat_interleave"},
          {require_rrelu, "rrelu_with_noise_functional"},
          {require_view, "view"},
      });
  const auto found = checks.find(name);
  return found == checks.end() ? nullptr : found->second;
}

std::function<void(const Arguments&)> layer_check(const c10::FunctionSchema& schema) {
  const std::string& name = schema.name();
  if (name == "aten::group_norm" || name == "aten::native_group_norm") {
    const auto groups = schema.argumentIndexWithName(name == "aten::group_norm" ? "num_groups" : "group");
    if (!groups) return {};
    return [at = static_cast<size_t>(*groups)](const Arguments& arguments) {
      check_group_norm(arguments, arguments.at(at).toInt());
    };
  }
  const bool is_instance = name == "aten::instance_norm";
  if (!is_instance && name.find("batch_norm") == std::string::npos) return {};
  const auto trains = schema.argumentIndexWithName(is_instance ? "use_input_stats" : "training");
  if (!trains) return {};
  return [at = static_cast<size_t>(*trains), is_instance](const Arguments& arguments) {
    if (!arguments.at(at).toBool()) return;
    is_instance ? check_instance_norm(arguments) : check_batch_norm(arguments);
  };
}

std::string mode_argument(const std::string& op) {
  static const auto arguments = by_name<const char*>(
      "aten::",
      {
          {"train",
           "dropout dropout_ feature_dropout feature_dropout_ alpha_dropout alpha_dropout_ feature_alpha_dropout "
           "feature_alpha_dropout_ native_dropout lstm gru rnn_tanh rnn_relu"},
          {"training",
           "rrelu rrelu_ batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
           "_batch_norm_impl_index cudnn_batch_norm"},
          {"use_input_stats", "instance_norm"},
          {"dropout_p", "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu"},
      });
  const auto found = arguments.find(op);
  return found == arguments.end() ? "" : found->second;
}

}  // namespace levin::exported
