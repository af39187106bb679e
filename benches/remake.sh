#!/usr/bin/env bash
# Makes the figures of BENCHMARKS.md again:
#   benches/remake.sh [SECTION..]
# Sections: real real-drafting speed speed-experts deep embedded coarse drafting mtp never-slower editing search exits memory experts; all of them if none is
# named.
# real and real-drafting need the three models of tests/real, in target/real or where SPEC_RUN_REAL_MODELS says.
# What each prints is left in target/benchmarks/SECTION.txt.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
cargo build --release
out=$root/target/benchmarks
mkdir -p "$out"
spec_run=${CARGO_TARGET_DIR:-$root/target}/release/spec-run
text=$root/models/stories-val.txt

# model NAME ARGS: made once by `spec-run synth`.
model() {
    [ -e "$out/$1" ] || "$spec_run" synth -o "$out/$1" "$2" "$3" "$4" "$5" ${6+"$6" "$7"}
}
random() { for quant in "$@"; do model "1b-$quant.gguf" --like llama-1b --quant "$quant"; done; }
wide() { model wide-q8_0.gguf --widen 8 -m models/stories13m-q8_0.gguf; }
bench() { cargo bench --bench "$@"; }

real() {
    for name in qwen2.5-coder-1.5b-instruct-q4_k_m SmolLM2-135M-Instruct.Q4_1 gemma-3-270m-q4_k_m; do
        "$@" "${SPEC_RUN_REAL_MODELS:-$root/target/real}/$name.gguf"
    done
}

section() {
    case $1 in
    real) real benches/peer/run.sh --threads 2 --rounds 3 ;;
    real-drafting) real python3 benches/real/bench.py "$spec_run" benches/real/prompts.json ;;
    speed)
        random q4_0 q8_0 q4_k q6_k
        for quant in q4_0 q8_0 q4_k q6_k; do
            benches/peer/run.sh --threads 2 --rounds 1 "$out/1b-$quant.gguf"
        done ;;
    deep)
        random q4_0
        benches/peer/run.sh --threads 2 --rounds 1 --depth 4096 "$out/1b-q4_0.gguf" ;;
    embedded) benches/peer/run.sh --threads 2 --rounds 1 models/stories13m-q8_0.gguf ;;
    speed-experts)
        model olmoe-q4_0.gguf --like olmoe-1b-7b --quant q4_0
        model olmoe-q4_k.gguf --like olmoe-1b-7b --quant q4_k
        model gemma3-1b-q4_0.gguf --like gemma3-1b --quant q4_0
        model gpt-oss-6l-q4_0.gguf --like gpt-oss-20b --quant q4_0 --layers 6
        for name in olmoe-q4_0 olmoe-q4_k gpt-oss-6l-q4_0 gemma3-1b-q4_0; do
            benches/peer/run.sh --threads 2 --rounds 3 "$out/$name.gguf"
        done ;;
    coarse)
        random q8_0 q6_k q4_k
        "$spec_run" bench -m "$out/1b-q8_0.gguf" --coarse all
        "$spec_run" bench -m "$out/1b-q6_k.gguf" --coarse all
        "$spec_run" bench -m "$out/1b-q4_k.gguf" --coarse all --planes ;;
    drafting)
        wide
        bench speculation -- -n 128 --prompts 6 -m "$out/wide-q8_0.gguf"
        bench speculation -- -n 256 --prompts 20 ;;
    mtp)
        model q35-8l-q4_0.gguf --like qwen3.5-4b --quant q4_0 --layers 8
        bench mtp -- -m "$out/q35-8l-q4_0.gguf" --tokens 192
        bench shortlists -- -m "$out/q35-8l-q4_0.gguf"
        bench rejections -- -m "$out/q35-8l-q4_0.gguf" ;;
    never-slower) bench never_slower ;;
    editing)
        random q4_0 q8_0
        for file in models/stories13m-q8_0.gguf "$out/1b-q4_0.gguf" "$out/1b-q8_0.gguf"; do
            bench editing -- "$file" 3
        done ;;
    search)
        # What an earlier run has measured is not measured again.
        rm -f "$out/skips.json.journal"
        "$spec_run" search -f "$text" -o "$out/skips.json" --force ;;
    exits) "$spec_run" perplexity -f "$text" -c 256 --chunks 8 --exit each ;;
    memory)
        [ -e "$out/8b.gguf" ] || "$spec_run" synth -o "$out/8b.gguf" --like llama-8b --quant q8_0 --epsilon 0.12 \
            --skippable 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31
        bench out_of_core -- -m "$out/8b.gguf" --ram 4400000000 -n 32 ;;
    experts)
        [ -e "$out/olmoe.gguf" ] || "$spec_run" synth -o "$out/olmoe.gguf" --like olmoe-1b-7b --quant q4_0
        bench experts -- -m "$out/olmoe.gguf" --ram 1300000000 ;;
    *)
        echo "benches/remake.sh: there is no section $1" >&2
        exit 2 ;;
    esac
}

[ $# -gt 0 ] || set -- real real-drafting speed speed-experts deep embedded coarse drafting mtp never-slower editing search exits memory experts
for name in "$@"; do
    printf '\n== %s\n' "$name"
    section "$name" 2>&1 | tee "$out/$name.txt"
done
