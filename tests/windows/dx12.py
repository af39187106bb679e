"""Texts on DX12 beside those of the CPU and of Vulkan, on one software driver. ROOT names the system that `.ci/windows` made.
TRIED=1 leaves out `devices --try`, which takes minutes.

A greedy text may part from the CPU's where two tokens are nearly as likely: Vulkan's must part there too, since both run one
driver's arithmetic. A text that parts from both fails.

Each run compiles kernels, and what the shader compiler makes is kept for the next one. Two runs go on beside each other."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(os.environ["ROOT"])
FOLDER = ROOT / "w"
REAL = Path(os.environ.get("SPEC_RUN_REAL_MODELS", "target/real"))
FIXTURES = Path("../shared/fixtures")
# Formats of which there is no fixture.
FURTHER = ["Q4_1", "Q5_0", "Q5_1", "BF16"]
DX12 = "HOME=/w WINEPREFIX=/w/prefix WINEDEBUG=-all WINEPATH='Z:\\w' WINEDLLOVERRIDES='d3dcompiler_47=n;winemenubuilder.exe=d'"
failed = []


def run(*arguments):
    """What the program printed, and how long it took."""
    command = ["chroot", ROOT, "sh", "-c", f'cd /w && {DX12} exec xvfb-run -a wine spec-run.exe "$@"', "sh", *arguments]
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace", timeout=3600)
    return done, time.monotonic() - begun


def text(device, *arguments):
    done, seconds = run(*arguments, "--device", device, "--gpu-cache", "cache", "--learn-dir", "learned", "--temp", "0", "--json")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        said = [line for line in done.stderr.splitlines() if "rundll32" not in line and "X connection" not in line]
        return {"tokens": None, "said": " ".join(said[-2:])}, seconds
    return json.loads(lines[-1]), seconds


def compare(devices, name, arguments, again=False, model=None, quant=None):
    """`model` is copied to where both see it; `quant` makes another of it."""
    if model:
        own = f"{threading.get_ident()}-{model.name}"
        shutil.copy(model, FOLDER / own)
        if quant:
            run("quantize", own, f"{quant}-{own}", quant, "--force")
            (FOLDER / own).unlink()
            own = f"{quant}-{own}"
        arguments = ["-m", own, *arguments]
    variant = [] if "--gpu-variant" in arguments else ["--gpu-variant", "plain"]
    got, cold = text(devices["dx12"], *arguments, *variant)
    took = f"{cold:6.1f} s"
    same = got["tokens"] is not None
    if again:
        warm, seconds = text(devices["dx12"], *arguments, *variant)
        took += f", then {seconds:.1f} s"
        same = same and got["tokens"] == warm["tokens"]
    cpu, _ = text("cpu", *arguments)
    verdict = "as the CPU"
    if same and got["tokens"] != cpu["tokens"]:
        vulkan = devices.get("vulkan")
        other, _ = text(vulkan, *arguments, *variant) if vulkan else ({"tokens": None}, 0)
        same = got["tokens"] == other["tokens"]
        verdict = "as Vulkan, not the CPU" if same else "its own"
    if not same:
        failed.append(name)
        verdict = f"WRONG: {got.get('said') or verdict}"
    if model:
        (FOLDER / own).unlink()
    print(f"{name:45} {verdict:24} {took}", flush=True)


def main():
    tried, seconds = run("devices", *([] if os.environ.get("TRIED") else ["--try"]), "--json", "--gpu-cache", "cache")
    found = json.loads([line for line in tried.stdout.splitlines() if line.startswith("{")][-1])
    for number, device in enumerate(found["devices"]):
        print(f"{number}: {device['name']}, {device['backend']}, kernels {device['kernels'] and device['kernels']['used']}")
    print(f"asked in {seconds:.0f} s; used by default: {found['default']}", flush=True)
    devices = {device["backend"].lower(): str(number) for number, device in enumerate(found["devices"])}
    if "dx12" not in devices:
        sys.exit("there is no DX12 device")
    if not os.environ.get("TRIED") and not (found["devices"][int(devices["dx12"])]["kernels"] or {}).get("used"):
        sys.exit("no kernels are right on DX12")

    # Drafts take kernels of their own, so only one of the runs has them.
    drafted = ["-p", "Once upon a time, there was a", "-n", "16"]
    story = [*drafted, "--draft", "none"]
    jobs = [
        dict(name="embedded model", arguments=story, again=True),
        *[dict(name=f"{path.name}", arguments=story, model=path, again=True) for path in sorted(REAL.glob("SmolLM2*_1.gguf"))],
        dict(name="embedded model, dot4", arguments=[*story, "--gpu-variant", "dot4"]),
        dict(name="embedded model, drafts by its exit", arguments=[*drafted, "--draft-exit", "4", "--draft-max", "3"]),
        dict(name="embedded model, two layers on the GPU", arguments=[*story, "-ngl", "2"]),
    ]
    for kv in ["f32", "q8_0", "q4_0", "q5_1", "iq4_nl"]:
        jobs.append(dict(name=f"embedded model, K/V in {kv}", arguments=[*story, "-ctk", kv, "-ctv", kv]))
    for path in sorted(FIXTURES.glob("models/stories13m-*.gguf")):
        jobs.append(dict(name=path.name, arguments=story, model=path))
        for quant in FURTHER if path.name.endswith("-f16.gguf") else []:
            jobs.append(dict(name=f"the same in {quant}", arguments=story, model=path, quant=quant))
    short = ["-p", "The sky is", "-n", "6", "-ngl", "2", "--draft", "none"]
    for path in [*sorted(REAL.glob("gemma*_m.gguf")), *sorted(REAL.glob("qwen*_m.gguf"))]:
        jobs.append(dict(name=f"{path.name}, two layers", arguments=short, model=path))
    with ThreadPoolExecutor(2) as two:
        list(two.map(lambda job: compare(devices, **job), jobs))
    if failed:
        sys.exit(f"wrong on DX12: {', '.join(failed)}")


main()
