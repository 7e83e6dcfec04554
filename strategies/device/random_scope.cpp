#include "levin/strategies/device/random_scope.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "levin/core/random.h"
#include "levin/libtorch/generator_state.h"

namespace levin {

namespace {

// Note [A generator for each thread]
// LibTorch's CPU operators draw from at::detail::getDefaultCPUGenerator(), a single object per process. A thread with
// its own random numbers swaps its state in while one of its operators draws (tag nondeterministic_seeded), under a
// lock, and swaps it out afterwards. A thread-local RecordFunction callback intercepts operators, nested ones too.
struct ThreadRandom {
  uint64_t seed = 0;
  uint64_t seeds_drawn = 0;
  at::Tensor state = {};  // undefined: nothing has been drawn yet
  at::Tensor process_state = {};
  int depth = 0;  // of operators that draw
  std::unordered_map<const char*, bool> draws = {};
};

ThreadRandom*& this_thread() {
  thread_local ThreadRandom* random = nullptr;
  return random;
}

std::mutex& turn() {
  static std::mutex mutex;
  return mutex;
}

at::Generator& process_generator() {
  static at::Generator generator = at::detail::getDefaultCPUGenerator();
  return generator;
}

bool draws_numbers(ThreadRandom& random, const at::RecordFunction& call) {
  const auto [found, is_new] = random.draws.try_emplace(call.name(), false);
  if (!is_new) return found->second;
  const std::optional<c10::OperatorName> name = call.operator_name();
  if (!name) return false;
  const auto op = c10::Dispatcher::singleton().findOp(*name);
  found->second = op && op->hasTag(at::Tag::nondeterministic_seeded);
  return found->second;
}

void take_turn(ThreadRandom& random) {
  if (!random.state.defined()) random.state = at::detail::createCPUGenerator(random.seed).get_state();
  turn().lock();
  random.process_state = exchange_generator_state(process_generator(), random.state);
}

void end_turn(ThreadRandom& random) {
  random.state = exchange_generator_state(process_generator(), std::exchange(random.process_state, at::Tensor()));
  turn().unlock();
}

struct Drawing final : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> before_operator(const at::RecordFunction& call) {
  ThreadRandom* random = this_thread();
  if (random == nullptr || !draws_numbers(*random, call)) return nullptr;
  if (random->depth++ == 0) take_turn(*random);
  return std::make_unique<Drawing>();
}

void after_operator(const at::RecordFunction&, at::ObserverContext* drawing) {
  ThreadRandom* random = this_thread();
  if (drawing != nullptr && random != nullptr && --random->depth == 0) end_turn(*random);
}

}  // namespace

uint64_t draw_seed() {
  if (ThreadRandom* random = this_thread()) return mix_seed(~random->seed, random->seeds_drawn++);
  at::Generator& generator = process_generator();
  const std::lock_guard lock(generator.mutex());
  return generator.get<at::CPUGeneratorImpl>()->random64();
}

// A position in a thread's random numbers: enough to continue from it at any time, on any thread.
struct RandomScope::State {
  uint64_t seed = 0;
  uint64_t seeds_drawn = 0;
  at::Tensor state = {};  // never modified: each turn ends with a new tensor
};

RandomMark RandomScope::mark() {
  const ThreadRandom& random = *this_thread();
  const State here{random.seed, random.seeds_drawn, random.state};
  return [here] { return std::shared_ptr<void>(std::shared_ptr<RandomScope>(new RandomScope(here))); };
}

RandomScope::RandomScope(uint64_t seed) : RandomScope(State{seed}) {}

RandomScope::RandomScope(const State& state) : outer_(this_thread()) {
  auto random = std::make_unique<ThreadRandom>();
  random->seed = state.seed;
  random->seeds_drawn = state.seeds_drawn;
  random->state = state.state;
  callback_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&before_operator, &after_operator).scopes({at::RecordScope::FUNCTION}));
  this_thread() = random.release();
  outer_mark_ = set_thread_random(&RandomScope::mark);
}

RandomScope::~RandomScope() {
  set_thread_random(std::move(outer_mark_));
  at::removeCallback(callback_);
  delete this_thread();
  this_thread() = static_cast<ThreadRandom*>(outer_);
}

}  // namespace levin
