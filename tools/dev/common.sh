# Helpers for all parts of ./dev: messages, locks, sizes. Sourced by ./dev, which sets root, deps and build.

say() { printf '%s\n' "dev: $*"; }

fail() { # fail WHAT WHERE NEXT [EXIT_CODE]
  printf 'Error  %s\n  where    %s\n  next     %s\n' "$1" "$2" "$3" >&2
  exit "${4:-1}"
}

# Runs a command without the lock descriptor: a process that outlives ./dev must not hold the lock.
run() { "$@" 9>&-; }

# One set-up and one build at a time; a second ./dev waits. The lock ends with the process, however it ends.
lock() { # lock FOLDER
  mkdir -p "$1"
  exec 9>"$1/.dev-lock"
  flock -n 9 || {
    say "another ./dev is at work in ${1#"$root"/}, waiting for it"
    flock 9
  }
}
unlock() { exec 9>&-; }

have() { command -v "$1" >/dev/null 2>&1; }

sha256_of() { sha256sum -- "$1" | cut -d' ' -f1; }

# As many jobs as memory allows: twelve sources at a time take up to 2 GB to compile.
job_count() {
  local cores free_mb by_memory
  cores=$(nproc)
  free_mb=$(awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo)
  by_memory=$((free_mb / 2000))
  echo $((by_memory < 1 ? 1 : by_memory < cores ? by_memory : cores))
}

require_space() { # require_space MB FOLDER WHAT_FOR
  local free
  free=$(df --output=avail -BM "$2" | tail -n 1 | tr -dc 0-9)
  ((free >= $1)) || fail "$free MB of disk are free, $3 needs about $1 MB" "$2" "free some space, or clone onto another disk"
}
