//! What all requests come down to.

use serde_json::{Map, Value};

use crate::{
    chat::{Conversation, Pattern, ToolChoice},
    sampler::SamplerConfig,
};

/// What a client asks for, whichever way it said so.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The texts to go on from; each gets [`Settings::n`] answers.
    pub inputs: Vec<Input>,
    /// How to.
    pub settings: Settings,
    /// What the answer has to look like.
    pub shape: Shape,
    /// Pieces as they come, or all at once.
    pub stream: bool,
    /// Which model the client believes to talk to.
    pub model: Option<String>,
}

/// A text to go on from.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// By the model's template.
    Chat(Box<Chat>),
    /// As it is.
    Prompt(Vec<Part>),
    /// What is missing between two texts.
    Infill {
        /// Before the gap.
        prefix: String,
        /// Behind it.
        suffix: String,
        /// What of the gap is known.
        prompt: String,
        /// Other files, by name.
        extra: Vec<(String, String)>,
    },
}

/// A piece of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text, in which control tokens are read.
    Text(String),
    /// A token.
    Token(u32),
}

/// A conversation and how its answer is to be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Chat {
    /// What was said, and the tools.
    pub conversation: Conversation,
    /// Whether tools are to be called.
    pub tool_choice: ToolChoice,
    /// Several calls in one answer.
    pub parallel_calls: bool,
    /// Takes what the model thinks out of the text.
    pub splits_reasoning: bool,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// OpenAI's chat completions.
    Chat,
    /// OpenAI's completions.
    Completions,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
    /// llama-server's own.
    Llama,
}

/// What the text has to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Constraint {
    /// JSON of this schema.
    Schema(Value),
    /// A grammar in GBNF.
    Grammar(String),
    /// Text and JSON in turn, as calls of tools are.
    Pattern(Pattern),
}

/// What a bias is for.
#[derive(Clone, Debug, PartialEq)]
pub enum Biased {
    /// A token.
    Token(u32),
    /// The tokens of a text.
    Text(String),
}

/// How much of an adapter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoraScale {
    /// Its number.
    pub id: usize,
    /// What its products are multiplied with.
    pub scale: f32,
}

/// How texts are made, and what is to be said of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How tokens are chosen; the biases are in `bias`, because texts among them have to be tokenized.
    pub sampler: SamplerConfig,
    /// Added to the logits of tokens.
    pub bias: Vec<(Biased, f32)>,
    /// What no repetition goes across, where a request says so.
    pub breakers: Option<Vec<String>>,
    /// The most tokens; `None` goes on until the text or its room ends.
    pub max_tokens: Option<usize>,
    /// Texts that end an answer.
    pub stop: Vec<String>,
    /// Answers to each input.
    pub n: usize,
    /// So many of the likeliest tokens at each place.
    pub logprobs: Option<usize>,
    /// Probabilities after all samplers instead of before.
    pub post_sampling: bool,
    /// The prompt, too, and with `logprobs` how likely it is.
    pub echo: bool,
    /// Goes on after an end-of-text token.
    pub ignore_eos: bool,
    /// How many tokens at the start stay when the context is shifted; `None`: all.
    pub keep: Option<usize>,
    /// What the text has to be.
    pub constraint: Option<Constraint>,
    /// Which sublayers run, as in a file of masks.
    pub mask: Option<Value>,
    /// Adapters, and nothing of others; where there are none, what the server gives.
    pub loras: Vec<LoraScale>,
    /// Whether the text may be drafted.
    pub drafts: bool,
    /// Whether it may begin with texts that are in the cache.
    pub reuses: bool,
    /// The slot where it is made, and whose texts it then begins with.
    pub slot: Option<usize>,
    /// Says how fast it goes with each piece.
    pub timings_per_token: bool,
    /// Says what drafting gave.
    pub speculation: bool,
    /// Says how much of the prompt has been evaluated.
    pub return_progress: bool,
    /// Gives the tokens beside the text.
    pub return_tokens: bool,
    /// A last piece that counts tokens.
    pub include_usage: bool,
    /// Only these fields of llama-server's answer.
    pub response_fields: Vec<String>,
    /// Adds llama-server's answer to OpenAI's.
    pub verbose: bool,
    /// Seconds between comments while nothing else is sent; 0: none.
    pub ping_seconds: u64,
}

impl Settings {
    /// Those of a server whose sampler has these settings.
    pub fn new(sampler: SamplerConfig) -> Self {
        Settings {
            sampler,
            bias: Vec::new(),
            breakers: None,
            max_tokens: None,
            stop: Vec::new(),
            n: 1,
            logprobs: None,
            post_sampling: false,
            echo: false,
            ignore_eos: false,
            keep: Some(0),
            constraint: None,
            mask: None,
            loras: Vec::new(),
            drafts: true,
            reuses: true,
            slot: None,
            timings_per_token: false,
            speculation: false,
            return_progress: false,
            return_tokens: false,
            include_usage: false,
            response_fields: Vec::new(),
            verbose: false,
            ping_seconds: 30,
        }
    }
}

/// What a server's flags say of requests that say nothing.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// Of all texts.
    pub settings: Settings,
    /// Whether models that can think do so.
    pub thinking: bool,
    /// Takes what the model thinks out of the text.
    pub splits_reasoning: bool,
    /// An assistant's message at the end is the beginning of the answer.
    pub prefills: bool,
    /// Variables of chat templates.
    pub variables: Map<String, Value>,
    /// The most answers to one input.
    pub most_answers: usize,
}

impl Default for Defaults {
    fn default() -> Self {
        Defaults {
            settings: Settings::new(SamplerConfig::default()),
            thinking: true,
            splits_reasoning: true,
            prefills: true,
            variables: Map::new(),
            most_answers: 16,
        }
    }
}
