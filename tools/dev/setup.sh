# Set-up: Debian packages, the LibTorch wheel and the Python peers. Everything is pinned, announced with its size, and skipped if it
# is already there; once a group is set up, it does not use the network. Sourced by ./dev.

venv=$deps/venv
wheels=$deps/wheels
sysroot=$deps/sysroot

# Debian packages of a group. ./dev asks for groups; `peers` adds what Python's torch.compile needs to build its kernels.
declare -A packages=(
  [program]="g++ binutils cmake make ninja-build ccache python3 python3-venv nlohmann-json3-dev libfmt-dev libtomlplusplus-dev
             libyaml-cpp-dev libgtest-dev libgmock-dev libssl-dev libutf8proc-dev
             libdeflate-dev zlib1g-dev libspng-dev libjpeg62-turbo-dev
             libhdf5-dev liblz4-dev liblzf-dev libzstd-dev libgloo-dev libcairo2-dev libfreetype-dev fonts-dejavu-core"
  [peers]="python3-dev"
  [wheel]=""
  [check]="clang-format-14 clang-tidy-14"
)
declare -A requirements=([program]=requirements.txt [peers]=requirements-peers.txt [gpu]=requirements-gpu.txt [wheel]=requirements-wheel.txt)

set_up() { # set_up GROUP...
  local group wanted=()
  for group in "$@"; do
    # shellcheck disable=SC2206
    wanted+=(${packages[$group]})
  done
  lock "$deps"
  if ((no_root)) || [[ -e $sysroot/.have ]]; then
    set_up_sysroot "${wanted[@]}"
  else
    set_up_packages "${wanted[@]}"
  fi
  for group in "$@"; do
    case $group in
      program) set_up_torch ;;
      peers | wheel) set_up_wheels "$group" ;;
    esac
  done
  unlock
}

# ------------------------------------------------------------------------------------------------ Debian packages

is_root() { ((EUID == 0)); }

absent_packages() { # the arguments that are not installed, on one line
  local package state absent=()
  for package; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $state == installed ]] || absent+=("$package")
  done
  echo "${absent[*]}"
}

set_up_packages() {
  have dpkg-query || fail "this is no Debian or Ubuntu: packages cannot be installed by ./dev" "needed: $*" \
    "install their equivalents by hand, or use the Containerfile"
  local absent as_root=()
  absent=$(absent_packages "$@")
  [[ -n $absent ]] || return 0
  # shellcheck disable=SC2206
  local list=($absent)
  if ! is_root; then
    if have sudo && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
      as_root=(sudo)
    else
      fail "${#list[@]} Debian packages are missing, and there is neither root nor sudo here" "$absent" \
        "ask for this one line, or unpack them without root with ./dev --no-root WORD
             apt-get update && apt-get install --no-install-recommends -y $absent" 2
    fi
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600)
  say "Debian packages missing: $absent"
  apt_candidates_known "${list[@]}" || run "${apt[@]}" update -qq
  say "fetching them with what they need: $(apt_download_mb "${list[@]}") MB"
  local log=$deps/apt.log
  run "${apt[@]}" install --no-install-recommends -y "${list[@]}" >"$log" 2>&1 </dev/null ||
    fail "apt-get could not install the packages: $(grep -m 1 '^E:' "$log" || tail -n 1 "$log")" "$log" \
      "mend what it names (network, disk, another apt at work), then run the same ./dev again"
}

