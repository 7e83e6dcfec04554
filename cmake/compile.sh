#!/bin/sh
# compile.sh CCACHE COMPILER ARGS…: compiles through ccache, except precompiled headers: if clones share the cache, it may
# return one that was made from another tree's headers, and then every class is defined twice.
ccache=$1
shift
case " $* " in
*" -x c++-header "*) exec "$@" ;;
esac
exec "$ccache" "$@"
