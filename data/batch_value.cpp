#include "levin/data/batch_value.h"

#include "levin/core/component.h"
#include "levin/core/error.h"

namespace levin {

namespace {

[[noreturn]] void lacks_traits(const std::string& name, const std::string& type, const std::string& what,
                               const std::string& functions) {
  throw Error("Batch: the field \"" + name + "\" holds a value of type " + type + ", which cannot be " + what +
              ": specialize levin::BatchTraits<" + type + "> with " + functions +
              ", or with static constexpr bool whole = true if it belongs to no sample (data/batch_value.h).");
}

}  // namespace

std::string BatchValue::type_name() const {
  return detail::readable_type_name(type());
}

BatchValue BatchValue::slice(const std::string& name, int64_t from, int64_t count) const {
  if (is_whole()) return *this;
  Any part = rows() ? held_->slice(from, count) : nullptr;
  if (part == nullptr) lacks_traits(name, type_name(), "split by samples", "rows() and slice()");
  return BatchValue(std::move(part));
}

BatchValue BatchValue::concat(const std::string& name, const std::vector<BatchValue>& values) {
  const BatchValue& first = values.at(0);
  if (first.is_whole()) return first;
  Any all = first.held_->concat(values);
  if (all == nullptr) lacks_traits(name, first.type_name(), "collated to a batch", "concat()");
  return BatchValue(std::move(all));
}

}  // namespace levin
