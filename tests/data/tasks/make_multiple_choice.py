#!/usr/bin/env python3
"""Writes multiple_choice.bin, in the format that llama-perplexity --multiple-choice reads:

    python3 tests/data/tasks/make_multiple_choice.py

It needs Python 3 alone. The first answer of a task is the right one; in the file the answers are turned by the task's number.
"""

import struct
from pathlib import Path

TASKS = [
    ("Question: What do you use to eat soup? Answer:", ["a spoon", "a shoe", "a cloud", "a car"]),
    ("Question: What says meow? Answer:", ["a cat", "a dog", "a tree"]),
    ("The sky is", ["blue", "hungry", "a spoon", "under the bed"]),
    ("When it rains, you get", ["wet", "dry", "a horse", "seven"]),
    ("A baby dog is called a", ["puppy", "kitten", "river", "chair", "banana"]),
    ("Sam was thirsty, so he drank some", ["water", "sand", "wood", "books"]),
    ("At night we can see the moon and the", ["stars", "fish", "spoons", "noses"]),
    ("Birds fly with their", ["wings", "ears", "shoes"]),
    ("Mom was very happy. She had a big", ["smile on her face", "knee on her moon", "frown in the lake"]),
    ("Tim fell and hurt his knee. He began to", ["cry", "shine", "boil", "rain"]),
    ("Bees make", ["honey", "milk", "cars", "rain", "bread"]),
    ("The opposite of big is", ["small", "red", "loud"]),
    ("In the winter the children played in the", ["snow", "soup", "oven", "lamp"]),
    ("The princess lived in a", ["castle", "cup", "sock", "pencil"]),
    ("Lily said, \"I am sorry.\" Her friend said,", ["\"It's okay. I forgive you.\"", "\"The table is running home.\""]),
    ("The cow gave the farmer some", ["milk", "shoes", "stars", "letters"]),
    ("You brush your teeth with a", ["toothbrush", "hammer", "bird", "bus"]),
    ("The fish lives in the", ["water", "sky", "tree", "oven"]),
    ("The sun comes up in the", ["morning", "evening", "bathtub"]),
    ("Max was tired, so he went to", ["sleep", "boil", "the moon to buy a nose", "green"]),
    ("The little boy did not share his toys. His friends were", ["sad", "wooden", "delicious", "four"]),
    ("After dinner they ate ice cream. It was cold and", ["sweet", "loud", "angry", "asleep", "tall"]),
]


def text(words):
    words = words.encode()
    return struct.pack("<I", len(words)) + words


def answers(all, right):
    labels = [int(i == right) for i in range(len(all))]
    return struct.pack("<I", len(all)) + b"".join(map(text, all)) + struct.pack(f"<{len(all)}I", *labels)


def main():
    start = 4 + 4 * len(TASKS)
    positions, body = [], b""
    for i, (question, all) in enumerate(TASKS):
        turn = i % len(all)
        positions.append(start + len(body))
        turned = all[-turn:] + all[:-turn] if turn else all
        # The second list, of answers of which several may be right, is empty.
        body += text(question) + answers(turned, turn) + struct.pack("<I", 0)
    file = struct.pack(f"<{1 + len(TASKS)}I", len(TASKS), *positions) + body
    Path(__file__).with_name("multiple_choice.bin").write_bytes(file)


if __name__ == "__main__":
    main()
