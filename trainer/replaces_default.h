// The interface of callbacks that replace one of the trainer's default callbacks: a progress bar or a summary.
//
//   class Dots : public levin::Callback, public levin::ReplacesDefault {
//     std::string default_for() const override { return "progress_bar"; }
//   };
#pragma once

#include <string>

namespace levin {

/// The base of callbacks that replace a default callback.
class ReplacesDefault {
 public:
  virtual ~ReplacesDefault() = default;
  /// Returns "progress_bar" or "summary".
  [[nodiscard]] virtual std::string default_for() const = 0;

 protected:
  ReplacesDefault() = default;
  ReplacesDefault(const ReplacesDefault&) = default;
  ReplacesDefault& operator=(const ReplacesDefault&) = default;
};

}  // namespace levin
