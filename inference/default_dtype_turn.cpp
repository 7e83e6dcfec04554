#include "levin/inference/default_dtype_turn.h"

#include <c10/core/DefaultDtype.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "levin/core/options/error.h"

namespace levin {

namespace {

using Wish = std::optional<at::ScalarType>;

// What all threads share. A thread with another wish than the running ones draws a number, and no thread that comes
// later goes before it: so neither wish is put off for ever.
struct Turns {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t running = 0;  // threads
  Wish wish;            // of those
  caffe2::TypeMeta outer;
  uint64_t next_number = 0;  // of the queue
  uint64_t now_serving = 0;
};

Turns& turns() {
  static Turns all;
  return all;
}

thread_local int own_depth = 0;
thread_local Wish own_wish;

std::string text_of(const Wish& wish) {
  return wish ? c10::toString(*wish) : "the process's default type";
}

void take_turn(const Wish& wish) {
  Turns& all = turns();
  std::unique_lock lock(all.mutex);
  const uint64_t number = all.next_number++;
  all.changed.wait(lock, [&] { return all.now_serving == number && (all.running == 0 || all.wish == wish); });
  ++all.now_serving;
  if (all.running++ == 0) {
    all.wish = wish;
    all.outer = c10::get_default_dtype();
    if (wish) c10::set_default_dtype(c10::scalarTypeToTypeMeta(*wish));
  }
  lock.unlock();
  all.changed.notify_all();  // the next number may have the same wish
}

void end_turn() {
  Turns& all = turns();
  const std::lock_guard lock(all.mutex);
  if (--all.running > 0) return;
  if (all.wish) c10::set_default_dtype(all.outer);
  all.changed.notify_all();
}

}  // namespace

DefaultDtypeTurn::DefaultDtypeTurn(std::optional<at::ScalarType> dtype) {
  if (own_depth > 0 && own_wish != dtype) {
    throw Error(
        "predict: a model that computes in " + text_of(dtype) + " was called inside the step of one in " +
        text_of(own_wish) +
        ". Both need the process's default type at once. Load them in the same precision, or call one after the "
        "other.");
  }
  if (own_depth == 0) take_turn(dtype);
  own_wish = dtype;
  ++own_depth;
}

DefaultDtypeTurn::~DefaultDtypeTurn() {
  if (--own_depth == 0) end_turn();
}

}  // namespace levin
