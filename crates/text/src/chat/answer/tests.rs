use proptest::prelude::*;
use serde_json::json;

use super::*;

fn tools() -> Vec<Tool> {
    let parameters = json!({
        "type": "object",
        "properties": {
            "city": { "type": "string" },
            "days": { "type": "integer" },
            "extra": { "type": ["string", "null", "object"] },
        },
    });
    let tool =
        |name: &str| Tool { name: name.into(), description: String::new(), parameters: parameters.clone() };
    vec![tool("weather"), tool("time")]
}

/// A template in whose answers these texts stand.
fn syntax(texts: &[&str]) -> Syntax {
    Syntax::of(&texts.concat())
}

fn read<'a>(reading: Reading, pieces: impl IntoIterator<Item = &'a str>) -> (Answer, Vec<Delta>) {
    let mut reader = AnswerReader::new(reading);
    let mut deltas: Vec<Delta> = pieces.into_iter().flat_map(|piece| reader.push(piece)).collect();
    deltas.extend(reader.finish());
    let mut answer = Answer::default();
    deltas.iter().for_each(|delta| answer.add(delta));
    (answer, deltas)
}

struct Case {
    syntax: Syntax,
    /// The prompt has begun what the model thinks.
    thinking: bool,
    text: &'static str,
    reasoning: &'static str,
    content: &'static str,
    calls: &'static [(&'static str, &'static str)],
}

fn case(texts: &[&str], text: &'static str) -> Case {
    Case { syntax: syntax(texts), thinking: false, text, reasoning: "", content: "", calls: &[] }
}

