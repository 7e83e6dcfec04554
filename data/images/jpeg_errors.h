// libjpeg reports an error by a call that must not return: here it jumps back to the function that called libjpeg. The
// jump destroys no objects, so nothing with a destructor is created between setjmp and the calls. Internal.
#pragma once

// jpeglib.h needs these.
#include <cstddef>
#include <cstdio>
// clang-format off
#include <jpeglib.h>
// clang-format on

#include <array>
#include <csetjmp>

namespace levin::detail {

struct JpegErrors {
  jpeg_error_mgr base;  // first: libjpeg knows this part
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> text;
};

/// For jpeg_error_mgr::error_exit: keeps the message, and jumps to `back`.
[[noreturn]] inline void leave_jpeg(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  errors->base.format_message(info, errors->text.data());
  std::longjmp(errors->back, 1);
}

}  // namespace levin::detail
