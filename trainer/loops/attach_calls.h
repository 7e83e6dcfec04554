// What acts when submodules are called while a run has them: recomputation, and blocks of Sequentials.
#pragma once

namespace levin {

struct EntryPoint;
struct Run;

/// Makes run.entry.recomputation as the options say. After the module is on its device, before its Sequentials are
/// changed (SequentialCalls). Throws ConfigError with cuda_graph, which cannot repeat random numbers.
void start_recomputation(Run& run);

/// Makes run.entry.sequential_calls for the module and its replicas. After these are made: what stands in for a block
/// cannot be copied.
void start_sequential_calls(EntryPoint& entry);

}  // namespace levin
