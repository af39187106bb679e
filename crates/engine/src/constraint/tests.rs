use super::*;
use spec_run_gguf::embedded;

use crate::{
    Gguf,
    gguf::Writer,
    speculation::{Proposer, Supply},
};

fn vocabulary() -> Vocabulary {
    Vocabulary::new(&Tokenizer::from_gguf(&embedded::open().unwrap()).unwrap()).unwrap()
}

/// Whether a text is allowed from its beginning to its end.
fn keeps(vocabulary: &Vocabulary, constraint: &mut Constraint, text: &str) -> bool {
    let tokens = vocabulary.factory.tok_env().tok_trie().greedy_tokenize(text.as_bytes());
    constraint.go_to(&tokens) && constraint.at.is_accepting().unwrap()
}

#[track_caller]
fn check(vocabulary: &Vocabulary, grammar: &Grammar, good: &[&str], bad: &[&str]) {
    let mut constraint = vocabulary.compile(grammar).unwrap_or_else(|e| panic!("{grammar:?}: {e}"));
    // From one text to the next the state goes back to what they have in common.
    good.iter().for_each(|text| assert!(keeps(vocabulary, &mut constraint, text), "{grammar:?}: {text:?}"));
    bad.iter().for_each(|text| assert!(!keeps(vocabulary, &mut constraint, text), "{grammar:?}: {text:?}"));
    good.iter().for_each(|text| assert!(keeps(vocabulary, &mut constraint, text), "{grammar:?}: {text:?}"));
}

