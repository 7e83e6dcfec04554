#include "levin/libtorch/saved_tensors.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/input_buffer.h>

#include <utility>

#include "levin/core/options/error.h"
#include "levin/libtorch/graph_nodes.h"

namespace levin {

namespace {

using torch::autograd::Engine;

SavedTensorHooks*& thread_hooks() {
  thread_local SavedTensorHooks* hooks = nullptr;
  return hooks;
}

class HookedEngine final : public Engine {
 public:
  static Engine& instance() {
    static HookedEngine engine;
    return engine;
  }
  ~HookedEngine() override { stop(); }

  // Backward is LibTorch's own engine's: its threads for devices, which it starts once per process, are there already
  // if a backward ran before this engine replaced it.
  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs, bool keep_graph,
                                         bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return get_base_engine().execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task, GraphNodePtr root,
      torch::autograd::InputBuffer&& inputs) override {
    return get_base_engine().execute_with_graph_task(task, std::move(root), std::move(inputs));
  }

  std::unique_ptr<PackHooks> get_default_saved_variable_hooks() override {
    SavedTensorHooks* hooks = thread_hooks();
    return hooks == nullptr ? nullptr : hooks->make();
  }
};

// Registered at the first use, for the rest of the process.
void become_engine() {
  static const bool done = [] {
    if (&Engine::get_default_engine() != &Engine::get_base_engine()) {
      throw Error(
          "recompute: this process has another autograd engine than LibTorch's own (Python's torch is loaded), and "
          "recomputation must replace it. Run it in a program without Python, or use torch.utils.checkpoint there.");
    }
    torch::autograd::set_default_engine_stub(&HookedEngine::instance);
    return true;
  }();
  (void)done;
}

}  // namespace

SavedTensorScope::SavedTensorScope(SavedTensorHooks* hooks) : outer_(thread_hooks()) {
  become_engine();
  thread_hooks() = hooks;
}

bool SavedTensorScope::active() {
  return thread_hooks() != nullptr;
}

SavedTensorScope::~SavedTensorScope() {
  thread_hooks() = outer_;
}

}  // namespace levin
