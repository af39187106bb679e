//! The rules, on vocabularies small enough to follow by hand, and vocabularies that are wrong.

use crate::tokenizer_support;
use spec_run::{
    Tokenizer,
    chat::{ChatTemplate, Conversation, Message},
    constraint::{Grammar, Vocabulary},
    sampler::Rule,
    tokenizer::{EncodeOptions, GapTokens, StreamDecoder},
};
use tokenizer_support::Keys;

const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

const PLAIN: EncodeOptions = EncodeOptions::PLAIN;
const PROMPT: EncodeOptions = EncodeOptions::PROMPT;

/// `<unk>` 0, `<s>` 1, `</s>` 2, the 256 bytes from 3, then `more` from 259.
fn spm_tokens(more: &[(&str, f32, i32)]) -> (Vec<String>, Vec<f32>, Vec<i32>) {
    let control = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)];
    let control = control.map(|(text, kind)| (text.to_owned(), 0.0, kind));
    let bytes = (0..=255).map(|byte| (format!("<0x{byte:02X}>"), 0.0, BYTE));
    let more = more.iter().map(|&(text, score, kind)| (text.to_owned(), score, kind));
    let (mut texts, mut scores, mut kinds) = (vec![], vec![], vec![]);
    for (text, score, kind) in control.into_iter().chain(bytes).chain(more) {
        texts.push(text);
        scores.push(score);
        kinds.push(kind);
    }
    (texts, scores, kinds)
}

fn spm(more: &[(&str, f32, i32)]) -> Keys {
    let (texts, scores, kinds) = spm_tokens(more);
    Keys::default()
        .str("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", &texts)
        .f32s("tokenizer.ggml.scores", &scores)
        .i32s("tokenizer.ggml.token_type", &kinds)
}

const A: u32 = 259;
const SMALL: [(&str, f32, i32); 7] = [
    ("a", -10.0, NORMAL),
    ("b", -11.0, NORMAL),
    ("c", -12.0, NORMAL),
    ("▁", -13.0, NORMAL),
    ("ab", -2.0, NORMAL),
    ("bc", -1.0, NORMAL),
    ("▁ab", -3.0, NORMAL),
];
const B: u32 = A + 1;
const C: u32 = A + 2;
const SPACE: u32 = A + 3;
const AB: u32 = A + 4;
const BC: u32 = A + 5;
const SPACE_AB: u32 = A + 6;

/// The tokens are characters for all 256 bytes in GPT-2's spelling, then `more`.
fn bpe(more: &[(&str, i32)], merges: &[&str]) -> Keys {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut others = 0x100..;
    let bytes = (0..=255u8).map(|byte| match printable(byte) {
        true => char::from(byte).to_string(),
        false => char::from_u32(others.next().unwrap()).unwrap().to_string(),
    });
    let texts: Vec<String> = bytes.chain(more.iter().map(|(text, _)| text.to_string())).collect();
    let kinds: Vec<i32> = [NORMAL; 256].into_iter().chain(more.iter().map(|&(_, kind)| kind)).collect();
    Keys::default()
        .str("tokenizer.ggml.model", "gpt2")
        .strings("tokenizer.ggml.tokens", &texts)
        .i32s("tokenizer.ggml.token_type", &kinds)
        .strings("tokenizer.ggml.merges", merges)
}

#[test]
fn the_best_score_joins_first() {
    let keys = spm(&SMALL).bool("tokenizer.ggml.add_space_prefix", false);
    let tokenizer = keys.tokenizer().unwrap();
    // `bc` scores better than `ab`, so `abc` is a + bc; `abb` has no `bc` and joins `ab`.
    assert_eq!(tokenizer.encode("abc", PLAIN), [A, BC]);
    assert_eq!(tokenizer.encode("abb", PLAIN), [AB, B]);
    assert_eq!(tokenizer.encode("abab", PLAIN), [AB, AB]);
    assert_eq!(tokenizer.encode(" ab ", PLAIN), [SPACE_AB, SPACE]);
    assert_eq!(tokenizer.encode("", PROMPT), [1]);
    assert_eq!(tokenizer.encode("", PLAIN), [0u32; 0]);
}

