#!/bin/sh
# Compares spec-run with llama.cpp (through llama-cpp-python, built here for this machine) on GGUF files:
#   benches/peer/run.sh [--python PYTHON] [--spec-run PROGRAM] [--threads N] [--rounds N] [--depth N] FILE.gguf..
# With --python the given interpreter's llama-cpp-python is used; without, a virtual environment is made once,
# in target/peer, from the source distribution with native flags.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
version=0.3.36

python=
program=
if [ "${1:-}" = --python ]; then
    python=$2
    shift 2
fi
for argument in "$@"; do
    if [ "$argument" = --spec-run ]; then program=given; fi
done

if [ -z "$python" ]; then
    environment=$root/target/peer
    python=$environment/bin/python
    if ! "$python" -c "import llama_cpp; assert llama_cpp.__version__ == '$version'" 2>/dev/null; then
        python3 -m venv "$environment"
        CMAKE_ARGS="-DGGML_NATIVE=ON" "$python" -m pip install --no-binary llama-cpp-python \
            "llama-cpp-python==$version"
    fi
fi
if [ -z "$program" ]; then
    (cd "$root" && cargo build --release --bin spec-run)
    set -- --spec-run "${CARGO_TARGET_DIR:-$root/target}/release/spec-run" "$@"
fi
exec "$python" "$here/peer.py" "$@"
