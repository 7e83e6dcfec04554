// Text with {} for values, formatted by libfmt. No header of libfmt is included here: LibTorch ships headers of a
// different version than the one that spdlog was built with, so Levin checks the text at compile time itself.
//
//   filled("loss {:.3f} after {} steps", 0.25, 10)   "loss 0.250 after 10 steps"
//
// A spec is [[fill]align][+][0][width][.precision][type]: align < > ^, types d x X o b (integers), f e g (numbers),
// s (text). A text that does not fit its values is an error of the compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace levin::log {

namespace detail {

enum class Kind { text, integer, number };

/// Returns null if the spec (without its colon) fits a value of this kind, else what is wrong with it.
constexpr const char* wrong_spec(std::string_view text, Kind kind) {
  if (text.starts_with('{')) return "{ cannot fill";
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t at = 0;
  if (text.size() > 1 && is_align(text[1])) {
    at = 2;
  } else if (!text.empty() && is_align(text[0])) {
    at = 1;
  }
  const auto skip = [&](char c) { return at < text.size() && text[at] == c && ++at > 0; };
  const auto read_number = [&] {
    int value = 0;
    for (; at < text.size() && is_digit(text[at]) && value < 1000; ++at) value = value * 10 + (text[at] - '0');
    return value;
  };
  const bool plus = skip('+'), zeros = skip('0');
  const int width = read_number();
  const bool has_precision = at + 1 < text.size() && is_digit(text[at + 1]) && skip('.');
  const int precision = has_precision ? read_number() : 0;
  const char type = at < text.size() ? text[at++] : '\0';
  if (at != text.size()) return "a spec is [[fill]align][+][0][width][.precision][type]";
  if ((plus || zeros) && kind == Kind::text) return "+ and 0 are for numbers";
  if (width > 200 || precision > 60) return "a width is at most 200, a precision at most 60";
  const auto is_one_of = [type](std::string_view types) { return types.find(type) != std::string_view::npos; };
  if (type != '\0' && !is_one_of("dxXobfegs")) return "the type of a spec is one of d x X o b f e g s";
  if (is_one_of("dxXob") && kind != Kind::integer) return "d, x, X, o and b are for integers";
  if (is_one_of("feg") && kind == Kind::text) return "f, e and g are for numbers";
  if (is_one_of("s") && kind != Kind::text) return "s is for text";
  if (has_precision && kind == Kind::integer && !is_one_of("feg")) return "an integer has no precision; write {:.3f}";
  return nullptr;
}

/// Calls piece(text) for the text between values and value(spec) for each {…}. Returns null, or what is wrong.
template <class Piece, class Value>
constexpr const char* walk(std::string_view text, Piece piece, Value value) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '{' && text[at] != '}') continue;
    piece(text.substr(begin, at - begin));
    const bool doubled = at + 1 < text.size() && text[at + 1] == text[at];
    if (doubled) {
      piece(text.substr(at, 1));
      begin = ++at + 1;
      continue;
    }
    if (text[at] == '}') return "a } without its {; write }} for the character";
    const size_t end = text.find('}', at);
    if (end == std::string_view::npos) return "a { without its }; write {{ for the character";
    const std::string_view inside = text.substr(at + 1, end - at - 1);
    if (!inside.empty() && inside[0] != ':') return "between { and } stands nothing, or a colon and a spec";
    if (const char* wrong = value(inside.substr(inside.empty() ? 0 : 1)); wrong != nullptr) return wrong;
    at = end;
    begin = end + 1;
  }
  piece(text.substr(begin));
  return nullptr;
}

template <class T>
concept Streamed = requires(std::ostream& out, const T& value) {
  out << value;
};

template <class T>
consteval Kind kind_of() {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, char>) return Kind::text;
  if constexpr (std::is_integral_v<T>) return Kind::integer;
  return std::is_floating_point_v<T> ? Kind::number : Kind::text;
}

/// One value in a type that is passed to compiled code. A float prints as few digits as tell floats apart.
using Argument = std::variant<std::string_view, int64_t, uint64_t, double, float>;

/// A value as an Argument, with the string that a streamed value, a bool or a character becomes.
template <class T>
struct Held {
  std::string text;
  Argument argument;

  explicit Held(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      argument = std::string_view(value ? "true" : "false");
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, char>) {
      argument = static_cast<std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      argument = static_cast<std::conditional_t<std::is_same_v<T, float>, float, double>>(value);
    } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      argument = static_cast<std::string_view>(value);
    } else {
      std::ostringstream out;
      out << value;
      text = std::move(out).str();
      argument = std::string_view(text);
    }
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
};

/// Formats with libfmt. `text` was checked by the compiler.
[[nodiscard]] std::string fill(std::string_view text, std::span<const Argument> values);

// Not constexpr: calling it in a constant expression is the error, and the compiler prints the call.
void the_text_does_not_fit_its_values(const char* why);

}  // namespace detail

/// A text that the compiler has compared with the values that follow it.
template <class... Values>
class Text {
 public:
  template <size_t N>
  consteval Text(const char (&text)[N])  // NOLINT(google-explicit-constructor): "…" converts
      : text_(text, N - 1) {
    constexpr size_t count = sizeof...(Values);
    const detail::Kind kinds[count + 1] = {detail::kind_of<Values>()..., detail::Kind::text};
    size_t seen = 0;
    const char* wrong = detail::walk(
        text_, [](std::string_view) {},
        [&](std::string_view spec) {
          return seen >= count ? "there are more {} than values" : detail::wrong_spec(spec, kinds[seen++]);
        });
    if (wrong == nullptr && seen < count) wrong = "there are more values than {}";
    if (wrong != nullptr) detail::the_text_does_not_fit_its_values(wrong);
  }

  [[nodiscard]] std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

template <class... Values>
using TextFor = Text<std::decay_t<const std::type_identity_t<Values>&>...>;

/// Returns the text with its values.
template <class... Values>
[[nodiscard]] std::string filled(TextFor<Values...> text, const Values&... values) {
  static_assert(((detail::Streamed<std::decay_t<const Values&>>)&&...),
                "levin::log: a value of this type has no text; give it an operator<<, or pass a std::string");
  const auto fill = [&](const auto&... held) {
    const detail::Argument arguments[sizeof...(Values) + 1] = {held.argument..., detail::Argument()};
    return detail::fill(text.text(), std::span(arguments, sizeof...(Values)));
  };
  return fill(detail::Held<std::decay_t<const Values&>>(values)...);
}

}  // namespace levin::log
