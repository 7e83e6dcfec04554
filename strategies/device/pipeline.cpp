#include "levin/strategies/device/pipeline.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/process_memory.h"
#include "levin/core/random.h"
#include "levin/libtorch/thread_state.h"
#include "levin/strategies/device/op_threads.h"
#include "levin/strategies/device/placement.h"
#include "levin/strategies/device/random_scope.h"
#include "levin/strategies/device/worker_thread.h"

namespace levin {

std::vector<PipelineTask> one_forward_one_backward(size_t stage, size_t stages, size_t micro_batches) {
  const size_t ahead = std::min(micro_batches, stages - 1 - stage);  // forward passes before the first backward pass
  std::vector<PipelineTask> tasks;
  for (size_t m = 0; m < ahead; ++m) tasks.push_back({true, m});
  for (size_t m = ahead; m < micro_batches; ++m) {
    tasks.push_back({true, m});
    tasks.push_back({false, m - ahead});
  }
  for (size_t m = micro_batches - ahead; m < micro_batches; ++m) tasks.push_back({false, m});
  return tasks;
}

namespace {

// One call of a part, where the graph is cut.
struct Cut {
  TensorList inputs;         // in the graph of the step
  TensorList inner_inputs;   // the same, as leaves of the part's graph
  TensorList outputs;        // in the part's graph
  TensorList outer_outputs;  // the same, as leaves of the step's graph
};

at::Tensor leaf_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  at::Tensor leaf = tensor.detach();
  if (tensor.requires_grad()) leaf.set_requires_grad(true);
  return leaf;
}

TensorList leaves_of(const TensorList& tensors) {
  TensorList leaves;
  for (const at::Tensor& tensor : tensors) leaves.push_back(leaf_of(tensor));
  return leaves;
}

// Backward through `roots`, starting from the gradients of the leaves that replaced them.
void backward_from(const TensorList& roots, const TensorList& leaves, bool keep_graph) {
  TensorList used, gradients;
  for (size_t k = 0; k < roots.size(); ++k) {
    if (!roots[k].defined() || !roots[k].requires_grad() || !leaves[k].grad().defined()) continue;
    used.push_back(roots[k]);
    gradients.push_back(leaves[k].grad());
  }
  if (!used.empty()) torch::autograd::backward(used, gradients, keep_graph);
}

struct Abandoned {};  // another thread of the step has failed

}  // namespace

struct Pipeline::MicroBatch {
  const Pipeline* pipeline;
  Step* step;
  size_t index;
  std::vector<Cut> cuts = {};  // by part
};

namespace {

thread_local void* this_micro_batch = nullptr;

// Resets the pointer, which the thread's next step must not see.
struct MicroBatchScope {
  template <class MicroBatch>
  explicit MicroBatchScope(MicroBatch& own) {
    this_micro_batch = &own;
  }
  ~MicroBatchScope() { this_micro_batch = nullptr; }
  MicroBatchScope(const MicroBatchScope&) = delete;
  MicroBatchScope& operator=(const MicroBatchScope&) = delete;
};

}  // namespace

// The state that the threads of one step share. A job is the work of a part for a micro-batch; its stage runs it in the
// order of the schedule.
struct Pipeline::Step {
  using Key = std::tuple<bool, size_t, size_t>;  // forward?, part, micro-batch
  struct Job {
    std::function<void()> work = nullptr;
    bool taken = false;
    bool done = false;
    std::exception_ptr error = nullptr;
  };

  explicit Step(size_t count) : micro_batches(count), errors(count + 1) {}

  size_t micro_batches;
  uint64_t seed = draw_seed();
  ThreadLocalState state = {};  // of the thread that began the step
  std::mutex user_code;         // held by the micro-batch that runs the user's step
  std::mutex mutex;
  std::condition_variable changed;
  std::map<Key, Job> jobs;
  bool failed = false;
  std::vector<std::exception_ptr> errors;  // by micro-batch; the last one is the error of a stage

  void fail(size_t who, std::exception_ptr error) {
    const std::lock_guard lock(mutex);
    failed = true;
    if (!errors[who]) errors[who] = std::move(error);
    changed.notify_all();
  }

  // Called by a micro-batch: waits until its stage has done the work, and rethrows its exception.
  void submit(const Key& key, std::function<void()> work) {
    std::unique_lock lock(mutex);
    Job& job = jobs[key];
    job.work = std::move(work);
    changed.notify_all();
    // A running job is waited for even if the step has failed: it uses objects of the caller.
    changed.wait(lock, [&] { return job.done || (failed && !job.taken); });
    if (job.error) std::rethrow_exception(job.error);
    if (!job.done) {
      job.work = nullptr;
      throw Abandoned();
    }
  }

  // Called by a stage: waits until a micro-batch has submitted the job, and runs it.
  void run_job(const Key& key, const std::function<void()>& on_begin) {
    std::unique_lock lock(mutex);
    Job& job = jobs[key];
    changed.wait(lock, [&] { return failed || job.work != nullptr; });
    if (failed) throw Abandoned();
    job.taken = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      on_begin();
      job.work();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    job.done = true;
    job.error = error;
    failed = failed || error != nullptr;
    changed.notify_all();
    if (error) throw Abandoned();
  }
};

Pipeline::Pipeline(std::vector<Part> parts, DeviceSlot home, PlacementRecorder& recorder)
    : parts_(std::move(parts)), home_(home), recorder_(recorder) {
  for (size_t p = 0; p < parts_.size(); ++p) {
    if (p == 0 || parts_[p - 1].slots != parts_[p].slots) stages_.push_back({{}, "", parts_[p].slots.at(0)});
    Stage& stage = stages_.back();
    stage.name += (stage.parts.empty() ? "" : ", ") + parts_[p].name;
    stage.parts.push_back(p);
    stage_of_.push_back(stages_.size() - 1);
  }
  const auto on_cpu = [](const Stage& stage) { return stage.slot.device.is_cpu(); };
  stages_on_cpu_ = static_cast<size_t>(std::count_if(stages_.begin(), stages_.end(), on_cpu));
  if (stages_on_cpu_ > 1) set_freed_memory(kKeptForThreads);
}

