//! How a model marks what it thinks and which tools it calls. Its template tells, because it writes earlier answers the way
//! the model does.

/// How answers are to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Syntax {
    /// What stands before and behind what the model thinks.
    pub(super) reasoning: Option<(&'static str, &'static str)>,
    pub(super) calls: Calls,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Calls {
    None,
    /// Between markers in the text.
    Marked(&'static Marked),
    /// gpt-oss's: an answer is a row of messages with a channel each.
    Harmony,
}

#[derive(Debug, PartialEq)]
pub(super) struct Marked {
    /// With these a call begins.
    pub opens: &'static [&'static str],
    /// These stand around calls and say nothing.
    pub skips: &'static [&'static str],
    pub body: Body,
    /// Calls begin while the model still thinks.
    pub ends_thinking: bool,
}

#[derive(Debug, PartialEq)]
pub(super) enum Body {
    /// An object with a name and arguments, or a list of them.
    Json {
        /// One may begin an answer without a marker.
        bare: bool,
        name: &'static str,
        arguments: &'static str,
        /// The model always writes a list.
        listed: bool,
    },
    /// A name, one of `ends`, and an object.
    Named {
        /// What may stand before the name.
        prefix: &'static str,
        ends: &'static [&'static str],
        /// The name stands in an id, as in `functions.name:0`.
        in_id: bool,
    },
    /// A name, and each argument between tags.
    Tagged(Tags),
    /// Gemma 4's objects, which are JSON with other quotes.
    Gemma,
    /// Calls of functions as in Python, up to this.
    Python { close: &'static str },
    /// The whole answer is an object with one member: a call, or what is said. For templates that say nothing of calls: the
    /// model is told this form, and a grammar keeps it.
    Told,
}

#[derive(Debug, PartialEq)]
pub(super) struct Tags {
    pub name_ends: &'static [&'static str],
    pub key_open: &'static str,
    pub key_close: &'static str,
    /// Between the key and its value.
    pub value_open: &'static str,
    /// A line break behind `value_open` belongs to the tags.
    pub own_line: bool,
    pub value_closes: &'static [&'static str],
    pub end: &'static str,
}

const OBJECT: Body = Body::Json { bare: false, name: "name", arguments: "arguments", listed: false };
const LIST: Body = Body::Json { bare: false, name: "name", arguments: "arguments", listed: true };

static HERMES: Marked =
    Marked { opens: &["<tool_call>"], skips: &["</tool_call>"], body: OBJECT, ends_thinking: false };
static LLAMA_3: Marked = Marked {
    opens: &["<|python_tag|>"],
    skips: &["<|eom_id|>"],
    body: Body::Json { bare: true, name: "name", arguments: "parameters", listed: false },
    ends_thinking: false,
};
static MISTRAL: Marked = Marked {
    opens: &["[TOOL_CALLS]"],
    skips: &[],
    body: Body::Named { prefix: "", ends: &["[CALL_ID]", "[ARGS]", "{"], in_id: false },
    ends_thinking: false,
};
const DEEPSEEK_OPENS: &[&str] = &["<｜tool▁call▁begin｜>"];
const DEEPSEEK_SKIPS: &[&str] =
    &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "```<｜tool▁call▁end｜>"];
/// Before 3.1.
static DEEPSEEK_R1: Marked = Marked {
    opens: DEEPSEEK_OPENS,
    skips: DEEPSEEK_SKIPS,
    body: Body::Named {
        prefix: "function<｜tool▁sep｜>",
        ends: &["\n```json", "<｜tool▁sep｜>"],
        in_id: false,
    },
    ends_thinking: false,
};
static DEEPSEEK: Marked = Marked {
    opens: DEEPSEEK_OPENS,
    skips: DEEPSEEK_SKIPS,
    body: Body::Named { prefix: "", ends: &["<｜tool▁sep｜>"], in_id: false },
    ends_thinking: false,
};
static KIMI: Marked = Marked {
    opens: &["<|tool_call_begin|>"],
    skips: &["<|tool_calls_section_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>"],
    body: Body::Named { prefix: "functions.", ends: &["<|tool_call_argument_begin|>"], in_id: true },
    ends_thinking: false,
};
static FUNCTIONARY: Marked = Marked {
    opens: &["<function="],
    skips: &["</function>"],
    body: Body::Named { prefix: "", ends: &[">"], in_id: false },
    ends_thinking: false,
};
static COMMAND_R7B: Marked = Marked {
    opens: &["<|START_ACTION|>"],
    skips: &["<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"],
    body: Body::Json { bare: false, name: "tool_name", arguments: "parameters", listed: true },
    ends_thinking: false,
};
static GRANITE: Marked = Marked { opens: &["<|tool_call|>"], skips: &[], body: LIST, ends_thinking: false };
static FIREFUNCTION: Marked = Marked { opens: &["functools"], skips: &[], body: LIST, ends_thinking: false };
static QWEN_CODER: Marked = Marked {
    opens: &["<function="],
    skips: &["<tool_call>", "</tool_call>", "<seed:tool_call>", "</seed:tool_call>"],
    body: Body::Tagged(Tags {
        name_ends: &[">"],
        key_open: "<parameter=",
        key_close: ">",
        value_open: "",
        own_line: true,
        value_closes: &["\n</parameter>", "</parameter>"],
        end: "</function>",
    }),
    ends_thinking: true,
};
static MINIMAX: Marked = Marked {
    opens: &["<invoke name=\""],
    skips: &["<minimax:tool_call>", "</minimax:tool_call>"],
    body: Body::Tagged(Tags {
        name_ends: &["\">"],
        key_open: "<parameter name=\"",
        key_close: "\">",
        value_open: "",
        own_line: false,
        value_closes: &["</parameter>"],
        end: "</invoke>",
    }),
    ends_thinking: false,
};
static GLM: Marked = Marked {
    opens: &["<tool_call>"],
    skips: &[],
    body: Body::Tagged(Tags {
        name_ends: &["\n", "<arg_key>", "</tool_call>"],
        key_open: "<arg_key>",
        key_close: "</arg_key>",
        value_open: "<arg_value>",
        own_line: false,
        value_closes: &["</arg_value>"],
        end: "</tool_call>",
    }),
    ends_thinking: false,
};
static GEMMA_4: Marked = Marked {
    opens: &["<|tool_call>call:"],
    skips: &["<tool_call|>", "<channel|>"],
    body: Body::Gemma,
    ends_thinking: false,
};
static GEMMA_3: Marked = Marked {
    opens: &["```tool_code"],
    skips: &[],
    body: Body::Python { close: "```" },
    ends_thinking: false,
};
static LFM2: Marked = Marked {
    opens: &["<|tool_call_start|>"],
    skips: &[],
    body: Body::Python { close: "<|tool_call_end|>" },
    ends_thinking: false,
};

