#include "levin/strategies/device/replicas.h"

#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/core/weight_use.h"
#include "levin/libtorch/graph_nodes.h"

namespace levin {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Copies even if the source is on that device already.
at::Tensor copied(const at::Tensor& source, at::Device device) {
  return source.to(device, source.scalar_type(), /*non_blocking=*/!device.is_cpu(), /*copy=*/true);
}

// The equivalent of the Broadcast in PyTorch's DataParallel, on any device. Gradients are summed in the order of the
// copies, because sums in the order of arrival would differ from run to run.
class CopyToReplicas : public torch::autograd::Function<CopyToReplicas> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& source,
                               const std::vector<at::Device>* devices, size_t count) {
    context->set_materialize_grads(false);
    context->saved_data["device"] = source.device();
    variable_list copies;
    for (size_t k = 0; k < count; ++k) {
      copies.push_back(copied(source, (*devices)[k]));
    }
    return copies;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Device device = context->saved_data["device"].toDevice();
    Variable sum;
    for (const Variable& gradient : gradients) {
      if (!gradient.defined()) continue;  // that replica did not use it
      const Variable here = move_to(gradient, {0, device});
      sum = sum.defined() ? sum.add(here) : here;
    }
    return {sum, Variable(), Variable()};
  }
};

std::vector<std::pair<std::string, at::Tensor>> named(const torch::OrderedDict<std::string, at::Tensor>& tensors) {
  std::vector<std::pair<std::string, at::Tensor>> list;
  for (const auto& item : tensors) list.emplace_back(item.key(), item.value());
  return list;
}

std::string kind_text(const std::pair<std::string, at::Tensor>& item) {
  return item.first + " " + shape_text(item.second.sizes());
}

// The tensors of a copy in the module's order.
std::vector<at::Tensor> matched(const torch::OrderedDict<std::string, at::Tensor>& module,
                                const torch::OrderedDict<std::string, at::Tensor>& copy, const std::string& slot) {
  const auto own = named(module), other = named(copy);
  std::vector<at::Tensor> tensors;
  for (size_t k = 0; k < std::max(own.size(), other.size()); ++k) {
    const std::string expected = k < own.size() ? kind_text(own[k]) : "nothing";
    const std::string seen = k < other.size() ? kind_text(other[k]) : "nothing";
    if (expected != seen) {
      throw ConfigError("dp: the replica for " + slot + " has " + seen + " where the module has " + expected +
                        ". clone(), or the constructor with the same options, must build the same layers.");
    }
    tensors.push_back(other[k].second);
  }
  return tensors;
}

// Makes `copy`, the object that its module uses, have the value and the graph of `source`.
void become(at::Tensor& copy, const at::Tensor& source) {
  drop_graph(copy);
  copy.set_requires_grad(false);  // it may have been a leaf
  copy.mutable_grad().reset();
  copy.set_data(source);
  copy_graph(copy, source);
}

void set_mode(torch::nn::Module& copy, const torch::nn::Module& module) {
  if (copy.is_training() != module.is_training()) copy.train(module.is_training());
}

// Takes what was added to a module's layers out of them as long as it lives.
class WithoutAddedParts {
 public:
  explicit WithoutAddedParts(const torch::nn::Module& module) {
    find("", module);
    for (const auto& item : module.named_modules("", /*include_self=*/false)) find(item.key(), *item.value());
    for (const Found& found : parts_) found.part->take_out();
  }
  ~WithoutAddedParts() {
    for (const Found& found : parts_) found.part->put_back();
  }
  WithoutAddedParts(const WithoutAddedParts&) = delete;
  WithoutAddedParts& operator=(const WithoutAddedParts&) = delete;

  void add_to(torch::nn::Module& copy) const {
    const auto modules = copy.named_modules("", /*include_self=*/false);
    for (const Found& found : parts_) found.part->add_to(found.layer.empty() ? copy : *modules[found.layer]);
  }

