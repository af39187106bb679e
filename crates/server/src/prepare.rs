//! From what a client asks to jobs for the engine: templates are rendered, texts become tokens.

use std::{borrow::Cow, sync::Arc};

use super::{
    adapters::Adapters,
    choice::Source,
    infill::{self, Gap},
    lark::{self, Controls},
    wire::{ApiError, Ask, Biased, Chat, Constraint, Input, Part, Settings},
};
use crate::{
    RunLayers, Tokenizer,
    chat::{
        Conversation, Opening, Pattern, Prompt, Syntax, TemplateSource, ToolChoice, prompt_tokens,
        written_ends,
    },
    constraint::{self, Grammar, Vocabulary},
    engine::{Job, Request, TextRule},
    sampler::{Breakers, random_seed},
    tokenizer::EncodeOptions,
};

type Result<T> = std::result::Result<T, ApiError>;

/// Tokens that all texts of `logit_bias` may have together.
const MOST_BIASED_TOKENS: usize = 1 << 14;
/// Biases of all answers to a request: each has a list of its own, and shows it.
const MOST_BIASES: usize = 1 << 20;

/// Renders a conversation by the model's template.
pub type Render = Box<dyn Fn(&Conversation) -> crate::Result<Prompt> + Send + Sync>;
/// Reads a mask that a request names or spells out.
pub type ReadMask = Box<dyn Fn(&serde_json::Value) -> crate::Result<RunLayers> + Send + Sync>;

/// What of a model requests are prepared with.
pub struct Preparer {
    /// Its vocabulary.
    pub tokenizer: Arc<Tokenizer>,
    /// Its template, if it has one.
    pub template: Option<TemplateSource>,
    /// Renders by it.
    pub render: Render,
    /// Reads masks.
    pub mask: ReadMask,
    /// What texts may have beside it.
    pub adapters: Adapters,
    /// For constraints; without a token that ends texts there are none.
    pub vocabulary: Option<Vocabulary>,
    /// Its control tokens.
    pub controls: Controls,
    /// The most tokens of one text.
    pub n_ctx: usize,
    /// Whether full contexts are shifted.
    pub shifts: bool,
}

/// One answer to be made.
pub struct Prepared {
    /// For the engine.
    pub job: Job,
    /// What the text keeps to.
    pub bound: TextRule,
    /// With the seed that it has.
    pub settings: Settings,
    /// Of the prompt.
    pub source: Arc<Source>,
}

impl Preparer {
    /// The jobs of a request, in the order of their answers.
    pub fn jobs(&self, ask: &Ask) -> Result<Vec<Prepared>> {
        let mut all = Vec::new();
        let settings = self.settled(ask)?;
        for input in &ask.inputs {
            let (source, constraint) = self.source(input, &settings)?;
            if source.tokens.is_empty() {
                return Err(ApiError::field("prompt", "there is nothing in it"));
            }
            // One place is needed for the answer.
            if source.tokens.len() >= self.n_ctx {
                return Err(ApiError::too_long(source.tokens.len(), self.n_ctx));
            }
            let constraint = constraint.map(|it| self.compiled(&it)).transpose()?;
            let source = Arc::new(source);
            for n in 0..settings.n {
                all.push(self.job(&settings, source.clone(), constraint.as_ref(), n)?);
            }
        }
        Ok(all)
    }

    /// What all answers to a request have in common: one seed, so that the reply's gives them all again, and tokens in place
    /// of the texts that have a bias.
    fn settled(&self, ask: &Ask) -> Result<Settings> {
        let bias = self.biases(&ask.settings.bias)?;
        let answers = ask.inputs.len() * ask.settings.n;
        if bias.len() * answers > MOST_BIASES {
            let message = format!(
                "{} tokens for each of {answers} answers; {MOST_BIASES} in all are possible in one request",
                bias.len()
            );
            return Err(ApiError::field("logit_bias", message));
        }
        let mut settings = Settings { bias, ..ask.settings.clone() };
        settings.sampler.seed.get_or_insert_with(random_seed);
        Ok(settings)
    }

    fn biases(&self, all: &[(Biased, f32)]) -> Result<Vec<(Biased, f32)>> {
        let mut found = Vec::with_capacity(all.len());
        let mut of_texts = 0;
        for (biased, bias) in all {
            match biased {
                Biased::Token(id) => found.push((Biased::Token(*id), *bias)),
                Biased::Text(text) => {
                    let ids = self.tokenizer.encode(text, EncodeOptions::PLAIN);
                    of_texts += ids.len();
                    if of_texts > MOST_BIASED_TOKENS {
                        let message = format!(
                            "its texts have more than {MOST_BIASED_TOKENS} tokens together, which is the limit"
                        );
                        return Err(ApiError::field("logit_bias", message));
                    }
                    found.extend(ids.into_iter().map(|id| (Biased::Token(id), *bias)));
                }
            }
        }
        Ok(found)
    }

