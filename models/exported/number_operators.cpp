#include "levin/models/exported/number_operators.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "levin/core/error.h"

namespace levin::exported {

namespace {

using c10::IValue;
using Arguments = std::vector<IValue>;

double real_of(const IValue& value) {
  if (value.isDouble()) return value.toDouble();
  return value.isBool() ? static_cast<double>(value.toBool()) : static_cast<double>(value.toInt());
}

int64_t whole_of(const IValue& value) {
  return value.isBool() ? static_cast<int64_t>(value.toBool()) : value.toInt();
}

bool true_of(const IValue& value) {
  return value.isBool() ? value.toBool() : (value.isInt() ? value.toInt() != 0 : value.toDouble() != 0);
}

int64_t in_range(bool overflows, int64_t value) {
  if (overflows) throw Error("a size of the exported program does not fit into 64 bits.");
  return value;
}

// Whole numbers give whole numbers, as in Python; with a double among them, doubles.
template <class Whole, class Real>
IValue arithmetic(const Arguments& arguments, Whole whole, Real real) {
  const IValue &a = arguments[0], &b = arguments[1];
  if (a.isDouble() || b.isDouble()) return IValue(real(real_of(a), real_of(b)));
  return IValue(whole(whole_of(a), whole_of(b)));
}

IValue add(const Arguments& arguments) {
  const auto whole = [](int64_t a, int64_t b) {
    int64_t sum = 0;
    const bool overflows = __builtin_add_overflow(a, b, &sum);
    return in_range(overflows, sum);
  };
  return arithmetic(arguments, whole, [](double a, double b) { return a + b; });
}

IValue sub(const Arguments& arguments) {
  const auto whole = [](int64_t a, int64_t b) {
    int64_t difference = 0;
    const bool overflows = __builtin_sub_overflow(a, b, &difference);
    return in_range(overflows, difference);
  };
  return arithmetic(arguments, whole, [](double a, double b) { return a - b; });
}

int64_t product(int64_t a, int64_t b) {
  int64_t result = 0;
  const bool overflows = __builtin_mul_overflow(a, b, &result);
  return in_range(overflows, result);
}

IValue mul(const Arguments& arguments) {
  return arithmetic(arguments, product, [](double a, double b) { return a * b; });
}

void refuse_zero(bool is_zero) {
  if (is_zero) throw Error("the exported program divides a size by zero.");
}

int64_t floor_quotient(int64_t a, int64_t b) {
  refuse_zero(b == 0);
  if (b == -1) return product(a, -1);
  return a / b - static_cast<int64_t>(a % b != 0 && (a % b < 0) != (b < 0));
}

IValue floordiv(const Arguments& arguments) {
  return arithmetic(arguments, floor_quotient, [](double a, double b) {
    refuse_zero(b == 0);
    return std::floor(a / b);
  });
}

IValue mod(const Arguments& arguments) {
  const auto whole = [](int64_t a, int64_t b) {
    refuse_zero(b == 0);
    const int64_t rest = b == -1 ? 0 : a % b;  // the quotient by -1 may not fit
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  };
  return arithmetic(arguments, whole, [](double a, double b) {
    refuse_zero(b == 0);
    const double rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  });
}

IValue truediv(const Arguments& arguments) {
  refuse_zero(real_of(arguments[1]) == 0);
  return real_of(arguments[0]) / real_of(arguments[1]);
}

IValue pow(const Arguments& arguments) {
  const IValue &base = arguments[0], &exponent = arguments[1];
  if (base.isDouble() || exponent.isDouble() || whole_of(exponent) < 0) {
    return std::pow(real_of(base), real_of(exponent));
  }
  int64_t result = 1, factor = whole_of(base);
  for (int64_t left = whole_of(exponent); left > 0; left >>= 1) {
    if ((left & 1) != 0) result = product(result, factor);
    if (left > 1) factor = product(factor, factor);
  }
  return result;
}

IValue neg(const Arguments& arguments) {
  if (arguments[0].isDouble()) return -arguments[0].toDouble();
  return product(whole_of(arguments[0]), -1);
}

template <class Compare>
IValue compare(const Arguments& arguments, Compare holds) {
  const IValue &a = arguments[0], &b = arguments[1];
  if (a.isDouble() || b.isDouble()) return IValue(static_cast<bool>(holds(real_of(a), real_of(b))));
  return IValue(static_cast<bool>(holds(whole_of(a), whole_of(b))));
}

// On bools "and" and "or", on whole numbers bitwise.
template <class Combine>
IValue bitwise(const Arguments& arguments, Combine combine) {
  const int64_t result = combine(whole_of(arguments[0]), whole_of(arguments[1]));
  if (arguments[0].isBool() && arguments[1].isBool()) return IValue(result != 0);
  return IValue(result);
}

IValue shift(const Arguments& arguments, bool left) {
  const int64_t value = whole_of(arguments[0]), by = whole_of(arguments[1]);
  if (by < 0 || by > 62) throw Error("the exported program shifts a size by " + std::to_string(by) + " bits.");
  return left ? product(value, int64_t{1} << by) : value >> by;
}

IValue whole_part(const IValue& value, double (*round)(double)) {
  if (!value.isDouble()) return whole_of(value);
  const double rounded = round(value.toDouble());
  return in_range(!(std::abs(rounded) < 9.2e18), static_cast<int64_t>(std::abs(rounded) < 9.2e18 ? rounded : 0));
}

template <class Compare>
IValue chosen(const Arguments& arguments, Compare first_wins) {
  return first_wins(real_of(arguments[0]), real_of(arguments[1])) ? arguments[0] : arguments[1];
}

using Table = std::map<std::pair<std::string, size_t>, NumberOperator>;

const Table& table() {
  using A = const Arguments&;
  static const Table all = {
      {{"_operator.add", 2}, add},
      {{"_operator.sub", 2}, sub},
      {{"_operator.mul", 2}, mul},
      {{"_operator.floordiv", 2}, floordiv},
      {{"_operator.mod", 2}, mod},
      {{"_operator.truediv", 2}, truediv},
      {{"_operator.pow", 2}, pow},
      {{"_operator.neg", 1}, neg},
      {{"_operator.pos", 1}, [](A a) { return a[0]; }},
      {{"_operator.eq", 2}, [](A a) { return compare(a, [](auto x, auto y) { return x == y; }); }},
      {{"_operator.ne", 2}, [](A a) { return compare(a, [](auto x, auto y) { return x != y; }); }},
      {{"_operator.lt", 2}, [](A a) { return compare(a, [](auto x, auto y) { return x < y; }); }},
      {{"_operator.le", 2}, [](A a) { return compare(a, [](auto x, auto y) { return x <= y; }); }},
      {{"_operator.gt", 2}, [](A a) { return compare(a, [](auto x, auto y) { return x > y; }); }},
      {{"_operator.ge", 2}, [](A a) { return compare(a, [](auto x, auto y) { return x >= y; }); }},
      {{"_operator.and_", 2}, [](A a) { return bitwise(a, [](int64_t x, int64_t y) { return x & y; }); }},
      {{"_operator.or_", 2}, [](A a) { return bitwise(a, [](int64_t x, int64_t y) { return x | y; }); }},
      {{"_operator.lshift", 2}, [](A a) { return shift(a, true); }},
      {{"_operator.rshift", 2}, [](A a) { return shift(a, false); }},
      {{"torch.sym_not", 1}, [](A a) { return IValue(!true_of(a[0])); }},
      {{"torch.sym_int", 1}, [](A a) { return whole_part(a[0], std::trunc); }},
      {{"math.trunc", 1}, [](A a) { return whole_part(a[0], std::trunc); }},
      {{"torch.sym_float", 1}, [](A a) { return IValue(real_of(a[0])); }},
      {{"torch._sym_sqrt", 1}, [](A a) { return IValue(std::sqrt(real_of(a[0]))); }},
      {{"torch.sym_sqrt", 1}, [](A a) { return IValue(std::sqrt(real_of(a[0]))); }},
      {{"torch.sym_max", 2}, [](A a) { return chosen(a, [](double x, double y) { return x >= y; }); }},
      {{"torch.sym_min", 2}, [](A a) { return chosen(a, [](double x, double y) { return x <= y; }); }},
      {{"torch.sym_ite", 3}, [](A a) { return true_of(a[0]) ? a[1] : a[2]; }},
  };
  return all;
}

}  // namespace

NumberOperator number_operator(const std::string& target, size_t arguments) {
  const auto found = table().find({target, arguments});
  return found == table().end() ? nullptr : found->second;
}

}  // namespace levin::exported
