// Finds out whether a class overrides a virtual function: the trainer must know before on_sanity_check_start whether
// there will be a validation, without calling val_dataloader yet.
#pragma once

namespace levin::detail {

/// Returns true if `object`'s class overrides `function`, a virtual member of Base. Always true with compilers that
/// cannot find out (clang).
template <class Base, class Result, class... Args>
bool overrides(const Base& object, Result (Base::*function)(Args...)) {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpmf-conversions"
#pragma GCC diagnostic ignored "-Wpedantic"
  using Plain = Result (*)(Base*, Args...);
  Base base;
  Base& given = const_cast<Base&>(object);  // nothing is called on it
  return (Plain)(given.*function) != (Plain)(base.*function);
#pragma GCC diagnostic pop
#else
  (void)object;
  (void)function;
  return true;
#endif
}

}  // namespace levin::detail
