//! What was done so far, in Prometheus's text, by llama-server's names.

use std::{
    fmt::Write,
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    engine::{Done, Status},
    wire::Timings,
};

/// Sums over answers.
pub(super) struct Metrics {
    sums: Mutex<Sums>,
    /// Seconds since 1970.
    pub started: u64,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    prompt: usize,
    cached: usize,
    prompt_ms: f64,
    predicted: usize,
    /// Tokens that took a step: the first one of an answer comes of its prompt.
    steps: usize,
    predicted_ms: f64,
    requests: usize,
}

impl Default for Metrics {
    fn default() -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Metrics { sums: Mutex::default(), started }
    }
}

impl Metrics {
    /// Counts an answer that has ended, or that nobody waits for any more.
    pub fn count(&self, timings: &Timings) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.prompt += timings.prompt;
        sums.cached += timings.cached;
        sums.prompt_ms += timings.prompt_ms;
        sums.predicted += timings.predicted;
        sums.steps += timings.predicted.saturating_sub(1);
        sums.predicted_ms += timings.predicted_ms;
        sums.requests += 1;
    }

    /// All of it, and what is being made.
    pub fn text(&self, status: &Status) -> String {
        let sums = *self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let Done { passes, texts, longest, drafts, drafted, accepted, accepted_at } = &status.done;
        let rate = |n: usize, ms: f64| if ms > 0.0 { n as f64 * 1e3 / ms } else { 0.0 };
        let mut text = String::new();
        let mut says = |name: &str, kind: &str, help: &str, value: f64| {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "# HELP llamacpp:{name} {help}.\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {value}"
            );
        };
        let mut counts = |name: &str, help: &str, value: f64| says(name, "counter", help, value);
        counts("prompt_tokens_total", "Tokens of prompts that were evaluated", sums.prompt as f64);
        counts("prompt_tokens_cached_total", "Tokens of prompts that were in the cache", sums.cached as f64);
        counts("prompt_seconds_total", "Seconds for prompts, from their beginning", sums.prompt_ms / 1e3);
        counts("tokens_predicted_total", "Tokens of answers", sums.predicted as f64);
        counts("tokens_predicted_seconds_total", "Seconds for answers", sums.predicted_ms / 1e3);
        counts("n_decode_total", "Passes that made texts, without those that drafted", *passes as f64);
        counts("n_tokens_max", "The most tokens that a text had in the cache", *longest as f64);
        counts("spec_decode_num_draft_tokens_total", "Tokens that were drafted", *drafted as f64);
        counts("spec_decode_num_accepted_tokens_total", "Drafted tokens that became text", *accepted as f64);
        counts("spec_decode_num_drafts_total", "Rounds that drafted", *drafts as f64);
        counts("requests_total", "Answers that have ended, or that nobody waited for", sums.requests as f64);
        let mut gauge = |name: &str, help: &str, value: f64| says(name, "gauge", help, value);
        gauge("prompt_tokens_seconds", "Tokens of prompts in a second", rate(sums.prompt, sums.prompt_ms));
        gauge(
            "predicted_tokens_seconds",
            "Tokens of answers in a second",
            rate(sums.steps, sums.predicted_ms),
        );
        gauge("requests_processing", "Answers that are being made", status.running as f64);
        gauge("requests_deferred", "Answers that wait", status.waiting as f64);
        let texts = *texts as f64 / (*passes).max(1) as f64;
        gauge("n_busy_slots_per_decode", "Texts in a pass on average", texts);
        let used = 1.0 - status.free_cells as f64 / status.cells.max(1) as f64;
        gauge("kv_cache_usage_ratio", "Share of the cache's cells that hold something", used);
        let name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total";
        let _ = writeln!(text, "# HELP {name} The same by the place in the draft.\n# TYPE {name} counter");
        for (place, accepted) in accepted_at.iter().enumerate() {
            let _ = writeln!(text, "{name}{{position=\"{place}\"}} {accepted}");
        }
        text
    }
}
