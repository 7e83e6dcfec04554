#include "levin/strategies/process/flat_unit.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <set>
#include <utility>

#include "levin/libtorch/observed_weight.h"
#include "levin/libtorch/tensor_memory.h"

namespace levin {

FlatUnit::FlatUnit(const std::vector<std::pair<std::string, at::Tensor>>& params, const Options& options)
    : rank_(options.rank) {
  const at::NoGradGuard no_grad;
  int64_t size = 0;
  for (const auto& [name, param] : params) {
    entries_.push_back({name, param, param.sizes().vec(), size, param.numel()});
    size += param.numel();
  }
  part_size_ = (size + options.ranks - 1) / options.ranks;
  at::TensorOptions own = params[0].second.options().requires_grad(false);
  if (options.device) own = own.device(*options.device);
  whole_ = at::zeros({part_size_ * options.ranks}, own);
  for (const Entry& entry : entries_) {
    whole_.narrow(0, entry.begin, entry.size).copy_(entry.param.detach().reshape({entry.size}));
  }
  if (options.agree) options.agree(whole_);
  const auto compute = options.compute_dtype.value_or(whole_.scalar_type());
  const at::Device place = options.part_device.value_or(whole_.device());
  const bool shares = options.keeps_whole && compute == whole_.scalar_type() && place == whole_.device();
  part_ = own_stretch(whole_);
  if (!shares) part_ = at::empty(part_.sizes(), own.device(place)).copy_(part_);
  whole_ = whole_.to(compute);
  for (const Entry& entry : entries_) {
    views_.push_back(observed_like(entry.param, whole_.narrow(0, entry.begin, entry.size).view(entry.shape)));
  }
  show_whole();
}

at::Tensor FlatUnit::own_stretch(const at::Tensor& flat) const {
  return flat.narrow(0, rank_ * part_size_, part_size_);
}

void FlatUnit::allocate_whole() {
  allocate_storage(whole_);
}

void FlatUnit::free_whole() {
  free_storage(whole_);
}

void FlatUnit::show_whole() {
  for (size_t i = 0; i < entries_.size(); ++i) entries_[i].param.set_data(views_[i]);
}

void FlatUnit::show_part() {
  for (size_t i = 0; i < entries_.size(); ++i) entries_[i].param.set_data(in_part(part_, i));
}

ShardRange FlatUnit::range_on(size_t i, int64_t rank) const {
  const Entry& entry = entries_[i];
  const int64_t first = rank * part_size_;
  const int64_t begin = std::clamp(first - entry.begin, int64_t{0}, entry.size);
  const int64_t end = std::clamp(first + part_size_ - entry.begin, int64_t{0}, entry.size);
  return ShardRange::flat(begin, end - begin, entry.shape);
}

at::Tensor FlatUnit::in_part(const at::Tensor& part, size_t i) const {
  const ShardRange own = range(i);
  const int64_t begin = own.numel() == 0 ? 0 : entries_[i].begin + own.flat_offset() - rank_ * part_size_;
  return part.narrow(0, begin, own.numel());
}

namespace {

std::string layer_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

}  // namespace

std::vector<std::vector<std::pair<std::string, at::Tensor>>> unit_parameters(
    const std::vector<std::pair<std::string, at::Tensor>>& params, int64_t bytes) {
  std::vector<std::vector<std::pair<std::string, at::Tensor>>> units;
  std::set<const c10::TensorImpl*> seen;
  int64_t filled = 0;
  for (const auto& [name, param] : params) {
    if (param.numel() == 0 || !seen.insert(param.unsafeGetTensorImpl()).second) continue;
    const bool fits = !units.empty() && units.back()[0].second.options().type_equal(param.options()) &&
                      units.back()[0].second.device() == param.device() &&
                      (filled < bytes || layer_of(units.back().back().first) == layer_of(name));
    if (!fits) {
      units.emplace_back();
      filled = 0;
    }
    units.back().emplace_back(name, param);
    filled += static_cast<int64_t>(param.nbytes());
  }
  return units;
}

std::string unit_text(const std::vector<std::unique_ptr<FlatUnit>>& units, size_t k) {
  const auto& entries = units.at(k)->entries();
  std::string names = entries.front().name;
  if (entries.size() > 1) names += (entries.size() > 2 ? ", …, " : ", ") + entries.back().name;
  return "unit " + std::to_string(k) + " (" + names + ")";
}

}  // namespace levin
