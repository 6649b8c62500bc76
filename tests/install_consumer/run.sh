#!/usr/bin/env bash
# Installs the build into a temporary prefix and uses it as others would: find_package in a small program, then the recipe
# folder that `millrace new` writes is built and trained.
#   tests/install_consumer/run.sh BUILD_FOLDER
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix

expect() { # expect WHAT COMMAND...
  "${@:2}" || { echo "FAILED: $1" >&2 && exit 1; }
}

cmake --install "$build" --prefix "$prefix" >/dev/null
expect "the installed program starts" "$prefix/bin/millrace" --version
expect "bin/ has nothing but millrace" test "$(ls "$prefix/bin")" = millrace
expect "the commands of the originals are in share/millrace/originals" test -x "$prefix/share/millrace/originals/cosmology/train2.py"
expect "the headers of the public list are installed, and no other" \
  diff <(grep '^millrace/' "$here/../../cmake/public_headers.txt") <(cd "$prefix/include" && find millrace -name '*.h' | LC_ALL=C sort)

expect "one target is exported" test "$(grep -ho 'add_library([^ ]*' "$prefix"/lib/cmake/Millrace/MillraceTargets.cmake)" = "add_library(millrace::millrace"

cmake -S "$here" -B "$scratch/consumer" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$scratch/consumer"
expect "the consumer reports the version" grep -q '^0\.1\.0 .*nothing here' <("$scratch/consumer/consumer")

# A kind that the tutorial does not build (tests/tutorial).
cd "$scratch"
"$prefix/bin/millrace" new toy --kind image >new.txt
expect "new says where Millrace is installed" grep -qF -e "cmake -B build -DCMAKE_PREFIX_PATH=$prefix &&" new.txt
cd toy
cmake -B build -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build build
# What its start would try is said: the trials take longer than the training.
export MILLRACE_PRECISION__DTYPE=fp32 MILLRACE_DEVICE__KERNELS=ours MILLRACE_DEVICE__LAYOUT=contiguous
expect "the tests of the new recipe pass" ctest --test-dir build --output-on-failure
expect "its run has a summary" test -s build/tested/summary.json
