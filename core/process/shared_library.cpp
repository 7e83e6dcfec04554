#include "levin/core/process/shared_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <utility>

#include "levin/core/options/error.h"

namespace levin {

namespace {

// The address sanitizer rejects RTLD_DEEPBIND, because the library would not use its malloc.
int flags_for(SharedLibrary::Names names) {
#ifdef __SANITIZE_ADDRESS__
  (void)names;
  return RTLD_NOW | RTLD_LOCAL;
#else
  return RTLD_NOW | RTLD_LOCAL | (names == SharedLibrary::Names::own ? RTLD_DEEPBIND : 0);
#endif
}

}  // namespace

SharedLibrary::SharedLibrary(std::string name, std::string who, std::string fix, Names names)
    : name_(std::move(name)),
      who_(std::move(who)),
      fix_(std::move(fix)),
      handle_(::dlopen(name_.c_str(), flags_for(names))) {
  if (handle_ == nullptr) throw Error(who_ + ": " + ::dlerror() + ". " + fix_);
}

SharedLibrary::~SharedLibrary() {
  if (!kept_) ::dlclose(handle_);
}

void* SharedLibrary::address_of(const char* symbol) const {
  void* address = ::dlsym(handle_, symbol);
  if (address == nullptr) throw Error(who_ + ": " + name_ + " has no " + symbol + ". " + fix_);
  return address;
}

std::string folder_of_code(const void* address) {
  Dl_info info = {};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  std::error_code failed;
  const auto path = std::filesystem::canonical(info.dli_fname, failed);
  return failed ? "" : path.parent_path().string();
}

}  // namespace levin
