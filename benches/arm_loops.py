"""Instructions per weight in the inner loops of few columns on Arm: reads what `objdump -d -C` says of the library."""

import re
import sys

FUNCTION = re.compile(r"<.*neon::Neon.*Few<.*::Block(Q4_0|Q8_0|Q4K), .*::(\w+), (\d)>>>:$")
# 8 rows of 4 weights take two of them.
WEIGHTS_PER_SDOT = 16


def inner_loop(code):
    """The shortest way from a jump's target to the jump that has dot products on it."""
    at = {address: i for i, (address, _, _) in enumerate(code)}
    loops = []
    for i, (_, name, operands) in enumerate(code):
        target = re.search(r"\b([0-9a-f]+) <", operands) if name[0] in "bct" else None
        start = at.get(int(target[1], 16), len(code)) if target else len(code)
        if start <= i and any(name == "sdot" for _, name, _ in code[start : i + 1]):
            loops.append(code[start : i + 1])
    return min(loops, key=len)


found, code = {}, None
for line in sys.stdin:
    if line.endswith(">:\n"):
        function = FUNCTION.search(line)
        code = found.setdefault(function.groups(), []) if function else None
    elif code is not None and (parts := re.match(r" *([0-9a-f]+):\t(\S+)\s*(.*)", line)):
        code.append((int(parts[1], 16), parts[2], parts[3]))

print("| weights | layout | columns | instructions | of them on the stack | per weight and row |")
print("|:--|:--|--:|--:|--:|--:|")
for (weights, layout, columns), code in sorted(found.items()):
    loop = inner_loop(code)
    read = WEIGHTS_PER_SDOT * sum(name == "sdot" for _, name, _ in loop) / int(columns)
    stack = sum("[sp" in operands for _, _, operands in loop)
    print(f"| {weights} | {layout} | {columns} | {len(loop)} | {stack} | {len(loop) / read:.2f} |")
