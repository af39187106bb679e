//! What the server did, for who runs it: a record of each answer, and of each request that got none.

use std::{fmt, sync::Arc, time::Instant};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use serde_json::{Value, json};

use super::App;
use crate::{
    engine::JobId,
    wire::{ApiError, Reason, Timings},
};

/// Writes records down.
pub type Log = Box<dyn Fn(&Record) + Send + Sync>;

/// Something that was done.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// An answer has ended.
    Answered {
        /// Names it: the same as at /slots.
        id: JobId,
        /// Where it was asked for.
        path: String,
        /// Why it ended; `None`: nobody waited for it any more.
        reason: Option<Reason>,
        /// Tokens and times.
        timings: Timings,
    },
    /// A request was refused, or could not be answered.
    Refused {
        /// Of the request.
        method: String,
        /// Of the request.
        path: String,
        /// Of the reply.
        status: u16,
        /// The error's message, where it has one.
        message: Option<String>,
        /// How long that took, in milliseconds.
        ms: f64,
    },
}

/// Of a client's path so much is written down.
const LONGEST_PATH: usize = 200;

/// Writes down what is refused.
pub(super) async fn refusals(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let Some(log) = &app.log else { return next.run(request).await };
    let method = request.method().to_string();
    let path = shortened(request.uri().path());
    let began = Instant::now();
    let response = next.run(request).await;
    if response.status().is_client_error() || response.status().is_server_error() {
        let message = response.extensions().get::<ApiError>().map(|error| error.message.clone());
        let ms = began.elapsed().as_secs_f64() * 1e3;
        log(&Record::Refused { method, path, status: response.status().as_u16(), message, ms });
    }
    response
}

pub(super) fn shortened(path: &str) -> String {
    path.chars().take(LONGEST_PATH).collect()
}

impl Record {
    /// For programs.
    pub fn to_json(&self) -> Value {
        match self {
            Record::Answered { id, path, reason, timings } => json!({
                "event": "answered",
                "id": id,
                "path": path,
                "reason": word(reason.as_ref()),
                "prompt_tokens": timings.cached + timings.prompt,
                "cached_tokens": timings.cached,
                "prompt_ms": timings.prompt_ms,
                "tokens": timings.predicted,
                "tokens_ms": timings.predicted_ms,
                "drafted": timings.drafted,
                "accepted": timings.accepted,
            }),
            Record::Refused { method, path, status, message, ms } => json!({
                "event": "refused",
                "method": method,
                "path": path,
                "status": status,
                "message": message,
                "ms": ms,
            }),
        }
    }
}

fn word(reason: Option<&Reason>) -> &'static str {
    match reason {
        Some(Reason::End) => "end",
        Some(Reason::Stop(_)) => "stop",
        Some(Reason::Limit) => "limit",
        None => "cancelled",
    }
}

/// For people, in a line.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Record::Answered { id, path, reason, timings } => {
                let Timings { cached, prompt, predicted, drafted, accepted, .. } = timings;
                let seconds = (timings.prompt_ms + timings.predicted_ms) / 1e3;
                write!(f, "{path} answer {id}: {predicted} tokens in {seconds:.2} s, ")?;
                write!(f, "prompt {} ({cached} cached)", cached + prompt)?;
                if *drafted > 0 {
                    write!(f, ", {accepted} of {drafted} drafted accepted")?;
                }
                write!(f, ", {}", word(reason.as_ref()))
            }
            Record::Refused { method, path, status, message, .. } => {
                write!(f, "{method} {path}: {status}")?;
                // What a client sent may be in it.
                message.iter().try_for_each(|message| write!(f, " {}", crate::quoted::one_line(message, 300)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_whatever_clients_send() {
        let refused = Record::Refused {
            method: "GET".into(),
            path: shortened(&"/x".repeat(5000)),
            status: 400,
            message: Some("`a\nb\u{1b}[31m`: no such thing".into()),
            ms: 0.5,
        };
        let line = refused.to_string();
        assert!(!line.contains(char::is_control) && line.len() < 600, "{line}");
        assert!(line.ends_with("no such thing"), "{line}");
        assert!(!refused.to_json().to_string().contains('\n'));
    }

    #[test]
    fn an_answer_says_what_it_took() {
        let timings = Timings {
            cached: 3,
            prompt: 4,
            predicted: 5,
            prompt_ms: 400.0,
            predicted_ms: 100.0,
            drafted: 6,
            accepted: 2,
        };
        let path = "/v1/completions".into();
        let record = Record::Answered { id: 9, path, reason: Some(Reason::Limit), timings };
        assert_eq!(
            record.to_string(),
            "/v1/completions answer 9: 5 tokens in 0.50 s, prompt 7 (3 cached), 2 of 6 drafted accepted, limit"
        );
        assert_eq!(
            (&record.to_json()["prompt_tokens"], &record.to_json()["reason"]),
            (&json!(7), &json!("limit"))
        );
    }
}
