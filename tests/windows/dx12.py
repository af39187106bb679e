"""Texts on DX12 beside those of the CPU and of Vulkan, on one software driver. ROOT names the system that `.ci/windows` made.

A greedy text may part from the CPU's where two tokens are nearly as likely: Vulkan's must part there too, since both run one
driver's arithmetic. A text that parts from both fails."""

import json
import os
import shutil
import subprocess
import sys
import time
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
    done, seconds = run(*arguments, "--device", device, "--gpu-cache", "cache", "--no-learn", "--temp", "0", "--json")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        said = [line for line in done.stderr.splitlines() if "rundll32" not in line]
        return {"tokens": None, "said": " ".join(said[-2:])}, seconds
    return json.loads(lines[-1]), seconds


def compare(name, dx12, vulkan, *arguments):
    got, cold = text(dx12, *arguments)
    again, warm = text(dx12, *arguments)
    cpu, _ = text("cpu", *arguments)
    same = got["tokens"] is not None and got["tokens"] == again["tokens"]
    verdict = "as the CPU"
    if same and got["tokens"] != cpu["tokens"]:
        other, _ = text(vulkan, *arguments) if vulkan else ({"tokens": None}, 0)
        same = got["tokens"] == other["tokens"]
        verdict = "as Vulkan, not the CPU" if same else "its own"
    if not same:
        failed.append(name)
        verdict = f"WRONG: {got.get('said') or verdict}"
    print(f"{name:40} {verdict:24} first run {cold:6.1f} s, then {warm:5.1f} s", flush=True)


def main():
    tried, seconds = run("devices", "--try", "--json", "--gpu-cache", "cache")
    found = json.loads([line for line in tried.stdout.splitlines() if line.startswith("{")][-1])
    for number, device in enumerate(found["devices"]):
        print(f"{number}: {device['name']}, {device['backend']}, kernels {device['kernels'] and device['kernels']['used']}")
    print(f"tried in {seconds:.0f} s; used by default: {found['default']}")
    by = {device["backend"].lower(): str(number) for number, device in enumerate(found["devices"])}
    dx12, vulkan = by.get("dx12"), by.get("vulkan")
    if dx12 is None:
        sys.exit("there is no DX12 device")
    if not (found["devices"][int(dx12)]["kernels"] or {}).get("used"):
        sys.exit("no kernels are right on DX12")

    story = ["-p", "Once upon a time, there was a", "-n", "24"]
    compare("embedded model", dx12, vulkan, *story)
    compare("embedded model, dot4", dx12, vulkan, *story, "--gpu-variant", "dot4")
    compare("embedded model, drafts by its exit", dx12, vulkan, *story, "--draft-exit", "4", "--draft-max", "3")
    compare("embedded model, two layers on the GPU", dx12, vulkan, *story, "-ngl", "2")
    for kv in ["f32", "q8_0", "q4_0", "q5_1", "iq4_nl"]:
        compare(f"embedded model, K/V in {kv}", dx12, vulkan, *story, "-ctk", kv, "-ctv", kv)
    for path in [*sorted(FIXTURES.glob("models/stories13m-*.gguf")), *sorted(REAL.glob("SmolLM2*.gguf"))]:
        shutil.copy(path, FOLDER)
        compare(path.name, dx12, vulkan, "-m", path.name, *story)
        for quant in FURTHER if path.name.endswith("-f16.gguf") else []:
            run("quantize", path.name, "further.gguf", quant, "--force")
            compare(f"the same in {quant}", dx12, vulkan, "-m", "further.gguf", *story)
        (FOLDER / path.name).unlink()
    for path in [*sorted(REAL.glob("gemma*.gguf")), *sorted(REAL.glob("qwen*.gguf"))]:
        shutil.copy(path, FOLDER)
        compare(f"{path.name}, two layers", dx12, vulkan, "-m", path.name, "-p", "The sky is", "-n", "6", "-ngl", "2")
        (FOLDER / path.name).unlink()
    if failed:
        sys.exit(f"wrong on DX12: {', '.join(failed)}")


main()