#[test]
fn tokens_can_span_words() {
    let mut tokens = SMALL.to_vec();
    tokens.extend([("b▁", -1.5, NORMAL), ("b▁a", -0.5, NORMAL), ("▁▁", -4.0, NORMAL)]);
    let (b_space, b_space_a) = (SPACE_AB + 1, SPACE_AB + 2);
    let keys = spm(&tokens).bool("tokenizer.ggml.add_space_prefix", false);
    let tokenizer = keys.tokenizer().unwrap();
    // `b▁` (-1.5) before `ab` (-2), then `b▁a`.
    assert_eq!(tokenizer.encode("ab ab", PLAIN), [A, b_space_a, B]);
    assert_eq!(tokenizer.encode("b c", PLAIN), [b_space, C]);
    let tokenizer = spm(&SMALL).bool("tokenizer.ggml.add_space_prefix", false).tokenizer().unwrap();
    assert_eq!(tokenizer.encode("ab ab  bc ab", PLAIN), [AB, SPACE_AB, SPACE, SPACE, BC, SPACE_AB]);
}

#[test]
fn of_equal_scores_the_leftmost_joins_first() {
    let keys =
        spm(&[("a", 0.0, NORMAL), ("aa", -1.0, NORMAL)]).bool("tokenizer.ggml.add_space_prefix", false);
    assert_eq!(keys.tokenizer().unwrap().encode("aaa", PLAIN), [A + 1, A]);
    let keys = spm(&[("a", 0.0, NORMAL), ("aa", 0.0, NORMAL), ("ab", -0.0, NORMAL), ("b", 0.0, NORMAL)])
        .bool("tokenizer.ggml.add_space_prefix", false);
    assert_eq!(keys.tokenizer().unwrap().encode("aab", PLAIN), [A + 1, A + 3]);
}

#[test]
fn characters_outside_the_vocabulary_become_bytes() {
    let tokenizer = spm(&SMALL).bool("tokenizer.ggml.add_space_prefix", false).tokenizer().unwrap();
    // é is C3 A9; byte tokens begin at id 3.
    assert_eq!(tokenizer.encode("aé", PLAIN), [A, 3 + 0xC3, 3 + 0xA9]);
    assert_eq!(tokenizer.encode("\n", PLAIN), [3 + 0x0A]);
    assert_eq!(tokenizer.decode(&[3 + 0xC3, 3 + 0xA9]), "é".as_bytes());
}

#[test]
fn without_byte_tokens_characters_are_unknown() {
    let keys = Keys::default()
        .str("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", &["<unk>", "<s>", "</s>", "a"])
        .f32s("tokenizer.ggml.scores", &[0.0; 4])
        .i32s("tokenizer.ggml.token_type", &[UNKNOWN, CONTROL, CONTROL, NORMAL])
        .bool("tokenizer.ggml.add_space_prefix", false);
    assert_eq!(keys.tokenizer().unwrap().encode("aé", PLAIN), [3, 0]);
}

#[test]
fn a_space_goes_before_a_text_and_after_special_tokens() {
    let tokenizer = spm(&SMALL).tokenizer().unwrap();
    assert_eq!(tokenizer.encode("ab", PROMPT), [1, SPACE_AB]);
    assert_eq!(tokenizer.encode("ab</s>ab", PROMPT), [1, SPACE_AB, 2, SPACE_AB]);
    assert_eq!(tokenizer.encode(" ab", PLAIN), [SPACE, SPACE_AB]);
    assert_eq!(tokenizer.decode(&[1, SPACE_AB, 2, SPACE_AB]), b"ab</s>ab");
    assert_eq!(tokenizer.decode(&[SPACE, SPACE_AB]), b" ab");
    assert_eq!(tokenizer.decode(&[C, SPACE_AB]), b"c ab");
    assert_eq!(tokenizer.piece(SPACE_AB), b" ab");
    assert_eq!(tokenizer.token_text(SPACE_AB), "▁ab");
}

#[test]
fn user_defined_tokens_are_always_found_and_control_tokens_if_asked() {
    let mut tokens = SMALL.to_vec();
    tokens.push(("<tool>", 0.0, USER_DEFINED));
    let tool = SPACE_AB + 1;
    let tokenizer = spm(&tokens).tokenizer().unwrap();
    assert_eq!(tokenizer.encode("ab<tool>ab", PLAIN), [SPACE_AB, tool, SPACE_AB]);
    let plain = tokenizer.encode("<s>", PLAIN);
    assert_eq!(plain[0], SPACE);
    assert!(!plain.contains(&1));
    assert_eq!(tokenizer.encode("<s>", EncodeOptions { parse_special: true, ..PLAIN }), [1]);
    assert_eq!(tokenizer.encode("<unk>", EncodeOptions { parse_special: true, ..PLAIN }), [0]);
    assert!(!tokenizer.is_control(tool));
}

