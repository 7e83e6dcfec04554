// Levin's parts: shared libraries beside liblevin_core.so, each with classes that a run file may name and with what
// they need of the system (HDF5, libpng, curl, …). A part is opened when one of its classes is looked up; the parts
// that a program links are open from the start. cmake/LevinParts.cmake lists the dependencies of each part.
#pragma once

#include <string>
#include <vector>

namespace levin {

class SharedLibrary;

/// A class of a part, as a run file names it.
struct PartClass {
  const char* part;  // "images"
  const char* kind;  // Interface::registry_name(): "data module"
  const char* name;  // "ImageFolderData"
};

/// All classes that are in parts other than core.
[[nodiscard]] const std::vector<PartClass>& part_classes();

/// Opens liblevin_<part>.so and adds its classes to the registries, once per process. Thread-safe. `who` begins the
/// messages: "log_image". Throws ConfigError if this Levin does not have the part, with how to get it, or if the part
/// was built for another version; Error with the loader's words if it cannot be loaded.
const SharedLibrary& open_part(const std::string& part, const std::string& who);

/// Opens the part that has the class `name` of this kind, or, for "", all parts with classes of this kind. Returns why
/// a part could not be opened; "" if it could, or if no part has the class.
std::string open_part_with(const std::string& kind, const std::string& name);

/// Returns the versions of Levin and LibTorch that this library was built for; parts must have the same.
[[nodiscard]] const char* component_version();
/// Throws ConfigError naming `library` and both versions if `version`, which it was built for, is another one.
void check_component_version(const std::string& library, const std::string& version);

}  // namespace levin

/// Begins the function that adds the classes of a part: LEVIN_PART(images) { … }. A part that was built for another
/// version of Levin adds nothing.
#define LEVIN_PART(name)                                                        \
  static void levin_add_classes();                                              \
  extern "C" const char* levin_open_##name(const char* core) {                  \
    if (std::string_view(core) == LEVIN_COMPONENT_VERSION) levin_add_classes(); \
    return LEVIN_COMPONENT_VERSION;                                             \
  }                                                                             \
  static void levin_add_classes()
