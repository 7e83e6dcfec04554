// The strategy of a run by rank_program.
#pragma once

#include <string>

#include "levin/levin.h"
#include "ranks/run_arguments.h"

namespace levin::test {

inline ShardDtype shard_dtype(const std::string& name) {
  return name == "bfloat16" ? ShardDtype::bfloat16 : ShardDtype::same;
}

inline FSDP fsdp(const RunArguments& arguments) {
  FSDPOptions options;
  options.stage = arguments.number("stage", 3);
  options.unit_mb = std::stod(arguments.text("unit_mb", "25"));
  options.prefetch = !arguments.has("no_prefetch");
  options.param_dtype = shard_dtype(arguments.text("param_dtype", ""));
  options.reduce_dtype = shard_dtype(arguments.text("reduce_dtype", ""));
  options.cpu_offload = arguments.has("cpu_offload");
  options.process_group_backend = backend_of(arguments);
  if (arguments.text("state_dict_type", "") == "sharded") options.state_dict_type = StateDictType::sharded;
  return FSDP(options);
}

inline void use_strategy(const RunArguments& arguments, TrainerOptions& options) {
  if (arguments.text("strategy", "") == "fsdp") {
    options.strategy = fsdp(arguments);
  } else if (arguments.has("strategy") || arguments.number("devices", 1) > 1) {
    DDPOptions ddp;
    ddp.find_unused_parameters = arguments.has("find_unused");
    ddp.gradient_as_bucket_view = arguments.has("bucket_view");
    ddp.static_graph = arguments.has("static_graph");
    ddp.bucket_cap_mb = arguments.has("small_buckets") ? 1e-4 : 25;
    if (arguments.text("hook", "") == "fp16") ddp.comm_hook = CommHook::fp16_compress;
    if (arguments.text("hook", "") == "bf16") ddp.comm_hook = CommHook::bf16_compress;
    ddp.process_group_backend = backend_of(arguments);
    if (arguments.has("timeout")) ddp.timeout = Seconds(static_cast<double>(arguments.number("timeout", 5)));
    options.strategy = DDP(ddp);
  }
}

}  // namespace levin::test