apt_candidates_known() {
  ((${#} == $(apt-cache policy "$@" 2>/dev/null | grep -c 'Candidate: [^(]')))
}

apt_download_mb() { # apt_download_mb PACKAGE...
  apt-get install --no-install-recommends -y --print-uris "$@" 2>/dev/null |
    awk "/^'/ { bytes += \$3 } END { printf \"%d\", bytes / 1e6 + 0.5 }"
}

# ------------------------------------------------------------------------------------------------ Python wheels

# The versions of torch that Millrace is built and tested with: that of requirements.txt, and of each requirements-torch-VERSION.txt.
torch_versions() {
  local file
  for file in "$root"/requirements.txt "$root"/requirements-torch-*.txt; do
    sed -n 's/^torch==\([0-9]*\.[0-9]*\).*/\1/p' "$file"
  done
}

use_torch() { # use_torch VERSION: that torch, with a build folder of its own
  local file=$root/requirements-torch-$1.txt versions
  mapfile -t versions < <(torch_versions)
  [[ $1 != "${versions[0]}" ]] || return 0
  [[ -n $1 && -e $file ]] || fail "--torch knows no torch \"$1\"" "./dev --torch $1" "one of: ${versions[*]}" 2
  named_torch=$1
  requirements[torch]=${file##*/}
  export MILLRACE_TORCH=$deps/torch-$1
  build=$root/build/torch-$1
  program=$build/millrace
}

torch_site() { # the site-packages folder with the LibTorch in use
  if [[ -n ${MILLRACE_TORCH:-} ]]; then
    echo "${MILLRACE_TORCH%/torch}"
  else
    echo "$venv/lib/python3.11/site-packages"
  fi
}

has_gpu() { [[ ${MILLRACE_GPU:-1} != 0 && -e /proc/driver/nvidia/version ]]; }

set_up_torch() {
  if [[ -n ${named_torch:-} ]]; then
    set_up_wheels torch
    return 0
  fi
  if [[ -n ${MILLRACE_TORCH:-} ]]; then
    local minors
    minors=$(torch_versions | sed 's/.*\.//' | paste -sd '|')
    grep -Eqs "TORCH_VERSION_MINOR ($minors)$" "$(torch_site)/torch/include/torch/headeronly/version.h" ||
      fail "MILLRACE_TORCH holds no torch $(torch_versions | paste -sd ' ' | sed 's/ / or /g')" "$MILLRACE_TORCH" \
        "name the site-packages folder that holds torch/, or unset MILLRACE_TORCH to have it fetched" 2
    return 0
  fi
  set_up_wheels program
  if has_gpu; then
    set_up_wheels gpu
  fi
}

wheel_folder() { if [[ $1 == torch ]]; then echo "$MILLRACE_TORCH"; else echo "$venv"; fi; }
wheel_stamp() { echo "$(wheel_folder "$1")/.millrace-$1"; }

set_up_wheels() { # set_up_wheels GROUP: the wheels of its requirements file, in the venv; those of --torch in their folder
  local file=$root/${requirements[$1]} stamp
  stamp=$(wheel_stamp "$1")
  [[ -e $stamp && $(<"$stamp") == "$(sha256_of "$file")" ]] && return 0
  # Another version of the group is there: start over, since pip would leave files of the old version.
  [[ ! -e $stamp ]] || rm -rf "$(wheel_folder "$1")"
  make_venv
  [[ $1 == program || -n ${MILLRACE_TORCH:-} ]] || set_up_wheels program
  fetch_wheels "$1" "$file"
  local folder target=()
  folder=$(wheel_folder "$1")
  [[ $folder == "$venv" ]] || target=(--target "$folder" --upgrade)
  say "unpacking the wheels into ${folder#"$root"/}"
  # --ignore-installed: files that a killed run left half-unpacked are written again.
  run "$venv/bin/python" -m pip install --quiet --no-index --find-links "$wheels/$1" --no-deps --ignore-installed "${target[@]}" \
    --no-compile --disable-pip-version-check --require-hashes -r "$file" </dev/null ||
    fail "pip could not unpack the wheels of ${requirements[$1]}" "$folder" "look at the lines above, then run the same ./dev again"
  sha256_of "$file" >"$stamp.new"
  mv "$stamp.new" "$stamp"
  rm -rf "${wheels:?}/$1"
}

# The Python for the venv: that of Debian's packages, which ./dev installs itself (without root in the sysroot), before any other
# in PATH.
python_candidates() { printf '%s\n' "$sysroot/bin/python3" "$sysroot/usr/bin/python3" /usr/bin/python3 "$(command -v python3)"; }

base_python() {
  local candidate
  while IFS= read -r candidate; do
    [[ -x $candidate && $(run "$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])') == 3.11 ]] &&
      echo "$candidate" && return 0
  done < <(python_candidates)
  fail "the pinned wheels are for Python 3.11, this machine has $(python3 --version 2>&1)" "$(command -v python3)" \
    "use Debian 12 (see Containerfile), or set MILLRACE_TORCH to a site-packages folder with torch 2.11" 2
}

make_venv() {
  [[ -x $venv/bin/python && -e $venv/.millrace-venv ]] && return 0
  local python
  python=$(base_python) || exit
  rm -rf "$venv"
  new_venv "$python" >"$deps/venv.log" 2>&1 ||
    fail "python3 could not make a virtual environment" "$deps/venv.log" "read that file, then run the same ./dev again"
  touch "$venv/.millrace-venv"
}

new_venv() { # new_venv PYTHON
  local bundled=${1%/bin/*}/share/python-wheels wheel
  if ! compgen -G "$bundled/pip-*.whl" >/dev/null; then # a Python from elsewhere brings its own pip
    run "$1" -m venv "$venv"
    return
  fi
  # Debian's pip is unpacked, not installed by ensurepip, which looks in /usr whichever python runs it.
  run "$1" -m venv --without-pip "$venv" || return
  for wheel in "$bundled"/pip-*.whl "$bundled"/setuptools-*.whl; do
    run "$1" -m zipfile -e "$wheel" "$venv/lib/python3.11/site-packages" || return
  done
  run "$venv/bin/python" -m pip --version
}

# Every wheel of FILE under .deps/wheels/GROUP. Each is kept as soon as it is whole, so a killed run resumes where it stopped.
fetch_wheels() { # fetch_wheels GROUP FILE
  local mb folder=$wheels/$1 line name
  mb=$(awk '$NF == "MB" { sum += $(NF - 1) } END { printf "%d", sum + 0.5 }' "$2")
  mkdir -p "$folder"
  require_space $((mb * 4)) "$deps" "unpacking ${2##*/}"
  say "fetching $(grep -c '^[^#]' "$2") Python wheels, $mb MB: $(sed -n 's/^\([^# ]*\)==.*/\1/p' "$2" | tr '\n' ' ')"
  while IFS= read -r line; do
    name=${line%% *}
    [[ -e $folder/.$name ]] || fetch_wheel "$folder" "$name" "$line"
  done < <(grep '^[^#]' "$2")
}

fetch_wheel() { # fetch_wheel FOLDER NAME==VERSION REQUIREMENT
  local log=$deps/pip.log one=$deps/one-requirement.txt
  printf '%s\n' "$3" >"$one"
  local mb=${3##*# }
  ((${mb%%.*} < 5)) || say "  $2 ($mb)"
  rm -rf "$1.part"
  if ! run "$venv/bin/python" -m pip download --quiet --no-cache-dir --no-deps --only-binary :all: --disable-pip-version-check \
    --require-hashes -r "$one" -d "$1.part" >"$log" 2>&1 </dev/null; then
    if grep -q 'DO NOT MATCH THE HASHES' "$log"; then
      fail "the package index sent another file than the pinned one: SHA-256 of $2 differs" "$log" \
        "do not use it: try again from another network or mirror, or ask who changed the package"
    fi
    fail "could not fetch $2: $(grep -m 1 '^ERROR' "$log" || tail -n 1 "$log")" "$log" \
      "check the network (what is fetched so far is kept), then run the same ./dev again"
  fi
  mv "$1.part"/* "$1"
  rmdir "$1.part"
  touch "$1/.$2"
}