Pipeline::~Pipeline() = default;

std::string Pipeline::part_names() const {
  std::vector<std::string> names;
  for (const Part& part : parts_) names.push_back(part.name);
  return join(names);
}

bool Pipeline::is_running_here() const {
  return this_micro_batch != nullptr && static_cast<MicroBatch*>(this_micro_batch)->pipeline == this;
}

void Pipeline::run(size_t count, const std::function<at::Tensor(size_t)>& loss) {
  Step step(count);
  const int op_threads = op_threads_share(stages_on_cpu_);
  const auto guarded = [&](size_t who, const std::function<void()>& work) {
    try {
      const ThreadLocalStateGuard state(step.state);
      const OpThreads share(op_threads);
      work();
    } catch (const Abandoned&) {
    } catch (...) {
      step.fail(who, std::current_exception());
    }
  };
  const size_t needed = stages_.size() + count;
  while (threads_.size() < needed) threads_.push_back(std::make_unique<WorkerThread>());
  for (size_t s = 0; s < stages_.size(); ++s) {
    threads_[s]->start([&, s] { guarded(count, [&] { run_stage(step, s); }); });
  }
  for (size_t m = 0; m < count; ++m) {
    threads_[stages_.size() + m]->start([&, m] { guarded(m, [&] { run_micro_batch(step, m, loss); }); });
  }
  for (size_t k = 0; k < needed; ++k) threads_[k]->wait();
  for (const auto& error : step.errors) {
    if (error) std::rethrow_exception(error);
  }
}

void Pipeline::run_stage(Step& step, size_t stage) {
  const Stage& own = stages_[stage];
  for (const PipelineTask& task : one_forward_one_backward(stage, stages_.size(), step.micro_batches)) {
    auto order = own.parts;
    if (!task.forward) std::reverse(order.begin(), order.end());
    for (const size_t part : order) {
      step.run_job({task.forward, part, task.micro_batch}, [&] {
        if (part != order[0]) return;
        recorder_.add({task.forward ? "F" : "B", own.name, own.slot.text(), static_cast<int64_t>(task.micro_batch)});
      });
    }
  }
}

void Pipeline::run_micro_batch(Step& step, size_t index, const std::function<at::Tensor(size_t)>& loss) {
  MicroBatch own{this, &step, index};
  const SlotScope slot(home_);
  at::Tensor result;
  {
    const std::lock_guard user_code(step.user_code);
    std::optional<RandomScope> random;
    if (home_.device.is_cpu()) random.emplace(mix_seed(step.seed, index));
    const MicroBatchScope here(own);
    result = loss(index);
  }
  check_all_called(own);
  backward(step, own, result);
}

TensorList Pipeline::call_part(size_t part, const std::function<TensorList(const TensorList&)>& compute,
                               const TensorList& inputs) {
  MicroBatch& own = *static_cast<MicroBatch*>(this_micro_batch);
  if (part != own.cuts.size()) {
    const std::string next = own.cuts.size() < parts_.size() ? parts_[own.cuts.size()].name : "nothing";
    throw Error("ModelParallel.pipeline: the step called " + parts_[part].name + " where " + next +
                " was expected. A step must call each part once, in registration order: " + part_names() + ".");
  }
  Step& step = *own.step;
  own.cuts.push_back({inputs, leaves_of(inputs), {}, {}});
  Cut& cut = own.cuts.back();
  const ThreadLocalState state;  // autocast and the like of the user's step
  const uint64_t seed = mix_seed(mix_seed(step.seed, step.micro_batches + part), own.index);
  step.user_code.unlock();
  std::exception_ptr error;
  try {
    step.submit({true, part, own.index}, [&] {
      const ThreadLocalStateGuard guard(state);
      std::optional<RandomScope> random;
      if (parts_[part].slots[0].device.is_cpu()) random.emplace(seed);
      cut.outputs = compute(cut.inner_inputs);
    });
  } catch (...) {
    error = std::current_exception();
  }
  step.user_code.lock();
  if (error) std::rethrow_exception(error);
  cut.outer_outputs = leaves_of(cut.outputs);
  return cut.outer_outputs;
}

void Pipeline::check_all_called(const MicroBatch& own) const {
  if (own.cuts.size() == parts_.size()) return;
  throw Error("ModelParallel.pipeline: the step has not called " + parts_[own.cuts.size()].name +
              ". A step must call each part once, in registration order: " + part_names() +
              "; through levin::call(module, x), or as blocks of a torch::nn::Sequential.");
}

void Pipeline::backward(Step& step, MicroBatch& own, const at::Tensor& loss) {
  // Pieces of the step's own graph may share nodes, so they are retained until all are done.
  if (loss.defined()) torch::autograd::backward({loss}, {}, /*retain_graph=*/true);
  for (size_t part = parts_.size(); part-- > 0;) {
    Cut& cut = own.cuts[part];
    step.submit({false, part, own.index}, [&] {
      const SlotScope slot(parts_[part].slots[0]);
      backward_from(cut.outputs, cut.outer_outputs, /*keep_graph=*/false);
      cut.outputs.clear();  // frees the activations
    });
    backward_from(cut.inputs, cut.inner_inputs, /*keep_graph=*/true);
  }
}

}  // namespace levin
