#!/usr/bin/env bash
# What BENCHMARKS.md can only predict where there is no graphics card: the share of the memory's bandwidth that decoding gets,
# what several rows cost beside one, and prefill, for an 8B in Q4_0 and Q8_0; with `large` also a 70B that does not fit, plain
# and drafting, by either placement. The models have random weights and are made once, in FOLDER: 13 GB, with `large` 52 GB.
#   benches/gpu/run.sh FOLDER [large]
# PROGRAM   another build than target/release/spec-run
# DEVICE    which card, as `spec-run devices` names them (0)
# PEER      llama.cpp's llama-bench for the same card, which then takes its turns between ours
# SHAPE, LARGE   what `spec-run synth` makes ("--like llama-8b", "--like llama-70b")
# SKIPPABLE  layers of the large one that drafts leave out (1,3,.. to 79)
# ROUNDS    of each figure (5)
set -euo pipefail
[ $# = 1 ] || { [ $# = 2 ] && [ "$2" = large ]; } || { echo "usage: benches/gpu/run.sh FOLDER [large]" >&2; exit 2; }
cd "$(dirname "$0")/../.."
folder=$1
device=${DEVICE:-0} rounds=${ROUNDS:-5}
program=${PROGRAM:-target/release/spec-run}
[ -n "${PROGRAM:-}" ] || cargo build --release --bin spec-run
mkdir -p "$folder"

# Each command is printed before what it says, so that the output can be filed as it is.
run() {
    printf '\n$' && printf ' %q' "$@" && echo
    "$@" 2>&1
}
# A file is whole or not there: synth renames it at the end.
made() {
    local file=$folder/$1
    shift
    [ -e "$file" ] || "$program" synth --quiet -o "$file" "$@" >&2
}

run "$program" --version
run "$program" devices
for quant in q4_0 q8_0; do
    # shellcheck disable=SC2086  # several words
    made 8b-$quant.gguf ${SHAPE:---like llama-8b} --quant $quant
    for turn in 1 2; do
        run "$program" bench -m "$folder/8b-$quant.gguf" --device "$device" --prefill 512 --depths 0,2048 -r "$rounds"
        [ -z "${PEER:-}" ] || run "$PEER" -m "$folder/8b-$quant.gguf" -ngl 999 -p 512 -n 128 -d 0,2048 -r "$rounds"
    done
done
[ $# = 2 ] || exit 0

# Every other layer may be skipped, and drafts leave these out.
skippable=${SKIPPABLE:-$(seq -s, 1 2 79)}
# shellcheck disable=SC2086
made 70b-q4_0.gguf ${LARGE:---like llama-70b} --quant q4_0 --skippable "$skippable" --epsilon 0.05
for turn in 1 2; do
    for placement in layers auto; do
        with=(-m "$folder/70b-q4_0.gguf" --device "$device" --placement $placement -n 64 --temp 0 -p "Once upon a time")
        run "$program" "${with[@]}" --spec-type none
        run "$program" "${with[@]}" --spec-type mask --skip-attn "$skippable" --skip-mlp "$skippable"
    done
done
