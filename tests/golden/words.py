"""Writes words.json: how llama.cpp cuts texts for each value of `tokenizer.ggml.pre`, and what else it takes from the
name. Reads the patterns from its source and runs them with its own splitter.

    python3 words.py .../llama.cpp          # the source, as in the archive of llama-cpp-python 0.3.36; needs g++
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

OUT = pathlib.Path(__file__).parent / "words.json"
# Ends of words are given in bytes.
TEXTS = [
    "It's  IT'LL we'Ve 'tis a'ſ ''s don't_x",
    "camelCase HTTPServer XMLs ÜberALLes ǅungla",
    "x 1 12 123 1234  1234567a ٣٤٥٦ ½² 3.14159 12²",
    "a \n  b\r\n\r\n\tc   \n\n d\u00a0\u3000\u3000e \u2028 f\u0085g  ",
    "=== !? (a.b) [c],\n/d//\n e_f@g~h `i` «j» “k” ‘l’ $5 €6 +7",
    "漢字かなカナ한국어ㄱㅏㄅㄆ、。！（全角）ｱｲ〇 豈 𠀀",
    "e\u0301te\u0301 นี้ภาษาไทย ລາວ ខ្មែរ မြန်မာ हिन्दी اَلْعَرَبِيَّةُ עִבְרִית",
    "Ελληνικά Русский Ԁ Հայ ქართული Ꭰꭰ ﬁ ℝ K ⅇ Ⴀ",
    "👩\u200d👩\u200d👧 ☺️ \u200b\ufeff\u0000\u0007\ue000\u0378 ⅷ ™",
    "<sentinel:12>IMGIMGABCDZ 好，吗？ a|b;c… d۔ e،",
    "   " * 7 + "\t" * 600 + "end",
    "la la la  e\u0301 a b\u0301 c 1",
]


def literal(text):
    return text.encode().decode("unicode_escape").encode("latin1").decode()


def patterns(source):
    """The kind of cutting → its patterns."""
    start = source.index("switch (vocab.get_pre_type())")
    body = re.sub(r"^\s*//.*$", "", source[start : source.index("regex_exprs;", start)], flags=re.M)
    found = {}
    for case in re.finditer(r"((?:case LLAMA_VOCAB_PRE_TYPE_\w+:\s*|default:\s*)+)(.*?)break;", body, re.S):
        cuts = [literal(text) for text in re.findall(r'"((?:[^"\\]|\\.)*)"', case[2])]
        found.update((kind, cuts) for kind in re.findall(r"PRE_TYPE_(\w+)", case[1]) or ["DEFAULT"])
    return found


def names(source):
    """Each name, its kind of cutting, and the lines that say what else it means."""
    start = source.index("tokenizer_pre.empty()")
    body = source[start : source.index("unknown pre-tokenizer type", start)]
    for branch in re.finditer(r"if \(([^{]*?)\) \{(.*?)\n            \}", body, re.S):
        for name in re.findall(r'tokenizer_pre == "([^"]+)"', branch[1]):
            yield name, re.search(r"PRE_TYPE_(\w+);", branch[2])[1], branch[2]


DRIVER = r"""
#include "unicode.h"
#include <cstdio>
#include <fstream>
#include <sstream>
static std::vector<std::string> parts(const std::string & s, char end) {
    std::vector<std::string> out;
    std::stringstream in(s);
    for (std::string part; std::getline(in, part, end);) out.push_back(part);
    return out;
}
int main(int, char ** args) {
    std::ifstream file(args[1], std::ios::binary);
    std::stringstream all;
    all << file.rdbuf();
    const auto lists = parts(all.str(), 3);
    for (const auto & scheme : parts(lists[0], 2)) {
        for (const auto & text : parts(lists[1], 2)) {
            size_t end = 0;
            for (const auto & word : unicode_regex_split(text, parts(scheme, 1), false)) printf("%zu ", end += word.size());
            printf("\n");
        }
    }
}
"""


def main(llama_cpp, texts):
    src = pathlib.Path(llama_cpp) / "src"
    source = (src / "llama-vocab.cpp").read_text()
    cuts = patterns(source)
    schemes = {}
    for name, kind, rest in names(source):
        key = (
            tuple(cuts.get(kind, cuts["DEFAULT"])),
            "ignore_merges = true" in rest,
            "add_bos = true" in rest,
            "special_bos_id" not in rest,
            "escape_whitespaces = true" in rest,
        )
        schemes.setdefault(key, []).append(name)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "words.cpp").write_text(DRIVER)
        program = [folder / "words.cpp", src / "unicode.cpp", src / "unicode-data.cpp", "-o", folder / "words"]
        subprocess.run(["g++", "-O2", "-std=c++17", f"-I{src}", *program], check=True)
        lists = "\x02".join("\x01".join(key[0]) for key in schemes) + "\x03" + "\x02".join(texts)
        (folder / "lists").write_bytes(lists.encode())
        lines = subprocess.run([folder / "words", folder / "lists"], check=True, capture_output=True, text=True)
    lines = iter(lines.stdout.splitlines())
    entries = [
        {
            "names": named,
            "whole_words": whole_words,
            "adds_bos": adds_bos,
            "has_default_bos": default_bos,
            "spaced": spaced,
            # A lookahead alone makes words of nothing.
            "ends": [[end for end in dict.fromkeys(map(int, next(lines).split())) if end > 0] for _ in texts],
        }
        for (_, whole_words, adds_bos, default_bos, spaced), named in schemes.items()
    ]
    entries = ",\n".join(json.dumps(entry) for entry in entries)
    OUT.write_text(f'{{"texts": {json.dumps(texts)},\n"schemes": [\n{entries}\n]}}\n')


if __name__ == "__main__":
    main(sys.argv[1], json.loads(pathlib.Path(sys.argv[2]).read_text()) if len(sys.argv) > 2 else TEXTS)
