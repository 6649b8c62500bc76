# Configuring and building with CMake and ninja. Sourced by ./dev.

configure() { # configure PRESET FOLDER OPTION...: only when there is no build yet or the options differ from last time
  local preset=$1 folder=$2 said
  shift 2
  said="$preset $*"
  [[ -e $folder/build.ninja && -e $folder/.configured && $(<"$folder/.configured") == "$said" ]] && return 0
  mkdir -p "$folder"
  run cmake --preset "$preset" -S "$root" -B "$folder" "$@" >"$folder/configure.log" 2>&1 || {
    cat "$folder/configure.log" >&2
    fail "CMake could not configure the build" "$folder/configure.log" "read its last lines; ./dev clean starts over"
  }
  printf '%s\n' "$said" >"$folder/.configured"
}

compile() { # compile FOLDER TARGET...
  local folder=$1 jobs
  jobs=$(job_count)
  shift
  NINJA_STATUS='[%f/%t, %e s] ' run ninja -C "$folder" -j "$jobs" "$@" ||
    fail "the build failed" "$folder" "the first error above names the file and line; the same ./dev goes on from there"
}

# The release build. Tests are part of the configuration, so that `demo` and `test` share everything they compile.
build_targets() { # build_targets TARGET...
  lock "$build"
  require_space "$([[ -e $program ]] && echo 500 || echo 3000)" "$build" "building"
  (
    cd "$root" || exit
    configure release "$build" -DMILLRACE_BENCH="${MILLRACE_BENCH:-OFF}" -DMILLRACE_TORCH="${MILLRACE_TORCH:-}"
  )
  [[ -e $program ]] || say "building $* with $(job_count) jobs; the first time takes some minutes (LibTorch's headers are large)"
  compile "$build" "$@"
  unlock
}