#[test]
fn phi_3_swallows_blanks_after_special_tokens() {
    let mut tokens = SMALL.to_vec();
    tokens.push(("<|end|>", 0.0, CONTROL));
    let end = SPACE_AB + 1;
    let keys = spm(&tokens);
    let text = "ab<|end|>\n ab<s> ab";
    let options = EncodeOptions { add_special: false, parse_special: true };
    let phi = keys.clone().str("general.name", "Phi-3 mini").tokenizer().unwrap();
    assert_eq!(phi.encode(text, options), [SPACE_AB, end, SPACE_AB, 1, SPACE, SPACE_AB]);
    let other = keys.str("general.name", "other").tokenizer().unwrap();
    assert_eq!(other.encode(text, options), [SPACE_AB, end, SPACE, 3 + 0x0A, SPACE_AB, 1, SPACE, SPACE_AB]);
}

#[test]
fn bos_and_eos_follow_the_metadata() {
    let keys = spm(&SMALL);
    let encode = |keys: Keys| keys.tokenizer().unwrap().encode("ab", PROMPT);
    assert_eq!(encode(keys.clone().bool("tokenizer.ggml.add_bos_token", false)), [SPACE_AB]);
    assert_eq!(encode(keys.clone().bool("tokenizer.ggml.add_eos_token", true)), [1, SPACE_AB, 2]);
    assert_eq!(encode(keys.clone().u32("tokenizer.ggml.bos_token_id", A)), [A, SPACE_AB]);
    let tokenizer = keys.bool("tokenizer.ggml.add_eos_token", true).tokenizer().unwrap();
    assert_eq!(tokenizer.decode(&[1, SPACE_AB, 2]), b"ab");
    assert!(tokenizer.adds_bos() && tokenizer.adds_eos());

    let keys = bpe(&[("<e>", CONTROL)], &[]).u32("tokenizer.ggml.bos_token_id", 256);
    assert_eq!(encode(keys.clone().str("tokenizer.ggml.pre", "gpt-2")), [0x61, 0x62]);
    assert_eq!(encode(keys.clone().str("tokenizer.ggml.pre", "llama-bpe")), [256, 0x61, 0x62]);
    assert_eq!(
        encode(keys.str("tokenizer.ggml.pre", "gpt-2").bool("tokenizer.ggml.add_bos_token", true)),
        [256, 0x61, 0x62]
    );
}

#[test]
fn merges_join_in_their_order() {
    let more = [("bc", NORMAL), ("ab", NORMAL), ("Ġa", NORMAL), ("abc", NORMAL)];
    let merges = ["b c", "a b", "Ġ a", "ab c"];
    let keys = bpe(&more, &merges);
    let gpt2 = keys.clone().str("tokenizer.ggml.pre", "gpt-2").tokenizer().unwrap();
    // `b c` comes first, so `ab c` never applies.
    assert_eq!(gpt2.encode("abc", PLAIN), [0x61, 256]);
    assert_eq!(gpt2.encode("ab", PLAIN), [257]);
    assert_eq!(gpt2.encode("a ab", PLAIN), [0x61, 0x20, 257]);
    assert_eq!(gpt2.encode("a ac a ac", PLAIN), [0x61, 258, 0x63, 258, 258, 0x63]);
    // A whole word that is a token is taken as it is.
    let llama3 = keys.str("tokenizer.ggml.pre", "llama-bpe").bool("tokenizer.ggml.add_bos_token", false);
    assert_eq!(llama3.tokenizer().unwrap().encode("abc", PLAIN), [259]);
}

/// The tokens of a vocabulary as Gemma 4 has: bytes `<0x00>` .. from id 0, `more` from 256.
fn spaced_bpe(model: &str, more: &[(&str, i32)], merges: &[&str]) -> Keys {
    let bytes = (0..=255u8).map(|byte| format!("<0x{byte:02X}>"));
    let texts: Vec<String> = bytes.chain(more.iter().map(|(text, _)| text.to_string())).collect();
    let kinds: Vec<i32> = [BYTE; 256].into_iter().chain(more.iter().map(|&(_, kind)| kind)).collect();
    Keys::default()
        .str("tokenizer.ggml.model", model)
        .strings("tokenizer.ggml.tokens", &texts)
        .i32s("tokenizer.ggml.token_type", &kinds)
        .strings("tokenizer.ggml.merges", merges)
}

