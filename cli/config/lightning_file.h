// Translates a run file of Lightning's LightningCLI. Levin's options, classes and aliases are taken from the options
// structs and the registries; no list is repeated here.
#pragma once

#include <string>
#include <vector>

#include "levin/core/options/config_node.h"
#include "levin/core/options/value.h"

namespace levin {

/// Classes that LightningCLI was given in Python, so that its file has their options alone; "": the file names them.
struct GivenClasses {
  std::string model = "";
  std::string data = "";
  std::string optimizer = "";
  std::string lr_scheduler = "";
};

/// A translated LightningCLI file, and what the translation left out.
struct TranslatedFile {
  ConfigNode config = ConfigNode::map();  // with comments: see commented_yaml.h
  Problems left_out = {};                 // one line each: position and path in Lightning's file, reason, remedy
  std::vector<std::string> notes = {};    // what was translated to something else
};

/// Translates what is possible; the rest is listed in `left_out` and becomes a comment in `config`. Options that are
/// null or have Levin's default are omitted silently. A file that is not LightningCLI's is a problem.
[[nodiscard]] TranslatedFile translate_lightning_file(const ConfigNode& file, const GivenClasses& given,
                                                      Problems& problems);

}  // namespace levin
