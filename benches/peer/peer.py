"""Ratios of spec-run to llama.cpp on the same files and threads, measured alternately.

Each round measures a file once with each, in processes of their own, and pairs the two; the table has the
medians of the rounds' ratios. Loading ends with the first token, because both may leave the reading of
weights for then. Resident memory is that of the whole process for spec-run; for llama.cpp without what the
Python interpreter and the library took before the model was opened.

With --depth, decode steps and verifications after so many tokens are measured as well, in further processes;
keys and values are f16 on both sides. llama.cpp takes that with flash attention on and off, and in each round the
faster of the two counts. It fills its cache once for each file and reads it back later, because that takes long.
"""

import argparse
import ctypes
import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

PREFILL = [128, 512]
ROWS = [1, 2, 4, 5, 8, 16]
DEEP_ROWS = [4, 8]
# As in spec-run bench.
ROWS_DEPTH = 128
DECODE_STEPS = 16
SAMPLE_SECONDS = 0.1
MOST_PASSES = 256

# name, whether more is better
FIGURES = (
    [("decode tok/s", True)]
    + [(f"prefill {n} tok/s", True) for n in PREFILL]
    + [(f"T({n}) ms", False) for n in ROWS]
    + [("load ms", False), ("resident MB", False)]
)


def deep_figures(depth):
    rows = [(f"T({n}) at {depth} ms", False) for n in DEEP_ROWS]
    return [(f"decode at {depth} tok/s", True)] + rows


def resident_mb():
    try:
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    return None


class Peer:
    """llama.cpp's batch interface with the defaults of its own context, but for sizes and threads."""

    def __init__(self, path, threads, depth=0, flash_attention=None):
        from llama_cpp import llama_cpp as lib

        self.lib = lib
        self.silence = lib.llama_log_callback(lambda level, text, data: None)
        lib.llama_log_set(self.silence, ctypes.c_void_p(0))
        lib.llama_backend_init()
        before = resident_mb()
        started = time.perf_counter()
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if not self.model:
            sys.exit(f"{path}: llama.cpp cannot load it")
        params = lib.llama_context_default_params()
        params.n_ctx = max(max(PREFILL), ROWS_DEPTH + max(ROWS), depth + DECODE_STEPS)
        if flash_attention is not None:
            params.flash_attn_type = flash_attention
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = threads
        self.context = lib.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit(f"{path}: llama.cpp gives no context")
        self.memory = lib.llama_get_memory(self.context)
        self.copies = {}
        self.batch = lib.llama_batch_init(params.n_batch, 0, 1)
        n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.tokens = [(i * 7919 + 13) % n_vocab for i in range(params.n_ctx)]
        self.decode(0, 1)
        self.load_ms = (time.perf_counter() - started) * 1e3
        self.before = before

    def decode(self, position, count, every_row=False):
        """Evaluates `count` tokens at `position` with the logits of the last or of each; seconds."""
        batch = self.batch
        for i in range(count):
            batch.token[i] = self.tokens[position + i]
            batch.pos[i] = position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = every_row or i + 1 == count
        batch.n_tokens = count
        started = time.perf_counter()
        if self.lib.llama_decode(self.context, batch) != 0:
            sys.exit(f"llama_decode refused {count} tokens at {position}")
        self.lib.llama_synchronize(self.context)
        return time.perf_counter() - started

    def cut(self, length):
        """Keeps so many tokens. Recurrent layers cannot go back there: their state comes from a copy of that length."""
        if self.lib.llama_memory_seq_rm(self.memory, 0, length, -1):
            return
        self.lib.llama_memory_seq_rm(self.memory, 0, 0, -1)
        if self.copies[length] and not self.lib.llama_state_seq_set_data(
            self.context, self.copies[length], len(self.copies[length]), 0
        ):
            sys.exit(f"llama.cpp does not take back its state of {length} tokens")

    def copy(self, length):
        size = self.lib.llama_state_seq_get_size(self.context, 0)
        self.copies[length] = (ctypes.c_uint8 * size)()
        self.lib.llama_state_seq_get_data(self.context, self.copies[length], size, 0)

    def sample(self, one_pass, steps=1):
        """Mean seconds of a step over enough passes, after two that warm up."""
        one_pass()
        first = one_pass() * steps
        passes = min(MOST_PASSES, max(1, math.ceil(SAMPLE_SECONDS / first)))
        return sum(one_pass() for _ in range(passes)) / passes

    def steps(self, depth=0):
        self.cut(depth)
        return sum(self.decode(depth + i, 1) for i in range(DECODE_STEPS)) / DECODE_STEPS

    def prompt(self, count):
        self.cut(0)
        return self.decode(0, count)

    def rows(self, count, depth=ROWS_DEPTH):
        self.cut(depth)
        return self.decode(depth, count, every_row=True)

    def figures(self):
        out = {"decode tok/s": 1 / self.sample(self.steps, DECODE_STEPS)}
        self.prompt(ROWS_DEPTH)
        self.copy(ROWS_DEPTH)
        for n in ROWS:
            out[f"T({n}) ms"] = 1e3 * self.sample(lambda: self.rows(n))
        for n in PREFILL:
            out[f"prefill {n} tok/s"] = n / self.sample(lambda: self.prompt(n))
        out["load ms"] = self.load_ms
        now = resident_mb()
        out["resident MB"] = now - self.before if now and self.before else None
        return out

    def fill(self, depth, saved):
        """`depth` tokens of context: as another process left them in a file, or evaluated and left there."""
        self.cut(0)
        name, none, count = saved.encode(), (ctypes.c_int32 * 1)(), ctypes.c_size_t()
        if os.path.exists(saved):
            done = self.lib.llama_state_seq_load_file(self.context, name, 0, none, 0, ctypes.byref(count))
        else:
            size = min(512, depth)
            for position in range(0, depth, size):
                self.decode(position, min(size, depth - position))
            done = self.lib.llama_state_seq_save_file(self.context, name, 0, none, 0)
        if not done:
            sys.exit(f"{saved}: llama.cpp cannot keep its state there")
        self.copy(depth)

    def deep_figures(self, depth):
        out = {f"decode at {depth} tok/s": 1 / self.sample(lambda: self.steps(depth), DECODE_STEPS)}
        for n in DEEP_ROWS:
            out[f"T({n}) at {depth} ms"] = 1e3 * self.sample(lambda: self.rows(n, depth))
        return out


