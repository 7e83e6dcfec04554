// A run file of Lightning's LightningCLI made one of Levin's. What Levin knows (options, classes, other names of both)
// is asked of the options structs and of the registries; no second list is kept here.
#pragma once

#include <string>
#include <vector>

#include "levin/core/config_node.h"
#include "levin/core/value.h"

namespace levin {

/// Classes that LightningCLI was given in Python, so that its file has their options alone; "": the file names them.
struct GivenClasses {
  std::string model = "";
  std::string data = "";
  std::string optimizer = "";
  std::string lr_scheduler = "";
};

struct TranslatedFile {
  ConfigNode config = ConfigNode::map();  // with comments: see commented_yaml.h
  Problems left_out = {};                 // a line each: place and path in Lightning's file, why, what to do instead
  std::vector<std::string> notes = {};    // what was taken in another way than it was written
};

/// Translates what can be; the rest is named in `left_out` and stands in `config` as a comment. Options that are null
/// or have Levin's default are left out without a word. A file that is none of LightningCLI's is a problem.
[[nodiscard]] TranslatedFile translate_lightning_file(const ConfigNode& file, const GivenClasses& given,
                                                      Problems& problems);

}  // namespace levin