#[test]
fn merges_over_spaced_text() {
    let more = [
        ("<bos>", CONTROL),
        ("a", NORMAL),
        ("b", NORMAL),
        ("▁", NORMAL),
        ("▁a", NORMAL),
        ("▁▁", NORMAL),
        ("b▁", NORMAL),
        ("b▁a", NORMAL),
        ("\n", NORMAL),
        ("\n\n\n", NORMAL),
        ("aba", NORMAL),
    ];
    let (bos, a, b, space, space_a, spaces, b_space_a, line, lines) =
        (256, 257, 258, 259, 260, 261, 263, 264, 265);
    let merges = ["▁ ▁", "▁ a", "b ▁", "b▁ a"];
    let keys = spaced_bpe("gemma4", &more, &merges).u32("tokenizer.ggml.bos_token_id", bos);
    let tokenizer = keys.tokenizer().unwrap();
    assert_eq!(tokenizer.warnings(), [""; 0]);
    // `▁a` comes before `b▁`; only where no `a` follows does the space join to the left.
    assert_eq!(tokenizer.encode("a a b", PLAIN), [a, space_a, space, b]);
    assert_eq!(tokenizer.encode("b a b  a", PLAIN), [b, space_a, space, b, spaces, a]);
    // The space of the vocabulary is the same as the text's own.
    assert_eq!(tokenizer.encode("a▁a", PLAIN), [a, space_a]);
    // A run of line ends is taken whole if it is a token, and only then; a word that is a token is not.
    assert_eq!(tokenizer.encode("a\n\n\na\n\n", PLAIN), [a, lines, a, line, line]);
    assert_eq!(tokenizer.encode("aba", PLAIN), [a, b, a]);
    assert_eq!(tokenizer.encode("é\t", PLAIN), [0xC3, 0xA9, 0x09]);
    for text in [" a  b\n\n é", "a", "  ", "\n"] {
        assert_eq!(tokenizer.decode(&tokenizer.encode(text, PROMPT)), text.as_bytes(), "{text:?}");
    }
    // Where `▁a` cannot come first, `b▁a` spans two words.
    let keys = spaced_bpe("gemma4", &more, &["b ▁", "b▁ a"]).u32("tokenizer.ggml.bos_token_id", bos);
    assert_eq!(keys.tokenizer().unwrap().encode("ab a a", PLAIN), [a, b_space_a, space, a]);
    // BOS is added whatever the file says, and where it names none, that is said.
    let keys = keys.bool("tokenizer.ggml.add_bos_token", false);
    assert_eq!(keys.tokenizer().unwrap().encode("a", PROMPT), [bos, a]);
    let error = spaced_bpe("gemma4", &more, &merges).tokenizer().err().unwrap().to_string();
    assert!(error.contains("tokenizer.ggml.bos_token_id"), "{error}");
    // The same writing, without the rule for line ends.
    let keys = spaced_bpe("gpt2", &more, &merges).str("tokenizer.ggml.pre", "sarvam-moe");
    assert_eq!(keys.tokenizer().unwrap().encode("a\n\n\n a", PLAIN), [a, line, line, line, space_a]);
}

#[test]
fn bytes_of_bpe_come_back() {
    let tokenizer = bpe(&[], &[]).str("tokenizer.ggml.pre", "qwen2").tokenizer().unwrap();
    assert_eq!(tokenizer.encode("é\n", PLAIN), [0xC3, 0xA9, 0x0A]);
    assert_eq!(tokenizer.decode(&(0..256).collect::<Vec<_>>()), (0..=255).collect::<Vec<u8>>());
    assert_eq!(tokenizer.decode(&[0x61, 9999, u32::MAX]), b"a");
    assert_eq!(tokenizer.piece(9999), b"");
}

#[test]
fn an_unknown_way_of_cutting_words_is_a_warning() {
    let warnings = |keys: Keys| keys.tokenizer().unwrap().warnings().to_vec();
    assert_eq!(warnings(bpe(&[], &[]).str("tokenizer.ggml.pre", "gpt-2")), [""; 0]);
    let unknown = warnings(bpe(&[], &[]).str("tokenizer.ggml.pre", "of-tomorrow"));
    assert!(unknown.len() == 1 && unknown[0].contains("of-tomorrow"), "{unknown:?}");
    assert!(warnings(bpe(&[], &[])).len() == 1);
    let few = Keys::default().str("tokenizer.ggml.model", "gpt2").str("tokenizer.ggml.pre", "gpt-2");
    let few = few.strings("tokenizer.ggml.tokens", &["a"; 1]).i32s("tokenizer.ggml.token_type", &[NORMAL]);
    let few = warnings(few.strings("tokenizer.ggml.merges", &[] as &[&str]));
    assert!(few.len() == 1 && few[0].contains("byte values have no token"), "{few:?}");
}

