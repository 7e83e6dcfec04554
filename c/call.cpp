#include "levin/c/call.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "levin/core/process/main_guard.h"
#include "levin/core/version.h"
#include "levin/trainer/nonfinite_loss_error.h"
#include "levin/trainer/step/out_of_memory.h"

namespace levin::c {

namespace {

constexpr const char* kNoMemoryForText = "out of memory";

std::atomic<bool> is_initialized{false};

class WrongVersion : public Error {
 public:
  using Error::Error;
};

thread_local bool lacks_memory = false;
thread_local bool has_ended = false;

// A thread's text ends with it.
struct ThreadText {
  ~ThreadText() { has_ended = true; }
  std::string text = "";
};

// A program may call from destructors of its own, when the thread's text is gone: those use one that is never
// destroyed.
std::string& last_text() {
  if (has_ended) {
    thread_local auto* late_text = new std::string;
    return *late_text;
  }
  thread_local ThreadText own;
  return own.text;
}

levin_status status_of_exception() {
  try {
    throw;
  } catch (const InvalidArgument&) {
    return LEVIN_INVALID_ARGUMENT;
  } catch (const WrongVersion&) {
    return LEVIN_WRONG_VERSION;
  } catch (const ConfigError&) {
    return LEVIN_CONFIG_ERROR;
  } catch (const CheckpointError&) {
    return LEVIN_CHECKPOINT_ERROR;
  } catch (const NonFiniteLossError&) {
    return LEVIN_NONFINITE_LOSS;
  } catch (const OutOfMemoryError&) {
    return LEVIN_OUT_OF_MEMORY;
  } catch (const c10::OutOfMemoryError&) {
    return LEVIN_OUT_OF_MEMORY;
  } catch (const std::bad_alloc&) {
    return LEVIN_OUT_OF_MEMORY;
  } catch (...) {
    return LEVIN_RUN_ERROR;
  }
}

// A program in another language knows the options by their names in the run file.
std::string in_run_file_words(std::string text) {
  for (const auto& [cpp, yaml] : {std::pair{"FabricOptions.loggers", "trainer.logger"},
                                  std::pair{"FabricOptions.", "trainer."}, std::pair{"TrainerOptions.", "trainer."}}) {
    for (size_t at = text.find(cpp); at != std::string::npos; at = text.find(cpp, at)) {
      text.replace(at, std::string_view(cpp).size(), yaml);
    }
  }
  return text;
}

}  // namespace

void set_last_error(const char* text) noexcept {
  try {
    last_text() = text;
    lacks_memory = false;
  } catch (...) {
    lacks_memory = true;
  }
}

const char* last_error() noexcept {
  try {
    return lacks_memory ? kNoMemoryForText : last_text().c_str();
  } catch (...) {
    return kNoMemoryForText;
  }
}

levin_status report_exception(const char* function) noexcept {
  const levin_status status = status_of_exception();
  try {
    const std::string text = in_run_file_words(exception_text(std::current_exception()));
    set_last_error((std::string(function) + ": " + text).c_str());
  } catch (...) {
    lacks_memory = true;
  }
  return status;
}

void check_initialized() {
  if (!is_initialized) throw WrongVersion("Levin is not initialized. Call levin_init(LEVIN_ABI_VERSION) first.");
}

}  // namespace levin::c

extern "C" {

int32_t levin_abi_version(void) {
  return LEVIN_ABI_VERSION;
}

const char* levin_version(void) {
  return levin::version();
}

levin_status levin_init(int32_t abi_version) {
  using namespace levin::c;
  try {
    if (abi_version != LEVIN_ABI_VERSION) {
      throw WrongVersion("the program was compiled for version " + std::to_string(abi_version) +
                         " of the C interface, and the library has version " + std::to_string(LEVIN_ABI_VERSION) +
                         ". Compile the program with the levin.h of this Levin.");
    }
    is_initialized = true;
    set_last_error("");
    return LEVIN_OK;
  } catch (...) {
    return report_exception("levin_init");
  }
}

const char* levin_last_error(void) {
  return levin::c::last_error();
}

int64_t levin_live_handles(void) {
  return levin::c::Handles::instance().count();
}

}  // extern "C"