    fn compiled(&self, constraint: &Constraint) -> Result<constraint::Constraint> {
        let grammar = match constraint {
            Constraint::Schema(schema) => Grammar::JsonSchema(schema.to_string()),
            Constraint::Grammar(text) => Grammar::written(text.clone()),
            Constraint::Pattern(pattern) => Grammar::Lark(lark::grammar(pattern, &self.controls)),
        };
        let none = || {
            let message = "the vocabulary of this model has no token that ends a text, and schemas, grammars and the form \
                           of calls need one; leave out `response_format`, `json_schema`, `grammar` and `tools`";
            ApiError::invalid(message)
        };
        Ok(self.vocabulary.as_ref().ok_or_else(none)?.compile(&grammar)?)
    }

    fn job(
        &self,
        settings: &Settings,
        source: Arc<Source>,
        constraint: Option<&constraint::Constraint>,
        n: usize,
    ) -> Result<Prepared> {
        let mut settings = settings.clone();
        settings.sampler.seed = settings.sampler.seed.map(|seed| seed.wrapping_add(n as u32));
        let mut sampler = settings.sampler.clone();
        let of_token = |(biased, bias): &(Biased, f32)| match biased {
            Biased::Token(id) => Some((*id, *bias)),
            Biased::Text(_) => None,
        };
        sampler.logit_bias.extend(settings.bias.iter().filter_map(of_token));
        if settings.ignore_eos && constraint.is_none() {
            // As in llama-server: a text that does not end has no ends in it. A grammar says itself where its texts end.
            sampler.logit_bias.extend(self.tokenizer.ends().iter().map(|id| (*id, f32::NEG_INFINITY)));
        }
        // llama-server leaves out what the vocabulary does not have.
        sampler.logit_bias.retain(|(id, _)| (*id as usize) < self.tokenizer.vocab_size());
        settings.bias = sampler.logit_bias.iter().map(|(id, bias)| (Biased::Token(*id), *bias)).collect();
        if let Some(breakers) = &settings.breakers {
            sampler.dry.breakers = Breakers::new(&self.tokenizer, breakers);
        }
        let mask = settings.mask.as_ref().map(|mask| (self.mask)(mask)).transpose();
        let mask = mask.map_err(|e| ApiError::field("mask", e))?;
        let request = Request {
            max_tokens: settings.max_tokens,
            ignore_eos: settings.ignore_eos,
            shift_keep: settings.keep.filter(|_| self.shifts),
            // At least one, so that the chosen one is told.
            logprobs: settings.logprobs.map_or(0, |n| n.max(1)),
            logprobs_after_sampling: settings.post_sampling,
            ..Request::new(&source.tokens)
        };
        let job = Job {
            sampler,
            scores_from: (settings.echo && settings.logprobs.is_some()).then_some(0),
            mask,
            loras: self.adapters.of_request(&settings.loras)?,
            drafts: settings.drafts,
            reuses: settings.reuses,
            slot: settings.slot,
            ..Job::new(request)
        };
        let bound = constraint
            .zip(self.vocabulary.as_ref())
            .map_or_else(TextRule::default, |(constraint, vocabulary)| {
                constraint.bound(vocabulary, source.tokens.len())
            });
        Ok(Prepared { job, bound, settings, source })
    }

    /// A prompt and how its answer is read, and what the answer has to be.
    fn source(&self, input: &Input, settings: &Settings) -> Result<(Source, Option<Constraint>)> {
        let plain = |prompt: String, tokens: Vec<u32>| Source {
            prompt,
            tokens,
            syntax: Syntax::PLAIN,
            tools: Vec::new(),
            reasoning: false,
            thinking: false,
            ends: Vec::new(),
        };
        match input {
            Input::Chat(chat) => self.chat(chat, settings),
            Input::Prompt(parts) => {
                let tokens = self.tokens(parts)?;
                Ok((plain(self.text(&tokens), tokens), settings.constraint.clone()))
            }
            Input::Infill { prefix, suffix, prompt, extra } => {
                let marks = self.tokenizer.gap_tokens().ok_or_else(|| {
                    ApiError::not_supported(
                        "this model's vocabulary has no tokens for the prefix, the suffix and the middle of a gap: \
                         it was not made for /infill",
                    )
                })?;
                // Half is left for the answer, or as much as it may have if that is less.
                let answer = settings.max_tokens.unwrap_or(usize::MAX).min(self.n_ctx / 2);
                let gap = Gap { prefix, suffix, prompt, extra };
                let tokens = infill::tokens(&self.tokenizer, &marks, gap, self.n_ctx - answer);
                Ok((plain(self.text(&tokens), tokens), settings.constraint.clone()))
            }
        }
    }

