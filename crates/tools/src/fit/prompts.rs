//! What the model is asked to write about. Every prompt comes several times: at a temperature and without, and in another
//! manner each time, so that texts differ.

use super::{author::Assignment, noise::Noise};
use crate::{
    Error, Result, Tokenizer,
    chat::{Caps, ChatTemplate, Conversation, Message, TemplateSource, prompt_tokens},
    gguf::Gguf,
    tokenizer::EncodeOptions,
};

/// Prompts that come with the program, one a line.
const SHIPPED: &str = include_str!("prompts.txt");
/// What is added to a prompt when it comes again.
const MANNERS: [&str; 8] = [
    "",
    " Keep it short.",
    " Give an example.",
    " Go into detail.",
    " Use simple words.",
    " Structure it with headings and lists.",
    " Be friendly.",
    " Mention what most people get wrong.",
];
/// One prompt in so many is held out.
const HELD_OUT: usize = 12;
/// One text in so many judges, until all of those are written: a short fit has some of either.
const BETWEEN: usize = 3;
const TEMP: f32 = 0.8;
/// Tokens of a text: of those that are held out fewer, since they teach nothing.
const MOST_TOKENS: usize = 224;
const MOST_HELD_OUT: usize = 160;
/// Tokens of a prompt that a text begins with, where texts are given and not prompts.
const BEGINNING: usize = 48;
/// Tokens that a prompt may have.
pub const MOST_PROMPT: usize = 256;

/// What texts begin with.
pub struct Prompts(Kind);

enum Kind {
    /// Questions, written as the model wants them.
    Asked { template: Option<Box<Template>>, lines: Vec<String> },
    /// Pieces of a text, to be continued.
    Continued { pieces: Vec<Vec<u32>> },
}

/// A chat template and what it can do.
struct Template {
    template: ChatTemplate,
    caps: Caps,
}

/// Cells that a text takes at most.
pub const MOST_CELLS: usize = MOST_PROMPT + MOST_TOKENS + 1;

impl Prompts {
    /// One prompt a line, or those that come with the program.
    pub fn asked(gguf: &Gguf, tokenizer: &Tokenizer, lines: Option<&str>) -> Result<Self> {
        let lines: Vec<String> = lines
            .unwrap_or(SHIPPED)
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect();
        if lines.len() < 2 {
            return Err(Error::Input(format!(
                "{} prompts: some are fitted to and others judge, so give two lines at least, better hundreds",
                lines.len()
            )));
        }
        let template = match TemplateSource::is_in(gguf)? {
            true => {
                let template = ChatTemplate::from_gguf(gguf, tokenizer)?;
                Some(Box::new(Template { caps: template.caps(false), template }))
            }
            false => None,
        };
        Ok(Prompts(Kind::Asked { template, lines }))
    }

    /// The beginnings of pieces of a text.
    pub fn continued(tokenizer: &Tokenizer, text: &str) -> Result<Self> {
        let tokens = tokenizer.encode(text, EncodeOptions { add_special: false, parse_special: false });
        let bos = tokenizer.added_bos();
        let pieces: Vec<Vec<u32>> = tokens
            .chunks_exact(BEGINNING)
            .map(|piece| bos.into_iter().chain(piece.iter().copied()).collect())
            .collect();
        if pieces.len() < 2 {
            return Err(Error::Input(format!(
                "the text has {} tokens: give {} at least, better a hundred times as many",
                tokens.len(),
                2 * BEGINNING
            )));
        }
        Ok(Prompts(Kind::Continued { pieces }))
    }

    fn len(&self) -> usize {
        match &self.0 {
            Kind::Asked { lines, .. } => lines.len(),
            Kind::Continued { pieces } => pieces.len(),
        }
    }

    fn tokens(&self, index: usize, manner: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
        let tokens = match &self.0 {
            Kind::Continued { pieces } => pieces[index].clone(),
            Kind::Asked { template, lines } => {
                let line = format!("{}{manner}", lines[index]);
                match template {
                    Some(with) => {
                        let conversation = Conversation::new(vec![Message::new("user", line)]);
                        prompt_tokens(&with.template.render(&conversation, &with.caps)?.text, tokenizer)
                    }
                    None => {
                        let options = EncodeOptions { add_special: true, parse_special: false };
                        tokenizer.encode(&line, options)
                    }
                }
            }
        };
        match tokens.len() {
            0 => Err(Error::Input(format!("prompt {}: no token comes of it; leave it out", index + 1))),
            1..=MOST_PROMPT => Ok(tokens),
            len => Err(Error::Input(format!(
                "prompt {} has {len} tokens, {MOST_PROMPT} are the limit: shorten it",
                index + 1
            ))),
        }
    }

    /// What is to be written, without an end. Those that are held out come between the others, where `judges` says that they are
    /// wanted; the others go on behind so many texts that were written before.
    pub fn assignments(
        &self,
        tokenizer: &Tokenizer,
        judges: bool,
        written: usize,
    ) -> Result<impl Iterator<Item = Assignment>> {
        let is_held_out = |index: usize| index % HELD_OUT == HELD_OUT.min(self.len()) - 1;
        let (held_out, fitted): (Vec<usize>, Vec<usize>) = (0..self.len()).partition(|&i| is_held_out(i));
        // What cannot be a prompt is said before the first text.
        let plain: Vec<Vec<u32>> =
            (0..self.len()).map(|index| self.tokens(index, "", tokenizer)).collect::<Result<_>>()?;
        let judging: Vec<Assignment> = held_out
            .iter()
            .filter(|_| judges)
            .flat_map(|&index| [0.0, TEMP].map(|temp| (index, temp)))
            .map(|(index, temp)| Assignment {
                prompt: plain[index].clone(),
                temp,
                seed: index as u32,
                held_out: true,
                most_tokens: MOST_HELD_OUT,
            })
            .collect();
        let mut others = (written..).filter_map(move |n| {
            let (round, place) = (n / fitted.len(), n % fitted.len());
            let mut order = fitted.clone();
            Noise::new(round as u64).shuffle(&mut order);
            let index = order[place];
            let manner = MANNERS[(round / 2 + index) % MANNERS.len() * usize::from(round > 1)];
            // Without a temperature the same prompt would give the same text.
            let is_greedy = (round + index) % 2 == 0 && round < 2 * MANNERS.len();
            let prompt = self.tokens(index, manner, tokenizer).ok()?;
            let temp = if is_greedy { 0.0 } else { TEMP };
            Some(Assignment { prompt, temp, seed: n as u32, held_out: false, most_tokens: MOST_TOKENS })
        });
        let mut judging = judging.into_iter();
        Ok((1..).map_while(move |n: usize| {
            let next_judge = n.is_multiple_of(BETWEEN).then(|| judging.next()).flatten();
            next_judge.or_else(|| others.next())
        }))
    }
}
