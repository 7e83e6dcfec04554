#include "levin/data/files/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <memory>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/data/files/mapped_file.h"

static_assert(std::endian::native == std::endian::little, "values are used in the byte order of the file");

namespace levin {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxHeaderBytes = 1 << 16;  // NumPy itself reads 10000 unless told otherwise

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 14> kNpyTypes = {{{"b1", at::kBool},
                                                                                    {"i1", at::kChar},
                                                                                    {"i2", at::kShort},
                                                                                    {"i4", at::kInt},
                                                                                    {"i8", at::kLong},
                                                                                    {"u1", at::kByte},
                                                                                    {"u2", at::kUInt16},
                                                                                    {"u4", at::kUInt32},
                                                                                    {"u8", at::kUInt64},
                                                                                    {"f2", at::kHalf},
                                                                                    {"f4", at::kFloat},
                                                                                    {"f8", at::kDouble},
                                                                                    {"c8", at::kComplexFloat},
                                                                                    {"c16", at::kComplexDouble}}};

// Parses the description: a Python dict of strings, booleans and a tuple of numbers.
class NpyParser {
 public:
  NpyParser(const std::string& path, std::string_view bytes, size_t start, size_t end)
      : path_(path), bytes_(bytes.substr(0, end)), at_(start) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!take('}')) {
      const size_t where = at_;
      const std::string key = text();
      expect(':');
      if (key == "descr" && !has_descr) {
        header.type = type();
        has_descr = true;
      } else if (key == "fortran_order" && !has_order) {
        check_order();
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        header.sizes = shape();
        has_shape = true;
      } else {
        fail(where, "expected descr, fortran_order and shape, once each, saw \"" + cut_text(key) + "\"");
      }
      if (!take(',') && !is_next('}')) fail(at_, "expected \",\" or \"}\", saw " + seen());
    }
    for (const auto& [is_there, name] :
         {std::pair{has_descr, "descr"}, std::pair{has_order, "fortran_order"}, std::pair{has_shape, "shape"}}) {
      if (!is_there) fail(at_, std::string("the description lacks ") + name);
    }
    skip_blanks();
    if (at_ + 1 != bytes_.size() || bytes_[at_] != '\n') fail(at_, "expected blanks and a line end, saw " + seen());
    return header;
  }

  [[noreturn]] void fail(size_t byte, const std::string& what) const {
    throw DataError(path_ + ": byte " + std::to_string(byte) + ": " + what +
                    ". Is it a .npy file? Write it again with numpy.save().");
  }

 private:
  [[nodiscard]] std::string seen() const {
    return at_ < bytes_.size() ? "\"" + cut_text(std::string(bytes_.substr(at_, 8))) + "\"" : "the end of the header";
  }
  void skip_blanks() {
    while (at_ < bytes_.size() && bytes_[at_] == ' ') ++at_;
  }
  bool is_next(char c) {
    skip_blanks();
    return at_ < bytes_.size() && bytes_[at_] == c;
  }
  bool take(char c) {
    if (!is_next(c)) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(at_, std::string("expected \"") + c + "\", saw " + seen());
  }
  bool take_word(std::string_view word) {
    skip_blanks();
    if (bytes_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  std::string text() {
    skip_blanks();
    const char quote = at_ < bytes_.size() ? bytes_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail(at_, "expected a text in quotes, saw " + seen());
    const size_t end = bytes_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail(at_, "a quote is not closed");
    std::string inside(bytes_.substr(at_ + 1, end - at_ - 1));
    if (inside.find('\\') != std::string::npos) fail(at_, "expected a string without backslashes");
    at_ = end + 1;
    return inside;
  }

  at::ScalarType type() {
    skip_blanks();
    const size_t where = at_;
    if (is_next('[')) unusable("it holds records of several fields. Save each field as an array of its own.");
    const std::string name = text();
    const char order = name.empty() ? '\0' : name[0];
    const std::string kind = name.substr(std::min<size_t>(1, name.size()));
    if (kind.starts_with("O")) unusable("it holds pickled Python objects. Save an array of numbers.");
    const auto* found =
        std::find_if(kNpyTypes.begin(), kNpyTypes.end(), [&](const auto& t) { return t.first == kind; });
    if (found == kNpyTypes.end() || (order != '<' && order != '>' && order != '|' && order != '=')) {
      if (!kind.empty() && (order == '|' || order == '<' || order == '>')) {
        unusable("its type is \"" + cut_text(name) + "\". Save it as " + known_types() + ", with array.astype().");
      }
      fail(where, "expected a type such as \"<f4\", saw \"" + cut_text(name) + "\"");
    }
    if (order == '>') unusable("its numbers are big-endian. Save array.astype(array.dtype.newbyteorder(\"<\")).");
    if (order == '|' && c10::elementSize(found->second) > 1) {
      fail(where, "expected the order of bytes before the type, \"<\", saw \"" + cut_text(name) + "\"");
    }
    return found->second;
  }

  void check_order() {
    skip_blanks();
    const size_t where = at_;
    if (take_word("False")) return;
    if (take_word("True")) unusable("its order is Fortran's. Save numpy.ascontiguousarray(array).");
    fail(where, "expected True or False, saw " + seen());
  }

  std::vector<int64_t> shape() {
    expect('(');
    std::vector<int64_t> sizes;
    bool after_comma = true;
    while (!take(')')) {
      if (!after_comma) fail(at_, "expected \",\" or \")\", saw " + seen());
      sizes.push_back(number());
      after_comma = take(',');
      if (sizes.size() == 1 && !after_comma) fail(at_, "expected \",\" after the only size, saw " + seen());
    }
    return sizes;
  }

  int64_t number() {
    skip_blanks();
    int64_t value = 0;
    const char* first = bytes_.data() + at_;
    const auto [end, code] = std::from_chars(first, bytes_.data() + bytes_.size(), value);
    if (code != std::errc() || value < 0 || *first == '-')
      fail(at_, "expected a size from 0 to 2^63 - 1, saw " + seen());
    at_ += static_cast<size_t>(end - first);
    return value;
  }

  static std::string known_types() {
    return "bool, int8 to int64, uint8 to uint64, float16 to float64, complex64 or complex128";
  }

  [[noreturn]] void unusable(const std::string& what) const { throw DataError(path_ + ": " + what); }

  const std::string& path_;
  std::string_view bytes_;
  size_t at_;
};

}  // namespace