#[test]
fn streams_give_whole_characters_only() {
    let tokenizer = bpe(&[("</s>", CONTROL)], &[]).str("tokenizer.ggml.pre", "gpt-2").tokenizer().unwrap();
    let mut stream = StreamDecoder::new(&tokenizer);
    let mut push = |bytes: &[u32]| bytes.iter().map(|&id| stream.push(id)).collect::<Vec<_>>();
    assert_eq!(push(&[0x61, 0xF0, 0x9F, 0x92, 0xA9, 0x62]), ["a", "", "", "", "💩", "b"]);
    // Bytes that cannot become a character are replaced as soon as that is certain, and no sooner.
    assert_eq!(push(&[0xFF]), ["\u{FFFD}"]);
    assert_eq!(push(&[0xE2, 0x82, 0x61]), ["", "", "\u{FFFD}a"]);
    // Control tokens are not shown, and do not disturb a character.
    assert_eq!(push(&[0xC3, 256, 0xA9]), ["", "", "é"]);
    assert_eq!(push(&[0xC3]), [""]);
    assert_eq!(stream.finish(), "\u{FFFD}");
    assert_eq!(stream.finish(), "");
    assert_eq!(StreamDecoder::new(&tokenizer).show_control(true).push(256), "</s>");
}

#[test]
fn generations_end_with_the_named_ids_and_the_well_known_texts() {
    let more = [
        ("<|im_end|>", NORMAL),
        ("<end>", CONTROL),
        ("<|fim_pad|>", CONTROL),
        ("<|im_start|>", CONTROL),
        ("<|eom_id|>", CONTROL),
    ];
    let keys = bpe(&more, &[]).str("tokenizer.ggml.pre", "gpt-2").u32("tokenizer.ggml.eos_token_id", 257);
    let tokenizer = keys.tokenizer().unwrap();
    let ends: Vec<u32> = (0..300).filter(|&id| tokenizer.is_eog(id)).collect();
    assert_eq!(ends, [256, 257, 258, 260]);
    assert_eq!((tokenizer.eos(), tokenizer.eot()), (Some(257), Some(256)));
    assert!(tokenizer.is_control(256), "an end is never shown, whatever its type says");
    let tokenizer = keys.u32("tokenizer.ggml.eot_token_id", 259).tokenizer().unwrap();
    assert_eq!(tokenizer.eot(), Some(259));
    assert!(tokenizer.is_eog(259));
}

/// Then it is GPT-2's number, as in llama.cpp, and grammars end with it.
#[test]
fn a_file_that_names_no_end_has_one() {
    let tokenizer = bpe(&[("<other>", CONTROL)], &[]).str("tokenizer.ggml.pre", "gpt-2").tokenizer().unwrap();
    assert_eq!((tokenizer.eos(), tokenizer.is_eog(11)), (Some(11), true));
    let vocabulary = Vocabulary::new(&tokenizer).unwrap();
    let mut constraint = vocabulary.compile(&Grammar::Gbnf("root ::= \"a\"".into())).unwrap();
    let mut allowed = |text: &[u32]| -> Vec<usize> {
        let mut logits = vec![0.0; tokenizer.vocab_size()];
        constraint.mask(text, &mut logits);
        (0..logits.len()).filter(|&id| logits[id] == 0.0).collect()
    };
    let a = tokenizer.encode("a", PLAIN);
    assert_eq!((allowed(&[]), allowed(&a)), (vec![a[0] as usize], vec![11]));
}

