//! Answers over HTTP, as OpenAI's, Anthropic's and llama-server's clients ask for them.

pub mod wire;