NpyHeader read_npy_header(const std::string& path, std::string_view bytes) {
  const NpyParser file(path, bytes, 0, bytes.size());
  if (!bytes.starts_with(kMagic)) {
    file.fail(0, "expected \\x93NUMPY, saw \"" + cut_text(std::string(bytes.substr(0, kMagic.size()))) + "\"");
  }
  if (bytes.size() < 10) file.fail(bytes.size(), "the file ends in its header");
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<uint8_t>(bytes[at])); };
  const size_t major = byte(6), minor = byte(7);
  if (major < 1 || major > 3 || minor != 0) {
    file.fail(6, "expected version 1.0, 2.0 or 3.0, saw " + std::to_string(major) + "." + std::to_string(minor));
  }
  const size_t start = major == 1 ? 10 : 12;
  if (bytes.size() < start) file.fail(bytes.size(), "the file ends in its header");
  const size_t length = major == 1 ? byte(8) | byte(9) << 8 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (length > kMaxHeaderBytes) {
    file.fail(8, "the header is said to have " + std::to_string(length) + " bytes, more than the " +
                     std::to_string(kMaxHeaderBytes) + " allowed");
  }
  if (bytes.size() - start < length) file.fail(bytes.size(), "the file ends in its header");
  NpyHeader header = NpyParser(path, bytes, start, start + length).parse();
  header.offset = start + length;
  return header;
}

at::Tensor map_npy(const std::string& path) {
  const auto file = std::make_shared<const MappedFile>(path);
  const std::string_view bytes(reinterpret_cast<const char*>(file->data()), file->size());
  const NpyHeader header = read_npy_header(path, bytes);
  at::Tensor values = mapped_tensor(file, path, header.offset, header.sizes, header.type);
  const uint64_t end = header.offset + values.nbytes();
  if (end < file->size()) {
    throw DataError(path + ": byte " + std::to_string(end) + ": expected the end of the file, saw " +
                    std::to_string(file->size() - end) + " more bytes. Write it again with numpy.save().");
  }
  return values;
}

}  // namespace levin
