// .pt2 files as no PyTorch writes them: the files of a good one with some changed, and right checksums.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <string>

#include "levin/models/exported/read_archive.h"

namespace levin::test {

class ForgedArchive {
 public:
  /// The files of a good archive.
  explicit ForgedArchive(const std::string& path) {
    const exported::ZipArchive archive(path);
    for (const std::string& name : archive.names()) files_[name] = archive.read(name, 1 << 20);
  }

  [[nodiscard]] std::string& operator[](const std::string& name) { return files_[name]; }
  void remove(const std::string& name) { files_.erase(name); }
  /// Replaces the first `old_text` of a file; false if there is none.
  bool replace(const std::string& name, const std::string& old_text, const std::string& text) {
    const size_t at = files_[name].find(old_text);
    if (at == std::string::npos) return false;
    files_[name].replace(at, old_text.size(), text);
    return true;
  }

  /// `method` 0: stored. Returns the path.
  std::string write(const std::string& path, uint16_t method = 0) const {
    std::string out, list;
    for (const auto& [name, content] : files_) {
      const std::string full = "net/" + name;
      const auto begin = static_cast<uint32_t>(out.size());
      const auto checksum =
          static_cast<uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()));
      std::string fields;
      put<uint16_t>(fields, 0);
      put<uint16_t>(fields, method);
      put<uint32_t>(fields, 0);
      put<uint32_t>(fields, checksum);
      put<uint32_t>(fields, static_cast<uint32_t>(content.size()));
      put<uint32_t>(fields, static_cast<uint32_t>(content.size()));
      put<uint16_t>(fields, static_cast<uint16_t>(full.size()));
      put<uint16_t>(fields, 0);
      put<uint32_t>(out, 0x04034b50);
      put<uint16_t>(out, 0);
      out += fields + full + content;
      put<uint32_t>(list, 0x02014b50);
      put<uint32_t>(list, 0);
      list += fields;
      list += std::string(10, '\0');
      put<uint32_t>(list, begin);
      list += full;
    }
    const auto directory = static_cast<uint32_t>(out.size());
    out += list;
    put<uint32_t>(out, 0x06054b50);
    out += std::string(8, '\0');
    put<uint32_t>(out, static_cast<uint32_t>(list.size()));
    put<uint32_t>(out, directory);
    put<uint16_t>(out, 0);
    std::ofstream(path, std::ios::binary) << out;
    return path;
  }

 private:
  template <class T>
  static void put(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }

  std::map<std::string, std::string> files_ = {};
};

}  // namespace levin::test
