//! What the values of `tokenizer.ggml.pre` stand for: how a text is cut into words before they are joined, and what else
//! llama.cpp takes from the name. The patterns are its readings of the models' own.

use super::pre::{
    Step::{self, By, Split, Words},
    ascii_digits_by_threes, blanks_by_halves, digits_by_threes,
};

macro_rules! contraction {
    () => {
        "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    };
}
// Letters outside ASCII count as both upper and lower case.
macro_rules! upper {
    () => {
        r"[\p{L}&&[^a-z]]"
    };
}
macro_rules! lower {
    () => {
        r"[\p{L}&&[^A-Z]]"
    };
}
// What goes between the brackets of a class.
macro_rules! han {
    () => {
        r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2EBEF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}"
    };
}

pub(super) struct Scheme {
    /// With blanks between.
    names: &'static str,
    /// Each cuts the pieces of the one before it.
    pub steps: &'static [Step],
    pub spelling: Spelling,
    pub whole_words: WholeWords,
    pub adds_bos: AddsBos,
    /// Whether two texts that are read as one have a token of their own between them.
    pub adds_sep: bool,
    /// The ids where the metadata names none.
    pub bos: Option<u32>,
    pub eos: Option<u32>,
}

/// How the vocabulary writes a text.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Spelling {
    /// One printable character for each byte.
    Bytes,
    /// As it is, with `▁` for a space; a character without a token of its own is written as `<0x0A>` and the like.
    Spaced,
}

/// Which words that are tokens are taken whole, without looking at the merges.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum WholeWords {
    None,
    LineEnds,
    All,
}

/// Whether a text begins with BOS.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum AddsBos {
    IfAsked,
    UnlessRefused,
    /// Gemma 4 is of no use without, and some of its files say that it wants none.
    Always,
}

impl Scheme {
    /// What a vocabulary gets whose scheme is not known.
    pub fn default() -> &'static Scheme {
        &SCHEMES[0]
    }

    pub fn named(name: &str) -> Option<&'static Scheme> {
        SCHEMES.iter().find(|scheme| scheme.names.split_whitespace().any(|n| n == name))
    }
}

/// What most have in common.
const PLAIN: Scheme = Scheme {
    names: "",
    steps: &[],
    spelling: Spelling::Bytes,
    whole_words: WholeWords::None,
    adds_bos: AddsBos::IfAsked,
    adds_sep: false,
    bos: Some(11),
    eos: Some(11),
};

