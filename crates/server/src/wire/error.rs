//! Errors as clients know them from OpenAI and llama-server.

use serde_json::{Map, Value, json};

use crate::{Error, quoted::one_line};

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// Of HTTP.
    pub status: u16,
    /// What kind of error, in one word.
    pub kind: &'static str,
    /// One line for people.
    pub message: String,
    /// What programs may want to know.
    pub more: Map<String, Value>,
}

impl ApiError {
    fn new(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        ApiError { status, kind, message: message.into(), more: Map::new() }
    }

    /// Something in the request cannot be.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request_error", message)
    }

    /// The same, and which field it is.
    pub fn field(name: &str, message: impl std::fmt::Display) -> Self {
        let error = Self::invalid(format!("`{name}`: {message}"));
        error.with("param", name)
    }

    /// The prompt has no room.
    pub fn too_long(tokens: usize, most: usize) -> Self {
        let message = format!(
            "the request has {tokens} tokens, which exceeds the available context size of {most} tokens; \
             shorten it, or start the server with a larger --ctx-size or a smaller --parallel"
        );
        // llama-server's clients look for these words.
        let error = Self::new(400, "exceed_context_size_error", message);
        error.with("n_prompt_tokens", tokens).with("n_ctx", most)
    }

    /// No key, or a wrong one.
    pub fn authentication() -> Self {
        Self::new(
            401,
            "authentication_error",
            "Invalid API Key: send one of the server's as `Authorization: Bearer KEY`",
        )
    }

    /// There is nothing at this path.
    pub fn not_found(path: &str) -> Self {
        Self::new(404, "not_found_error", format!("{}: there is nothing here", one_line(path, 200)))
    }

    /// What is at this path is not asked in this way.
    pub fn method(method: &str, path: &str) -> Self {
        Self::new(
            405,
            "invalid_request_error",
            format!("{}: {method} is not possible here", one_line(path, 200)),
        )
    }

    /// There could be something, but it is not switched on.
    pub fn not_supported(message: impl Into<String>) -> Self {
        Self::new(501, "not_supported_error", message)
    }

    /// Not now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "unavailable_error", message)
    }

    /// So many wait that there is no room for another.
    pub fn busy(most_waiting: usize) -> Self {
        Self::unavailable(format!("{most_waiting} requests wait already; try again later"))
    }

    /// It is not the client's fault.
    pub fn server(message: impl Into<String>) -> Self {
        Self::new(500, "server_error", message)
    }

    /// With something more for programs.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.more.insert(key.into(), value.into());
        self
    }

    /// OpenAI's shape.
    pub fn to_json(&self) -> Value {
        let mut error = json!({ "code": self.status, "message": self.message, "type": self.kind });
        for (key, value) in &self.more {
            error[key] = value.clone();
        }
        json!({ "error": error })
    }

    /// Anthropic's shape.
    pub fn to_messages_json(&self) -> Value {
        let mut error = self.to_json();
        error["type"] = "error".into();
        error
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error {
            Error::TooLong { tokens, most } => Self::too_long(tokens, most),
            Error::Usage(_) | Error::Input(_) | Error::Tokenizer(_) | Error::Mask(_) | Error::Batch(_) => {
                Self::invalid(error.to_string())
            }
            Error::Io { .. }
            | Error::Gguf { .. }
            | Error::Model { .. }
            | Error::Device(_)
            | Error::Memory(_)
            | Error::Hub(_)
            | Error::ClosedPipe => Self::server(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_shape_that_clients_look_for() {
        let error = ApiError::too_long(300, 256).to_json();
        assert_eq!(error["error"]["type"], "exceed_context_size_error");
        assert_eq!(error["error"]["n_prompt_tokens"], 300);
        assert_eq!(error["error"]["n_ctx"], 256);
        assert!(error["error"]["message"].as_str().unwrap().contains("exceeds the available context size"));
        let error = ApiError::field("top_p", "2 is too much").to_messages_json();
        assert_eq!(
            (&error["type"], &error["error"]["type"]),
            (&json!("error"), &json!("invalid_request_error"))
        );
        assert_eq!((&error["error"]["param"], &error["error"]["code"]), (&json!("top_p"), &json!(400)));
    }
}
