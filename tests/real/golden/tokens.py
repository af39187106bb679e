"""Writes tokens.json: texts, and the tokens that llama.cpp's llama-server makes of them for models that people trained.

    python3 tokens.py LLAMA_SERVER MODELS

LLAMA_SERVER is the program, MODELS the folder with the files that llama_server.py names. Nothing but Python is needed.
"""

import json
import pathlib
import sys

from llama_server import FILES, serving

OUT = pathlib.Path(__file__).parent / "tokens.json"
# Characters that no editor shows have their numbers.
TEXTS = [
    # Nothing, and almost nothing.
    "",
    " ",
    "  ",
    "a",
    " a",
    "a ",
    "\n",
    "\t",
    "0",
    ".",
    # Natural languages.
    "The quick brown fox jumps over the lazy dog. It wasn't hers; they'd've known, she'll say: I'm sure we're fine.",
    "SHE'LL NEVER KNOW WHAT HE'D DONE, IT'S O'CLOCK. 'tis the season, rock 'n' roll, ’twas Ben’s",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Straßenbahnhaltestellenschild, ÄÖÜẞ",
    "Voix ambiguë d’un cœur qui, au zéphyr, préfère les jattes de kiwis. « Noël », dit-elle ; « où ? »",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia. ¿Qué? ¡Añil!",
    "Pchnąć w tę łódź jeża lub ośm skrzyń fig. Zażółć gęślą jaźń.",
    "Árvíztűrő tükörfúrógép. Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Pijamalı hasta yağız şoföre çabucak güvendi. İstanbul'da ılık ILIK",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Їжак ґанок, ўсё.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Ἐν ἀρχῇ ἦν ὁ λόγος",
    "我能吞下玻璃而不伤身体。“你好，世界！”——2026年11月26日",
    "いろはにほへと ちりぬるを。カタカナ ｶﾀｶﾅ ー 「東京」へ行きました。㍿",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. \u1112\u1161\u11ab\u1100\u1173\u11af",
    "नमस्ते दुनिया, क्षत्रिय श्री १२३४५। বাংলা ভাষা, தமிழ் மொழி, తెలుగు",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า ๑๒๓ ລາວ ភាសាខ្មែរ မြန်မာ",
    "Tiếng Việt: Con sói và bảy chú dê con. Đường phố Hà Nội ở đâu?",
    "አማርኛ ቋንቋ ። ქართული ენა. Հայերեն լեզու։ ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ",
    # From right to left.
    "صِف خَلقَ خَودِ كَمِثلِ الشَمسِ إِذ بَزَغَت، ١٢٣٤٫٥ — ﷺ ؟",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה. שָׁלוֹם עֲלֵיכֶם",
    "English עברית 123 العربية \u202ereversed\u202c \u200fmark\u200e end \u2067isolate\u2069",
    # Programs.
    "def fib(n: int) -> int:\n    \"\"\"Naïve.\"\"\"\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n\n\nprint([fib(i) for i in range(10)])\n",
    "class A(B):\n\tdef __init__(self, *args, **kwargs):\n\t\tsuper().__init__(*args, **kwargs)\n\t\tself._x = {k: v for k, v in kwargs.items()}\n",
    "fn main() -> Result<(), Box<dyn Error>> {\n    let x: &'static str = r#\"raw\"#;\n    println!(\"{x:?} {}\", 1_000_000u64 as f32);\n    Ok(())\n}\n",
    "#include <stdio.h>\r\n#define MAX(a,b) ((a)>(b)?(a):(b))\r\nint main(void) {\r\n\tfor (int i=0;i<10;++i) printf(\"%d\\n\", i);\r\n\treturn 0x1F;\r\n}\r\n",
    "const f = async ({a, ...rest}) => await Promise.all(rest?.items ?? []); // `${a}` !== null && a === 'b'",
    "SELECT u.id, COUNT(*) AS n FROM users u LEFT JOIN orders o ON o.user_id = u.id WHERE u.name LIKE '%o''b%' GROUP BY 1 HAVING n >= 2;",
    "<!DOCTYPE html>\n<div class=\"a b\"><p>Hi &amp; <b>bye</b><br/></p><ul><li>1</li></ul><table><tr><td>x</td></tr></table></div>",
    "{\"name\": \"weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": [1, 2.5e-3, null, true]}}",
    "#!/bin/bash\nset -euo pipefail\nfor f in *.txt; do sed -i 's/foo\\/bar/baz/g' \"$f\" 2>/dev/null || true; done\n",
    "main = do\n  xs <- fmap read . lines <$> getContents\n  print $ foldr (\\x acc -> x + acc) 0 (xs :: [Int])",
    "camelCaseName PascalCaseName snake_case_name SCREAMING_SNAKE kebab-case-name __dunder__ $var @attr #tag",
    "<|fim_prefix|>def add(a, b):\n    <|fim_suffix|>\n    return c<|fim_middle|>c = a + b<|endoftext|>",
    # Emoji.
    "😀😃 👍🏽 👩🏿\u200d🚀 👨\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈 🇩🇪🇯🇵 1\ufe0f⃣ ❤\ufe0f ❤ ☺︎ 🫠🪿",
    "a👍b 👍 👍👍👍👍👍👍👍👍 \U0001f3fd\u200d\ufe0f 👩\u200d👩",
    # Marks that combine, and other forms of the same letters.
    "é e\u0301 ñ n\u0303 ȧ\u0323 a\u0323\u0307 Å \u212b A\u030a",
    "\u0301",
    "\u0301\u0302\u0303 \u20dd \u0488",
    "Z\u0351\u036b\u0343a\u0329\u034dl\u0334\u0312g\u0362\u0340o\u0336\u0311 text",
    "ﬁ ﬂ ﬃ Ｆｕｌｌ ｗｉｄｔｈ １２３ ² ³ ½ Ⅷ ① ™ ℃ ㎏ ſ",
    # Blanks.
    "a  b   c    d     e      f       g        h                                h",
    "   three before and two after  ",
    "a\tb\t\tc\t\t\td \t e\t ",
    "\n\n",
    "\n\n\n\n\n\n\n\nx\n\n\n",
    "a\nb\n\nc\n\n\nd\n\n\n\ne \n f  \n  g\n ",
    "one\r\ntwo\r\n\r\nthree\rfour\r\rfive\n\rsix",
    " \n  \n\t\n \t \r\n",
    "a\u00a0b \u00a0c\u00a0\u00a0d\u202fe\u2003f\u2009g\u3000h\u205fi\u1680j",
    "zero\u200bwidth \u200c non\u200djoiner \u2060 word\ufeffjoin \u00adsoft\u00ad",
    "\ufeffa mark of order at the start",
    "line\u2028separator\u2029paragraph\u0085next\u000bvertical\u000cform",
    "if x:\n        eight\n                sixteen\n                                thirty-two\n",
    "                                                                                                    ",
    # Digits.
    "1 12 123 1234 12345 123456 1234567 12345678901234567890",
    "3.14159265358979 -1,234,567.89 1'000'000 1_000 0xDEADBEEF 1e-10 50% $9.99 €12,50 №5",
    "2026-11-26T23:59:59.999Z +49 (0)30 1234-5678 192.168.0.1:8080 v1.2.3-rc.4 a1b2c3 7th 1st",
    "٠١٢٣ ०१२३ ０１２３ 一二三 ⁰¹²³ ₀₁₂₃ 𝟎𝟏𝟐𝟑",
    # Control tokens, as a text may have them.
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    "<bos><start_of_turn>user\nHello<end_of_turn>\n<start_of_turn>model\n",
    "<s>[INST] Hello [/INST] Hi</s>",
    "a<|im_end|>b <|im_end|> c  <|im_end|>  d\n<|im_end|>\n\n<|im_end|><|im_end|>",
    "a<end_of_turn>b <end_of_turn> c\n<eos> <pad> <unk><bos><bos>",
    "<|endoftext|> <|endoftext|>\n<|endoftext|>x",
    "<repo_name>r<file_sep>f <filename>g <gh_stars>5 <empty_output> <jupyter_text> <issue_start>",
    "<tool_call>\n{\"name\": \"f\"}\n</tool_call> <tool_response> <|object_ref_start|> <|vision_pad|> <|repo_name|> <|file_sep|>",
    "<unused0> <unused99> <mask> [multimodal] <start_of_image><image_soft_token><end_of_image>",
    "<0x0A> <0x41> <0xFF> <0xG1> \\x41",
    # Near misses.
    "<|im_end| > <|im_end |> <| im_end|> <|im_end> |im_end|> <|IM_END|> <|im_end|",
    "<|im_start <end_of_turn <end_of_turns> <End_of_turn> <bos > < bos> </bos> <s <s > </ s> &lt;s&gt;",
    "<|endoftext|<|endoftext|>|> <<|im_end|>> <<bos>> <|im_<|im_end|>end|>",
    # What vocabularies use for their own ends.
    "▁ ▁▁ a▁b ▁a \u2581\u2581\u2581\u2581 Ġ Ċ Ġa ĠĠ ## ##ing </w>",
    # Links, formulas, markup.
    "https://user:pw@www.example.com:8080/a/b%20c/index.php?q=1&r=ä#frag-2 mailto:a.b+c@d.co.uk C:\\Users\\x\\y.txt ~/z",
    "$$\\int_{-\\infty}^{\\infty} e^{-x^2}\\,dx = \\sqrt{\\pi}$$ \\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix} \\alpha_{i,j}^{2}",
    "# Title\n\n- [x] *done* **bold** `code`\n1. one\n   > quote\n\n| a | b |\n|---|:-:|\n\n```rust\nlet x = 1;\n```\n---\n",
    "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β = ¬(¬α ∨ β), ℕ ⊆ ℕ₀ ⊂ ℤ, 2H₂ + O₂ ⇌ 2H₂O, ≤ ≠ ≈ → ⇒ 𝒜 𝔅 𝕮",
    "╔══╦══╗ ░▒▓█ ┌─┐│ │└─┘ ♠♥♦♣ ♪ ☃ ⌘ ⠓⠑⠇⠇⠕ 𓂀 𒀀 𐍈",
    "!!! ??? ... …… --- ——— ___ === *** ### ,,, ;;; ((( ))) [[[]]] {{{}}} <<<>>> ~~~ ``` \"\"\" ''' \\\\\\ ///",
    # Long words.
    "a" * 120,
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "MTIzNDU2Nzg5MGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo+/w== 9f86d081884c7d659a2feaa0c55ad015",
    "ha" * 40 + " " + "!?" * 20 + " " + "=" * 100,
    "吾輩は猫である名前はまだ無い" * 4,
    # Characters that few texts have.
    "\u0001\u0002\u001b[31mred\u001b[0m\u007f\b",
    "a\u0000b",
    "\ue000\uf8ff \U000f0000 \U0010ffff \ufffe \uffff \ufffd \u0378",
    "\U0001d573\U0001d58a\U0001d591\U0001d591\U0001d594 \U000e0061\U000e007f \U00020000\U0002a6d6 ㋿ \u31f0",
]


def line(value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def rows(values):
    """One line each, so that a difference shows where it is."""
    return "[\n" + ",\n".join(map(line, values)) + "\n]"


def main(program, folder):
    assert len(set(TEXTS)) == len(TEXTS) and max(map(len, TEXTS)) < 400
    models = []
    for name, file in FILES.items():
        with serving(program, pathlib.Path(folder) / file) as server:
            special, plain = ([server.tokens(text, how, how) for text in TEXTS] for how in (True, False))
        models.append(f'"{name}": {{"special": {rows(special)}, "plain": {rows(plain)}}}')
    OUT.write_text('{"texts": ' + rows(TEXTS) + ',\n"models": {\n' + ",\n".join(models) + "\n}}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