 private:
  struct Found {
    std::string layer;  // its name in the module
    std::shared_ptr<torch::nn::Module> alive;
    AddedPart* part;
  };
  void find(const std::string& name, const torch::nn::Module& layer) {
    for (const auto& child : layer.children()) {
      if (auto* part = dynamic_cast<AddedPart*>(child.get())) parts_.push_back({name, child, part});
    }
  }
  std::vector<Found> parts_;
};

}  // namespace

Replicas::Replicas(torch::nn::Module& module, std::vector<std::shared_ptr<torch::nn::Module>> copies,
                   std::vector<DeviceSlot> slots)
    : module_(module), copies_(std::move(copies)), parameters_(module.parameters()), buffers_(module.buffers()) {
  for (size_t k = 0; k < copies_.size(); ++k) {
    const DeviceSlot& slot = slots.at(k + 1);
    devices_.push_back(slot.device);
    copy_parameters_.push_back(matched(module.named_parameters(), copies_[k]->named_parameters(), slot.text()));
    copy_buffers_.push_back(matched(module.named_buffers(), copies_[k]->named_buffers(), slot.text()));
    for (at::Tensor& parameter : copy_parameters_.back()) parameter.set_requires_grad(false);
  }
}

size_t Replicas::copies_for(size_t count) const {
  return std::min(count == 0 ? 0 : count - 1, copies_.size());
}

void Replicas::refresh_leaves(size_t count) {
  const size_t copies = copies_for(count);
  if (copies == 0) return;
  refresh_modes(copies);
  const at::NoGradGuard no_grad;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    for (size_t k = 0; k < copies; ++k) {
      at::Tensor& copy = copy_parameters_[k][p];
      become(copy, copied(parameters_[p].detach(), devices_[k]));
      copy.set_requires_grad(parameters_[p].requires_grad());
    }
  }
  refresh_buffers(copies);
}

void Replicas::refresh(size_t count) {
  const size_t copies = copies_for(count);
  if (copies == 0) return;
  refresh_modes(copies);
  // Tensors made in inference mode could not be used for training afterwards.
  const bool with_gradients = at::GradMode::is_enabled() && !c10::InferenceMode::is_enabled();
  const c10::InferenceMode no_inference(false);
  const at::AutoGradMode gradients(with_gradients);
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const variable_list values = CopyToReplicas::apply(parameters_[p], &devices_, copies);
    for (size_t k = 0; k < copies; ++k) become(copy_parameters_[k][p], values[k]);
  }
  refresh_buffers(copies);
}

void Replicas::refresh_buffers(size_t count) {
  const at::NoGradGuard no_grad;
  for (size_t b = 0; b < buffers_.size(); ++b) {
    for (size_t k = 0; k < count; ++k) {
      copy_buffers_[k][b].set_data(copied(buffers_[b], devices_[k]));
    }
  }
}

void Replicas::refresh_modes(size_t count) {
  const auto modules = module_.modules(/*include_self=*/false);  // outer ones first
  for (size_t k = 0; k < count; ++k) {
    set_mode(*copies_[k], module_);
    const auto own = copies_[k]->modules(/*include_self=*/false);
    for (size_t m = 0; m < std::min(own.size(), modules.size()); ++m) set_mode(*own[m], *modules[m]);
  }
}

std::vector<std::shared_ptr<torch::nn::Module>> clone_for(const torch::nn::Module& module,
                                                          const std::vector<DeviceSlot>& slots) {
  std::vector<std::shared_ptr<torch::nn::Module>> copies;
  const WithoutAddedParts plain(module);
  for (size_t k = 1; k < slots.size(); ++k) {
    try {
      copies.push_back(module.clone(slots[k].device));
      plain.add_to(*copies.back());
    } catch (const c10::Error& error) {
      throw ConfigError("dp: " + module.name() + " cannot be copied to " + slots[k].text() + ": " +
                        error.what_without_backtrace());
    }
  }
  return copies;
}

}  // namespace levin
