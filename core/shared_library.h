// A shared library that is opened while the program runs: what not every machine has (NVIDIA's driver) and what not
// every run needs (Levin's CUDA component).
#pragma once

#include <string>

namespace levin {

class SharedLibrary {
 public:
  /// Which symbol counts where the library and the program have two of one name: the program's, as the loader has it,
  /// or the library's own within it (RTLD_DEEPBIND).
  enum class Names { program, own };

  /// Opens `name` (a path, or a name that the loader finds) with all that it needs. `who` begins the messages and `fix`
  /// ends them. Throws Error with the loader's own words if it cannot.
  SharedLibrary(std::string name, std::string who, std::string fix, Names names = Names::program);
  ~SharedLibrary();
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  /// Sets `function` to the one that the library calls `symbol`. Throws Error if there is none.
  template <class Function>
  void find(Function& function, const char* symbol) const {
    function = reinterpret_cast<Function>(address_of(symbol));
  }

  /// The library stays until the process ends: it has started threads, or left addresses with others.
  void keep() { kept_ = true; }

 private:
  [[nodiscard]] void* address_of(const char* symbol) const;

  std::string name_;
  std::string who_;
  std::string fix_;
  void* handle_;
  bool kept_ = false;
};

/// The folder of the library or program that holds the code at `address`; "" if that cannot be told.
[[nodiscard]] std::string folder_of_code(const void* address);

}  // namespace levin