    fn chat(&self, chat: &Chat, settings: &Settings) -> Result<(Source, Option<Constraint>)> {
        let Chat { tool_choice, parallel_calls, splits_reasoning, .. } = chat;
        let seen = self.seen(chat);
        let conversation = seen.as_ref();
        let prompt = self.rendered(conversation)?;
        let text = self.template_text(conversation);
        let syntax = Syntax::of(text);
        let tokens = prompt_tokens(&prompt.text, &self.tokenizer);
        let opening = Opening { syntax, may_think: conversation.thinking, thinking: prompt.thinking };
        let schema = match &settings.constraint {
            Some(Constraint::Schema(schema)) => Some(schema),
            Some(Constraint::Grammar(_) | Constraint::Pattern(_)) | None => None,
        };
        let calls = Pattern::calls(opening, &conversation.tools, tool_choice, *parallel_calls, schema);
        if calls.is_none() && matches!(tool_choice, ToolChoice::Required | ToolChoice::Named(_)) {
            let message = "a call cannot be required behind the beginning of an answer: the chat template has no syntax for \
                           calls, and an answer with a call has another form; end `messages` with another role";
            return Err(ApiError::field("tool_choice", message));
        }
        let constraint = match (calls, &settings.constraint) {
            (Some(calls), _) => Some(Constraint::Pattern(calls)),
            (None, Some(Constraint::Schema(schema))) => {
                Some(Constraint::Pattern(Pattern::final_json(opening, schema.clone())))
            }
            (None, other) => other.clone(),
        };
        let reads_calls = *tool_choice != ToolChoice::None;
        let tools = if reads_calls { conversation.tools.clone() } else { Vec::new() };
        let (reasoning, thinking) = (*splits_reasoning, prompt.thinking);
        let ends = written_ends(text, &self.tokenizer);
        let prompt = self.text(&tokens);
        Ok((Source { prompt, tokens, syntax, tools, reasoning, thinking, ends }, constraint))
    }

    fn template_text(&self, conversation: &Conversation) -> &str {
        self.template.as_ref().map_or("", |template| template.text(!conversation.tools.is_empty()))
    }

    /// The conversation without tools where the model would have to be told of them and may not call any, or has begun to
    /// answer without.
    fn seen<'c>(&self, chat: &'c Chat) -> Cow<'c, Conversation> {
        let conversation = &chat.conversation;
        let is_told = Syntax::of(self.template_text(conversation)).is_told();
        if is_told && (chat.tool_choice == ToolChoice::None || conversation.continue_final_message) {
            return Cow::Owned(Conversation { tools: Vec::new(), ..conversation.clone() });
        }
        Cow::Borrowed(conversation)
    }

    /// A conversation as the template has it.
    pub fn prompt(&self, chat: &Chat) -> Result<Prompt> {
        self.rendered(&self.seen(chat))
    }

    fn rendered(&self, conversation: &Conversation) -> Result<Prompt> {
        if self.template.is_none() {
            let message =
                "this model has no chat template; use /v1/completions, or start the server with one";
            return Err(ApiError::not_supported(message));
        }
        Ok((self.render)(conversation)?)
    }

    /// Texts and tokens in a row; the first text begins as texts do.
    pub fn tokens(&self, parts: &[Part]) -> Result<Vec<u32>> {
        let mut tokens = Vec::new();
        for (n, part) in parts.iter().enumerate() {
            match part {
                Part::Text(text) => {
                    let options = EncodeOptions { add_special: n == 0, parse_special: true };
                    tokens.extend(self.tokenizer.encode(text, options));
                }
                Part::Token(id) if (*id as usize) < self.tokenizer.vocab_size() => tokens.push(*id),
                Part::Token(id) => {
                    let most = self.tokenizer.vocab_size();
                    return Err(ApiError::field(
                        "prompt",
                        format!("{id}: no such token; the vocabulary has {most}"),
                    ));
                }
            }
        }
        Ok(tokens)
    }

    /// Tokens as text, control tokens among them.
    pub fn text(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|id| self.tokenizer.piece(*id)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
