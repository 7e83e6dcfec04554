// The base of a strategy's parts.
#pragma once

namespace levin {

class StrategyParts;

/// A part of a strategy: it does what one interface says, and reaches the other parts through parts(). A strategy owns
/// its parts. Parts are called by the training thread.
class StrategyPart {
 public:
  StrategyPart() = default;
  virtual ~StrategyPart() = default;
  StrategyPart(const StrategyPart&) = delete;
  StrategyPart& operator=(const StrategyPart&) = delete;

 protected:
  /// Returns the parts of the strategy that has this one. Must not be called before Strategy::use() has taken it.
  [[nodiscard]] const StrategyParts& parts() const { return *parts_; }

 private:
  friend class Strategy;
  const StrategyParts* parts_ = nullptr;
};

}  // namespace levin
