#include "levin/core/files/write_remedy.h"

#include <cerrno>

namespace levin {

std::string write_remedy(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT: return "Free some space on its disk.";
    case EFBIG: return "Raise the limit on the size of files (ulimit -f).";
    case EACCES:
    case EPERM:
    case EROFS: return "Choose a place where this user may write.";
    case EMFILE:
    case ENFILE: return "Raise the limit on open files (ulimit -n).";
    default: return "Check the path and its disk.";
  }
}

}  // namespace levin
