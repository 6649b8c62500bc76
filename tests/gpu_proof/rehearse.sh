#!/usr/bin/env bash
# Makes the folder that travels to a GPU of a build and rehearses the proof from it: tests/gpu_proof/rehearse.sh BUILD_FOLDER [--quick]
# A wheel that is newer than the build's program is what is carried; else the program itself.
set -euo pipefail
shopt -s nullglob

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$1" && pwd)
shift
carried=$build/gpu-proof
[[ " $* " != *" --quick "* ]] || carried+=-quick
program=(--program "$build/millrace")
for wheel in "$root"/dist/millrace_train-*.whl; do
  [[ ! $wheel -nt $build/millrace-torch ]] || program=()
done
exec "$root/tools/gpu-proof" --carry "$carried" --build "$build" "${program[@]}" --rehearse --out "$carried-results" "$@"
