#!/bin/sh
# compile.sh CCACHE COMPILER ARGS…: compiles through ccache, but never takes a precompiled header from it: one that was
# made from another tree's headers was handed out where clones share the cache, and then every class is defined twice.
ccache=$1
shift
case " $* " in
*" -x c++-header "*) exec "$@" ;;
esac
exec "$ccache" "$@"
