// Data parallel over processes: every rank trains a replica on its share of each batch, and gradients are averaged
// while backward still computes others. The engine is c10d's Reducer, the one that Python's
// DistributedDataParallel runs on (Li et al., PyTorch Distributed, VLDB 2020).
//
//   levin::Trainer trainer({.devices = 2, .strategy = "ddp"});
//   .strategy = levin::DDP({.find_unused_parameters = true})
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/options/units.h"
#include "levin/strategies/process/parallel_strategy.h"

namespace levin {

/// The type in which gradients are sent: their own, or a 16-bit type that halves the bytes. The names are PyTorch's.
enum class CommHook { none, fp16_compress, bf16_compress };
template <>
struct EnumNames<CommHook> {
  static constexpr EnumName<CommHook> names[] = {
      {"none", CommHook::none}, {"fp16_compress", CommHook::fp16_compress}, {"bf16_compress", CommHook::bf16_compress}};
};

/// Options of DDP, by the names of PyTorch's DistributedDataParallel.
struct DDPOptions {
  std::string process_group_backend = "auto";
  double bucket_cap_mb = 25;  // MiB
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool gradient_as_bucket_view = false;
  bool broadcast_buffers = true;
  EnumOption<CommHook> comm_hook = CommHook::none;
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

/// A replica on every rank, with averaged gradients. Every rank makes the same calls. set_up() throws ConfigError if
/// the module differs between ranks; a backward pass throws Error for parameters without a gradient (see
/// find_unused_parameters) and for sparse gradients, and RankError if another rank has ended or does not answer within
/// the timeout.
class DDP final : public ParallelStrategy {
 public:
  using Options = DDPOptions;
  explicit DDP(Defaults = {}) : DDP(DDPOptions()) {}
  explicit DDP(DDPOptions options);
  DDP(DDP&&) noexcept = default;  // before it is used, so that options can be given in place

  [[nodiscard]] std::string name() const override { return "ddp"; }
  void set_up(const ModuleTensors& module, bool training) override;
  void tear_down() override;
};

}  // namespace levin
