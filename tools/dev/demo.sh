# ./dev demo: real text, a small language model, three to six minutes. Sourced by ./dev.

demo_folder=$deps/demo

word_demo() {
  set_up program
  build_targets millrace
  local text run_folder
  text=$(demo_text)
  run_folder=$(demo_run_folder)
  train_demo "$text" "$run_folder" "$@"
  cat <<NEXT

The run is in ${run_folder#"$PWD"/}. What to type next, from $root:
  build/release/millrace generate "the " --from ${run_folder#"$root"/}
  build/release/millrace train language_model --preset small --recipe.sources=YOUR_TEXT_FILE
  build/release/millrace list
  ./dev test
NEXT
}

train_demo() { # train_demo TEXT RUN_FOLDER ARGUMENT...
  (cd "$root" && run "$program" train language_model --preset small --recipe.sources="$1" --run "${2#"$root"/}" \
    --train.max_steps=4000 --train.validate_every=500 --snapshot.every_steps=500 --log.every=250 "${@:3}") # three to six minutes on two cores
}

# The newest demo folder if its run was interrupted (it is resumed), else a new one.
demo_run_folder() {
  local base=$root/runs/language_model/demo number=1 folder
  folder=$base
  while [[ -e $folder ]] && demo_is_complete "$folder"; do
    number=$((number + 1))
    folder=$base-$number
  done
  echo "$folder"
}

demo_is_complete() { # a finished run records that in its summary; a killed or stopped run does not
  grep -Eqs '"exit_reason": *"(max_steps|epochs|early_stop)"' "$1/summary.json"
}

# The path of a text to learn from; made once. Debian's `fortunes` (English epigrams, verse, quotations), unpacked, not
# installed; if it is not available, the headers of the LibTorch just set up.
demo_text() {
  mkdir -p "$demo_folder"
  local text=$demo_folder/fortunes.txt
  if [[ ! -s $text ]]; then
    if unpack_fortunes; then
      join_texts "$demo_folder/fortunes/usr/share/games/fortunes" "$text"
    else
      text=$demo_folder/headers.txt
      say "Debian's package \"fortunes\" cannot be fetched: learning from LibTorch's C++ headers instead" >&2
      [[ -s $text ]] || join_headers "$(torch_site)/torch/include" "$text"
    fi
  fi
  say "text: ${text#"$root"/}, $(wc -c <"$text") bytes" >&2
  echo "$text"
}

unpack_fortunes() {
  have apt-get || return 1
  local part=$demo_folder/fortunes.part
  rm -rf "$part"
  mkdir -p "$part"
  say "fetching the demo's text: Debian package \"fortunes\", 1 MB" >&2
  (
    cd "$part"
    exec >"$deps/fortunes.log" 2>&1 </dev/null
    apt-get -o APT::Sandbox::User=root download fortunes fortunes-min && exit 0
    # No package lists on this machine: download separate ones.
    private_lists && private_apt download fortunes fortunes-min
  ) 9>&- || return 1
  local package
  for package in "$part"/*.deb; do
    dpkg -x "$package" "$part" || return 1
    rm "$package"
  done
  rm -rf "$demo_folder/fortunes"
  mv "$part" "$demo_folder/fortunes"
}

join_texts() { # join_texts FOLDER FILE: plain UTF-8 files in order of name; no indices (*.dat), no links
  local file
  for file in $(LC_ALL=C bash -c 'cd "$1" && printf "%s\n" *' - "$1"); do
    [[ $file != *.dat && -f $1/$file && ! -L $1/$file ]] || continue
    iconv -f UTF-8 -t UTF-8 "$1/$file" >/dev/null 2>&1 || continue
    cat "$1/$file"
  done >"$2.part"
  mv "$2.part" "$2"
}

join_headers() { # join_headers FOLDER FILE: about 2.5 MB of it
  (cd "$1" && find ATen torch/nn c10 -name '*.h' 2>/dev/null | LC_ALL=C sort | head -n 400 | xargs cat | head -c 2500000) >"$2.part" || true
  mv "$2.part" "$2"
}
