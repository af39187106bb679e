"""A proposer of your own: whatever guesses tokens can draft, and cannot change the text, because the model verifies.

This one remembers the sentences of stories that were made before. `python examples/python/proposer.py [MODEL.gguf]`
"""

import sys

from spec_run import LLM, SamplingParams

model = sys.argv[1] if len(sys.argv) > 1 else None
greedy = SamplingParams(temperature=0, max_tokens=100)
seen: list[list[int]] = []


def propose(tokens: list[int]) -> list[int]:
    """What followed the last three tokens in an earlier story."""
    end = tokens[-3:]
    for story in reversed(seen):
        for at in range(len(story) - len(end)):
            if story[at : at + len(end)] == end:
                return story[at + len(end) : at + len(end) + 8]
    return []


plain = LLM(model, drafts=False)
drafting = LLM(plain.model, masks={}, proposers={"stories": propose}, texts=1)
for prompt in ["Once upon a time, there was a little girl named Lily.", "Once upon a time, there was a boy named Tim."] * 2:
    out = drafting.generate(prompt, greedy)[0]
    seen.append(out.prompt_token_ids + out.outputs[0].token_ids)
    used = next(source for source in out.outputs[0].report["sources"] if source["name"] == "stories")
    same = out.outputs[0].text == plain.generate(prompt, greedy)[0].outputs[0].text
    print(f"{used['accepted']} of {used['drafted']} proposed tokens stood; the same text as without: {same}")