def output_of(command):
    result = subprocess.run(command, stdout=subprocess.PIPE)
    if result.returncode != 0:
        sys.exit(result.returncode)
    return json.loads(result.stdout)


def run_peer(path, threads):
    return output_of([sys.executable, __file__, "--one", "--threads", str(threads), path])


def run_peer_deep(path, threads, depth, saved):
    command = [sys.executable, __file__, "--threads", str(threads), "--depth", str(depth), path]
    both = [output_of(command + ["--one", "--flash", str(on), "--saved", f"{saved}.{on}"]) for on in (0, 1)]
    return {name: (max if more else min)(b[name] for b in both) for name, more in deep_figures(depth)}


def bench(program, path, threads, curve_depth, options):
    command = [program, "bench", "-m", path, "-t", str(threads), "-r", "1", "--json"]
    out = output_of(command + ["--curve-depth", str(curve_depth)] + options)
    assert out["curve_depth"] == curve_depth, out["curve_depth"]
    return out


def run_ours_deep(program, path, threads, depth):
    options = ["-c", str(depth + max(ROWS)), "--prefill", "1", "--depths", str(depth)]
    result = bench(program, path, threads, depth, options)
    out = {f"T({row['n']}) at {depth} ms": row["ms"] for row in result["curve"] if row["n"] in DEEP_ROWS}
    out[f"decode at {depth} tok/s"] = result["decode"]["tok_s"]
    return out


def run_ours(program, path, threads):
    prefill = ",".join(map(str, PREFILL))
    result = bench(program, path, threads, ROWS_DEPTH, ["--prefill", prefill, "--depths", "0"])
    out = {"decode tok/s": result["decode"]["tok_s"]}
    out.update({f"prefill {p['n']} tok/s": p["tok_s"] for p in result["prefill"]})
    out.update({f"T({row['n']}) ms": row["ms"] for row in result["curve"]})
    out["load ms"] = result["load_ms"] + result["first_token"]["ms"]
    out["resident MB"] = result["rss_mb"]
    return out


def show(number):
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def cell(name, rounds):
    pairs = [(ours[name], theirs[name]) for ours, theirs in rounds if ours[name] and theirs[name]]
    if not pairs:
        return "-"
    ratio = statistics.median(a / b for a, b in pairs)
    ours, theirs = (statistics.median(side) for side in zip(*pairs))
    return f"{ratio:.2f} ({show(ours)} / {show(theirs)})"


def processor():
    try:
        with open("/proc/cpuinfo") as info:
            return next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def measure_file(path, args, saved):
    program, threads, depth = args.spec_run, args.threads, args.depth
    cases = [(lambda: run_ours(program, path, threads), lambda: run_peer(path, threads))]
    if depth:
        cases.append(
            (lambda: run_ours_deep(program, path, threads, depth), lambda: run_peer_deep(path, threads, depth, saved))
        )
    rounds = []
    for number in range(args.rounds):
        if sys.stderr.isatty():
            print(f"{path}: round {number + 1} of {args.rounds}", file=sys.stderr)
        ours, theirs = {}, {}
        for pair in cases:
            # Who goes first changes from round to round.
            sides = [(pair[0], ours), (pair[1], theirs)]
            for run, into in sides if number % 2 == 0 else sides[::-1]:
                into.update(run())
        rounds.append((ours, theirs))
    return rounds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE.gguf")
    parser.add_argument("--spec-run", default="spec-run", help="the program to measure")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--depth", type=int, default=0, help="measure after so many tokens as well; takes minutes")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--flash", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--saved", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        peer = Peer(args.files[0], args.threads, args.depth, args.flash)
        if args.saved:
            peer.fill(args.depth, args.saved)
            print(json.dumps(peer.deep_figures(args.depth)))
        else:
            print(json.dumps(peer.figures()))
        return

    import llama_cpp

    columns = {}
    for path in args.files:
        with tempfile.TemporaryDirectory() as folder:
            columns[os.path.basename(path)] = measure_file(path, args, os.path.join(folder, "state"))

    print(f"spec-run / llama.cpp (llama-cpp-python {llama_cpp.__version__}), {args.threads} threads, {processor()},")
    print(f"{datetime.date.today()}, medians of {args.rounds} alternating rounds, in brackets the figures themselves\n")
    print("| | better | " + " | ".join(columns) + " |")
    print("|:--|:--|" + "--:|" * len(columns))
    for name, more_is_better in FIGURES + (deep_figures(args.depth) if args.depth else []):
        better = "above 1" if more_is_better else "below 1"
        print(f"| {name} | {better} | " + " | ".join(cell(name, rounds) for rounds in columns.values()) + " |")


if __name__ == "__main__":
    main()
