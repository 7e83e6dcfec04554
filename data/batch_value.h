// Values of a user-defined type in a batch, next to its tensors: graphs, boxes with classes, a tokenizer's encoding.
//
//   struct Boxes {
//     torch::Tensor corners;         // (boxes of all samples, 4)
//     std::vector<int64_t> samples;  // boxes of each sample
//   };
//   template <>
//   struct levin::BatchTraits<Boxes> {
//     static int64_t rows(const Boxes& boxes) { return std::ssize(boxes.samples); }
//     static Boxes slice(const Boxes& boxes, int64_t from, int64_t count) { … }
//     static Boxes concat(const std::vector<Boxes>& parts) { … }
//     static void tensors(Boxes& boxes, const levin::TensorVisitor& visit) { visit(boxes.corners); }
//   };
//   …
//   return levin::Batch{{"image", image}, {"boxes", Boxes{corners, {3}}}};
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace levin {

/// Sees a tensor, and may replace it.
using TensorVisitor = std::function<void(at::Tensor&)>;

/// What Levin has to know of a type whose values are in batches. Specialize it with what a run needs; what is missing
/// is an error that names the function, where it is needed:
///
///   int64_t rows(const T&)                       samples of a value
///   T slice(const T&, int64_t from, int64_t n)   those samples: dp, pipelines, micro-batches
///   T concat(const std::vector<T>&)              the samples of all: collating what get() returns
///   void tensors(T&, const TensorVisitor&)       visits each tensor: moving, pinning, converting; none if it holds
///   none static constexpr bool whole = true           instead of the first three: it belongs to no sample, and every
///   part
///                                                of a batch gets all of it
///
/// All are static. Values are copied as their type copies them, and shared otherwise: they are constant.
template <class T>
struct BatchTraits {};

namespace detail {

template <class T>
concept CountsRows = requires(const T& value) {
  { BatchTraits<T>::rows(value) } -> std::convertible_to<int64_t>;
};
template <class T>
concept SlicesRows = requires(const T& value, int64_t n) {
  { BatchTraits<T>::slice(value, n, n) } -> std::convertible_to<T>;
};
template <class T>
concept JoinsRows = requires(const std::vector<T>& values) {
  { BatchTraits<T>::concat(values) } -> std::convertible_to<T>;
};
template <class T>
concept ShowsTensors = requires(T& value, const TensorVisitor& visit) {
  BatchTraits<T>::tensors(value, visit);
};
template <class T>
concept IsWhole = requires {
  requires BatchTraits<T>::whole;
};

}  // namespace detail

/// A constant value of any type, with what its BatchTraits can do.
class BatchValue {
 public:
  template <class T>
  requires(!std::same_as<T, BatchValue> && std::copy_constructible<T>) explicit BatchValue(T value)
      : held_(std::make_shared<const Held<T>>(std::move(value))) {}

  /// Returns null if the value is of a different type.
  template <class T>
  [[nodiscard]] const T* get_if() const {
    return type() == typeid(T) ? &static_cast<const Held<T>&>(*held_).value : nullptr;
  }
  [[nodiscard]] const std::type_info& type() const { return held_->type(); }
  /// Returns the type's name without its namespace, for messages.
  [[nodiscard]] std::string type_name() const;

  /// Returns whether the value belongs to no sample.
  [[nodiscard]] bool is_whole() const { return held_->is_whole(); }
  /// Returns the number of samples; nullopt if it is not known, or the value belongs to no sample.
  [[nodiscard]] std::optional<int64_t> rows() const { return held_->rows(); }
  /// Returns the value of samples `from` to `from` + `count` - 1. Throws Error naming the field `name` and the trait
  /// that its type lacks.
  [[nodiscard]] BatchValue slice(const std::string& name, int64_t from, int64_t count) const;
  /// Returns the samples of all `values`, which are of one type, one after another; if the values are whole, the first
  /// value. Throws Error as slice() does.
  [[nodiscard]] static BatchValue concat(const std::string& name, const std::vector<BatchValue>& values);

  /// Returns true if BatchTraits::tensors exposes the value's tensors.
  [[nodiscard]] bool shows_tensors() const { return held_->shows_tensors(); }
  /// Returns a copy whose tensors `visit` has seen. Requires shows_tensors().
  [[nodiscard]] BatchValue visited(const TensorVisitor& visit) const { return BatchValue(held_->visited(visit)); }

 private:
  struct AnyHeld;
  using Any = std::shared_ptr<const AnyHeld>;

  struct AnyHeld {
    virtual ~AnyHeld() = default;
    [[nodiscard]] virtual const std::type_info& type() const = 0;
    [[nodiscard]] virtual bool is_whole() const = 0;
    [[nodiscard]] virtual std::optional<int64_t> rows() const = 0;
    [[nodiscard]] virtual bool shows_tensors() const = 0;
    // Null: its traits cannot.
    [[nodiscard]] virtual Any slice(int64_t from, int64_t count) const = 0;
    [[nodiscard]] virtual Any concat(const std::vector<BatchValue>& values) const = 0;
    [[nodiscard]] virtual Any visited(const TensorVisitor& visit) const = 0;
  };

  template <class T>
  struct Held final : AnyHeld {
    explicit Held(T held) : value(std::move(held)) {}
    [[nodiscard]] const std::type_info& type() const override { return typeid(T); }
    [[nodiscard]] bool is_whole() const override { return detail::IsWhole<T>; }
    [[nodiscard]] bool shows_tensors() const override { return detail::ShowsTensors<T>; }
    [[nodiscard]] std::optional<int64_t> rows() const override {
      if constexpr (detail::CountsRows<T>) return BatchTraits<T>::rows(value);
      return std::nullopt;
    }
    [[nodiscard]] Any slice(int64_t from, int64_t count) const override {
      if constexpr (detail::SlicesRows<T>)
        return std::make_shared<const Held>(BatchTraits<T>::slice(value, from, count));
      return nullptr;
    }
    [[nodiscard]] Any concat(const std::vector<BatchValue>& values) const override {
      if constexpr (detail::JoinsRows<T>) {
        std::vector<T> parts;
        parts.reserve(values.size());
        for (const BatchValue& one : values) parts.push_back(*one.template get_if<T>());
        return std::make_shared<const Held>(BatchTraits<T>::concat(parts));
      }
      return nullptr;
    }
    [[nodiscard]] Any visited(const TensorVisitor& visit) const override {
      if constexpr (detail::ShowsTensors<T>) {
        T copy = value;
        BatchTraits<T>::tensors(copy, visit);
        return std::make_shared<const Held>(std::move(copy));
      }
      return nullptr;
    }
    T value;
  };

  explicit BatchValue(Any held) : held_(std::move(held)) {}

  Any held_;
};

}  // namespace levin
