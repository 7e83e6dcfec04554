// The log of a run: what its parts do, in run.log of the run's folder, one file for each rank. Modules and callbacks
// write into it too:
//
//   levin::log::info("kept {} of {} boxes, the best at {:.3f}", kept, boxes, score);
//
//   levin::log::Component sampler("sampler");             a part of your own, with a level of its own
//   sampler.debug("drew {} negatives", count);            written with LEVIN_LOG=sampler=debug
//
// The console stays short: warnings and errors are shown there, other lines only if their level was set to debug or
// trace. A line whose level is off costs one load of an atomic; its values are not converted. Lines that are written
// before the run has a folder are kept until it has one.
#pragma once

#include <cstdint>
#include <string>

#include "levin/core/log_file.h"
#include "levin/core/log_levels.h"
#include "levin/core/log_text.h"

namespace levin::log {

namespace detail {

/// To the file, and to the console where its level says so. Never throws.
void write(const Slot& slot, Level level, const std::string& text) noexcept;
/// To the file alone.
void record(const Slot& slot, Level level, const std::string& text) noexcept;

}  // namespace detail

/// A part of the library or of a program, whose level is set by its name. Cheap to copy; two of the same name are one.
/// Letters, digits and _ . - make a name.
class Component {
 public:
  explicit Component(const std::string& name) : slot_(&detail::slot_of(name)) {}
  constexpr explicit Component(detail::Slot& slot) : slot_(&slot) {}

  [[nodiscard]] bool writes(Level level) const { return level >= slot_->level.load(std::memory_order_relaxed); }

  template <class... Values>
  void trace(TextFor<Values...> text, const Values&... values) const {
    if (writes(Level::trace)) detail::write(*slot_, Level::trace, filled<Values...>(text, values...));
  }
  template <class... Values>
  void debug(TextFor<Values...> text, const Values&... values) const {
    if (writes(Level::debug)) detail::write(*slot_, Level::debug, filled<Values...>(text, values...));
  }
  template <class... Values>
  void info(TextFor<Values...> text, const Values&... values) const {
    if (writes(Level::info)) detail::write(*slot_, Level::info, filled<Values...>(text, values...));
  }
  template <class... Values>
  void warn(TextFor<Values...> text, const Values&... values) const {
    if (writes(Level::warn)) detail::write(*slot_, Level::warn, filled<Values...>(text, values...));
  }
  template <class... Values>
  void error(TextFor<Values...> text, const Values&... values) const {
    if (writes(Level::error)) detail::write(*slot_, Level::error, filled<Values...>(text, values...));
  }
  /// To the file alone, for what the console shows by itself.
  void record(Level level, const std::string& text) const {
    if (writes(level)) detail::record(*slot_, level, text);
  }

 private:
  detail::Slot* slot_;
};

inline constexpr Component trainer{detail::trainer_slot};
inline constexpr Component data{detail::data_slot};
inline constexpr Component strategy{detail::strategy_slot};
inline constexpr Component checkpoint{detail::checkpoint_slot};
inline constexpr Component logger{detail::logger_slot};
inline constexpr Component launcher{detail::launcher_slot};
inline constexpr Component hooks{detail::hooks_slot};      // each hook that is called, at trace
inline constexpr Component console{detail::console_slot};  // the console's warnings and errors
inline constexpr Component user{detail::user_slot};        // levin::log::info and its siblings

template <class... Values>
void trace(TextFor<Values...> text, const Values&... values) {
  user.trace<Values...>(text, values...);
}
template <class... Values>
void debug(TextFor<Values...> text, const Values&... values) {
  user.debug<Values...>(text, values...);
}
template <class... Values>
void info(TextFor<Values...> text, const Values&... values) {
  user.info<Values...>(text, values...);
}
/// Also shown on the console, as Console::warn does.
template <class... Values>
void warn(TextFor<Values...> text, const Values&... values) {
  user.warn<Values...>(text, values...);
}
template <class... Values>
void error(TextFor<Values...> text, const Values&... values) {
  user.error<Values...>(text, values...);
}

// ---- for the trainer and the tool

/// Who says which levels and which format; a later one wins where both say something.
enum class Source { options, environment, command_line };

/// `levels`: "debug", "data=debug,info"; "" for nothing. Throws ConfigError and changes nothing if it has a mistake.
void set_levels(const std::string& levels, Source source);
/// "text" or "json"; "" for nothing. Throws ConfigError. For files that are opened afterwards.
void set_format(const std::string& format, Source source);
/// LEVIN_LOG (levels) and LEVIN_LOG_FORMAT. Throws ConfigError.
void read_environment();

/// Writes to the file of `rank` in `folder` from here on, first the lines that have waited for it. If it cannot be
/// written, a warning says why and the run goes on; a full disk is reported once, and at the end how many lines it
/// cost. The level and format of `options` are those of Source::options. Throws ConfigError if they have a mistake.
void open(const std::string& folder, int64_t rank, const LogOptions& options = {});
/// Closes the file; further lines wait for the next one, and their place is not known.
void close();

/// Where training is, for the lines that follow; -1: not known.
void set_position(int64_t epoch, int64_t step);

/// Shows a line on the console: Console sets it. Called without a lock.
using Voice = void (*)(Level level, const std::string& component, const std::string& text);
void set_voice(Voice voice);

}  // namespace levin::log
