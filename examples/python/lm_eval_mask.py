"""What a model loses on a task when layers are left out, by lm-eval: `python examples/python/lm_eval_mask.py`.

The task is a file of this repository, so that nothing is downloaded; any of lm-eval's will do.
"""

import os
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")

import lm_eval
from lm_eval.tasks import TaskManager

from spec_run.lm_eval import SpecRunLM

root = Path(__file__).resolve().parents[2]
os.chdir(root)
tasks = TaskManager(include_path=str(root / "tests/server/tasks"), include_defaults=False)
for layers in (16, 12, 8, 4):
    lm = SpecRunLM(exit=layers, max_length=512)
    said = lm_eval.simple_evaluate(model=lm, tasks=["stories_choice"], task_manager=tasks, bootstrap_iters=100)
    choices = said["results"]["stories_choice"]
    print(f"the first {layers:2} layers: accuracy {choices['acc,none']:.3f} ± {choices['acc_stderr,none']:.3f}")
