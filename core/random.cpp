#include "levin/core/random.h"

#include <atomic>
#include <utility>

namespace levin {

namespace {

std::atomic<uint64_t> run_seed{0};
std::atomic<bool> run_seed_is_set{false};

// Sebastiano Vigna, https://prng.di.unimi.it/splitmix64.c (public domain): the increment and the finaliser.
constexpr uint64_t kIncrement = 0x9e3779b97f4a7c15ULL;

uint64_t finalise(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

std::function<RandomMark()>& maker() {
  thread_local std::function<RandomMark()> make_mark;
  return make_mark;
}

}  // namespace

uint64_t default_seed() {
  return run_seed.load(std::memory_order_relaxed);
}

void set_default_seed(uint64_t seed) {
  run_seed.store(seed, std::memory_order_relaxed);
  run_seed_is_set.store(true, std::memory_order_relaxed);
}

bool seed_is_set() {
  return run_seed_is_set.load(std::memory_order_relaxed);
}

// The value-th number of the splitmix64 stream that starts at the finalised seed: seed and value are not exchangeable.
uint64_t mix_seed(uint64_t seed, uint64_t value) {
  return finalise(finalise(seed + kIncrement) + (value + 1) * kIncrement);
}

RandomMark mark_thread_random() {
  return maker() ? maker()() : RandomMark();
}

std::function<RandomMark()> set_thread_random(std::function<RandomMark()> make_mark) {
  return std::exchange(maker(), std::move(make_mark));
}

}  // namespace levin
