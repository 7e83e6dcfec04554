// A program that links neither Levin nor LibTorch, and opens plugins that do. Trains with each plugin, closes it, and
// opens and trains again.
//   plugin_host FOLDER PLUGIN…
// Prints a line of weights for each training, and "resident NAME" for each plugin whose Levin stays after dlclose().
#include <dlfcn.h>

#include <cstdio>
#include <string>

namespace {

using Train = const char* (*)(const char*);

// Returns the open plugin; null after printing the error.
void* train(const char* plugin, const std::string& folder) {
  void* library = ::dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
  const auto function = library == nullptr ? nullptr : reinterpret_cast<Train>(::dlsym(library, "train_plugin"));
  if (function == nullptr) {
    std::printf("error: %s\n", ::dlerror());
    return nullptr;
  }
  std::printf("%s\n", function(folder.c_str()));
  return library;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argv[1];
  for (const char* round : {"/first", "/again"}) {
    for (int k = 2; k < argc; ++k) {
      void* library = train(argv[k], folder + round + std::to_string(k));
      if (library == nullptr) return 1;
      if (::dlclose(library) != 0) return 2;
    }
  }
  void* levin = ::dlopen(LEVIN_CORE_NAME, RTLD_NOW | RTLD_NOLOAD);
  std::printf("%s\n", levin != nullptr ? "resident" : "unloaded");
  return 0;
}