#[test]
fn gbnf_means_what_it_means_in_llama_cpp() {
    let vocabulary = vocabulary();
    let gbnf = |text: &str, good: &[&str], bad: &[&str]| {
        check(&vocabulary, &Grammar::Gbnf(text.into()), good, bad);
    };
    gbnf(r#"root ::= "yes" | "no""#, &["yes", "no"], &["", "y", "yesno", "maybe"]);
    gbnf("root ::= [a-c]+ \"b\"", &["ab", "bb", "cabb"], &["b", "a", "abc"]);
    gbnf("root ::= [^a-y]{2,3}", &["zz", "zzz", "1 é"], &["z", "zzzz", "az"]);
    gbnf("root ::= .{2} # any\n", &["ab", "\n\n", "日本"], &["a", "abc"]);
    gbnf(r#"root ::= "\x41\u00e9\U0001f600\n\t\"\\" [\]\[]"#, &["Aé😀\n\t\"\\]"], &["A"]);
    gbnf("root ::= a? b* \"x\"{2}\na ::= \"1\"\nb ::= [0-9]", &["xx", "1xx", "1234xx"], &["x", "12x"]);
    gbnf("root ::= (\n\"a\" |\n\"b\" # or\n)\"c\"\r\n", &["ac", "bc"], &["a", "c"]);
    gbnf("root ::= \"a\" |\n  \"b\"", &["a", "b"], &["ab"]);
    gbnf("root ::= \"\" | \"a\"", &["", "a"], &["aa"]);
    gbnf("root ::= \"a\"{3,}", &["aaa", "aaaaaaa"], &["aa"]);
    gbnf("root ::= \"a\"{0}", &[""], &["a"]);
    gbnf("root ::= \"a\"{0} x{0,0} \"b\"\nx ::= \"c\" x", &["b"], &["", "ab", "cb"]);
    // Rules that come back to themselves; a word may begin in the middle of another.
    let nested = "root ::= \"(\" root \")\" | word\nword ::= [a-z] word | \"end\"";
    gbnf(nested, &["end", "(end)", "((legend))", "enend"], &["", "(end", "en", "end)"]);
    gbnf("root ::= root \"ab\" | \"abc\"", &["abc", "abcab", "abcabab"], &["ab", "abca"]);
    gbnf(
        "root ::= list\nlist ::= item (\", \" item)*\nitem ::= \"x\" | \"[\" list \"]\"",
        &["x, [x, x]"],
        &["x,"],
    );
}

#[test]
fn what_is_wrong_with_a_grammar_is_said_with_its_line() {
    let vocabulary = vocabulary();
    for (text, part) in [
        ("root ::= \"a\n", "line 2: the end comes"),
        ("\nroot : \"a\"", "line 2: `::=` is needed behind `root`, not ':'"),
        ("root ::= other\n", "line 1: there is no rule `other`"),
        ("other ::= \"a\"", "no rule `root`"),
        ("", "no rule `root`"),
        ("root ::= \"a\" )", "')' does not belong"),
        ("root ::= (\"a\"", "`)` is needed, not the end"),
        ("root ::= *", "nothing is before `*`"),
        ("root ::= [z-a]", "is empty"),
        ("root ::= \"\\q\"", "`\\q` is no escape"),
        ("root ::= \"\\ud800\"", "is no character"),
        ("root ::= \"a\"{3,2}", "impossible"),
        ("root ::= \"a\"{1,9999999999}", "9999999999 repetitions, 2000 are the most"),
        ("root ::= \"a\"{x}", "a number is needed, not 'x'"),
        ("root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule `root` is there twice"),
        ("root ::= !<[3]>", "not supported"),
        ("root ::= <think", "`>` is needed"),
        ("?", "a rule's name is needed, not '?'"),
    ] {
        let error = vocabulary.compile(&Grammar::Gbnf(text.into())).err().unwrap().to_string();
        assert!(error.contains(part) && error.lines().count() == 1, "{text:?}: {error}");
    }
    let deep = format!("root ::= {}\"a\"{}", "(".repeat(100_000), ")".repeat(100_000));
    let error = vocabulary.compile(&Grammar::Gbnf(deep)).err().unwrap().to_string();
    assert!(error.contains("deeper than 100"), "{error}");
    let named = vocabulary.compile(&Grammar::Gbnf("x".repeat(20_000))).err().unwrap().to_string();
    assert!(named.starts_with("grammar: line 1: `::=` is needed") && named.len() < 500, "{named}");
    for signs in ["*", "+?", "{2}"] {
        let stacked = format!("root ::= \"a\"{}", signs.repeat(100_000));
        let error = vocabulary.compile(&Grammar::Gbnf(stacked)).err().unwrap().to_string();
        assert!(error.contains("line 1: more than 4 repetitions"), "{error}");
    }
    // Each name used to be looked for in all of the text before it.
    let wide = format!("root ::=\n{}", " a".repeat(LONGEST / 2 - 10));
    let began = std::time::Instant::now();
    let error = vocabulary.compile(&Grammar::Gbnf(wide)).err().unwrap().to_string();
    assert!(error.contains("line 2: there is no rule `a`"), "{error}");
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    let long = vocabulary.compile(&Grammar::Gbnf(" ".repeat(LONGEST + 1))).err().unwrap().to_string();
    assert!(long.contains("are the most"), "{long}");
}

#[test]
fn schemas_allow_what_they_say() {
    let vocabulary = vocabulary();
    let schema = |text: &str, good: &[&str], bad: &[&str]| {
        check(&vocabulary, &Grammar::JsonSchema(text.into()), good, bad);
    };
    schema(r#"{"const": "42"}"#, &["\"42\""], &["42", "\"4\""]);
    schema(r#"{"type": "integer"}"#, &["0", "-12"], &["1.5", "\"1\"", ""]);
    schema(r#"{"enum": ["a", 1, null]}"#, &["\"a\"", "1", "null"], &["a", "2"]);
    let object = r#"{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}},
        "required": ["a"], "additionalProperties": false}"#;
    schema(
        object,
        &["{\"a\": 1}", "{\"a\":1,\"b\":true}", "{ \"a\": 1 }"],
        &["{}", "{\"b\": true}", "{\"a\": 1, \"c\": 2}"],
    );
    let tree =
        r##"{"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}"##;
    schema(tree, &["[]", "[[],[[]]]"], &["[1]", "["]);
    schema(
        r#"{"oneOf": [{"type": "null"}, {"type": "string", "maxLength": 2}]}"#,
        &["null", "\"ab\""],
        &["\"abc\""],
    );
    schema("{}", &["{\"a\": [1, null]}", "true"], &["x"]);
    schema("true", &["1"], &["x"]);
    check(&vocabulary, &Grammar::Json, &["[{\"a\": \"b\"}]"], &["[", "{a: 1}"]);
    check(&vocabulary, &Grammar::Lark("start: /[0-9]+/ \"px\"\n".into()), &["12px"], &["px"]);
}

#[test]
fn schemas_that_cannot_be_are_refused_in_a_line() {
    let vocabulary = vocabulary();
    for text in [
        "{\"type\": 123}",
        "{\"type\": \"hiccup\"}",
        "{\"type\": \"object\"",
        "[]",
        "7",
        "false",
        "",
        "{\"type\": \"string\", \"minLength\": 5, \"maxLength\": 3}",
        "{\"$ref\": \"#/nowhere\"}",
        "{\"type\": \"string\", \"pattern\": \"(\"}",
    ] {
        let error = vocabulary.compile(&Grammar::JsonSchema(text.into())).err();
        let error = error.unwrap_or_else(|| panic!("{text} is taken")).to_string();
        assert!(error.starts_with("JSON schema: ") && error.lines().count() == 1, "{text}: {error}");
        assert!(error.len() < 400, "{error}");
    }
    for (text, fault) in [
        (
            r#"{"properties": {"a": {"items": {"type": "hiccup"}}}}"#,
            "at /properties/a/items: Invalid type: hiccup",
        ),
        (r#"{"anyOf": [{"type": "null"}, {"pattern": "(", "type": "string"}]}"#, "at /anyOf/1: "),
        (r##"{"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {}}"##, "at /properties/a: "),
    ] {
        let error = vocabulary.compile(&Grammar::JsonSchema(text.into())).err().unwrap().to_string();
        assert!(error.contains(fault), "{text}: {error}");
    }
    let deep = format!("{}{{}}{}", "{\"items\":".repeat(1000), "}".repeat(1000));
    assert!(vocabulary.compile(&Grammar::JsonSchema(deep)).is_err());
}

#[test]
fn only_ends_of_text_follow_an_end_or_a_wrong_turn() {
    let vocabulary = vocabulary();
    let mut constraint = vocabulary.compile(&Grammar::Gbnf("root ::= \"ab\"".into())).unwrap();
    let trie = vocabulary.factory.tok_env().tok_trie();
    let id = |text: &str| trie.token_id(text.as_bytes()).unwrap();
    let mut allowed = |text: &[u32]| {
        let mut logits = vec![0.0; trie.vocab_size() + 3];
        constraint.mask(text, &mut logits);
        (0..).zip(logits).filter(|(_, l)| *l == 0.0).map(|(id, _)| id).collect::<Vec<u32>>()
    };
    let ends = vocabulary.shared.ends.clone();
    let begun = allowed(&[]);
    assert!(begun.contains(&id("a")) && !begun.contains(&id("b")) && !begun.contains(&ends[0]), "{begun:?}");
    assert!(allowed(&[id("a")]).contains(&id("b")));
    assert_eq!(allowed(&[id("a"), id("b")]), ends);
    assert_eq!(allowed(&[id("a"), id("b"), ends[0]]), ends);
    assert_eq!(allowed(&[id("b")]), ends);
    assert_eq!(allowed(&[]), begun);
}

/// llguidance panics where it quotes a long text that is not ASCII.
#[test]
fn a_panic_of_the_engine_is_a_plain_line() {
    let schema = format!("{{\"minimum\": \"{}\"}}", "é".repeat(100));
    let error = vocabulary().compile(&Grammar::JsonSchema(schema)).err().unwrap().to_string();
    assert!(
        error.contains("JSON schema") && error.lines().count() == 1 && !error.contains("panic"),
        "{error}"
    );
}

/// As the padding of Qwen's vocabulary is.
#[test]
fn tokens_without_bytes_are_never_chosen() {
    const TYPES: &str = "tokenizer.ggml.token_type";
    const UNUSED: i32 = 5;
    let embedded = embedded::open().unwrap();
    let mut types = embedded.metadata().i32s(TYPES).unwrap().unwrap();
    types[300..310].fill(UNUSED);
    let mut writer = Writer::new();
    embedded.metadata().iter().for_each(|(key, value)| _ = writer.set(key, value.clone()));
    writer.set(TYPES, types);
    let mut file = Vec::new();
    writer.write(&mut file, |_, _| Ok(())).unwrap();
    let tokenizer = Tokenizer::from_gguf(&Gguf::from_bytes("unused", file).unwrap()).unwrap();
    assert!(tokenizer.piece(305).is_empty() && !tokenizer.piece(310).is_empty());
    let vocabulary = Vocabulary::new(&tokenizer).unwrap();
    let mut constraint = vocabulary.compile(&Grammar::Gbnf("root ::= .*".into())).unwrap();
    let mut logits = vec![0.0; tokenizer.vocab_size()];
    constraint.mask(&[], &mut logits);
    assert!(logits[300..310].iter().all(|logit| *logit < 0.0), "{:?}", &logits[300..310]);
    assert!(logits[310] == 0.0);
}

/// Chains in which each part names the next one.
fn chains(length: usize) -> [Grammar; 5] {
    let links = |link: &dyn Fn(usize) -> String, between: &str| {
        (0..length).map(link).collect::<Vec<_>>().join(between)
    };
    let gbnf = links(&|i| format!("a{i} ::= a{}", i + 1), "\n");
    let lark = links(&|i| format!("T{i}: \"b\" T{}", i + 1), "\n");
    let to = |i: usize| format!("{{\"$ref\": \"#/$defs/a{}\"}}", i + 1);
    let schema = |link: &dyn Fn(usize) -> String| {
        let defs = links(&|i| format!("\"a{i}\": {}", link(i)), ", ");
        let last = format!("\"a{length}\": {{\"type\": \"integer\"}}");
        Grammar::JsonSchema(format!("{{\"$ref\": \"#/$defs/a0\", \"$defs\": {{{defs}, {last}}}}}"))
    };
    [
        Grammar::Gbnf(format!("root ::= a0\n{gbnf}\na{length} ::= \"x\"\n")),
        Grammar::Lark(format!("start: T0\n{lark}\nT{length}: \"x\"\n")),
        schema(&to),
        schema(&|i| format!("{{\"allOf\": [{}, {{\"type\": \"integer\"}}]}}", to(i))),
        schema(&|i| format!("{{\"type\": \"array\", \"minItems\": 1, \"items\": {}}}", to(i))),
    ]
}

#[test]
fn long_chains_are_read_or_refused_in_a_line() {
    let vocabulary = vocabulary();
    // A thread of a server, or of this test, has a stack of 2 MiB.
    for grammar in chains(1000) {
        assert!(vocabulary.compile(&grammar).is_ok());
    }
    let properties: Vec<String> = (0..15_000).map(|i| format!("\"p{i}\": true")).collect();
    let wide = Grammar::JsonSchema(format!("{{\"properties\": {{{}}}}}", properties.join(", ")));
    for grammar in chains(12_000).into_iter().chain([wide]) {
        let error = vocabulary.compile(&grammar).err().unwrap().to_string();
        assert!(error.contains("are the most: ") && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn a_million_bytes_that_have_to_follow_are_drafted_a_few_at_a_time() {
    let vocabulary = vocabulary();
    // As one terminal, and as rules. What llguidance finds at once, 30,000 bytes here, is not the end.
    for (grammar, begun) in
        [("root ::= ((\"a\"{100}){100}){100}", ""), ("root ::= \"b\" root | ((\"a\"{100}){100}){100}", "a")]
    {
        let constraint = vocabulary.compile(&Grammar::Gbnf(grammar.into())).unwrap();
        let mut forced = ForcedTokens::new(&vocabulary, &constraint, 0);
        let mut text = vocabulary.factory.tok_env().tok_trie().greedy_tokenize(begun.as_bytes());
        let began = std::time::Instant::now();
        for round in 0..200 {
            assert!(matches!(forced.supply(&text), Supply::Found(_)), "{grammar}: {round}");
            let found = forced.tokens(&text);
            assert!(found.len() <= 1024);
            // A draft is short at first, then all of it.
            let taken = if round < 150 { 1 } else { found.len() };
            text.extend(&found[..taken]);
        }
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "{grammar}: {:?}", began.elapsed());
    }
}

#[test]
fn a_text_that_may_be_read_in_too_many_ways_ends() {
    let vocabulary = vocabulary();
    let ambiguous = Grammar::Gbnf("root ::= s\ns ::= s s | s s s | [a-z ]+".into());
    let mut constraint = vocabulary.compile(&ambiguous).unwrap();
    let a = vocabulary.factory.tok_env().tok_trie().token_id(b"a").unwrap();
    assert!(constraint.go_to(&[a; 20]));
    // 2000 ways would be reached after nearly 300 bytes, and each token would have taken a second by then.
    assert!(!constraint.go_to(&[a; 200]));
    // It is not for an end of the text, and nothing is left of it where another text goes on.
    let mut fault = |text: &[u32]| {
        constraint.mask(text, &mut vec![0.0; vocabulary.factory.tok_env().tok_trie().vocab_size()]);
        constraint.fault().map(str::to_owned)
    };
    assert_eq!(fault(&[a; 20]), None);
    let message = fault(&[a; 200]).unwrap();
    assert!(
        message.starts_with("grammar: it cannot be followed beyond ") && message.lines().count() == 1,
        "{message}"
    );
    assert!(
        message.contains(" tokens: it may be read in more than 508 ways at once; write it so "),
        "{message}"
    );
    assert_eq!(fault(&[a; 20]), None);
    // Many properties are as many ways, and no trouble.
    let properties: Vec<String> = (0..400).map(|i| format!("\"p{i}\": {{\"type\": \"string\"}}")).collect();
    let many = format!("{{\"type\": \"object\", \"properties\": {{{}}}}}", properties.join(", "));
    let many = Grammar::JsonSchema(many);
    check(&vocabulary, &many, &["{\"p399\": \"\"}", "{\"p0\": \"a\", \"p200\": \"b\"}"], &["{\"p1\": 1}"]);
}
