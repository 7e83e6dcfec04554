#include "models/onnx_case_list.h"

namespace levin::test {

namespace {

namespace F = torch::nn::functional;
using Tensors = OnnxCaseList::Tensors;

void add_indexing(OnnxCaseList& cases) {
  const at::Tensor x = at::randn({4, 5, 6}), n = at::randint(0, 5, {4, 3}, at::kLong);
  cases.two("gathers", {x, n}, [](const Tensors& t) {
    const at::Tensor table = at::arange(30, at::kFloat).view({5, 6});
    return Tensors{at::embedding(table, t.at(1)),
                   t.at(0).gather(1, t.at(1).unsqueeze(-1).expand({-1, -1, 6})),
                   t.at(0).index_select(1, at::tensor({3, 0, 3}, at::kLong)),
                   at::one_hot(t.at(1), 5),
                   table.index({t.at(1)}),
                   table.take(t.at(1)),
                   table.index({t.at(1), t.at(1)}),
                   t.at(0).index({at::arange(t.at(0).size(0)), at::zeros({t.at(0).size(0)}, at::kLong)})};
  });
  cases.two("several_indices", {x, n}, [](const Tensors& t) {
    const at::Tensor &v = t.at(0), &k = t.at(1), places = at::tensor({1, 0, 2}, at::kLong), none;
    const at::Tensor wide = v.unsqueeze(1).expand({-1, 7, -1, -1});
    return Tensors{
        at::index(v, {std::nullopt, k, k}),
        at::index(wide, {std::nullopt, places, k, std::nullopt}),
        at::index(wide, {std::nullopt, places, std::nullopt, places}),
        at::index(wide, {std::nullopt, places.unsqueeze(1), std::nullopt, places}),
        at::index_put(v, {std::nullopt, places, places + 1}, at::arange(3, at::kFloat)),
        at::index_put(wide, {std::nullopt, places, std::nullopt, places}, v.select(2, 0).slice(1, 0, 1), true)};
  });
  cases.one("masked_writes", x, [](const at::Tensor& t) {
    at::Tensor y = t * 1;
    y.index_put_({t > 0.5}, at::scalar_tensor(7, at::kFloat));
    y.index_put_({t.select(2, 0) < 0}, at::arange(6, at::kFloat));
    y.index_put_({torch::indexing::Slice(), at::arange(5) > 3}, at::scalar_tensor(-1, at::kFloat));
    return y;
  });
  cases.one("take_last", x, [](const at::Tensor& t) {
    return t.select(1, t.size(1) - 1) + t.index({torch::indexing::Slice(), 0});
  });
}

void add_scatters(OnnxCaseList& cases) {
  const at::Tensor x = at::randn({4, 5, 6}), n = at::randint(0, 5, {4, 3}, at::kLong),
                   rows = at::tensor({3, 0, 3}, at::kLong);
  cases.two("scatters", {x, n}, [rows](const Tensors& t) {
    const at::Tensor &v = t.at(0), index = t.at(1).unsqueeze(-1).expand({-1, -1, 6}), more = v.flip({1}) + 1;
    return Tensors{v.scatter(1, index, more),
                   v.scatter(1, index.slice(2, 0, 4), 2.5),
                   at::scatter(v, 1, index, more, "add"),
                   at::scatter(v, 1, index, 3.0, "multiply"),
                   at::scatter_reduce(v, 1, index, more, "sum", false),
                   at::scatter_reduce(v, 1, index, more, "prod"),
                   at::scatter_reduce(v, 1, index, more, "mean"),
                   at::scatter_reduce(v, 1, index, more, "mean", false),
                   at::index_add(v, 1, rows, more.slice(1, 0, 3)),
                   at::index_add(v, 1, rows, more.slice(1, 0, 3), -0.5),
                   at::index_add(at::zeros({5, v.size(0)}), 0, rows, v.select(2, 0).slice(1, 0, 3).t()).t(),
                   at::index_copy(v, 1, at::tensor({4, 1, 0}, at::kLong), more.slice(1, 0, 3)),
                   at::index_fill(v, 2, rows, 9),
                   at::index_reduce(v, 1, rows, more.slice(1, 0, 3), "prod")};
  });
  cases.two("scatter_extremes", {x, n}, [](const Tensors& t) {
    const at::Tensor &v = t.at(0), index = t.at(1).unsqueeze(-1).expand({-1, -1, 6}), more = v.flip({1}) + 1;
    const at::Tensor whole = (8 * v).to(at::kLong);
    return Tensors{at::scatter_reduce(v, 1, index, more, "amax"), at::scatter_reduce(v, 1, index, more, "amin", false),
                   at::scatter_reduce(whole, 1, index, whole - 3, "amax", false)};
  });
}

void add_bags(OnnxCaseList& cases) {
  const at::Tensor n = at::randint(0, 9, {4, 3}, at::kLong), weights = at::rand({4, 3});
  const at::Tensor table = at::randn({9, 5});
  using Options = F::EmbeddingBagFuncOptions;
  cases.two("embedding_bag", {n, weights}, [table](const Tensors& t) {
    const at::Tensor flat = t.at(0).flatten(), starts = at::arange(t.at(0).size(0)) * 2;
    return Tensors{F::embedding_bag(t.at(0), table, Options().mode(torch::kSum)),
                   F::embedding_bag(t.at(0), table, Options().mode(torch::kMean).padding_idx(2)),
                   F::embedding_bag(t.at(0), table, Options().mode(torch::kSum).per_sample_weights(t.at(1))),
                   F::embedding_bag(flat, table, Options().mode(torch::kMean).offsets(starts)),
                   F::embedding_bag(flat, table, Options().mode(torch::kSum).offsets(at::div(starts, 4, "floor") * 3))};
  });
  cases.two("embedding_bag_max", {n}, [table](const Tensors& t) {
    return Tensors{F::embedding_bag(t.at(0), table, Options().mode(torch::kMax).padding_idx(1))};
  });
}

void add_windows(OnnxCaseList& cases) {
  const at::Tensor x = at::randn({4, 4, 10, 7});
  cases.one("unfold", x, [](const at::Tensor& t) { return t.unfold(2, 4, 3).unfold(3, 2, 1) * 2; });
  cases.add("im2col", x, [](const Tensors& t) {
    return Tensors{at::im2col(t.at(0), {3, 2}, {1, 1}, {0, 0}, {1, 1}),
                   at::im2col(t.at(0), {3, 2}, {2, 3}, {1, 2}, {2, 1})};
  });
  cases.add("col2im", at::randn({4, 2 * 6, 24}), [](const Tensors& t) {
    return Tensors{at::col2im(t.at(0), {6, 7}, {3, 2}, {1, 1}, {0, 0}, {1, 1}),
                   at::col2im(t.at(0).slice(2, 0, 15), {6, 7}, {3, 2}, {1, 2}, {1, 0}, {2, 1})};
  });
  cases.add("adaptive_pools", x, [](const Tensors& t) {
    return Tensors{
        at::adaptive_avg_pool2d(t.at(0), {3, 7}),         at::adaptive_avg_pool2d(t.at(0), {4, 5}),
        at::adaptive_avg_pool2d(t.at(0), {12, 1}),        std::get<0>(at::adaptive_max_pool2d(t.at(0), {3, 4})),
        at::adaptive_avg_pool1d(t.at(0).select(3, 0), 6), at::adaptive_avg_pool3d(t.at(0).unsqueeze(2), {1, 3, 2})};
  });
  cases.one("shuffles", at::randn({4, 6, 8, 4}), [](const at::Tensor& t) {
    return at::channel_shuffle(t, 3).flatten(1) + at::pixel_unshuffle(t, 2).flatten(1);
  });
}

void add_resizing(OnnxCaseList& cases) {
  const at::Tensor x = at::randn({4, 3, 7, 10});
  using Options = F::InterpolateFuncOptions;
  using Doubles = std::vector<double>;
  using Sizes = std::vector<int64_t>;
  cases.add("resizing", x, [](const Tensors& t) {
    return Tensors{
        F::interpolate(t.at(0), Options().size(Sizes{5, 13}).mode(torch::kNearestExact)),
        F::interpolate(t.at(0), Options().scale_factor(Doubles{2, 3}).mode(torch::kNearestExact)),
        F::interpolate(t.at(0), Options().scale_factor(Doubles{1.5, 0.7}).mode(torch::kNearest)),
        F::interpolate(t.at(0), Options().scale_factor(Doubles{1.5, 0.36}).mode(torch::kBilinear).align_corners(false)),
        F::interpolate(t.at(0), Options().scale_factor(Doubles{1.3, 1.3}).mode(torch::kBicubic).align_corners(false)),
        F::interpolate(t.at(0), Options().scale_factor(Doubles{1.3, 1.3}).mode(torch::kBilinear).align_corners(true)),
        F::interpolate(t.at(0), Options().size(Sizes{4, 15}).mode(torch::kNearest)),
        F::interpolate(t.at(0).select(3, 0), Options().size(Sizes{11}).mode(torch::kLinear).align_corners(false))};
  });
  cases.add("antialiased", x, [](const Tensors& t) {
    return Tensors{
        at::_upsample_bilinear2d_aa(t.at(0), {3, 4}, false), at::_upsample_bicubic2d_aa(t.at(0), {3, 4}, false),
        at::_upsample_bilinear2d_aa(t.at(0), {4, 23}, false), at::_upsample_bicubic2d_aa(t.at(0), {15, 6}, false)};
  });
  const at::Tensor grid = at::rand({4, 5, 6, 2}) * 2.6 - 1.3;
  cases.two("grid_sample", {x, grid}, [](const Tensors& t) {
    Tensors results;
    for (const int64_t mode : {0, 1, 2}) {
      for (const int64_t padding : {0, 1, 2})
        results.push_back(at::grid_sampler(t.at(0), t.at(1), mode, padding, padding == 1));
    }
    return results;
  });
  cases.two("grid_sample_of_volumes", {at::randn({4, 2, 4, 5, 6}), at::rand({4, 2, 3, 4, 3}) * 2.4 - 1.2},
            [](const Tensors& t) { return Tensors{at::grid_sampler(t.at(0), t.at(1), 0, 0, false)}; });
  cases.two("spatial_transformer", {x, at::randn({4, 2, 3})}, [](const Tensors& t) {
    const at::Tensor places = F::affine_grid(t.at(1), {t.at(0).size(0), 3, 6, 5}, false);
    return Tensors{at::grid_sampler(t.at(0), places, 0, 0, false)};
  });
}

}  // namespace

OnnxCases placing_cases() {
  OnnxCaseList cases;
  add_indexing(cases);
  add_scatters(cases);
  add_bags(cases);
  add_windows(cases);
  add_resizing(cases);
  return std::move(cases.all);
}

}  // namespace levin::test
