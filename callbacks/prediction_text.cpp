#include "levin/callbacks/prediction_text.h"

#include <ATen/Parallel.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "levin/core/options/error.h"
#include "levin/loggers/csv_table.h"

namespace levin {

namespace {

constexpr size_t kMaxNumberBytes = 40;       // of one number with the separator before it
constexpr int64_t kNumbersOfPiece = 65'536;  // that a thread formats at once

// The digits of a finite number and its decimal exponent: d.ddd x 10^exponent.
struct Decimal {
  std::array<char, 24> digits;
  int count;
  int exponent;
};

template <class Float>
Decimal decimal_of(Float positive) {
  std::array<char, 32> text;
  const char* end = std::to_chars(text.data(), text.data() + text.size(), positive, std::chars_format::scientific).ptr;
  Decimal decimal;
  decimal.count = 0;
  const char* at = text.data();
  for (; *at != 'e'; ++at) {
    if (*at != '.') decimal.digits[static_cast<size_t>(decimal.count++)] = *at;
  }
  ++at;
  if (*at == '+') ++at;
  (void)std::from_chars(at, end, decimal.exponent);
  return decimal;
}

char* put(char* to, const char* text, int count) {
  std::memcpy(to, text, static_cast<size_t>(count));
  return to + count;
}

char* put_zeros(char* to, int count) {
  std::memset(to, '0', static_cast<size_t>(count));
  return to + count;
}

// Python's repr(): digits with a point for exponents from -4 to 15, else with an exponent of two digits at least.
char* put_decimal(char* to, const Decimal& d) {
  const char* digits = d.digits.data();
  if (d.exponent < -4 || d.exponent >= 16) {
    *to++ = digits[0];
    if (d.count > 1) {
      *to++ = '.';
      to = put(to, digits + 1, d.count - 1);
    }
    *to++ = 'e';
    *to++ = d.exponent < 0 ? '-' : '+';
    const int exponent = std::abs(d.exponent);
    if (exponent < 10) *to++ = '0';
    return std::to_chars(to, to + 8, exponent).ptr;
  }
  if (d.exponent < 0) {
    to = put(to, "0.", 2);
    to = put_zeros(to, -d.exponent - 1);
    return put(to, digits, d.count);
  }
  const int before_point = d.exponent + 1;
  if (d.count <= before_point) {
    to = put_zeros(put(to, digits, d.count), before_point - d.count);
    return put(to, ".0", 2);
  }
  to = put(to, digits, before_point);
  *to++ = '.';
  return put(to, digits + before_point, d.count - before_point);
}

enum class TextForm { csv, json };

template <class Float>
char* put_float(char* to, Float number, TextForm form) {
  if (!std::isfinite(number)) {
    if (form == TextForm::json) return put(to, "null", 4);
    if (std::isnan(number)) return put(to, "nan", 3);
    return number > 0 ? put(to, "inf", 3) : put(to, "-inf", 4);
  }
  if (std::signbit(number)) *to++ = '-';
  return put_decimal(to, decimal_of(std::abs(number)));
}

char* put_number(char* to, bool value, TextForm) {
  return value ? put(to, "true", 4) : put(to, "false", 5);
}
char* put_number(char* to, int64_t value, TextForm) {
  return std::to_chars(to, to + 24, value).ptr;
}
char* put_number(char* to, uint64_t value, TextForm) {
  return std::to_chars(to, to + 24, value).ptr;
}
char* put_number(char* to, float value, TextForm form) {
  return put_float(to, value, form);
}
char* put_number(char* to, double value, TextForm form) {
  return put_float(to, value, form);
}

// With a comma before each number.
template <class Number>
char* put_numbers(char* to, const Number* numbers, int64_t count, TextForm form) {
  for (int64_t k = 0; k < count; ++k) {
    *to++ = ',';
    to = put_number(to, numbers[k], form);
  }
  return to;
}

// The numbers of one part: the values of a row follow the values of the row before it.
struct Values {
  std::string name;
  at::Tensor numbers;          // contiguous, of bool, int64, uint64, float32 or float64
  std::vector<int64_t> sizes;  // of a row
  int64_t width = 1;           // values of a row

  // Writes `count` values from `first` on, with a comma before each.
  [[nodiscard]] char* put_values(char* to, int64_t first, int64_t count, TextForm form) const {
    switch (numbers.scalar_type()) {
      case at::kBool: return put_numbers(to, numbers.const_data_ptr<bool>() + first, count, form);
      case at::kLong: return put_numbers(to, numbers.const_data_ptr<int64_t>() + first, count, form);
      case at::kUInt64: return put_numbers(to, numbers.const_data_ptr<uint64_t>() + first, count, form);
      case at::kFloat: return put_numbers(to, numbers.const_data_ptr<float>() + first, count, form);
      default: return put_numbers(to, numbers.const_data_ptr<double>() + first, count, form);
    }
  }
};

Values values_of(const std::string& name, const at::Tensor& rows) {
  const at::ScalarType type = rows.scalar_type();
  if (rows.is_complex()) {
    throw Error("PredictionWriter: " + name +
                " has complex numbers, which only .safetensors can hold. Publish at::view_as_real() of it.");
  }
  const bool stays = type == at::kBool || type == at::kUInt64 || type == at::kDouble;
  const at::ScalarType wide = stays ? type : rows.is_floating_point() ? at::kFloat : at::kLong;
  Values values{name, rows.to(wide).contiguous(), rows.sizes().slice(1).vec()};
  for (const int64_t size : values.sizes) values.width *= size;
  return values;
}

std::vector<Values> all_values(const PredictionRows& rows) {
  std::vector<Values> all;
  for (const auto& [name, tensor] : rows.parts) all.push_back(values_of(name, tensor));
  return all;
}

// Calls append(text, row) for all rows, and returns the lines of groups of rows in order.
template <class Append>
std::vector<std::string> in_pieces(int64_t rows, const std::vector<Values>& columns, const Append& append) {
  int64_t width = 1;
  for (const Values& values : columns) width += values.width;
  const int64_t rows_of_piece = std::max<int64_t>(1, kNumbersOfPiece / width);
  const int64_t count = (rows + rows_of_piece - 1) / rows_of_piece;
  std::vector<std::string> pieces(static_cast<size_t>(count));
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      std::string& text = pieces[static_cast<size_t>(k)];
      for (int64_t row = k * rows_of_piece; row < std::min(rows, (k + 1) * rows_of_piece); ++row) append(text, row);
    }
  });
  return pieces;
}