/// By their keys, by the keys of older files, and by their texts; without all three of them there are none.
#[test]
fn gaps_have_tokens_around_them() {
    let more = [
        ("<|fim_prefix|>", CONTROL),
        ("<|fim_suffix|>", NORMAL),
        ("<|fim_middle|>", CONTROL),
        ("<|file_sep|>", CONTROL),
        ("<other>", CONTROL),
    ];
    let keys = |more: &[(&str, i32)]| {
        bpe(more, &[]).str("tokenizer.ggml.pre", "gpt-2").u32("tokenizer.ggml.eos_token_id", 260)
    };
    let tokenizer = keys(&more).tokenizer().unwrap();
    let all = GapTokens { prefix: 256, suffix: 257, middle: 258, repository: None, file: Some(259) };
    assert_eq!(tokenizer.gap_tokens(), Some(all));
    assert!(tokenizer.is_control(257), "whatever its type says");
    let given =
        keys(&more).u32("tokenizer.ggml.fim_rep_token_id", 260).u32("tokenizer.ggml.prefix_token_id", 260);
    let gap = given.tokenizer().unwrap().gap_tokens();
    assert_eq!(gap, Some(GapTokens { prefix: 260, repository: Some(260), ..all }));
    let less: Vec<_> = more.iter().copied().filter(|(text, _)| *text != "<|fim_middle|>").collect();
    assert_eq!(keys(&[&less[..], &[("<x>", CONTROL)][..]].concat()).tokenizer().unwrap().gap_tokens(), None);
}

#[test]
fn harmony_ends_with_return_and_call_but_not_with_end() {
    let more =
        [("<|return|>", CONTROL), ("<|call|>", CONTROL), ("<|end|>", CONTROL), ("<|channel|>", CONTROL)];
    let keys = bpe(&more, &[]).str("tokenizer.ggml.pre", "gpt-4o").u32("tokenizer.ggml.eos_token_id", 256);
    let tokenizer = keys.u32("tokenizer.ggml.eot_token_id", 256).tokenizer().unwrap();
    assert_eq!((256..260).map(|id| tokenizer.is_eog(id)).collect::<Vec<_>>(), [true, true, false, false]);
    assert!(!tokenizer.is_control(258) && !tokenizer.is_control(259));
}

#[test]
fn chat_templates_know_the_vocabularys_tokens() {
    let keys = spm(&SMALL).str(
        "tokenizer.chat_template",
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}",
    );
    let tokenizer = keys.tokenizer().unwrap();
    let template = ChatTemplate::from_gguf(&keys.gguf(), &tokenizer).unwrap();
    let conversation = Conversation::new(vec![Message::new("user", "ab")]);
    let prompt = template.render(&conversation, &template.caps(false)).unwrap();
    assert_eq!(prompt.text, "<s>[user]ab</s>");
    let error = ChatTemplate::from_gguf(&spm(&SMALL).gguf(), &tokenizer).err().unwrap().to_string();
    assert!(error.contains("tokenizer.chat_template") && error.contains("plain prompt"), "{error}");
}

#[test]
fn vocabularies_that_are_wrong_are_one_clear_error() {
    let (texts, scores, kinds) = spm_tokens(&SMALL);
    let base = || Keys::default().str("tokenizer.ggml.model", "llama");
    let tokens = || base().strings("tokenizer.ggml.tokens", &texts);
    let full = || spm(&SMALL);
    let bpe_with = |merges: &[&str]| bpe(&[("ab", NORMAL)], merges).str("tokenizer.ggml.pre", "gpt-2");
    let model = |name: &str| Keys::default().str("tokenizer.ggml.model", name);
    let mut twice = texts.clone();
    twice[3] = twice[4].clone();
    let mut nan = scores.clone();
    nan[5] = f32::NAN;
    let cases: Vec<(Keys, &str)> = vec![
        (Keys::default(), "tokenizer.ggml.model"),
        (Keys::default().u32("tokenizer.ggml.model", 1), "tokenizer.ggml.model"),
        (model("t5").strings("tokenizer.ggml.tokens", &["a", "b", "c"]), "tokenizer.ggml.scores"),
        (
            model("t5")
                .strings("tokenizer.ggml.tokens", &["a", "b", "c"])
                .f32s("tokenizer.ggml.scores", &[0.0; 3])
                .i32s("tokenizer.ggml.precompiled_charsmap", &[1, 2]),
            "tokenizer.ggml.precompiled_charsmap",
        ),
        (model("rwkv"), "`rwkv`"),
        (model("plamo2"), "`plamo2`"),
        (model("gemma4").strings("tokenizer.ggml.tokens", &["a"]), "tokenizer.ggml.bos_token_id"),
        (model("none"), "no vocabulary"),
        (base(), "tokenizer.ggml.tokens"),
        (base().strings("tokenizer.ggml.tokens", &[] as &[&str]), "empty"),
        (base().i32s("tokenizer.ggml.tokens", &[1]), "tokenizer.ggml.tokens"),
        (tokens().i32s("tokenizer.ggml.token_type", &kinds), "tokenizer.ggml.scores"),
        (tokens().f32s("tokenizer.ggml.scores", &scores[1..]), "265 entries for 266 tokens"),
        (tokens().f32s("tokenizer.ggml.scores", &[]), "0 entries for 266 tokens"),
        (tokens().f32s("tokenizer.ggml.scores", &nan), "token 5"),
        (
            tokens().f32s("tokenizer.ggml.scores", &scores).i32s("tokenizer.ggml.token_type", &[1; 300]),
            "300 entries for 266 tokens",
        ),
        (base().strings("tokenizer.ggml.tokens", &twice), "token 4"),
        (full().u32("tokenizer.ggml.bos_token_id", 266), "266 tokens"),
        (full().u32("tokenizer.ggml.eos_token_id", u32::MAX), "tokenizer.ggml.eos_token_id"),
        (full().u32("tokenizer.ggml.eot_token_id", 9999), "tokenizer.ggml.eot_token_id"),
        (full().str("tokenizer.ggml.add_bos_token", "yes"), "tokenizer.ggml.add_bos_token"),
        (
            base()
                .strings("tokenizer.ggml.tokens", &["x"])
                .f32s("tokenizer.ggml.scores", &[0.0])
                .i32s("tokenizer.ggml.token_type", &[1]),
            "tokenizer.ggml.bos_token_id",
        ),
        (model("gpt2").strings("tokenizer.ggml.tokens", &["a"]), "tokenizer.ggml.merges"),
        (bpe_with(&["a b", "ab c"]), "abc"),
        (bpe_with(&["a 漢"]), "漢"),
        (bpe_with(&["a b", "ab"]), "merge 1"),
        (bpe_with(&[""]), "merge 0"),
    ];
    for (keys, named) in cases {
        let error =
            keys.tokenizer().err().unwrap_or_else(|| panic!("no error that names {named}")).to_string();
        assert!(error.contains(named) && !error.contains('\n'), "{named}: {error}");
    }
}

