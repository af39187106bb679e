//! A model and its tokenizer.

use std::{path::PathBuf, sync::Arc};

use pyo3::prelude::*;
use spec_run::{
    Tokenizer,
    chat::{ChatTemplate, Conversation, Message, TemplateSource, Tool, known_template, prompt_tokens},
    tokenizer::EncodeOptions,
};

use crate::errors::{raised, wrong};

/// Templates may nest; the library bounds their work, and this their stack.
const STACK: usize = 64 << 20;

/// A model of a GGUF file, and its tokenizer. Its weights are read from the file when something runs.
#[pyclass(module = "spec_run", frozen)]
pub struct Model {
    pub model: Arc<spec_run::Model>,
    pub tokenizer: Arc<Tokenizer>,
}

impl Model {
    fn of(model: Arc<spec_run::Model>) -> spec_run::Result<Self> {
        let tokenizer = Arc::new(Tokenizer::from_gguf(&model.gguf)?);
        Ok(Model { model, tokenizer })
    }

    fn check(&self, tokens: &[u32]) -> PyResult<()> {
        match tokens.iter().find(|&&token| token as usize >= self.tokenizer.vocab_size()) {
            None => Ok(()),
            Some(token) => {
                let most = self.tokenizer.vocab_size();
                Err(wrong(format!("token {token} is not in the vocabulary of {most}")))
            }
        }
    }
}

#[pymethods]
impl Model {
    /// The model of a file, or of the first of several.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| Model::of(spec_run::Model::open(&path)?)).map_err(raised)
    }

    /// The small model that comes with this package.
    #[staticmethod]
    fn embedded(py: Python<'_>) -> PyResult<Self> {
        py.detach(|| Model::of(spec_run::Model::embedded()?)).map_err(raised)
    }

    /// What the file calls it.
    #[getter]
    fn name(&self) -> &str {
        &self.model.name
    }

    #[getter]
    fn arch(&self) -> &str {
        &self.model.arch
    }

    #[getter]
    fn n_layer(&self) -> usize {
        self.model.n_layer()
    }

    #[getter]
    fn n_vocab(&self) -> usize {
        self.model.n_vocab()
    }

    /// Whether it writes text: an encoder makes embeddings alone.
    #[getter]
    fn writes_text(&self) -> bool {
        self.model.writes_text()
    }

    /// The context length that it was trained for.
    #[getter]
    fn n_ctx_train(&self) -> u32 {
        self.model.n_ctx_train
    }

    /// Tells its weights from others.
    #[getter]
    fn fingerprint(&self) -> String {
        self.model.fingerprint()
    }

    /// Of the token that begins a text, if there is one.
    #[getter]
    fn bos(&self) -> Option<u32> {
        self.tokenizer.bos()
    }

    /// Of the token that ends a text.
    #[getter]
    fn eos(&self) -> Option<u32> {
        self.tokenizer.eos()
    }

    /// Whether texts begin with that token.
    #[getter]
    fn adds_bos(&self) -> bool {
        self.tokenizer.adds_bos()
    }

    /// The tokens of a text.
    #[pyo3(signature = (text, *, add_special=true, parse_special=false))]
    fn tokenize(&self, py: Python<'_>, text: &str, add_special: bool, parse_special: bool) -> Vec<u32> {
        py.detach(|| self.tokenizer.encode(text, EncodeOptions { add_special, parse_special }))
    }

    /// The text of tokens. Bytes that are no character become U+FFFD.
    fn detokenize(&self, tokens: Vec<u32>) -> PyResult<String> {
        self.check(&tokens)?;
        Ok(String::from_utf8_lossy(&self.tokenizer.decode(&tokens)).into_owned())
    }

    /// The bytes of one token.
    fn piece(&self, token: u32) -> PyResult<&[u8]> {
        self.check(&[token])?;
        Ok(self.tokenizer.piece(token))
    }

    /// The prompt for a conversation: messages and tools as JSON lists. The template is the model's own, one that is known by
    /// its name, or a text.
    #[pyo3(signature = (messages, tools=None, *, template=None, add_generation_prompt=true, continue_final_message=false,
        thinking=true))]
    #[expect(clippy::too_many_arguments, reason = "by their names, in Python")]
    fn render_chat(
        &self,
        py: Python<'_>,
        messages: &str,
        tools: Option<&str>,
        template: Option<&str>,
        add_generation_prompt: bool,
        continue_final_message: bool,
        thinking: bool,
    ) -> PyResult<String> {
        let messages = list("messages", messages, Message::from_json)?;
        let mut conversation = Conversation::new(messages);
        if let Some(tools) = tools {
            // A tool of a kind that no model calls is left out, as the server does.
            conversation.tools = list("tools", tools, Tool::from_json)?.into_iter().flatten().collect();
        }
        conversation.add_generation_prompt = add_generation_prompt && !continue_final_message;
        conversation.continue_final_message = continue_final_message;
        conversation.thinking = thinking;
        let source = match template {
            None => TemplateSource::of(&self.model.gguf, &self.tokenizer),
            Some(given) => {
                TemplateSource::new(known_template(given).unwrap_or(given).into(), &self.tokenizer)
            }
        };
        let source = source.map_err(raised)?;
        let render = move || {
            let template = ChatTemplate::new(source)?;
            let caps = template.caps(!conversation.tools.is_empty());
            Ok(template.render(&conversation, &caps)?.text)
        };
        let thread = std::thread::Builder::new().stack_size(STACK).spawn(render)?;
        let failed = |_| wrong("the chat template of the file failed");
        py.detach(|| thread.join()).map_err(failed)?.map_err(raised)
    }

    /// The tokens of a prompt that a template has made.
    fn prompt_tokens(&self, text: &str) -> Vec<u32> {
        prompt_tokens(text, &self.tokenizer)
    }

    fn __repr__(&self) -> String {
        format!("<spec_run.Model {:?}, {} layers>", self.model.name, self.model.n_layer())
    }
}

/// A list of things written as JSON.
fn list<T>(
    what: &str,
    json: &str,
    read: impl Fn(&serde_json::Value) -> Result<T, String>,
) -> PyResult<Vec<T>> {
    let all: Vec<serde_json::Value> =
        serde_json::from_str(json).map_err(|e| wrong(format!("{what}: a list is needed ({e})")))?;
    all.iter().enumerate().map(|(i, one)| read(one).map_err(|e| wrong(format!("{what}[{i}]: {e}")))).collect()
}