// Makes room for `numbers` numbers at the end of the text, and calls write(to), which returns where they end.
template <class Write>
void append_in_place(std::string& text, int64_t numbers, const Write& write) {
  const size_t before = text.size();
  text.resize(before + static_cast<size_t>(numbers) * kMaxNumberBytes);
  const char* end = write(text.data() + before);
  text.resize(static_cast<size_t>(end - text.data()));
}

void append_int(std::string& text, int64_t number) {
  append_in_place(text, 1, [&](char* to) { return std::to_chars(to, to + 24, number).ptr; });
}

// A value, or nested lists from dimension `dim` on; `index` is the index of the next value.
char* put_lists(char* to, const Values& values, size_t dim, int64_t& index) {
  const size_t dims = values.sizes.size();
  const bool is_innermost = dim + 1 >= dims;
  const int64_t count = dims == 0 ? 1 : values.sizes[dim];
  if (is_innermost && count > 0) {
    char* comma = to;
    to = values.put_values(to, index, count, TextForm::json);
    index += count;
    if (dims > 0) {
      *comma = '[';
      *to++ = ']';
      return to;
    }
    std::memmove(comma, comma + 1, static_cast<size_t>(to - comma - 1));  // a number alone
    return to - 1;
  }
  *to++ = '[';
  for (int64_t k = 0; k < count; ++k) {
    if (k > 0) *to++ = ',';
    to = put_lists(to, values, dim + 1, index);
  }
  *to++ = ']';
  return to;
}

// Brackets take room too: at most two for each list, and there are as many lists as these products.
int64_t room_of_lists(const Values& values) {
  int64_t lists = 1, room = values.width + 1;
  for (const int64_t size : values.sizes) {
    room += lists;
    lists *= size;
  }
  return room;
}

}  // namespace

void append_number(std::string& text, double number) {
  append_in_place(text, 1, [&](char* to) { return put_float(to, number, TextForm::csv); });
}

void append_number(std::string& text, float number) {
  append_in_place(text, 1, [&](char* to) { return put_float(to, number, TextForm::csv); });
}

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<std::string> csv_lines(const PredictionRows& rows, BatchNumbers numbers, RowKeys keys) {
  const std::vector<Values> columns = all_values(rows);
  const std::string place = std::to_string(numbers.loader) + "," + std::to_string(numbers.batch);
  const int64_t* indices = rows.indices.defined() ? rows.indices.const_data_ptr<int64_t>() : nullptr;
  return in_pieces(rows.rows(), columns, [&](std::string& text, int64_t row) {
    const auto at = static_cast<size_t>(row);
    if (keys.ids) text += (rows.ids.empty() ? "" : csv_field(rows.ids[at])) + ",";
    if (keys.indices && indices != nullptr) append_int(text, indices[row]);
    if (keys.indices) text += ",";
    text += place;
    for (const Values& values : columns) {
      append_in_place(text, values.width,
                      [&](char* to) { return values.put_values(to, row * values.width, values.width, TextForm::csv); });
      if (&values == columns.data() && !rows.classes.empty()) text += "," + csv_field(rows.classes[at]);
    }
    text += "\n";
  });
}

std::vector<std::string> json_lines(const PredictionRows& rows, BatchNumbers numbers) {
  const std::vector<Values> columns = all_values(rows);
  std::vector<std::string> keys;
  for (const Values& values : columns) keys.push_back("," + json_string(values.name) + ":");
  const std::string place =
      "\"loader\":" + std::to_string(numbers.loader) + ",\"batch\":" + std::to_string(numbers.batch);
  const int64_t* indices = rows.indices.defined() ? rows.indices.const_data_ptr<int64_t>() : nullptr;
  return in_pieces(rows.rows(), columns, [&](std::string& text, int64_t row) {
    const auto at = static_cast<size_t>(row);
    text += "{";
    if (!rows.ids.empty()) text += "\"id\":" + json_string(rows.ids[at]) + ",";
    if (indices != nullptr) {
      text += "\"index\":";
      append_int(text, indices[row]);
      text += ",";
    }
    text += place;
    for (size_t k = 0; k < columns.size(); ++k) {
      text += keys[k];
      append_in_place(text, room_of_lists(columns[k]), [&](char* to) {
        int64_t index = row * columns[k].width;
        return put_lists(to, columns[k], 0, index);
      });
      if (k == 0 && !rows.classes.empty()) text += ",\"class\":" + json_string(rows.classes[at]);
    }
    text += "}\n";
  });
}

}  // namespace levin
