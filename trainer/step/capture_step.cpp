#include "levin/trainer/step/capture_step.h"

#include <c10/util/Exception.h>

#include <utility>

#include "levin/trainer/step/step_notes.h"

namespace levin {

CannotCapture::CannotCapture(std::string why) : Error(about_recording(why)), why_(std::move(why)) {}

std::unique_ptr<Recording> capture_step(StepRecorder& recorder, const std::function<void()>& step) {
  try {
    return recorder.record(step);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    if (recorder.runs_step()) throw;  // an error of the step
    const std::string text = error.what_without_backtrace();
    throw CannotCapture(
        "the step cannot be recorded, because something in it waits for the GPU (item(), cpu(), a branch on a tensor's "
        "value, or a copy from the host): " +
        text.substr(0, text.find('\n')));
  }
}

}  // namespace levin
