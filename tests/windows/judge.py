"""judge.py COMPILER LIST STEP OUTPUT..: whether a compiler took every kernel's text of LIST, and how long that was."""

import collections
import re
import sys

compiler, listed, step = sys.argv[1], sys.argv[2], int(sys.argv[3])
wanted = {line.split("\t")[0] for at, line in enumerate(open(listed)) if at % step == 0}
kinds, refused, warned = collections.defaultdict(list), [], collections.Counter()
for path in sys.argv[4:]:
    for line in open(path):
        verdict, milliseconds, file, kernel, message = line.rstrip("\n").split("\t")
        wanted.discard(file)
        kinds[re.match(r"\w+", kernel)[0]].append(int(milliseconds))
        if verdict != "ok":
            refused.append(f"{kernel}: {message}")
        elif message:
            warned[re.sub(r".*warning[: ]*", "", message)] += 1

print(f"{'kernel':14} {'texts':>6} {'mean ms':>8} {'most ms':>8}")
for kind, times in kinds.items():
    print(f"{kind:14} {len(times):6} {sum(times) / len(times):8.0f} {max(times):8}")
total = sum(map(len, kinds.values()))
print(f"{compiler}: {total} texts, {total - len(refused)} compiled, {len(refused)} refused, {len(wanted)} not tried")
for message, count in warned.most_common():
    print(f"  {count} texts with a warning: {message}")
for line in refused:
    print(f"  refused: {line}")
sys.exit(bool(refused or wanted or not total))