const THINK: &str = "<think></think>";
const HERMES: &[&str] = &["<tool_call>", THINK];
const CODER: &[&str] = &["<tool_call>", "<function=", "<parameter=", THINK];
const LLAMA: &[&str] = &["<|python_tag|>"];
const MISTRAL: &[&str] = &["[TOOL_CALLS]", "[THINK][/THINK]"];
const GEMMA: &[&str] = &["'<|tool_call>call:'", "<|channel>thought<channel|>"];
const OSS: &[&str] = &["<|channel|>"];
const DEEPSEEK: &[&str] = &["<｜tool▁calls▁begin｜>", THINK];
const R1: &[&str] = &["<｜tool▁calls▁begin｜>", "```json", THINK];
const PARIS: &[(&str, &str)] = &[("weather", r#"{"city": "Paris"}"#)];
const BOTH: &[(&str, &str)] = &[("weather", r#"{"city": "Paris"}"#), ("time", "{}")];

fn cases() -> Vec<Case> {
    vec![
        Case { content: "Hi\n <b> \n", ..case(&[], "Hi\n <b> \n") },
        Case { content: "<tool_call> in the text", ..case(&[], "<tool_call> in the text") },
        // A form that the model was told.
        Case {
            calls: PARIS,
            ..case(&[], r#" {"tool_call": {"name": "weather", "arguments": {"city": "Paris"}}}"#)
        },
        Case {
            calls: BOTH,
            ..case(
                &[],
                r#"{"tool_call":{"arguments":{"city": "Paris"},"name":"weather"}}
                    {"tool_call": {"name": "time"}}"#,
            )
        },
        Case { content: "So.\n\u{e9} {x}", ..case(&[], r#"{"response": "So.\n\u00e9 {x}"} "#) },
        Case { content: r#"{"a": 1}"#, ..case(&[], r#"{ "response" : {"a": 1}}"#) },
        Case { content: r#"{"city": "Oslo"}"#, ..case(&[], r#"{"city": "Oslo"}"#) },
        Case {
            content: r#"{"tool_call": {"name": "unknown"}}"#,
            ..case(&[], r#"{"tool_call": {"name": "unknown"}}"#)
        },
        Case { reasoning: "hm", content: "So", ..case(&[THINK], r#"<think>hm</think>{"response": "So"}"#) },
        Case { content: "cut", ..case(&[], r#"{"response": "cut\u00"#) },
        // What is thought.
        Case {
            reasoning: "I\n think",
            content: "So.\n",
            ..case(&[THINK], "<think>\nI\n think\n</think>\n\nSo.\n")
        },
        Case { thinking: true, reasoning: "hm", content: "So", ..case(&[THINK], "\nhm\n</think>So") },
        Case { thinking: true, content: "So", ..case(&[THINK], "</think>So") },
        Case { thinking: true, reasoning: "never <ended", ..case(&[THINK], "never <ended\n") },
        Case { content: "\n 1 < 2 </thin", ..case(&[THINK], "\n 1 < 2 </thin") },
        // Hermes, Qwen.
        Case {
            calls: PARIS,
            ..case(
                HERMES,
                "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
            )
        },
        Case {
            reasoning: "hm",
            content: "Let me see.",
            calls: BOTH,
            ..case(
                HERMES,
                "<think>hm</think>\n\nLet me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n\
                 <tool_call>{\"name\": \"time\", \"arguments\": {}}</tool_call>\n",
            )
        },
        Case {
            calls: &[("weather", "{\"a\":\"}</tool_call>\\\"\"}"), ("time", "{\"x\": [1]}")],
            ..case(
                HERMES,
                "<tool_call>{\"arguments\": {\"a\":\"}</tool_call>\\\"\"}, \"name\": \"weather\"}</tool_call>\
                 <tool_call>{\"type\": \"function\", \"function\": {\"name\": \"time\", \"arguments\": \"{\\\"x\\\": [1]}\"}}</tool_call>",
            )
        },
        Case { content: "The tag <tool_call> is one.", ..case(HERMES, "The tag <tool_call> is one.") },
        Case { content: "a\n<tool_call>{\"x\": 1}", ..case(HERMES, "a\n<tool_call>{\"x\": 1}</tool_call>") },
        Case { content: "Cut off", ..case(HERMES, "Cut off\n<tool_call>\n{\"name\": \"wea") },
        Case {
            calls: &[("weather", "{\"city\": \"Pa")],
            ..case(HERMES, "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Pa")
        },
        // Llama 3.
        Case {
            calls: PARIS,
            ..case(LLAMA, "{\"name\": \"weather\", \"parameters\": {\"city\": \"Paris\"}}")
        },
        Case {
            calls: PARIS,
            ..case(
                LLAMA,
                "<|python_tag|>{\"type\": \"function\", \"name\": \"weather\", \"parameters\": {\"city\": \"Paris\"}}",
            )
        },
        Case {
            content: "{\"name\": \"Ada\", \"age\": 36}",
            ..case(LLAMA, "{\"name\": \"Ada\", \"age\": 36}")
        },
        Case {
            content: "{\"name\": \"unknown\", \"parameters\": {}}",
            ..case(LLAMA, "{\"name\": \"unknown\", \"parameters\": {}}")
        },
        Case { content: " {1, 2", ..case(LLAMA, " {1, 2") },
        // Mistral.
        Case {
            calls: BOTH,
            ..case(MISTRAL, "[TOOL_CALLS]weather[ARGS]{\"city\": \"Paris\"}[TOOL_CALLS]time[ARGS]{}")
        },
        Case {
            reasoning: "hm",
            content: "Yes",
            calls: PARIS,
            ..case(
                MISTRAL,
                "[THINK]hm[/THINK]Yes[TOOL_CALLS]weather[CALL_ID]123456789[ARGS]{\"city\": \"Paris\"}",
            )
        },
        Case {
            calls: BOTH,
            ..case(
                MISTRAL,
                "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}, \"id\": \"123456789\"}, {\"name\": \"time\"}]",
            )
        },
        // DeepSeek, before 3.1 and since.
        Case {
            calls: BOTH,
            ..case(
                R1,
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Paris\"}\n```<｜tool▁call▁end｜>\n\
                 <｜tool▁call▁begin｜>function<｜tool▁sep｜>time\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            )
        },
        Case {
            thinking: true,
            reasoning: "R",
            content: "C",
            calls: PARIS,
            ..case(
                DEEPSEEK,
                "R</think>C<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Paris\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            )
        },
        // Arguments between tags.
        Case {
            thinking: true,
            reasoning: "hm",
            calls: &[
                ("weather", "{\"city\": \" a\\n\\\"b\\\"\\n\", \"days\": 3, \"extra\": null}"),
                ("time", "{}"),
            ],
            ..case(
                CODER,
                "hm\n<tool_call>\n<function=weather>\n<parameter=city>\n a\n\"b\"\n\n</parameter>\n<parameter=days>\n3\n</parameter>\n\
                 <parameter=extra>\nnull\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=time>\n</function>\n</tool_call>",
            )
        },
        Case {
            content: "Look:",
            calls: &[("weather", "{\"city\": \"\", \"days\": \"many\", \"other\": {\"x\": true}}")],
            ..case(
                CODER,
                "Look:\n<function=weather><parameter=city>\n</parameter><parameter=days>many</parameter><parameter=other>{\"x\": true}</parameter></function>",
            )
        },
        Case { content: "std::<function=void> f;", ..case(CODER, "std::<function=void> f;") },
        Case {
            calls: &[("weather", "{\"city\": \"Paris\", \"days\": 2}"), ("time", "{}")],
            ..case(
                &["<tool_call>", "<arg_key>"],
                "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key><arg_value>2</arg_value>\n</tool_call>\n\
                 <tool_call>time</tool_call>",
            )
        },
        // A name in a tag or an id.
        Case {
            content: "So",
            calls: PARIS,
            ..case(&["<function="], "So <function=weather>{\"city\": \"Paris\"}</function>")
        },
        Case {
            calls: PARIS,
            ..case(
                &["<|tool_calls_section_begin|>", "<|tool_call_begin|>"],
                "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": \"Paris\"}\
                 <|tool_call_end|><|tool_calls_section_end|>",
            )
        },
        Case {
            reasoning: "hm",
            calls: BOTH,
            ..case(
                &["<|START_ACTION|>", "<|END_THINKING|>"],
                "<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"weather\", \"parameters\": {\"city\": \"Paris\"}},\n\
                 {\"tool_call_id\": \"1\", \"tool_name\": \"time\", \"parameters\": {}}\n]<|END_ACTION|>",
            )
        },
        // Gemma.
        Case {
            reasoning: "I\nthink",
            content: "Well",
            calls: &[("weather", "{\"city\": \"Paris\", \"days\": 2}"), ("time", "{}")],
            ..case(
                GEMMA,
                "<|channel>thought\nI\nthink<channel|>Well<|tool_call>call:weather{city:<|\"|>Paris<|\"|>,days:2}<tool_call|><|tool_call>call:time{}<tool_call|><channel|>",
            )
        },
        Case {
            content: "Yes:",
            calls: BOTH,
            ..case(&["<start_of_turn>"], "Yes:\n```tool_code\nprint(weather(city=\"Paris\"))\ntime()\n```")
        },
        Case {
            content: "```tool_code\nx = 1\n```",
            ..case(&["<start_of_turn>"], "```tool_code\nx = 1\n```")
        },
        // gpt-oss.
        Case { content: "Hi\n", ..case(OSS, "<|channel|>final<|message|>Hi\n") },
        Case {
            reasoning: "hm",
            content: "See.Hi",
            ..case(
                OSS,
                "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>See.<|end|>\
                 <|start|>assistant<|channel|>commentary to=assistant<|channel|>final<|message|>Hi<|return|>",
            )
        },
        Case {
            calls: PARIS,
            ..case(
                OSS,
                "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Paris\"}<|call|>",
            )
        },
        Case {
            calls: PARIS,
            ..case(OSS, " to=functions.weather<|channel|>analysis<|message|>{\"city\": \"Paris\"}")
        },
        Case {
            reasoning: "hm",
            ..case(
                OSS,
                "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=container.exec<|channel|>commentary<|message|>ls",
            )
        },
        Case { content: "no header", ..case(OSS, "no header") },
    ]
}

impl Case {
    fn reading<'a>(&self, tools: &'a [Tool]) -> Reading<'a> {
        Reading { syntax: self.syntax, tools, reasoning: true, thinking: self.thinking }
    }
}

#[test]
fn answers_are_read() {
    let tools = tools();
    for case in cases() {
        let (answer, _) = read(case.reading(&tools), [case.text]);
        let calls: Vec<(&str, &str)> =
            answer.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
        assert_eq!(
            (answer.reasoning.as_str(), answer.content.as_str(), calls.as_slice()),
            (case.reasoning, case.content, case.calls),
            "{:?}",
            case.text
        );
    }
}

#[test]
fn ids_are_kept_where_they_come_first() {
    let tools = tools();
    let (answer, _) = read(
        Reading { syntax: syntax(MISTRAL), tools: &tools, reasoning: true, thinking: false },
        ["[TOOL_CALLS]weather[CALL_ID]123456789[ARGS]{}"],
    );
    assert_eq!(answer.calls[0].id, "123456789");
}

#[test]
fn without_tools_calls_are_text_and_thoughts_too_if_asked() {
    let text = "<think>hm</think><tool_call>{\"name\": \"weather\"}</tool_call>";
    let reading = Reading { syntax: syntax(HERMES), tools: &[], reasoning: true, thinking: false };
    let (answer, _) = read(reading, [text]);
    assert_eq!(
        (answer.reasoning.as_str(), answer.content.as_str()),
        ("hm", &text["<think>hm</think>".len()..])
    );
    let (answer, _) = read(Reading { reasoning: false, ..reading }, [text]);
    assert_eq!(answer.content, text);
}

#[test]
fn what_is_certain_is_given_out_at_once() {
    let tools = tools();
    let mut reader =
        AnswerReader::new(Reading { syntax: syntax(HERMES), tools: &tools, reasoning: true, thinking: true });
    assert_eq!(reader.push("hm"), [Delta::Reasoning("hm".into())]);
    assert_eq!(reader.push(" so </th"), [Delta::Reasoning(" so".into())]);
    assert_eq!(reader.push("ink>Hi <"), [Delta::Content("Hi".into())]);
    assert_eq!(reader.push("b>"), [Delta::Content(" <b>".into())]);
    assert_eq!(reader.push("<tool_call>{\"name\": \"time\", \"arguments\": "), []);
    let call = Delta::Call { index: 0, id: None, name: "time".into() };
    let arguments = |text: &str| Delta::Arguments { index: 0, text: text.into() };
    assert_eq!(reader.push("{\"a\""), [call, arguments("{\"a\"")]);
    assert_eq!(reader.push(": 1}"), [arguments(": 1}")]);
    assert_eq!(reader.push("}</tool_call>"), []);
    assert_eq!(reader.finish(), []);
}

fn pieces(text: &str, cuts: &[usize]) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (chars.len() + 1)).collect();
    ends.extend([0, chars.len()]);
    ends.sort_unstable();
    ends.windows(2).map(|ends| chars[ends[0]..ends[1]].iter().collect()).collect()
}

/// Pieces of which anything is made that models might write.
fn scraps() -> Vec<&'static str> {
    let mut all: Vec<&'static str> = cases().iter().flat_map(|case| case.syntax.markers()).collect();
    all.extend([
        "{\"name\": \"weather\", \"arguments\": ",
        "{\"city\": \"é\"}",
        "weather",
        "time",
        "city:",
        "(city=\"x\")",
    ]);
    all.extend([
        " ",
        "\n",
        "{",
        "}",
        "[",
        "]",
        "\"",
        ",",
        ":",
        "<",
        "x",
        "1",
        "é",
        " to=functions.time",
        "final",
    ]);
    all
}

fn check_cuts(syntax: Syntax, thinking: bool, text: &str, cuts: &[usize]) -> Result<(), TestCaseError> {
    let tools = tools();
    let reading = Reading { syntax, tools: &tools, reasoning: true, thinking };
    let (whole, _) = read(reading, [text]);
    let cut = pieces(text, cuts);
    let (sum, deltas) = read(reading, cut.iter().map(String::as_str));
    prop_assert_eq!(&sum, &whole, "{:?} in {:?}", text, cut);
    let indices: Vec<usize> = deltas
        .iter()
        .filter_map(|delta| match delta {
            Delta::Call { index, .. } => Some(*index),
            Delta::Reasoning(_) | Delta::Content(_) | Delta::Arguments { .. } => None,
        })
        .collect();
    prop_assert_eq!(indices, (0..whole.calls.len()).collect::<Vec<_>>());
    Ok(())
}

proptest! {
    #[test]
    fn cuts_change_nothing(which in 0usize..1000, cuts in prop::collection::vec(0usize..1000, 0..12)) {
        let cases = cases();
        let case = &cases[which % cases.len()];
        check_cuts(case.syntax, case.thinking, case.text, &cuts)?;
    }

    #[test]
    fn neither_do_they_in_nonsense(
        which in 0usize..1000,
        thinking: bool,
        scraps in prop::collection::vec(prop::sample::select(scraps()), 0..16),
        cuts in prop::collection::vec(0usize..1000, 0..12),
    ) {
        let cases = cases();
        check_cuts(cases[which % cases.len()].syntax, thinking, &scraps.concat(), &cuts)?;
    }

    #[test]
    fn every_character_by_itself(which in 0usize..1000) {
        let cases = cases();
        let case = &cases[which % cases.len()];
        check_cuts(case.syntax, case.thinking, case.text, &(0..case.text.chars().count()).collect::<Vec<_>>())?;
    }
}
