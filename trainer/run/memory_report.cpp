#include "levin/trainer/run/memory_report.h"

#include <algorithm>
#include <map>
#include <new>
#include <unordered_map>
#include <vector>

#include "levin/core/options/units.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/tensors.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

namespace {

constexpr size_t kNamed = 4;  // number of layers named for each kind

// Bytes by layer: "net.0" for the parameter "net.0.weight".
using Layers = std::map<std::string, uint64_t>;

std::string layer_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : parameter.substr(0, dot);
}

uint64_t sum(const Layers& layers) {
  uint64_t bytes = 0;
  for (const auto& [name, size] : layers) bytes += size;
  return bytes;
}

// "gradients 1.5 GiB (head 1.2 GiB, net.0 0.3 GiB)"
std::string users_text(const std::string& kind, const Layers& layers) {
  std::vector<std::pair<std::string, uint64_t>> sorted(layers.begin(), layers.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text = kind + " " + bytes_text(sum(layers));
  for (size_t k = 0; k < std::min(kNamed, sorted.size()); ++k) {
    text += (k == 0 ? " (" : ", ") + sorted[k].first + " " + bytes_text(sorted[k].second);
  }
  if (sorted.size() > kNamed) text += ", …";
  return sorted.empty() ? text : text + ")";
}

struct Users {
  Layers parameters = {}, gradients = {}, optimizer_state = {}, buffers = {};
  [[nodiscard]] uint64_t bytes() const {
    return sum(parameters) + sum(gradients) + sum(optimizer_state) + sum(buffers);
  }
};

// Optimizers number their tensors across all groups: "3.exp_avg".
void add_optimizer_state(const Fit& fit, const std::unordered_map<const c10::TensorImpl*, std::string>& layers,
                         Users& users) {
  for (const auto& wrapped : fit.optimizers()) {
    const std::vector<at::Tensor> parameters = wrapped.shared()->parameters();
    for (const auto& [key, tensor] : wrapped.shared()->state_dict().tensors) {
      size_t index = 0;
      try {
        index = std::stoul(key);
      } catch (const std::exception&) {
        continue;
      }
      if (index >= parameters.size() || tensor.device() != parameters[index].device()) continue;
      const auto found = layers.find(parameters[index].unsafeGetTensorImpl());
      users.optimizer_state[found == layers.end() ? "other" : found->second] += tensor.nbytes();
    }
  }
}

Users find_users(const Run& run) {
  Users users;
  std::unordered_map<const c10::TensorImpl*, std::string> layers;
  for (const auto& item : run.entry.module->named_parameters()) {
    const std::string layer = layer_of(item.key());
    if (!layers.emplace(item.value().unsafeGetTensorImpl(), layer).second) continue;  // a layer with two names
    users.parameters[layer] += item.value().nbytes();
    const at::Tensor& gradient = item.value().grad();
    if (gradient.defined()) users.gradients[layer] += gradient.nbytes();
  }
  for (const auto& item : run.entry.module->named_buffers())
    users.buffers[layer_of(item.key())] += item.value().nbytes();
  try {
    add_optimizer_state(run.fit, layers, users);
  } catch (const std::exception&) {  // a user's optimizer need not expose its state
    users.optimizer_state.clear();
  }
  return users;
}

const char* phase_text(const EntryPoint& entry) {
  switch (entry.failed_hook.value_or(entry.place.hook)) {
    case Hook::backward: return "backward";
    case Hook::optimizer_step:
    case Hook::configure_gradient_clipping: return "the optimizer's step";
    case Hook::on_before_batch_transfer:
    case Hook::transfer_batch_to_device:
    case Hook::on_after_batch_transfer: return "copying a batch to the device";
    case Hook::training_step:
    case Hook::validation_step:
    case Hook::test_step:
    case Hook::predict_step: return "forward";
    case Hook::on_save_checkpoint:
    case Hook::weights_to_save:
    case Hook::state_dict: return "saving a checkpoint";
    default: return "a hook";
  }
}

std::string allocator_text(const GpuMemory& memory) {
  auto bytes = [](int64_t count) { return bytes_text(static_cast<uint64_t>(std::max<int64_t>(0, count))); };
  return " " + bytes(memory.wanted) + " more were asked for, where " + bytes(memory.allocated) +
         " are allocated (at most " + bytes(memory.peak) + " so far), " + bytes(memory.reserved) +
         " are reserved, and " + bytes(memory.free) + " of the device's " + bytes(memory.total) + " are free.";
}

// The first line of the allocator's message, as a sentence after a space; "" for std::bad_alloc, which has none.
std::string original_text(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "";
  std::string text = exception_text(error);
  text = text.substr(0, text.find('\n'));
  const size_t check = text.find("[enforce fail");  // the condition of LibTorch's check, after the name of a replica
  const size_t start = text.find("DefaultCPUAllocator: ");
  if (check < start && start != std::string::npos) text.erase(check, start - check);
  return " " + text + (text.ends_with('.') ? "" : ".");
}

}  // namespace

std::string memory_report(const Run& run, const std::string& place, const std::exception& error,
                          const GpuMemory& memory) {
  const Users users = find_users(run);
  std::string text =
      place + ": out of memory in " + phase_text(run.entry) + " on " + run.strategy->placement().device().str() + ".";
  text += memory.wanted > 0 ? allocator_text(memory) : original_text(error);
  text += " Largest users: " + users_text("parameters", users.parameters) + "; " +
          users_text("gradients", users.gradients) + "; " + users_text("optimizer state", users.optimizer_state);
  if (!users.buffers.empty()) text += "; " + users_text("buffers", users.buffers);
  const auto held = static_cast<int64_t>(users.bytes());
  if (memory.allocated > held) {
    text += "; activations, batches and the rest " + bytes_text(static_cast<uint64_t>(memory.allocated - held));
  }
  return text +
         ". Use a smaller batch_size or micro_batch_size: auto, precision: bf16-mixed, or an optimizer with less "
         "state.";
}

std::string memory_report(const Run& run, const std::string& place, const std::exception& error) {
  try {
    const at::Device device = run.strategy->placement().device();
    const GpuMemory memory = device.is_cuda() && gpu_is_open() ? open_gpu().memory_at_failure(device) : GpuMemory();
    return memory_report(run, place, error, memory);
  } catch (const std::exception&) {  // no memory is left for the report either
    return place + ": out of memory. Use a smaller batch_size.";
  }
}

}  // namespace levin
