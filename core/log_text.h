// Text with {} for values, without a formatting library in a public header: LibTorch ships headers of another fmt than
// Debian's spdlog was built with.
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

namespace levin::log {

namespace detail {

enum class Kind { text, integer, unsigned_integer, number, truth, character };

struct Spec {
  char fill = ' ';
  char align = '\0';  // '\0': numbers to the right, text to the left
  bool plus = false;
  bool zeros = false;
  int width = 0;
  int precision = -1;
  char type = '\0';
};

/// Null if the spec (without its colon) can be read and fits a value of this kind, else what is wrong.
constexpr const char* read_spec(std::string_view text, Kind kind, Spec& spec) {
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t at = 0;
  if (text.size() > 1 && is_align(text[1])) {
    spec.fill = text[0];
    spec.align = text[1];
    at = 2;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    at = 1;
  }
  if (at < text.size() && text[at] == '+') spec.plus = true, ++at;
  if (at < text.size() && text[at] == '0') spec.zeros = true, ++at;
  while (at < text.size() && is_digit(text[at]) && spec.width < 1000) spec.width = spec.width * 10 + (text[at++] - '0');
  if (at + 1 < text.size() && text[at] == '.' && is_digit(text[at + 1])) {
    spec.precision = 0;
    for (++at; at < text.size() && is_digit(text[at]) && spec.precision < 100; ++at)
      spec.precision = spec.precision * 10 + (text[at] - '0');
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) return "a spec is [[fill]align][+][0][width][.precision][type]";
  const bool whole = kind == Kind::integer || kind == Kind::unsigned_integer;
  const bool number = whole || kind == Kind::number;
  if ((spec.plus || spec.zeros) && !number) return "+ and 0 are for numbers";
  if (spec.width > 200 || spec.precision > 60) return "a width is at most 200, a precision at most 60";
  switch (spec.type) {
    case '\0': break;
    case 'd':
    case 'x':
    case 'X':
    case 'o':
    case 'b':
      if (!whole) return "d, x, X, o and b are for integers";
      break;
    case 'f':
    case 'e':
    case 'g':
      if (!number) return "f, e and g are for numbers";
      break;
    case 's':
      if (number) return "s is for text";
      break;
    default: return "the type of a spec is one of d x X o b f e g s";
  }
  const bool floating = kind == Kind::number || spec.type == 'f' || spec.type == 'e' || spec.type == 'g';
  if (spec.precision >= 0 && whole && !floating) return "an integer has no precision; write {:.3f}";
  return nullptr;
}

/// Calls piece(text) for what stands between values and value(spec) for each {…}; null, or what is wrong.
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
    if (const char* wrong = value(inside.empty() ? inside : inside.substr(1)); wrong != nullptr) return wrong;
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
  if constexpr (std::is_same_v<T, bool>) return Kind::truth;
  if constexpr (std::is_same_v<T, char>) return Kind::character;
  if constexpr (std::is_integral_v<T>) return std::is_signed_v<T> ? Kind::integer : Kind::unsigned_integer;
  if constexpr (std::is_floating_point_v<T>) return Kind::number;
  return Kind::text;
}

/// One value, as it is passed to what is compiled once for all types.
struct Argument {
  Kind kind = Kind::text;
  int64_t integer = 0;
  uint64_t unsigned_integer = 0;
  double number = 0;
  bool is_float = false;  // prints as few digits as tell floats apart
  std::string_view text = {};
};

/// A value with the text of one that is neither a number nor a text.
template <class T>
struct Held {
  Argument argument;
  std::string streamed;

  explicit Held(const T& value) {
    constexpr Kind kind = kind_of<T>();
    argument.kind = kind;
    if constexpr (kind == Kind::integer || kind == Kind::truth || kind == Kind::character) {
      argument.integer = static_cast<int64_t>(value);
    } else if constexpr (kind == Kind::unsigned_integer) {
      argument.unsigned_integer = value;
    } else if constexpr (kind == Kind::number) {
      argument.number = static_cast<double>(value);
      argument.is_float = std::is_same_v<T, float>;
    } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      argument.text = value;
    } else {
      std::ostringstream out;
      out << value;
      streamed = std::move(out).str();
      argument.text = streamed;
    }
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
};

/// `text` was checked by the compiler.
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
        [&](std::string_view spec) -> const char* {
          if (seen >= count) return "there are more {} than values";
          detail::Spec read;
          return detail::read_spec(spec, kinds[seen++], read);
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

/// The text with its values.
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