static TOLD: Marked = Marked { opens: &[], skips: &[], body: Body::Told, ends_thinking: false };
/// The members of an answer in the form that models are told.
pub(super) const CALL: &str = "tool_call";
pub(super) const RESPONSE: &str = "response";

/// Where one of these stands in a template with all others of its row, its calls look like that. The first row counts.
static CALLS: [(&[&str], Calls); 19] = [
    (&["<|channel|>"], Calls::Harmony),
    (&["<|tool_call>call:"], Calls::Marked(&GEMMA_4)),
    (&["[TOOL_CALLS]"], Calls::Marked(&MISTRAL)),
    (&["<|tool_calls_section_begin|>", "<|tool_call_begin|>"], Calls::Marked(&KIMI)),
    (&["<｜tool▁calls▁begin｜>", "```json"], Calls::Marked(&DEEPSEEK_R1)),
    (&["<｜tool▁calls▁begin｜>"], Calls::Marked(&DEEPSEEK)),
    (&["<tool_call>", "<arg_key>"], Calls::Marked(&GLM)),
    (&["<function=", "<parameter="], Calls::Marked(&QWEN_CODER)),
    (&["<minimax:tool_call>", "<invoke name="], Calls::Marked(&MINIMAX)),
    (&["<tool_call>"], Calls::Marked(&HERMES)),
    (&["<function="], Calls::Marked(&FUNCTIONARY)),
    (&["<|START_ACTION|>"], Calls::Marked(&COMMAND_R7B)),
    (&["<|tool_call_start|>"], Calls::Marked(&LFM2)),
    (&["functools["], Calls::Marked(&FIREFUNCTION)),
    (&["<|tool_call|>"], Calls::Marked(&GRANITE)),
    (&["<|python_tag|>"], Calls::Marked(&LLAMA_3)),
    (&["<|start_header_id|>ipython"], Calls::Marked(&LLAMA_3)),
    (&["<start_of_turn>"], Calls::Marked(&GEMMA_3)),
    (&[], Calls::Marked(&TOLD)),
];

/// Where the second stands in a template, what a model thinks is between the two.
static REASONING: [(&str, &str); 5] = [
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
    ("<|channel>thought", "<channel|>"),
];

impl Syntax {
    /// Text and nothing else.
    pub const PLAIN: Syntax = Syntax { reasoning: None, calls: Calls::None };

    /// The syntax that a template writes earlier answers in.
    pub fn of(template: &str) -> Self {
        let has = |text: &&str| template.contains(*text);
        let calls = CALLS.iter().find(|(texts, _)| texts.iter().all(has)).map_or(Calls::None, |it| it.1);
        let reasoning = REASONING.iter().find(|(_, close)| template.contains(close)).copied();
        Syntax { reasoning: reasoning.filter(|_| calls != Calls::Harmony), calls }
    }

    /// The template says nothing of calls, so the model has to be told what they look like.
    pub fn is_told(&self) -> bool {
        matches!(self.calls, Calls::Marked(Marked { body: Body::Told, .. }))
    }

    /// Control tokens that a reader of answers has to see.
    pub fn markers(&self) -> Vec<&'static str> {
        let mut all: Vec<&'static str> =
            self.reasoning.iter().flat_map(|(open, close)| [*open, *close]).collect();
        match self.calls {
            Calls::None => (),
            Calls::Harmony => all.extend(super::answer::HARMONY),
            Calls::Marked(marked) => {
                all.extend(marked.opens.iter().chain(marked.skips));
                match &marked.body {
                    Body::Json { .. } | Body::Told => (),
                    Body::Named { prefix, ends, .. } => all.extend([*prefix].iter().chain(*ends)),
                    Body::Tagged(tags) => {
                        all.extend([tags.key_open, tags.key_close, tags.value_open, tags.end]);
                        all.extend(tags.name_ends.iter().chain(tags.value_closes));
                    }
                    Body::Gemma => all.push(super::answer::GEMMA_QUOTE),
                    Body::Python { close } => all.push(close),
                }
            }
        }
        all.retain(|marker| !marker.is_empty());
        all
    }
}