/// Ids from llama.cpp.
#[cfg(feature = "embedded-model")]
#[test]
fn the_embedded_model_has_llama_cpps_ids() {
    let tokenizer = Tokenizer::from_gguf(&spec_run::embedded::open().unwrap()).unwrap();
    assert_eq!(tokenizer.encode("Once upon a time", PROMPT), [1, 413, 441, 261, 386]);
    assert_eq!(
        tokenizer.encode("Lily and Tom went to the park.", PROMPT),
        [1, 394, 268, 520, 466, 270, 265, 577, 1991]
    );
    assert_eq!(
        tokenizer.encode("One day, a little boy named Tim", PROMPT),
        [1, 416, 351, 1998, 261, 379, 498, 509, 445]
    );
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.vocab_size()), (Some(1), Some(2), 2048));
    assert_eq!(tokenizer.warnings(), [""; 0]);
}

#[test]
fn empty_texts_are_padding() {
    let keys =
        bpe(&[("", NORMAL), ("", NORMAL), ("<x>", USER_DEFINED)], &[]).str("tokenizer.ggml.pre", "gpt-2");
    let tokenizer = keys.tokenizer().unwrap();
    assert_eq!(tokenizer.vocab_size(), 259);
    assert_eq!(tokenizer.encode("a<x>", PLAIN), [0x61, 258]);
}

/// Long texts of the kinds that make a careless tokenizer slow or panic: quadratic ones would take minutes.
#[test]
fn long_texts_take_linear_time() {
    let spm = spm(&SMALL).tokenizer().unwrap();
    let default = bpe(&[("ab", NORMAL)], &["a b"]).tokenizer().unwrap();
    let pre = |name| bpe(&[("ab", NORMAL)], &["a b"]).str("tokenizer.ggml.pre", name).tokenizer().unwrap();
    let all: Vec<Tokenizer> =
        ["gpt-2", "qwen2", "deepseek-llm", "deepseek-v3", "gpt-4o", "bloom", "jais-2", "afmoe", "superbpe"]
            .into_iter()
            .map(pre)
            .chain([spm, default])
            .collect();
    for unit in ["ab", " ", "\n", "1", "a ", "!", "é", "A", "'s", " \n"] {
        let text = unit.repeat(200_000);
        for tokenizer in &all {
            assert_eq!(tokenizer.decode(&tokenizer.encode(&text, PROMPT)), text.as_bytes(), "{unit:?}");
        }
    }
}

