//! Slots: what each is making, and its last text to a file and back.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use axum::{
    Json,
    extract::{Path as UrlPath, Request, State},
    http::Uri,
};
use serde_json::{Value, json};

use super::{
    App,
    routes::{asked, in_query, model_of, status},
    run_blocking,
};
use crate::{
    engine::{SavedText, SlotStatus},
    files::{is_device, read_limited, write_whole},
    served::Served,
    wire::{ApiError, Fields},
};

/// Bytes of a saved text: more than a context of the longest kind has.
const MOST_BYTES: u64 = 1 << 40;
const LONGEST_NAME: usize = 200;

type Result<T> = std::result::Result<T, ApiError>;

/// All slots.
pub(super) async fn list(State(app): State<Arc<App>>, uri: Uri) -> Result<Json<Value>> {
    if !app.config.slots {
        return Err(ApiError::not_supported("slots are not shown: the server was started with `no-slots`"));
    }
    let model = model_of(&app, &uri).await?;
    let slots = status(&model).await?.slots;
    let all_busy = slots.iter().all(|slot| slot.job.is_some());
    if all_busy && in_query(&uri, "fail_on_no_slot").is_some_and(|wish| wish != "0") {
        return Err(ApiError::unavailable("no slot is free"));
    }
    Ok(Json(slots.iter().enumerate().map(|(id, slot)| shown(&model, id, slot)).collect()))
}

fn shown(model: &Served, id: usize, slot: &SlotStatus) -> Value {
    let mut json = json!({
        "id": id,
        "n_ctx": model.preparer.n_ctx,
        "speculative": slot.job.is_some() && slot.drafts,
        "is_processing": slot.job.is_some(),
        "n_tokens_cached": slot.cached,
    });
    if let Some(job) = slot.job {
        json["id_task"] = job.into();
        json["n_prompt_tokens"] = slot.prompt.into();
        json["params"] = model.asked(job).unwrap_or_default();
    }
    json["next_token"] = json!([{
        "has_next_token": slot.job.is_some(),
        "n_remain": slot.left.map_or(-1, |left| left as i64),
        "n_decoded": slot.made,
    }]);
    json
}

/// Saves, restores or erases what a slot has.
pub(super) async fn act(
    State(app): State<Arc<App>>,
    UrlPath(slot): UrlPath<String>,
    uri: Uri,
    request: Request,
) -> Result<Json<Value>> {
    let slot: usize =
        slot.parse().map_err(|_| ApiError::invalid(format!("{slot:?}: slots have numbers, from 0")))?;
    let folder = app.config.saves_to.clone().ok_or_else(|| {
        ApiError::not_supported("slots are not saved: the server was started without `slot-save-path`")
    })?;
    let done = match in_query(&uri, "action").as_deref() {
        Some("save") => {
            let (model, asked) = asked(&app, &uri, request).await?;
            let path = path(&folder, &asked)?;
            run_blocking(move || save(&model, slot, &path)).await
        }
        Some("restore") => {
            let (model, asked) = asked(&app, &uri, request).await?;
            let path = path(&folder, &asked)?;
            run_blocking(move || restore(&model, slot, &path)).await
        }
        Some("erase") => {
            let model = model_of(&app, &uri).await?;
            let erase = move || Ok(json!({ "id_slot": slot, "n_erased": model.answers.erase(slot)? }));
            run_blocking(erase).await
        }
        Some(_) | None => {
            Err(ApiError::field("action", "`save`, `restore` and `erase` are possible, as ?action=save"))
        }
    };
    done.map(Json)
}

/// Which file it is, the client said; where it lies is the server's business.
fn wrong(path: &Path, what: &dyn std::fmt::Display) -> ApiError {
    ApiError::field("filename", format!("{}: {what}", name(path)))
}

/// Before it is opened, because opening a pipe waits for its other end.
fn check_regular(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(wrong(path, &"is not a regular file; give another name")),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn save(model: &Served, slot: usize, path: &Path) -> Result<Value> {
    let began = Instant::now();
    check_regular(path)?;
    let saved = model.answers.save(slot)?;
    let bytes = saved.to_bytes();
    write_whole(path, &bytes)?;
    Ok(json!({
        "id_slot": slot,
        "filename": name(path),
        "n_saved": saved.tokens.len(),
        "n_written": bytes.len(),
        "timings": { "save_ms": ms(began) },
    }))
}

fn restore(model: &Served, slot: usize, path: &Path) -> Result<Value> {
    let began = Instant::now();
    check_regular(path)?;
    let wrong = |what: &dyn std::fmt::Display| wrong(path, what);
    let bytes = match read_limited(path, MOST_BYTES) {
        Ok(bytes) => bytes,
        Err(crate::Error::Io { source, .. }) => return Err(wrong(&source)),
        Err(error) => return Err(error.into()),
    };
    let count = bytes.len();
    let saved = SavedText::from_bytes(&bytes).map_err(|error| wrong(&error))?;
    drop(bytes);
    let restored = model.answers.restore(slot, saved).map_err(|error| wrong(&error))?;
    Ok(json!({
        "id_slot": slot,
        "filename": name(path),
        "n_restored": restored,
        "n_read": count,
        "timings": { "restore_ms": ms(began) },
    }))
}

fn ms(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A file in the folder, and nowhere else.
fn path(folder: &Path, body: &Value) -> Result<PathBuf> {
    let wrong = || ApiError::field("filename", "the name of a file is needed, without a folder");
    let name = Fields::of(body)?.text("filename")?.ok_or_else(wrong)?;
    let plain =
        |c: char| !c.is_control() && !matches!(c, '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|');
    let fine = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && !name.starts_with('.')
        && !name.ends_with(['.', ' '])
        // Windows takes it for a device whatever comes after a point.
        && !name.split('.').next().is_some_and(|stem| is_device(stem.trim_end()))
        && name.chars().all(plain);
    if fine { Ok(folder.join(name)) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_lie_in_the_folder() {
        let of = |name: &str| path(Path::new("/saved"), &json!({ "filename": name }));
        assert_eq!(of("a b-1.bin").unwrap(), Path::new("/saved/a b-1.bin"));
        for name in [
            "",
            ".",
            "..",
            "../a",
            "/etc/passwd",
            "a/b",
            "a\\b",
            "C:a",
            ".hidden",
            "a\n",
            "a.",
            "a ",
            "nul",
            "Aux.bin",
        ] {
            assert_eq!(of(name).unwrap_err().status, 400, "{name:?}");
        }
        assert!(of(&"a".repeat(LONGEST_NAME)).is_ok() && of(&"a".repeat(LONGEST_NAME + 1)).is_err());
        assert!(path(Path::new("/saved"), &json!({})).is_err());
    }
}
