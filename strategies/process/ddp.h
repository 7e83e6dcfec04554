// Data parallel over processes: every rank trains a replica on its share of each batch, and gradients are averaged
// while backward still computes others. The engine is c10d's Reducer, the one that Python's
// DistributedDataParallel runs on (Li et al., PyTorch Distributed, VLDB 2020).
//
//   levin::Trainer trainer({.devices = 2, .strategy = "ddp"});
//   .strategy = levin::DDP({.find_unused_parameters = true})
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/duration.h"
#include "levin/core/fields.h"
#include "levin/strategies/process/parallel_strategy.h"

namespace levin {

enum class CommHook { none, fp16_compress, bf16_compress };
template <>
struct EnumNames<CommHook> {
  static constexpr std::array names{std::pair{"none", CommHook::none},
                                    std::pair{"fp16_compress", CommHook::fp16_compress},
                                    std::pair{"bf16_compress", CommHook::bf16_compress}};
};

struct DDPOptions {
  std::string process_group_backend = "auto";
  double bucket_cap_mb = 25;  // MiB
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool gradient_as_bucket_view = false;
  bool broadcast_buffers = true;
  CommHook comm_hook = CommHook::none;
  Seconds timeout = std::chrono::minutes(5);
  Seconds startup_timeout = std::chrono::minutes(30);
  template <class = void>
  static auto fields() {
    using O = DDPOptions;
    return levin::fields(
        field("process_group_backend", &O::process_group_backend, kProcessGroupBackends)
            .check(is_process_group_backend, "auto, gloo, shm or nccl"),
        field("bucket_cap_mb", &O::bucket_cap_mb, "MiB of gradients that are reduced together")
            .check([](double size) { return size > 0; }, "> 0"),
        field("find_unused_parameters", &O::find_unused_parameters,
              "find in every step the parameters that the loss does not depend on; required if there may be any"),
        field("static_graph", &O::static_graph, "every step uses the same parameters in the same way"),
        field("gradient_as_bucket_view", &O::gradient_as_bucket_view,
              "gradients are views of the buckets that are reduced: saves a copy and its memory"),
        field("broadcast_buffers", &O::broadcast_buffers, "give all ranks rank 0's buffers before each step"),
        field("comm_hook", &O::comm_hook, "compress gradients to half the bytes: none, fp16_compress or bf16_compress"),
        field("timeout", &O::timeout, "how long a rank waits for the others once training runs"),
        field("startup_timeout", &O::startup_timeout, "the same until the first step is done"));
  }
};

class ReplayWatch;

class DDP final : public ParallelStrategy {
 public:
  using Options = DDPOptions;
  explicit DDP(Defaults = {}) : DDP(DDPOptions()) {}
  explicit DDP(DDPOptions options);
  DDP(DDP&&) noexcept;  // before it is used, so that options can be given in place
  ~DDP() override;

  [[nodiscard]] std::string name() const override { return "ddp"; }
  void set_up(const ModuleTensors& module, bool training) override;
  void tear_down() override;
  void before_forward(bool sync) override;
  /// Throws Error naming the parameters that got no gradient, unless find_unused_parameters is set.
  [[nodiscard]] RankNotes backward(const at::Tensor& loss, bool sync, const RankNotes& own) override;
  [[nodiscard]] RankNotes backward_without_loss(bool sync, const RankNotes& own) override;
  /// On CPUs, and on GPUs over NCCL. Throws ConfigError if an option rules it out. Every rank.
  [[nodiscard]] std::shared_ptr<StepRecorder> make_recorder() override;
  [[nodiscard]] at::Tensor backward_recorded(const at::Tensor& loss, bool sync, const at::Tensor& own) override;
  [[nodiscard]] bool has_notes_on_device() const override { return !device().is_cpu(); }
  void run_replay(c10::function_ref<void()> replay) override;
  [[nodiscard]] bool use_recorder_stream() override;
  [[nodiscard]] bool replays_together() const override { return !device().is_cpu() && world_size() > 1; }

 private:
  struct Engine;  // c10d's part
  struct GradientReducer;
  [[nodiscard]] GradientReducer* find_reducer();
  [[nodiscard]] GradientReducer* reducer_of_backward();
  [[nodiscard]] std::unique_ptr<GradientReducer> make_reducer(const std::vector<bool>& trained) const;
  void drop_reducers();
  [[nodiscard]] at::Tensor backward_and_reduce(GradientReducer& own, const at::Tensor& loss, const at::Tensor& notes);
  [[nodiscard]] at::Tensor zero_loss() const;
  void with_rank_errors(c10::function_ref<void()> communicate) const;
  void backward_of(const at::Tensor& whole);
  void finish_reduction(GradientReducer& own) const;
  [[nodiscard]] std::vector<bool> trained() const;
  [[nodiscard]] static at::Tensor with_notes(const GradientReducer& own, const at::Tensor& loss,
                                             const at::Tensor& notes);

  DDPOptions options_;
  std::unique_ptr<Engine> engine_;
  ModuleTensors module_;
  bool reduces_ = false;                // it trains on several ranks
  bool takes_turns_ = false;            // steps freeze parameters between their forward and backward passes
  std::unique_ptr<ReplayWatch> watch_;  // of recorded steps on a GPU
};

}  // namespace levin