/// `[CLS]` 0, `[SEP]` 1, `[UNK]` 2, then `more`; words have their first part with a space before it.
fn wpm(more: &[&str]) -> Keys {
    let texts: Vec<&str> = ["[CLS]", "[SEP]", "[UNK]"].iter().chain(more).copied().collect();
    let kinds: Vec<i32> = (0..texts.len()).map(|id| if id < 3 { CONTROL } else { NORMAL }).collect();
    Keys::default()
        .str("tokenizer.ggml.model", "bert")
        .strings("tokenizer.ggml.tokens", &texts)
        .i32s("tokenizer.ggml.token_type", &kinds)
        .u32("tokenizer.ggml.bos_token_id", 0)
        .u32("tokenizer.ggml.seperator_token_id", 1)
        .u32("tokenizer.ggml.unknown_token_id", 2)
}

#[test]
fn wordpiece_takes_the_longest_beginning_again_and_again() {
    // 3 "un", 4 "want", 5 "##ed", 6 "##wa", 7 "cafe", 8 "!", 9 "the character for middle", 10 "##want"
    let keys = wpm(&["▁un", "▁want", "ed", "wa", "▁cafe", "▁!", "▁中", "want"]);
    let tokenizer = keys.tokenizer().unwrap();
    let ids = |text: &str| tokenizer.encode(text, PLAIN);
    assert_eq!(ids("unwanted"), [3, 10, 5]);
    // All of a word that cannot be taken apart is one unknown token.
    assert_eq!(ids("want unwax wanted"), [4, 2, 4, 5]);
    // Case and accents do not count; marks and characters of Han are words.
    assert_eq!(ids("Café!UN中un"), [7, 8, 3, 9, 3]);
    assert_eq!(ids("want\u{200b}ed \u{fffd} \u{7}"), [4, 5]);
    assert_eq!(tokenizer.encode("want", PROMPT), [0, 4, 1]);
    assert_eq!(tokenizer.encode("", PROMPT), [0, 1]);
    assert_eq!(tokenizer.encode_pair("want", "un"), [0, 4, 1, 3]);
    assert_eq!(tokenizer.decode(&[0, 4, 5, 3, 1]), b"wanted un");
    let cased =
        wpm(&["▁un", "▁want"]).bool("tokenizer.ggml.normalizer.lowercase", false).tokenizer().unwrap();
    assert_eq!(cased.encode("un Un", PLAIN), [3, 2]);
}

/// `</s>` 0, `<unk>` 1, then `more` with their scores.
fn unigram(more: &[(&str, f32)]) -> Keys {
    let texts: Vec<&str> = ["</s>", "<unk>"].into_iter().chain(more.iter().map(|(text, _)| *text)).collect();
    let scores: Vec<f32> = [0.0, 0.0].into_iter().chain(more.iter().map(|(_, score)| *score)).collect();
    let kinds: Vec<i32> = [CONTROL, UNKNOWN].into_iter().chain(more.iter().map(|_| NORMAL)).collect();
    Keys::default()
        .str("tokenizer.ggml.model", "t5")
        .strings("tokenizer.ggml.tokens", &texts)
        .f32s("tokenizer.ggml.scores", &scores)
        .i32s("tokenizer.ggml.token_type", &kinds)
        .u32("tokenizer.ggml.eos_token_id", 0)
        .u32("tokenizer.ggml.unknown_token_id", 1)
        .bool("tokenizer.ggml.add_space_prefix", true)
        .bool("tokenizer.ggml.remove_extra_whitespaces", true)
}

#[test]
fn unigrams_have_the_greatest_sum_of_scores() {
    let more =
        [("▁", -2.0), ("a", -3.0), ("b", -3.0), ("ab", -5.0), ("▁a", -4.0), ("▁ab", -7.5), ("bb", -7.0)];
    let tokenizer = unigram(&more).tokenizer().unwrap();
    let ids = |text: &str| tokenizer.encode(text, PLAIN);
    // ▁ab is -7.5, ▁ with ab -7, ▁a with b -7, which comes later; ▁ a b is -8.
    assert_eq!(ids("ab"), [2, 5]);
    assert_eq!(ids("a"), [6]);
    // b b is -6, bb -7.
    assert_eq!(ids("bb"), [2, 4, 4]);
    // What has no token is unknown once, however long it is; spaces are one.
    assert_eq!(ids("a xyz  b"), [6, 2, 1, 2, 4]);
    assert_eq!(ids(""), [0; 0]);
    assert_eq!(tokenizer.encode("a", PROMPT), [6, 0]);
    assert_eq!(tokenizer.decode(&[6, 2, 4, 0]), b"a b");
}
