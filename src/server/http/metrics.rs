//! What was done so far, in Prometheus's text, by llama-server's names.

use std::{
    fmt::Write,
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{engine::Status, server::wire::Whole};

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
    steps: usize,
    predicted_ms: f64,
    drafted: usize,
    accepted: usize,
    longest: usize,
    rounds: usize,
    passes: usize,
    requests: usize,
}

impl Default for Metrics {
    fn default() -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Metrics { sums: Mutex::default(), started }
    }
}

impl Metrics {
    /// Counts an answer that has ended.
    pub fn count(&self, whole: &Whole) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let timings = &whole.timings;
        sums.prompt += timings.prompt;
        sums.cached += timings.cached;
        sums.prompt_ms += timings.prompt_ms;
        sums.predicted += timings.predicted;
        sums.steps += timings.predicted.saturating_sub(1);
        sums.predicted_ms += timings.predicted_ms;
        sums.drafted += timings.drafted;
        sums.accepted += timings.accepted;
        sums.longest = sums.longest.max(whole.prompt_tokens + timings.predicted);
        sums.rounds += timings.rounds;
        sums.passes += timings.passes;
        sums.requests += 1;
    }

    /// All of it, and what is being made.
    pub fn text(&self, status: Status) -> String {
        let sums = *self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = |n: usize, ms: f64| if ms > 0.0 { n as f64 * 1e3 / ms } else { 0.0 };
        let rows: [(&str, &str, &str, f64); 17] = [
            ("prompt_tokens_total", "counter", "Tokens of prompts that were evaluated", sums.prompt as f64),
            (
                "prompt_tokens_cached_total",
                "counter",
                "Tokens of prompts that were in the cache",
                sums.cached as f64,
            ),
            ("prompt_seconds_total", "counter", "Seconds for prompts", sums.prompt_ms / 1e3),
            ("tokens_predicted_total", "counter", "Tokens of answers", sums.predicted as f64),
            ("tokens_predicted_seconds_total", "counter", "Seconds for answers", sums.predicted_ms / 1e3),
            ("n_decode_total", "counter", "Passes that gave tokens, counted by answer", sums.passes as f64),
            ("n_tokens_max", "counter", "The longest text", sums.longest as f64),
            (
                "spec_decode_num_draft_tokens_total",
                "counter",
                "Tokens that were drafted",
                sums.drafted as f64,
            ),
            (
                "spec_decode_num_accepted_tokens_total",
                "counter",
                "Drafted tokens that became text",
                sums.accepted as f64,
            ),
            ("spec_decode_num_drafts_total", "counter", "Rounds that drafted", sums.rounds as f64),
            ("requests_total", "counter", "Answers that have ended", sums.requests as f64),
            (
                "prompt_tokens_seconds",
                "gauge",
                "Tokens of prompts in a second",
                rate(sums.prompt, sums.prompt_ms),
            ),
            (
                "predicted_tokens_seconds",
                "gauge",
                "Tokens of answers in a second",
                rate(sums.steps, sums.predicted_ms),
            ),
            ("requests_processing", "gauge", "Answers that are being made", status.running as f64),
            ("requests_deferred", "gauge", "Answers that wait", status.waiting as f64),
            ("n_busy_slots_per_decode", "gauge", "Texts in a pass now", status.running as f64),
            (
                "kv_cache_usage_ratio",
                "gauge",
                "Share of the cache's cells that hold something",
                1.0 - status.free_cells as f64 / status.cells.max(1) as f64,
            ),
        ];
        let mut text = String::new();
        for (name, kind, help, value) in rows {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "# HELP llamacpp:{name} {help}.\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {value}"
            );
        }
        text
    }
}
