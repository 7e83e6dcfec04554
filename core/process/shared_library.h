// A shared library that is loaded at run time: one that not every machine has (NVIDIA's driver) or that not every run
// needs (Levin's CUDA component).
#pragma once

#include <string>

namespace levin {

class SharedLibrary {
 public:
  /// Which symbol is used if the library and the program both define it: the program's, the loader's default, or the
  /// library's own within it (RTLD_DEEPBIND).
  enum class Names { program, own };

  /// Loads `name` (a path, or a name that the loader finds) with its dependencies. `who` begins the messages and `fix`
  /// ends them. Throws Error with the loader's own words if it cannot.
  SharedLibrary(std::string name, std::string who, std::string fix, Names names = Names::program);
  ~SharedLibrary();
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  /// Sets `function` to the library's `symbol`. Throws Error if there is none.
  template <class Function>
  void find(Function& function, const char* symbol) const {
    function = reinterpret_cast<Function>(address_of(symbol));
  }

  /// The library stays loaded until the process ends: it may have started threads, or its addresses may be in use.
  void keep() { kept_ = true; }

 private:
  [[nodiscard]] void* address_of(const char* symbol) const;

  std::string name_;
  std::string who_;
  std::string fix_;
  void* handle_;
  bool kept_ = false;
};

/// The folder of the library or program that holds the code at `address`; "" if unknown.
[[nodiscard]] std::string folder_of_code(const void* address);

}  // namespace levin
