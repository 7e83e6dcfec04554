# With what `./dev setup` installs on Debian 12 instead of packages of Conan's:
#   conan install packaging/conan --profile:all packaging/conan/debian12.profile
[settings]
os=Linux
arch=x86_64
compiler=gcc
compiler.version=12
compiler.libcxx=libstdc++11
compiler.cppstd=20
build_type=Release
[platform_requires]
nlohmann_json/3.11.2
yaml-cpp/0.7.0
spdlog/1.10.0
xxhash/0.8.1
hdf5/1.10.8
libpng/1.6.39
libjpeg/9.0.0
oniguruma/6.9.8
utf8proc/2.8.0
openssl/3.0.11
zlib/1.2.13
sentencepiece/0.1.97
libcurl/7.88.1
pcre2/10.42
sqlite3/3.40.1
ncurses/6.4
