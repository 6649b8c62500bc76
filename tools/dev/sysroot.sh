# The way without root: Debian packages are downloaded as an ordinary user, unpacked into .deps/sysroot and used from there.
# Sourced by ./dev. .deps/sysroot/
#   usr/...   the packages        bin/   g++ and gcc that use them          run/   the libraries programs need when they run
# libc itself is only linked against, never run from here: a program must not mix two of them.

apt_private=$deps/apt

set_up_sysroot() { # set_up_sysroot PACKAGE...
  { have apt-get && have dpkg-deb; } || fail "packages cannot be fetched: this is no Debian or Ubuntu" "needed: $*" \
    "install their equivalents by hand, or use the Containerfile" 2
  local package absent=()
  for package; do
    [[ -e $sysroot/.have/$package ]] || absent+=("$package")
  done
  if ((${#absent[@]})); then
    fetch_packages "${absent[@]}"
    unpack_packages
    for package in "${absent[@]}"; do
      touch "$sysroot/.have/$package"
    done
  fi
  use_sysroot
}

# apt-get with separate lists and archives, so that it needs no rights. Its list of installed packages is empty: this machine may
# have half of the packages we need, but the sysroot must have all.
private_apt() {
  run env DEBIAN_FRONTEND=noninteractive apt-get -qq -o "Dir::State=$apt_private/state" -o "Dir::Cache=$apt_private/cache" \
    -o "Dir::State::status=$apt_private/nothing" -o Debug::NoLocking=1 -o APT::Sandbox::User=root "$@" </dev/null
}

private_lists() {
  mkdir -p "$apt_private"/state/lists/partial "$apt_private"/cache/archives/partial
  : >"$apt_private/nothing"
  private_apt update
}

fetch_packages() { # fetch_packages PACKAGE...
  local log=$deps/apt.log mb
  mkdir -p "$sysroot/.have"
  say "fetching Debian's package lists (9 MB)"
  private_lists >"$log" 2>&1 || fail "apt-get could not fetch the package lists: $(grep -m 1 '^[EW]:' "$log")" "$log" \
    "check the network, then run the same ./dev again"
  mb=$(private_apt install --no-install-recommends -y --print-uris "$@" 2>/dev/null |
    awk "/^'/ { bytes += \$3 } END { printf \"%d\", bytes / 1e6 + 0.5 }")
  say "fetching Debian packages without root, $mb MB: $*"
  private_apt install --no-install-recommends -y --download-only "$@" >"$log" 2>&1 ||
    fail "apt-get could not fetch the packages: $(grep -m 1 '^E:' "$log")" "$log" "check the network, then run the same ./dev again"
}

unpack_packages() {
  local folder package library
  say "unpacking them into .deps/sysroot"
  for folder in bin sbin lib lib64; do # as on Debian, where these are links too
    mkdir -p "$sysroot/usr/$folder"
    [[ $folder == bin || -e $sysroot/$folder ]] || ln -s "usr/$folder" "$sysroot/$folder"
  done
  mkdir -p "$sysroot/run" "$sysroot/bin"
  for package in "$apt_private"/cache/archives/*.deb; do
    [[ ${package##*/} == libc6_* ]] || unpack_package "$package"
  done
  for library in "$sysroot"/usr/lib/x86_64-linux-gnu/*.so*; do
    ln -sf "$library" "$sysroot/run/"
  done
  for package in "$apt_private"/cache/archives/libc6_*.deb; do
    unpack_package "$package"
  done
  rm -f "$sysroot"/run/{libc,libm,libdl,librt,libpthread}.so* # linked by a second round
  rm -f "$apt_private"/cache/archives/*.deb
  local tool
  for tool in g++ gcc; do
    printf '#!/bin/sh\nexec "%s" --sysroot="%s" -Wl,-rpath,"%s" "$@"\n' "$sysroot/usr/bin/$tool-12" "$sysroot" "$sysroot/run" \
      >"$sysroot/bin/$tool"
    chmod +x "$sysroot/bin/$tool"
  done
}

unpack_package() {
  dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink --no-same-owner -C "$sysroot" ||
    fail "could not unpack ${1##*/}" "$sysroot" "remove .deps/sysroot and run the same ./dev again"
}

use_sysroot() {
  export PATH=$sysroot/bin:$sysroot/usr/bin:$PATH
  export LD_LIBRARY_PATH=$sysroot/run${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export CXX=$sysroot/bin/g++ CC=$sysroot/bin/gcc CMAKE_PREFIX_PATH=$sysroot/usr
}
