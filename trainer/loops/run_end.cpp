#include "levin/trainer/loops/run_end.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <new>
#include <stdexcept>
#include <typeinfo>

#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/core/process/console.h"
#include "levin/core/process/log.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/rank_status.h"
#include "levin/trainer/plan/resolve_plan.h"
#include "levin/trainer/run/failed_place.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/memory_report.h"
#include "levin/trainer/run/run_folders.h"
#include "levin/trainer/run/run_reporter.h"
#include "levin/trainer/state/checkpoint.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

std::string ended_text(std::string text) {
  return text.ends_with('.') ? text : text + ".";
}

// Runs `task` in a run that has failed already: its exceptions become warnings that name `what`.
template <class Task>
void although_failing(const std::string& what, Task task) {
  try {
    task();
  } catch (...) {
    Console::instance().warn(what + " failed while the run was ending with an error: " +
                             ended_text(exception_text(std::current_exception())) +
                             " The run ends with its first error.");
  }
}

template <class Object, class Task>
void although_failing(Run& run, Hook hook, Object& object, Task task) {
  although_failing(std::string(hook_name(hook)) + " of " + detail::readable_type_name(typeid(object)), [&] {
    run.entry.caller = &typeid(object);
    task(object);
  });
}

// Calls the next one of data module, callbacks and module, in this order, that was not called yet; false: all were.
template <class Call>
bool tear_down_next(Run& run, Call call) {
  const Stage stage = *run.entry.stage;
  const size_t at = run.entry.torn_down++;
  if (at == 0) {
    if (run.entry.data != nullptr) call(*run.entry.data, [&](DataModule& data) { data.teardown(stage); });
  } else if (at <= run.entry.callbacks.size()) {
    call(*run.entry.callbacks[at - 1],
         [&](Callback& callback) { callback.teardown(run.trainer, *run.entry.module, stage); });
  } else if (at == run.entry.callbacks.size() + 1) {
    call(*run.entry.module, [&](LightningModule& module) { module.teardown(stage); });
  } else {
    return false;
  }
  return true;
}

// Tensors that an evaluation has made belong to inference mode, and training cannot use them.
std::string inference_hint(const Run& run, const c10::Error& error) {
  const std::string_view text = error.what_without_backtrace();
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  if (run.entry.stage != Stage::fit || !(has("nference tensor") || has("inference mode") || has("InferenceMode")))
    return "";
  return "\nThe tensor was made by validate, test or predict, such as one that the module keeps from its first forward "
         "pass. Make it in the constructor or in setup(), or set TrainerOptions.inference_mode: false.";
}

// For LibTorch's layers; the error of an exported program already contains it.
std::string batch_hint(const std::string& text) {
  if (text.find("Expected more than 1 value per channel when training") == std::string::npos) return "";
  return ". Leave out an epoch's last batch where it is too small (drop_last: true), or choose another batch size.";
}

void report_exception(Run& run, const std::exception& error) {
  const HookScope scope(run.entry, Hook::on_exception);
  RankStatus::instance().set_error(error.what());
  log::trainer.record(log::Level::error, error.what());  // on the console it is the last line of the program
  const bool interrupted = dynamic_cast<const Interrupted*>(&error) != nullptr;
  run.entry.checkpoint_requests.clear();
  for (const auto& callback : run.entry.callbacks) {
    although_failing(run, Hook::on_exception, *callback,
                     [&](Callback& one) { one.on_exception(run.trainer, *run.entry.module, error); });
  }
  although_failing("saving a checkpoint", [&] { capture_checkpoints(run); });
  although_failing("saving a checkpoint", [&] { run.checkpoint_writer.finish(); });
  if (run.entry.data != nullptr) {
    although_failing(run, Hook::on_exception, *run.entry.data, [&](DataModule& data) { data.on_exception(error); });
  }
  although_failing(run, Hook::on_exception, *run.entry.module,
                   [&](LightningModule& module) { module.on_exception(error); });
  although_failing("writing what was logged", [&] {
    if (run.reporter != nullptr) run.reporter->end(run, interrupted ? "interrupted" : "failed", error.what());
    run.drain_logs();
  });
  for (const auto& logger : run.loggers) {
    Logger& one = *logger;
    although_failing("finalize of " + detail::readable_type_name(typeid(one)),
                     [&] { one.finalize(interrupted ? "interrupted" : "failed"); });
  }
  // Lightning: an exception skips teardown; here it runs, so that what setup opened is closed.
  const HookScope ending(run.entry, Hook::teardown);
  while (tear_down_next(run, [&](auto& object, auto call) { although_failing(run, Hook::teardown, object, call); })) {
  }
  although_failing("copying files to the object store", [&] { finish_uploads(run); });
}

