# ./dev check: the stages that CI runs in addition to the tests, cheapest first. Sourced by ./dev.

check_stages=(format tidy records headers asan tsan clang-tidy)

word_check() {
  local stage began failed=() stages=("$@")
  ((${#stages[@]})) || stages=("${check_stages[@]}")
  for stage in "${stages[@]}"; do
    declare -F "check_${stage//-/_}" >/dev/null || fail "unknown stage \"$stage\"" "./dev check" "stages are: ${check_stages[*]}" 2
  done
  set_up program check
  for stage in "${stages[@]}"; do
    began=$SECONDS
    # A separate process: `fail` ends the stage, not the check.
    if (set -e; "check_${stage//-/_}"); then
      say "check $stage: ok ($((SECONDS - began)) s)"
    else
      say "check $stage: FAILED ($((SECONDS - began)) s)"
      failed+=("$stage")
    fi
  done
  ((${#failed[@]} == 0)) || fail "${#failed[@]} of ${#stages[@]} checks failed: ${failed[*]}" "see above" "./dev check ${failed[*]}"
}

cpp_files() { # tracked and new files, not ignored ones
  git -C "$root" ls-files --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu'
}

word_format() {
  set_up check
  (cd "$root" && cpp_files | xargs -d '\n' -r clang-format-14 -i)
  say "formatted $(cpp_files | wc -l) files"
}

check_format() {
  (cd "$root" && cpp_files | xargs -d '\n' -r clang-format-14 --dry-run -Werror) ||
    fail "files are not in the house format" "the lines above" "./dev format"
}

check_tidy() {
  python3 "$root/tools/tidy.py"
}

check_records() { # the claims of decision records that can be checked in seconds
  python3 "$root/tools/adr_check.py"
}

check_headers() { # every public header compiles alone
  lock "$build"
  (cd "$root" && configure release "$build" -DMILLRACE_BENCH=OFF -DMILLRACE_TORCH="${MILLRACE_TORCH:-}")
  compile "$build" --quiet build.ninja # finds new headers
  python3 "$root/tools/headers_alone.py" --build "$build"
  compile "$build/headers-alone" --quiet
  unlock
}

data_tests=(data_files data_loader data_sources data_cache data_transforms data_workload)

check_asan() { sanitize asan base system test_support format config telemetry hdf5 hdf5_hostile "${data_tests[@]}"; }
check_tsan() { sanitize tsan base system telemetry hdf5 "${data_tests[@]}"; } # folders that use threads

sanitize() { # sanitize PRESET NAME...: the tests of these names, without LibTorch
  local tests=("${@:2}")
  tests=("${tests[@]/#/millrace_}")
  tests=("${tests[@]/%/_test}")
  local folder=$root/build/$1
  lock "$folder"
  (cd "$root" && configure "$1" "$folder")
  compile "$folder" --quiet "${tests[@]}"
  unlock
  python3 "$root/tools/run_tests.py" --build "$folder" --quiet --no-python --only "^($(IFS='|' && echo "${tests[*]}"))\$"
}

# The folders of that list, and all other files changed since the last commit's parent.
check_clang_tidy() {
  local folder=$root/build/tidy file linted
  read -ra linted < <(sed -n 's/^set(MILLRACE_LINTED \(.*\))$/\1/p' "$root/CMakeLists.txt")
  ((${#linted[@]})) || fail "no folder to read" "CMakeLists.txt" "MILLRACE_LINTED is set in one line there"
  # Without the precompiled header, which is g++'s. Configured anew each time: no build there would notice a new source.
  rm -f "$folder/.configured"
  (cd "$root" && configure release "$folder" -DMILLRACE_TORCH="${MILLRACE_TORCH:-}" -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
    -DMILLRACE_BENCH=OFF -DMILLRACE_TESTS=OFF -DMILLRACE_CUDA=OFF)
  (
    cd "$root"
    {
      for file in "${linted[@]}" hdf5/child; do printf '%s\n' "src/millrace/$file"/*.cpp "src/millrace/$file"/detail/*.cpp; done
      changed_files
    } | sort -u | grep -v '_test\.cpp$' | while IFS= read -r file; do
      if grep -qF "$root/$file\"" "$folder/compile_commands.json"; then printf '%s\n' "$file"; fi
    done | xargs -d '\n' -r ls -S | xargs -d '\n' -r -P "$(job_count)" -n 1 clang-tidy-14 -p "$folder" --quiet
  ) 2>"$folder/clang-tidy.log" || fail "clang-tidy has objections" "the lines above" "mend them; .clang-tidy says which rules hold"
}

changed_files() {
  local base
  base=$(git -C "$root" rev-parse -q --verify HEAD~1 || git -C "$root" rev-parse HEAD)
  git -C "$root" diff --name-only --diff-filter=d "$base" -- 'src/*.cpp' 'recipes/*.cpp'
}
