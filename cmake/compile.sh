#!/bin/sh
# compile.sh CCACHE COMPILER ARGS…: compiles through ccache, except precompiled headers: if clones share the cache, it may
# return one that was made from another tree's headers, and then every class is defined twice. What uses such a header
# is cached by the header's .sum, of all that it was made from: its own bytes hold the folder's name, so that another
# clone would never find anything.
ccache=$1
shift
case " $* " in
*" -x c++-header "*) ;;
*) CCACHE_PCH_EXTSUM=true exec "$ccache" "$@" ;;
esac

"$@" || exit
made_of=$("$1" --version)
for word; do
  case $before in
  -o) header=$word ;;
  -MF) dependencies=$word ;;
  esac
  case $word in
  -[DOfmsW]*) made_of="$made_of $word" ;;
  esac
  before=$word
done
# "TARGET: FILE FILE \": the files, as the compiler writes them, are words for xargs too.
{
  echo "$made_of"
  sed -e 's/^[^ ]*: *//' -e 's/\\$//' "$dependencies" | xargs cat
} | sed "s|$CCACHE_BASEDIR|.|g" | sha256sum >"$header.sum"