// An exception of user code, with the place in the run prepended to its text. Errors that Levin finds before the first
// hook need no place.
template <class E>
[[noreturn]] void throw_placed(Run& run, const std::exception& error) {
  std::string text = exception_text(error);
  if (text != error.what()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : run.trainer.callback_metrics()) names.push_back(name);
    text += " Metrics so far: " + join(names) + ".";
  }
  if (run.entry.data != nullptr && text.find("the program was exported for") != std::string::npos) {
    text += run.entry.data->about_dtypes();
  }
  if (run.entry.phase != Phase::idle || run.entry.failed_hook) {
    const std::string hook = hook_name(run.entry.failed_hook.value_or(run.entry.place.hook));
    if (text.starts_with(hook + ": ")) text.erase(0, hook.size() + 2);
    text = failed_place(run) + ": " + text;
  }
  const E placed(text);
  report_exception(run, placed);
  throw placed;
}

[[noreturn]] void fail_without_memory(Run& run, const std::exception& error) {
  const OutOfMemoryError wrapped(memory_report(run, failed_place(run), error));
  report_exception(run, wrapped);
  throw wrapped;
}

}  // namespace

void tear_down(Run& run) {
  const HookScope scope(run.entry, Hook::teardown);
  while (tear_down_next(run, [&](auto& object, auto call) {
    run.entry.caller = &typeid(object);
    call(object);
  })) {
  }
}

void end_logs(Run& run, const std::string& status, const std::string& error) {
  if (run.reporter != nullptr) run.reporter->end(run, status, error);
  run.drain_logs();
  const LogPoint now(run.progress.windows);
  for (const auto& logger : run.loggers) {
    if (error.empty() && run.entry.stage == Stage::fit && logger->takes(LogKind::hyperparameters)) {
      const Metrics& last = run.logged_metrics.values();
      logger->log_final_metrics({last.begin(), last.end()}, now);
    }
    logger->finalize(status);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - run.entry.started;
  const std::string why = run.entry.stage == Stage::fit ? ": " + end_reason(run.trainer) : "";
  log::trainer.info("{} has ended after {:.1f} s, {} and {}{}", enum_name(*run.entry.stage), took.count(),
                    count_of(run.progress.epoch, "epoch"), count_of(run.progress.global_step, "step"), why);
}

void fail_run(Run& run) {
  run.entry.failing = true;
  try {
    throw;
  } catch (const std::bad_alloc& error) {
    fail_without_memory(run, error);
  } catch (const c10::Error& error) {
    if (is_out_of_memory(error)) fail_without_memory(run, error);
    const std::string text = error.what_without_backtrace();
    std::string remedy = type_remedy(text);
    if (!remedy.empty() && run.entry.data != nullptr) remedy += run.entry.data->about_dtypes();
    const Error wrapped(failed_place(run) + ": " + text + remedy + batch_hint(text) + inference_hint(run, error));
    report_exception(run, wrapped);
    throw wrapped;
  } catch (const std::exception& error) {
    const std::string_view type = typeid(error).name();  // a readable name takes memory
    const bool is_of_replica = typeid(error) == typeid(Error), is_of_onednn = type.starts_with("N4dnnl");
    if ((is_of_replica || is_of_onednn) && is_out_of_memory(error)) {
      fail_without_memory(run, error);
    }
    if (typeid(error) == typeid(Error)) throw_placed<Error>(run, error);
    if (typeid(error) == typeid(std::runtime_error)) throw_placed<std::runtime_error>(run, error);
    if (typeid(error) == typeid(std::logic_error)) throw_placed<std::logic_error>(run, error);
    if (typeid(error) == typeid(std::invalid_argument)) throw_placed<std::invalid_argument>(run, error);
    if (typeid(error) == typeid(std::out_of_range)) throw_placed<std::out_of_range>(run, error);
    if (dynamic_cast<const Error*>(&error) == nullptr) {  // a type that cannot be constructed with another text
      Console::instance().warn("the run ends in " + failed_place(run) + ": " + error.what());
    }
    report_exception(run, error);
    throw;
  } catch (...) {
    const Error described(failed_place(run) + ": " + exception_text(std::current_exception()) +
                          ". Throw levin::Error, or another std::exception, to say what went wrong.");
    Console::instance().warn(described.what());  // the rethrown exception has no text
    report_exception(run, described);
    throw;
  }
}

}  // namespace levin
