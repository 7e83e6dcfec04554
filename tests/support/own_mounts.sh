#!/bin/sh
# own_mounts.sh COMMAND…: runs a command in a mount namespace of its own, so that nobody else sees what it mounts.
#
# unshare(1) makes / private first, which fails in a chroot whose / is not a mount. There the command runs below /proc,
# which is one in any chroot: on a copy of the tree, with all its mounts private.
set -e
if unshare --mount true 2>/dev/null; then
  exec unshare --mount "$@"
fi
exec unshare --mount --propagation unchanged sh -ec '
  mount --make-rprivate /proc
  mount -t tmpfs own_mounts /proc/driver
  mkdir /proc/driver/root
  mount --rbind / /proc/driver/root
  mount --make-rprivate /proc/driver/root
  exec chroot /proc/driver/root env --chdir="$PWD" "$@"
' own_mounts "$@"