static SCHEMES: &[Scheme] = &[
    Scheme {
        names: "default",
        steps: &[Split(r"[\p{P}\$\+<=>\^~\|]+"), GPT2, DIGITS, Split("[0-9][0-9][0-9]")],
        ..PLAIN
    },
    Scheme { names: "jina-v1-en jina-v2-code roberta-bpe", steps: &[GPT2], adds_sep: true, ..PLAIN },
    Scheme {
        names: "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert exaone4 mpt olmo jais trillion \
            granite-docling",
        steps: &[GPT2],
        ..PLAIN
    },
    Scheme {
        names: "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
        steps: &[DIGIT, GPT2],
        ..PLAIN
    },
    Scheme {
        names: "falcon",
        steps: &[Split(r"[\p{P}\$\+<=>\^~\|`]+"), GPT2, Split("[0-9][0-9][0-9]")],
        ..PLAIN
    },
    Scheme {
        names: "chameleon",
        steps: &[
            Split("<sentinel:[0-9]+>"),
            Split("IMGIMG[A-I]{1,4}Z"),
            Split(r"[\t\n]|    |  "),
            DIGIT,
            Split(r"[\p{P}!-/:-@\[-`{-~]"),
            GPT2,
        ],
        adds_bos: AddsBos::UnlessRefused,
        ..PLAIN
    },
    Scheme { names: "poro-chat bloom gpt3-finnish", steps: &[CLAUSES], ..PLAIN },
    Scheme { names: "viking", steps: &[CLAUSES, DIGIT], ..PLAIN },
    Scheme {
        names: "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        steps: &[LLAMA3],
        whole_words: WholeWords::All,
        adds_bos: AddsBos::UnlessRefused,
        ..PLAIN
    },
    Scheme { names: "dbrx smaug-bpe", steps: &[LLAMA3], ..PLAIN },
    Scheme { names: "chatglm-bpe", steps: &[LLAMA3], bos: None, ..PLAIN },
    Scheme { names: "glm4 glm5", steps: &[LLAMA3], whole_words: WholeWords::All, bos: None, ..PLAIN },
    Scheme { names: "jais-2", steps: &[LLAMA3, By(blanks_by_halves)], ..PLAIN },
    Scheme {
        names: "minicpm5",
        steps: &[UP_TO_3_DIGITS, Words(&[CONTRACTION, WORD, r"\p{N}+", MARKS, LINE_ENDS])],
        whole_words: WholeWords::All,
        ..PLAIN
    },
    Scheme {
        names: "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
        steps: &[QWEN2],
        ..PLAIN
    },
    Scheme { names: "laguna", steps: &[LINES, QWEN2], ..PLAIN },
    Scheme { names: "ufakzeka", steps: &[Words(&[WORD, r"\p{N}", MARKS, LINE_ENDS])], ..PLAIN },
    Scheme {
        names: "qwen35",
        steps: &[Words(&[
            CONTRACTION,
            r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
            r"\p{N}",
            r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
            LINE_ENDS,
        ])],
        ..PLAIN
    },
    Scheme {
        names: "bailingmoe bailingmoe2 llada-moe",
        steps: &[Words(&[CONTRACTION, WORD, r"\p{N}", MARKS, r"\s*[\r\n]"])],
        ..PLAIN
    },
    Scheme {
        names: "seed-coder",
        steps: &[Words(&[CONTRACTION, WORD, r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+", LINE_ENDS])],
        ..PLAIN
    },
    Scheme {
        names: "exaone-moe",
        steps: &[Words(&[
            CONTRACTION,
            // Words with single spaces between them stay together.
            r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
            r"\p{N}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]?",
            r"\s*[\r\n]",
        ])],
        ..PLAIN
    },
    Scheme {
        names: "tekken",
        steps: &[Words(&[
            concat!(r"[^\r\n\p{L}\p{N}]?", upper!(), "*", lower!(), "+"),
            concat!(r"[^\r\n\p{L}\p{N}]?", upper!(), "+", lower!(), "*"),
            r"\p{N}",
            MARKS_AND_SLASHES,
            LINE_ENDS,
        ])],
        whole_words: WholeWords::All,
        adds_bos: AddsBos::UnlessRefused,
        ..PLAIN
    },
    Scheme {
        names: "gpt-4o llama4 kanana2 talkie minimax-m2",
        steps: &[Words(&[
            concat!(r"[^\r\n\p{L}\p{N}]?", upper!(), "*", lower!(), "+", contraction!(), "?"),
            concat!(r"[^\r\n\p{L}\p{N}]?", upper!(), "+", lower!(), "*", contraction!(), "?"),
            r"\p{N}{1,3}",
            MARKS_AND_SLASHES,
            LINE_ENDS,
        ])],
        ..PLAIN
    },
    Scheme {
        names: "granite-embed-multi-97m",
        steps: &[Words(&[
            concat!(r"[^\r\n\p{L}\p{N}]?[[\p{L}\p{M}]&&[^a-z]]*[[\p{L}\p{M}]&&[^A-Z]]+", contraction!(), "?"),
            concat!(r"[^\r\n\p{L}\p{N}]?[[\p{L}\p{M}]&&[^a-z]]+[[\p{L}\p{M}]&&[^A-Z]]*", contraction!(), "?"),
            r"\p{N}{1,3}",
            MARKS_AND_SLASHES,
            LINE_ENDS,
        ])],
        whole_words: WholeWords::All,
        ..PLAIN
    },
    Scheme {
        names: "tiny_aya cohere2moe",
        steps: &[
            By(digits_by_threes),
            Words(&[WORD_WITH_CONTRACTION, r"\p{N}{1,3}", MARKS_AND_SLASHES, LINE_ENDS]),
        ],
        ..PLAIN
    },
    Scheme {
        names: "youtu",
        steps: &[
            // Hangul; marks of Chinese texts; Bopomofo; Han with kana.
            Split(
                r"(?x) [\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+
                    | […“”‘’—！：；，\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+
                    | [\x{3105}-\x{312F}]+
                    | [\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+",
            ),
            Words(&[WORD_WITH_CONTRACTION, r"\p{N}", MARKS_AND_SLASHES, LINE_ENDS]),
        ],
        whole_words: WholeWords::All,
        ..PLAIN
    },
    Scheme {
        names: "kimi-k2",
        steps: &[Words(&[
            concat!("[", han!(), "]+"),
            concat!(r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^", han!(), "]]+", contraction!(), "?"),
            r"\p{N}{1,3}",
            MARKS,
            LINE_ENDS,
        ])],
        ..PLAIN
    },
    Scheme { names: "superbpe", steps: &[DIGITS, By(ascii_digits_by_threes)], ..PLAIN },
    Scheme {
        names: "deepseek-llm",
        steps: &[LINE_END, CASED_LETTERS, ASCII_AND_CJK_MARKS, Split(r"\s+$"), EAST_ASIAN, DIGITS],
        ..PLAIN
    },
    Scheme {
        names: "deepseek-coder",
        steps: &[LINE_END, Split(r"\s?\p{L}+"), Split(r"\s?\p{P}+"), EAST_ASIAN, DIGIT],
        ..PLAIN
    },
    Scheme {
        names: "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
        steps: &[UP_TO_3_DIGITS, HAN_AND_KANA, DEEPSEEK3],
        ..PLAIN
    },
    Scheme {
        names: "spark2_5",
        steps: &[
            UP_TO_3_DIGITS,
            HAN_AND_KANA,
            Words(&[MARK_AND_ASCII_LETTERS, LETTERS_AND_ACCENTS, r" ?[\p{P}\p{S}]+", r"[\r\n]"]),
            DIGIT,
        ],
        ..PLAIN
    },
    Scheme { names: "afmoe", steps: &[By(digits_by_threes), ASIAN_SCRIPTS, DEEPSEEK3], ..PLAIN },
    Scheme {
        names: "gemma4 granite-embed-multi-311m",
        steps: &[LINES],
        spelling: Spelling::Spaced,
        whole_words: WholeWords::LineEnds,
        adds_bos: AddsBos::Always,
        adds_sep: false,
        bos: None,
        eos: None,
    },
    Scheme { names: "sarvam-moe", steps: &[LINES], spelling: Spelling::Spaced, ..PLAIN },
];

const GPT2: Step = Words(&["'s|'t|'re|'ve|'m|'ll|'d", r" ?\p{L}+", r" ?\p{N}+", r" ?[^\s\p{L}\p{N}]+"]);
const LLAMA3: Step = Words(&[CONTRACTION, WORD, r"\p{N}{1,3}", MARKS, LINE_ENDS]);
const QWEN2: Step = Words(&[CONTRACTION, WORD, r"\p{N}", MARKS, LINE_ENDS]);
const DEEPSEEK3: Step =
    Words(&[MARK_AND_ASCII_LETTERS, LETTERS_AND_ACCENTS, r" ?[\p{P}\p{S}]+[\r\n]*", LINE_ENDS]);
const CLAUSES: Step = Split(r" ?[^(\s|.,!?…。，、।۔،)]+");

const DIGIT: Step = Split(r"\p{N}");
const DIGITS: Step = Split(r"\p{N}+");
const UP_TO_3_DIGITS: Step = Split(r"\p{N}{1,3}");
const LINE_END: Step = Split(r"[\r\n]");
const LINES: Step = Split(r"\n+");

const HAN_AND_KANA: Step = Split(r"[\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+");
// These ranges hold blanks, which llama.cpp does not see as part of them.
const EAST_ASIAN: Step = Split(r"[[\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]&&\S]+");
const ASIAN_SCRIPTS: Step = Split(
    r"(?x) [
        \x{4E00}-\x{9FFF} \x{3400}-\x{4DBF} \x{8C48}-\x{FAFF} \x{2F00}-\x{2FDF} # Han
        \x{3040}-\x{30FF} \x{FF65}-\x{FF9F} # kana
        \x{E40}-\x{E7F} \x{E80}-\x{EFF} # Thai, Lao
        \x{1780}-\x{17FF} # Khmer
        \x{1000}-\x{109F} \x{AA60}-\x{AA7F} \x{A9E0}-\x{A9FF} # Burmese
        \x{AC00}-\x{D7AF} \x{1100}-\x{11FF} # Hangul
    ]+",
);
const ASCII_AND_CJK_MARKS: Step =
    Split(r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3001}\x{3002}]+");
// The cased letters of some years ago, as the model's own pattern lists them.
const CASED_LETTERS: Step = Split(
    r"(?x) \s?[
        A-Z a-z \x{B5} \x{C0}-\x{D6} \x{D8}-\x{F6} \x{F8}-\x{1BA} \x{1BC}-\x{1BF} # Latin
        \x{1C4}-\x{293} \x{295}-\x{2AF}
        \x{370}-\x{373} \x{376} \x{377} \x{37B}-\x{37D} \x{37F} \x{386} \x{388}-\x{38A} \x{38C} # Greek
        \x{38E}-\x{3A1} \x{3A3}-\x{3F5} \x{3F7}-\x{3FF}
        \x{400}-\x{481} \x{48A}-\x{52F} # Cyrillic
        \x{531}-\x{556} # Armenian
        \x{10A0}-\x{10C5} \x{1C90}-\x{1CBA} \x{1CBD}-\x{1CBF} # Georgian
        \x{13A0}-\x{13F5} \x{13F8}-\x{13FD} # Cherokee
        \x{1D00}-\x{1D2B} \x{1D6B}-\x{1D77} \x{1D79}-\x{1D9A} \x{1E00}-\x{1EFF} # more Latin
        \x{1F00}-\x{1F15} \x{1F18}-\x{1F1D} \x{1F20}-\x{1F45} \x{1F48}-\x{1F4D} \x{1F50}-\x{1F57} # more Greek
        \x{1F59} \x{1F5B} \x{1F5D} \x{1F5F}-\x{1F7D} \x{1F80}-\x{1FB4} \x{1FB6}-\x{1FBC} \x{1FBE}
        \x{1FC2}-\x{1FC4} \x{1FC6}-\x{1FCC} \x{1FD0}-\x{1FD3} \x{1FD6}-\x{1FDB} \x{1FE0}-\x{1FEC}
        \x{1FF2}-\x{1FF4} \x{1FF6}-\x{1FFC}
        \x{2102} \x{2107} \x{210A}-\x{2113} \x{2115} \x{2119}-\x{211D} \x{2124} \x{2126} \x{2128} # signs
        \x{212A}-\x{212D} \x{212F}-\x{2134} \x{2139} \x{213C}-\x{213F} \x{2145}-\x{2149} \x{214E}
        \x{2183} \x{2184}
        \x{2C00}-\x{2C5F} # Glagolitic
        \x{2C60}-\x{2C7B} \x{2C7E} \x{2C7F} # more Latin
        \x{2C80}-\x{2CE4} \x{2CEB}-\x{2CEE} \x{2CF2} \x{2CF3} # Coptic
        \x{A640}-\x{A66D} \x{A680}-\x{A69B} # more Cyrillic
        \x{A722}-\x{A76F} \x{A771}-\x{A787} \x{A78B}-\x{A78E} # more Latin
        \x{AB70}-\x{ABBF} # more Cherokee
        \x{FB00}-\x{FB06} \x{FB13}-\x{FB17} \x{FF21}-\x{FF3A} \x{FF41}-\x{FF5A} # ligatures, wide letters
        \x{10400}-\x{1044F} \x{104B0}-\x{104D3} \x{104D8}-\x{104FB} # Deseret, Osage
        \x{10C80}-\x{10CB2} \x{10CC0}-\x{10CF2} # Old Hungarian
        \x{118A0}-\x{118DF} \x{1E900}-\x{1E943} # Warang Citi, Adlam
    ]+",
);

// Alternatives that many patterns share.
const CONTRACTION: &str = contraction!();
const WORD: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+";
const WORD_WITH_CONTRACTION: &str = concat!(r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", contraction!(), "?");
const LETTERS_AND_ACCENTS: &str = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+";
const MARK_AND_ASCII_LETTERS: &str = r"[!-/:-@\[-`{-~][A-Za-z]+";
const MARKS: &str = r" ?[^\s\p{L}\p{N}]+[\r\n]*";
const MARKS_AND_SLASHES: &str = r" ?[^\s\p{L}\p{N}]+[\r\n/]*";
const LINE_ENDS: &str = r"\s*[\r\n]+";
