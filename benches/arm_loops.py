"""Instructions per weight in the inner loops on Arm, of few columns and of many: reads what `objdump -d -C` says of the library."""

import re
import sys

FEW = re.compile(r"<.*neon::Neon.*Few<.*::Block(Q4_0|Q8_0|Q4K), .*::(\w+), (\d)>>>:$")
# By way of panels there is a function for all formats of a kind.
MANY = re.compile(r"<.*(?:neon::Neon.*dot::Dot<|neon::i8mm::(?:dot|tile)::<).*kinds::(\w+(?:<[\w, ]+>)?)(?:, 2)?>+:$")
KINDS = {"Plain<8, 15>": "Q4_0", "Wide": "Q8_0", "Minimum<15>": "Q4_K", "Minimum<31>": "Q5_K"}
# How many an instruction makes: 4 rows, one column, 4 weights, or 2 rows, 2 columns, 8 weights.
PRODUCTS = {"sdot": 16, "smmla": 32}
ROWS, BLOCK = 8, 32


def products(loop):
    return sum(PRODUCTS.get(name, 0) for _, name, _ in loop)


def inner_loops(code):
    """From a jump's target to the jump, with products on the way and no such loop inside."""
    at = {address: i for i, (address, _, _) in enumerate(code)}
    loops = []
    for i, (_, name, operands) in enumerate(code):
        target = re.search(r"\b([0-9a-f]+) <", operands) if name[0] in "bct" else None
        start = at.get(int(target[1], 16), len(code)) if target else len(code)
        if start <= i and products(code[start : i + 1]):
            loops.append((start, i + 1))
    inner = [a for a in loops if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    return [code[start:end] for start, end in inner]


def row(names, columns, loop):
    weights = products(loop) / columns
    stack = sum("[sp" in operands for _, _, operands in loop)
    print("|", " | ".join([*names, str(columns), str(len(loop)), str(stack), f"{len(loop) / weights:.2f}"]), "|")


few, many, code = {}, {}, None
for line in sys.stdin:
    if line.endswith(">:\n"):
        code = None
        if found := FEW.search(line):
            code = few.setdefault(found.groups(), [])
        elif (found := MANY.search(line)) and found[1] in KINDS:
            code = many.setdefault((KINDS[found[1]], line), [])
    elif code is not None and (parts := re.match(r" *([0-9a-f]+):\t(\S+)\s*(.*)", line)):
        code.append((int(parts[1], 16), parts[2], parts[3]))

print("| weights | layout | columns | instructions | of them on the stack | per weight and row |")
print("|:--|:--|--:|--:|--:|--:|")
for (weights, layout, columns), code in sorted(few.items()):
    row([weights, layout], int(columns), min(inner_loops(code), key=len))

print("\n| weights | by | columns | instructions | of them on the stack | per weight and row |")
print("|:--|:--|--:|--:|--:|--:|")
for (weights, _), code in sorted(many.items()):
    for loop in inner_loops(code):
        columns, rest = divmod(products(loop), ROWS * BLOCK)
        if rest == 0 and columns == 4:
            names = {name for _, name, _ in loop}
            row([weights, *PRODUCTS.keys() & names], columns, loop)
