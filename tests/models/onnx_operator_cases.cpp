#include <limits>

#include "models/onnx_case_list.h"

namespace levin::test {

namespace {

namespace F = torch::nn::functional;
using Tensors = OnnxCaseList::Tensors;
using Function = std::function<at::Tensor(const at::Tensor&)>;

void add_arithmetic(OnnxCaseList& cases) {
  const at::Tensor a = at::randn({4, 3, 5}), b = at::randn({4, 3, 5}), n = at::randint(-7, 8, {4, 6}, at::kLong);
  cases.two("arithmetic", {a, b}, [](const Tensors& x) {
    const at::Tensor &p = x.at(0), &q = x.at(1);
    return Tensors{p + q,
                   p - q * 2,
                   at::sub(p, q, 0.5),
                   1.5 - p,
                   p * q,
                   p / (q.abs() + 1),
                   at::rsub(p, 2),
                   p.square(),
                   p.abs().pow(1.7),
                   p.pow(2),
                   p.pow(3),
                   at::maximum(p, q),
                   at::minimum(p, q),
                   at::lerp(p, q, 0.3),
                   at::logaddexp(p, 9 * q),
                   at::atan2(p, q),
                   at::atan2(p.round(), q.round()),
                   at::hypot(p, q),
                   at::fmax(p.log(), q),
                   at::fmin(p, q.log()),
                   at::sgn(p) / p.numel() + at::scalar_tensor(p.size(0)).mul(q),
                   at::cdist(p, q),
                   at::cdist(p, q, 1),
                   at::xlogy(p.relu(), q.abs())};
  });
  const double infinity = std::numeric_limits<double>::infinity();
  cases.two(
      "signs_of_zero",
      {at::tensor({0.0, -0.0, 0.0, -0.0, infinity, -infinity, 1.0, -1.0, 0.0, 2.0}).to(at::kFloat).expand({4, 10}),
       at::tensor({0.0, 0.0, -0.0, -0.0, infinity, -infinity, -0.0, 0.0, -3.0, infinity})
           .to(at::kFloat)
           .expand({4, 10})},
      [](const Tensors& x) { return Tensors{at::atan2(x.at(0), x.at(1))}; });
  cases.two("divisions", {a, b}, [](const Tensors& x) {
    const at::Tensor &p = x.at(0), q = x.at(1).sign() * (x.at(1).abs() + 0.3);
    return Tensors{at::div(p, q, "floor"), at::div(p, q, "trunc"), at::floor_divide(p, 0.4), at::remainder(p, q),
                   at::fmod(p, q)};
  });
  cases.one("whole_divisions", n, [](const at::Tensor& x) {
    return at::stack({at::div(x, 3, "floor"), at::div(x, -3, "trunc"), at::remainder(x, 4), at::fmod(x, 4), x * 2 + 1});
  });
  cases.one("types", n, [](const at::Tensor& x) {
    return (x / 2).to(at::kFloat) + x * 0.5 + (x > 0) + (x.to(at::kInt) == 3).to(at::kFloat);
  });
  cases.one("clamp", a, [](const at::Tensor& x) {
    return at::cat(
        {x.clamp(-0.5, 0.5), x.clamp_min(0), x.clamp_max(0.2), at::clamp(x, at::full({5}, -0.1), at::full({5}, 0.1))},
        1);
  });
  cases.two("combined", {a, b}, [](const Tensors& x) {
    return Tensors{at::addcmul(x.at(0), x.at(1), x.at(1), 0.5), at::addcdiv(x.at(0), x.at(1), x.at(0).abs() + 1)};
  });
  cases.one("nan_to_num", a, [](const at::Tensor& x) { return at::nan_to_num(at::log(x), 0.5, 7, -9); });
}

void add_functions(OnnxCaseList& cases) {
  const at::Tensor x = at::randn({4, 7}), p = at::rand({4, 7}) + 0.1;
  const std::vector<std::pair<std::string, Function>> functions = {
      {"relu", [](const at::Tensor& t) { return at::relu(t); }},
      {"sigmoid", [](const at::Tensor& t) { return at::sigmoid(t); }},
      {"tanh", [](const at::Tensor& t) { return at::tanh(t); }},
      {"exp", [](const at::Tensor& t) { return at::exp(t) + at::exp2(t) + at::expm1(t); }},
      {"trigonometry",
       [](const at::Tensor& t) { return t.sin() + t.cos() * t.tan() + (t / 9).asin() + (t / 9).acos() + t.atan(); }},
      {"hyperbolic",
       [](const at::Tensor& t) { return t.sinh() + t.cosh() + t.asinh() + (t / 9).atanh() + (t.abs() + 1).acosh(); }},
      {"erf", [](const at::Tensor& t) { return t.erf() - t.erfc(); }},
      {"rounding",
       [](const at::Tensor& t) {
         return (3 * t).floor() + (3 * t).ceil() + (3 * t).round() + (3 * t).trunc() + t.sign() + t.frac();
       }},
      {"gelu", [](const at::Tensor& t) { return at::gelu(t); }},
      {"gelu_tanh", [](const at::Tensor& t) { return at::gelu(t, "tanh"); }},
      {"silu", [](const at::Tensor& t) { return at::silu(t) + at::mish(t); }},
      {"elu", [](const at::Tensor& t) { return at::elu(t, 0.7) + at::selu(t) + at::celu(t, 0.6); }},
      {"leaky_relu",
       [](const at::Tensor& t) { return at::leaky_relu(t, 0.2) + at::threshold(t, 0.1, -3) + at::rrelu(t, 0.1, 0.4); }},
      {"softplus",
       [](const at::Tensor& t) { return at::softplus(30 * t, 2, 15) + at::softplus(t) + at::log_sigmoid(t); }},
      {"hard",
       [](const at::Tensor& t) {
         return at::hardtanh(t, -0.6, 0.4) + at::relu6(9 * t) + at::hardsigmoid(4 * t) + at::hardswish(4 * t);
       }},
      {"shrink", [](const at::Tensor& t) { return at::softshrink(t, 0.4) + at::hardshrink(t, 0.3) + F::softsign(t); }},
      {"softmax", [](const at::Tensor& t) { return at::softmax(t, 1) + at::log_softmax(t, -1); }},
      {"glu", [](const at::Tensor& t) {
         return at::glu(at::cat({t, 2 * t}, 1), 1);
       }}};
  for (const auto& [name, function] : functions) cases.one(name, x, function);
  cases.one("logarithms", p, [](const at::Tensor& t) {
    return t.log() + t.log2() + t.log10() + t.log1p() + t.sqrt() + t.rsqrt() + t.reciprocal() + at::logit(t / 2, 0.1);
  });
}

void add_comparisons(OnnxCaseList& cases) {
  const at::Tensor x = at::randn({4, 7}), n = at::randint(0, 3, {4, 7}, at::kLong);
  cases.two("comparisons", {x, n}, [](const Tensors& t) {
    const at::Tensor &a = t.at(0), &b = t.at(1);
    return Tensors{a > 0,
                   a < b,
                   a <= 0.1,
                   a >= b,
                   b == 1,
                   b != 1,
                   (b > 0) == (a > 0),
                   at::logical_and(a > 0, b > 0),
                   (a > 0) | (b == 0),
                   (a > 0) ^ (b == 0),
                   ~(a > 0),
                   at::logical_not(b),
                   at::isnan(a.log())};
  });
  cases.one("bitwise", n, [](const at::Tensor& t) { return (t & 1) + (t | 4) * (t ^ 3) + ~t; });
  cases.two("where", {x, n}, [](const Tensors& t) {
    return Tensors{at::where(t.at(0) > 0, t.at(0), t.at(1)), t.at(0).masked_fill(t.at(1) == 1, -1e4),
                   at::where(t.at(1) > 0, 1.5, 2.5), t.at(1).masked_fill(t.at(1).ne(0), 9)};
  });
}

void add_shapes(OnnxCaseList& cases) {
  const at::Tensor x = at::randn({4, 6, 8});
  cases.one("views", x, [](const at::Tensor& t) {
    return t.view({t.size(0), -1})
        .view({-1, 2, 24})
        .flatten(1)
        .unflatten(1, {4, 12})
        .unsqueeze(1)
        .unsqueeze(-1)
        .squeeze(1)
        .squeeze(-1);
  });
  cases.one("fold_batch", x, [](const at::Tensor& t) {
    return (t.reshape({-1, 8}) * 2).view({t.size(0) * 2, 3, 8}).reshape({t.size(0), 2, 3, 8});
  });
  cases.one("transposes", x, [](const at::Tensor& t) {
    return at::cat(
        {t.transpose(1, 2).flatten(1), t.permute({0, 2, -2}).flatten(1), t.movedim(1, 2).flatten(1), t.mT().flatten(1)},
        1);
  });
  cases.one("expand", x.slice(1, 0, 1), [](const at::Tensor& t) {
    return t.expand({t.size(0), 5, 8}) + at::zeros({t.size(0), 1, 8}) + t.expand({-1, 5, -1}).contiguous();
  });
  cases.one("repeat", x, [](const at::Tensor& t) {
    return t.repeat({1, 2, 1}).repeat({3, 1, 1, 1}) + t.repeat_interleave(2, 1);
  });
  cases.add("diagonals", x, [](const Tensors& t) {
    const at::Tensor wide = t.at(0).unsqueeze(1).expand({-1, 3, -1, -1});
    return Tensors{t.at(0).diagonal(0, 1, 2), t.at(0).diagonal(-2, 2, 1), wide.diagonal(1, 1, 3),
                   wide.diagonal(-4, 2, 3)};
  });
  cases.one("memory_by_parts", x, [](const at::Tensor& t) {
    return at::slice_scatter(at::slice_scatter(at::empty_like(t), t, 2, 0, 8), t.slice(1, 0, 2), 1, 3, 5);
  });
  cases.one("slices", x, [](const at::Tensor& t) {
    return at::cat(
        {t.slice(1, 1, 4), t.slice(1, 0, 6, 2), t.narrow(1, 2, 2), t.slice(1, -2), t.select(1, -1).unsqueeze(1)}, 1);
  });
  cases.add("splits", x, [](const Tensors& t) {
    Tensors results = t.at(0).chunk(3, 1);
    for (const at::Tensor& part : t.at(0).split(4, 2)) results.push_back(part);
    for (const at::Tensor& part : t.at(0).split_with_sizes({1, 2, 3}, 1)) results.push_back(part);
    results.push_back(t.at(0).unbind(1).at(2));
    return results;
  });
  cases.one("joins", x, [](const at::Tensor& t) {
    return at::stack({t, t + 1}, 1).flatten(1) + at::cat({t, t.flip({2})}, 1).flatten(1);
  });
  cases.one("orders", x, [](const at::Tensor& t) { return t.flip({1, 2}) + t.roll(2, 1) + t.roll({-1, 3}, {1, 2}); });
  cases.one("triangles", x, [](const at::Tensor& t) { return t.tril() + t.triu(2) + (t > 0).tril(-1); });
  cases.one("pads", at::randn({4, 3, 5, 6}), [](const at::Tensor& t) {
    return F::pad(t, F::PadFuncOptions({1, 2, 0, 1}).value(0.5)) +
           F::pad(t, F::PadFuncOptions({1, 2, 1, 0}).mode(torch::kReflect)) +
           F::pad(t, F::PadFuncOptions({2, 1, 1, 0}).mode(torch::kReplicate));
  });
  cases.one("created", x, [](const at::Tensor& t) {
    const at::Tensor places = at::arange(t.size(1)).unsqueeze(0).expand({t.size(0), -1});
    return t + places.unsqueeze(-1) + at::ones_like(t) + t.new_full({t.size(0), 1, 1}, 3) +
           at::full({t.size(0), 1, 1}, 0.5) + at::arange(t.size(0)).view({-1, 1, 1}) * 2;
  });
}

void add_writes(OnnxCaseList& cases) {
  const at::Tensor x = at::randn({4, 6, 8});
  cases.one("in_place", x, [](const at::Tensor& t) {
    at::Tensor y = t * 2;
    y.add_(1).mul_(t).relu_();
    y.sub_(0.5);
    return y;
  });
  cases.one("write_into_slices", x, [](const at::Tensor& t) {
    at::Tensor y = at::zeros_like(t);
    y.slice(1, 0, 2).copy_(t.slice(1, 4, 6));
    y.select(2, 3).fill_(7);
    y.select(1, -1).add_(t.select(1, 0));
    y.view({t.size(0), -1}).slice(1, 40).mul_(2);
    const at::Tensor part = y.transpose(1, 2);
    part.slice(1, 1, 3).sub_(1);
    return y + part.transpose(1, 2);
  });
  cases.one("view_after_write", x, [](const at::Tensor& t) {
    at::Tensor y = t + 0;
    const at::Tensor early = y.slice(1, 1, 3);
    y.mul_(3);
    return early + y.slice(1, 2, 4);
  });
  cases.one("filled_buffer", x, [](const at::Tensor& t) {
    at::Tensor y = at::empty({t.size(0), 2, 8});
    y.select(1, 0).copy_(t.select(1, 0));
    y.select(1, 1).copy_(t.sum(1));
    return y;
  });
  cases.one("index_writes", x, [](const at::Tensor& t) {
    at::Tensor y = t.clone();
    y.masked_fill_(t > 1, 0);
    return y.scatter(1, at::zeros({t.size(0), 1, 8}, at::kLong), 5)
        .scatter_add(1, at::ones({t.size(0), 1, 8}, at::kLong), t.slice(1, 0, 1));
  });
}

// What is exported with dynamic_length is traced with lengths of 4 to 6, and computed with 5 to 7.
void add_any_length(OnnxCaseList& cases) {
  const at::Tensor x = at::randn({4, 6, 8});
  const auto before = cases.all.size();
  cases.one("write_at_the_end", x, [](const at::Tensor& t) {
    at::Tensor y = t * 1;
    y.select(1, -1).copy_(t.select(1, 0));
    y.slice(1, -3, -1).mul_(2);
    y.slice(1, t.size(1) - 2).sub_(1);
    y.slice(1, -t.size(1), 1 - t.size(1)).add_(5);
    y.slice(1, 2, 100).neg_();
    y.slice(2, 1, 8, 3).fill_(0.5);
    y.select(2, -2).add_(3);
    return y;
  });
  cases.two("whole_length", {x}, [](const Tensors& in) {
    const at::Tensor &t = in.at(0), q = t.transpose(1, 2);
    return Tensors{at::scaled_dot_product_attention(q, q, q),
                   at::glu(at::cat({t, 2 * t}, 1), 1),
                   t.roll(2, 1),
                   t.roll(-3),
                   t.var(1),
                   at::std(t, at::IntArrayRef{0, 1}, 1),
                   t.unfold(1, 3, 1),
                   t.select(1, 0).slice(1, 0, 4).cumsum(1)};
  });
  for (size_t k = before; k < cases.all.size(); ++k) cases.all[k].any_length = true;
}

void add_scalars(OnnxCaseList& cases) {
  const at::Tensor x = at::randn({4, 5});
  cases.add("scalars", x, [](const Tensors& v) {
    const at::Tensor &t = v.at(0), weights = at::arange(5, at::kFloat), sum = t.sum(0);
    return Tensors{t.sum(),
                   t.mean(),
                   t.max(),
                   t.norm(),
                   t.std(),
                   t.var(at::IntArrayRef{}, false),
                   t.argmax(),
                   (t > 0).any(),
                   t.prod().reshape({}),
                   at::dot(sum, weights),
                   at::matmul(sum, weights),
                   at::einsum("i,i->", {sum, weights}),
                   sum.select(0, 1),
                   sum.index({at::scalar_tensor(2, at::kLong)}),
                   sum.index({at::tensor({1, 2}, at::kLong)}).squeeze(),
                   sum.slice(0, 0, 1).squeeze(),
                   sum.slice(0, 0, 1).view(at::IntArrayRef{}),
                   at::linear(sum, weights),
                   at::logsumexp(sum, {0}),
                   std::get<0>(sum.max(0)),
                   sum.cumsum(0).amax(),
                   std::get<1>(sum.sort(0)).select(0, 0),
                   at::zeros_like(t.sum()) + t.size(0),
                   at::scalar_tensor(t.size(0), at::kFloat) * t.sum(),
                   at::full({}, 2.0).copy_(t.sum())};
  });
  cases.add("along_a_single_number", x, [](const Tensors& v) {
    const at::Tensor t = v.at(0).mean(), index = at::scalar_tensor(0, at::kLong), rows = v.at(0).sum(0);
    return Tensors{at::softmax(t, 0),
                   at::log_softmax(t, -1),
                   t.sum({0}),
                   t.cumsum(0),
                   t.cumprod(0),
                   t.argmax(0),
                   std::get<0>(t.max(0)),
                   std::get<0>(t.topk(1)),
                   std::get<1>(t.sort()),
                   t.gather(0, index),
                   rows.gather(0, index),
                   rows.index_select(0, index),
                   at::scatter(rows, 0, index, t),
                   at::prelu(-t, at::full({1}, 0.25)),
                   t.unsqueeze(-1),
                   t.squeeze(0),
                   t.flip(at::IntArrayRef{}),
                   rows.flip(at::IntArrayRef{})};
  });
}

void add_reductions(OnnxCaseList& cases) {
  const at::Tensor x = at::randn({4, 5, 6});
  cases.add("reductions", x, [](const Tensors& v) {
    const at::Tensor& t = v.at(0);
    return Tensors{t.sum({1}),
                   t.sum(at::IntArrayRef{1, 2}),
                   t.mean({-1}, true),
                   t.amax({1}),
                   t.amin({2}, true),
                   t.prod(1),
                   at::logsumexp(t, {1}),
                   t.var(2),
                   t.std(1, false),
                   at::var(t, at::IntArrayRef{1, 2}, 0),
                   t.norm(2, 1),
                   at::linalg_vector_norm(t, 1, at::IntArrayRef{1}),
                   at::linalg_vector_norm(t, 3, at::IntArrayRef{1, 2}),
                   at::linalg_vector_norm(t.relu(), 0, at::IntArrayRef{2}, true),
                   t.cumsum(1),
                   t.cumprod(1),
                   at::cumprod((t > 0).to(at::kInt), 2),
                   std::get<0>(t.cummax(1)),
                   std::get<0>(t.cummin(2)),
                   (t > 0).any(1),
                   (t > -1).all(2),
                   (t > 0).sum(1),
                   std::get<0>(at::var_mean(t, 1)),
                   std::get<1>(at::std_mean(t, 2)),
                   std::get<0>(at::aminmax(t, 1)),
                   std::get<1>(at::aminmax(t, 1)),
                   at::count_nonzero(t > 0, at::IntArrayRef{1})};
  });
  cases.add("extremes", x, [](const Tensors& v) {
    const at::Tensor& t = v.at(0);
    const auto [largest, where] = t.max(1);
    const auto [smallest, place] = t.min(2, true);
    const auto [top, top_places] = t.topk(3, 2);
    const auto [sorted, order] = t.sort(1, true);
    return Tensors{largest,
                   where,
                   smallest,
                   place,
                   top,
                   top_places,
                   sorted,
                   order,
                   t.argmax(1),
                   t.argmin(-1, true),
                   t.flatten(1).argmax(1)};
  });
  cases.one("whole_sum", x, [](const at::Tensor& t) {
    return t.view({t.size(0), -1}) - t.sum() * 0.01 + t.mean() + t.max();
  });
}

void add_losses(OnnxCaseList& cases) {
  const at::Tensor a = at::randn({4, 5}), b = at::randn({4, 5}), labels = at::randint(0, 5, {4}, at::kLong);
  cases.two("losses", {a, b}, [](const Tensors& t) {
    const at::Tensor &p = t.at(0), &q = t.at(1), chances = p.sigmoid(), signs = q.sign();
    return Tensors{at::mse_loss(p, q),
                   at::mse_loss(p, q, at::Reduction::None),
                   at::mse_loss(p, q, at::Reduction::Sum),
                   at::l1_loss(p, q),
                   at::smooth_l1_loss(p, q, at::Reduction::Mean, 0.5),
                   at::smooth_l1_loss(p, q, at::Reduction::None, 0),
                   at::huber_loss(p, q, at::Reduction::Mean, 0.7),
                   at::binary_cross_entropy(chances, q.sigmoid(), p.abs()),
                   at::binary_cross_entropy(q.gt(0).to(at::kFloat), chances, {}, at::Reduction::None),
                   at::binary_cross_entropy_with_logits(p, q.sigmoid(), {}, q.select(0, 0).abs()),
                   at::kl_div(at::log_softmax(p, 1), at::softmax(q, 1)),
                   at::kl_div(at::log_softmax(p, 1), at::log_softmax(q, 1), at::Reduction::Sum, true),
                   at::soft_margin_loss(p, signs),
                   at::hinge_embedding_loss(p, signs),
                   at::poisson_nll_loss(p, q.abs(), true, false, 1e-8, at::Reduction::Mean),
                   at::cosine_embedding_loss(p, q, signs.select(1, 0), 0.1),
                   at::margin_ranking_loss(p.select(1, 0), q.select(1, 0), signs.select(1, 0), 0.1),
                   at::triplet_margin_loss(p, q, p.flip({1}))};
  });
  const at::Tensor scores = at::randn({4, 5, 3}), classes = at::randint(0, 5, {4, 3}, at::kLong);
  cases.two("class_losses", {a, labels, scores, classes}, [](const Tensors& t) {
    const at::Tensor weights = at::arange(5, at::kFloat) + 0.5;
    const at::Tensor logs = at::log_softmax(t.at(0), 1);
    return Tensors{at::cross_entropy_loss(t.at(0), t.at(1)),
                   at::cross_entropy_loss(t.at(0), t.at(1), weights, at::Reduction::Mean, 3),
                   at::cross_entropy_loss(t.at(0), t.at(1), {}, at::Reduction::None),
                   at::cross_entropy_loss(t.at(0), t.at(1), {}, at::Reduction::Mean, -100, 0.1),
                   at::cross_entropy_loss(t.at(0), t.at(0).softmax(1)),
                   at::cross_entropy_loss(t.at(2), t.at(3)),
                   at::cross_entropy_loss(t.at(2).unsqueeze(-1), t.at(3).unsqueeze(-1), weights, at::Reduction::Sum),
                   at::nll_loss(logs, t.at(1), weights)};
  });
}

void add_products(OnnxCaseList& cases) {
  const at::Tensor a = at::randn({4, 3, 5}), b = at::randn({4, 5, 2});
  cases.two("products", {a, b}, [](const Tensors& t) {
    const at::Tensor w = at::arange(15, at::kFloat).view({3, 5}) / 15;
    return Tensors{at::matmul(t.at(0), t.at(1)),
                   at::bmm(t.at(0), t.at(1)),
                   at::einsum("bij, bjk -> bik", {t.at(0), t.at(1)}),
                   at::linear(t.at(0), w),
                   at::linear(t.at(0).select(1, 0), w, at::ones({3})),
                   at::mm(t.at(0).select(1, 1), w.t()),
                   at::addmm(at::ones({3}), t.at(0).select(1, 1), w.t(), 0.5, 2),
                   at::baddbmm(at::ones({2}), t.at(0), t.at(1)),
                   at::matmul(t.at(0), w.select(0, 0)),
                   at::outer(t.at(0).flatten(), w.select(0, 1)).sum(1).view({-1, 15})};
  });
}

void add_attention(OnnxCaseList& cases) {
  const at::Tensor q = at::randn({4, 2, 5, 8}), k = at::randn({4, 2, 7, 8}), mask = at::rand({4, 1, 5, 7}) > 0.4;
  mask[0][0][0].fill_(false);  // a query that sees nothing
  cases.two("attention", {q, k, k + 1}, [](const Tensors& t) {
    return Tensors{
        at::scaled_dot_product_attention(t.at(0), t.at(1), t.at(2)),
        at::scaled_dot_product_attention(t.at(0), t.at(1), t.at(2), {}, 0, /*is_causal=*/true),
        at::scaled_dot_product_attention(t.at(0), t.at(1), t.at(2), at::ones({5, 7}).tril(1), 0, false, 0.3)};
  });
  cases.two("masked_attention", {q, k, mask}, [](const Tensors& t) {
    return Tensors{at::scaled_dot_product_attention(t.at(0), t.at(1), t.at(1), t.at(2))};
  });
  cases.two("grouped_attention", {at::randn({4, 6, 5, 8}), k}, [](const Tensors& t) {
    return Tensors{
        at::scaled_dot_product_attention(t.at(0), t.at(1), t.at(1), {}, 0, false, std::nullopt, /*enable_gqa=*/true)};
  });
}

}  // namespace

OnnxCases operator_cases() {
  OnnxCaseList cases;
  add_arithmetic(cases);
  add_functions(cases);
  add_comparisons(cases);
  add_shapes(cases);
  add_writes(cases);
  add_any_length(cases);
  add_scalars(cases);
  add_reductions(cases);
  add_losses(cases);
  add_products(cases);
  add_attention(cases);
  return std::move(cases.all);
}

}  // namespace levin::test
