// Hooks into calls of submodules during a run: recomputation, and the blocks of Sequentials.
#pragma once

namespace levin {

struct EntryPoint;
struct Run;

/// Creates run.entry.recomputation from the options. After the module is on its device, before its Sequentials are
/// changed (SequentialCalls). Throws ConfigError with record_steps on a GPU, where random numbers cannot be repeated.
void start_recomputation(Run& run);

/// Makes run.entry.sequential_calls for the module and its replicas. After these are created: the wrapper of a block
/// cannot be copied.
void start_sequential_calls(EntryPoint& entry);

}  // namespace levin
