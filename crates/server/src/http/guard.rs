//! Who may use the server: keys, and pages of other origins.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::App;
use crate::wire::ApiError;

/// Which pages of others may use the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// All.
    All,
    /// Those of this machine.
    Localhost,
    /// These.
    Some(Vec<String>),
}

impl Origins {
    /// `*`, `localhost`, or origins with commas between them.
    pub fn parse(text: &str) -> Self {
        match text.trim() {
            "*" => Origins::All,
            "localhost" => Origins::Localhost,
            list => Origins::Some(list.split(',').map(|one| one.trim().to_owned()).collect()),
        }
    }

    fn allow(&self, origin: &str) -> bool {
        match self {
            Origins::All => true,
            Origins::Some(all) => all.iter().any(|one| one == origin),
            Origins::Localhost => {
                let host = origin.split_once("://").map_or("", |(_, host)| host);
                let host = match host.strip_prefix('[') {
                    Some(v6) => v6.split_once(']').map_or("", |(host, _)| host),
                    None => host.split_once(':').map_or(host, |(host, _)| host),
                };
                matches!(host, "localhost" | "127.0.0.1" | "::1")
            }
        }
    }
}

/// Answers what browsers ask before a request, and says on each answer which pages may read it.
pub(super) async fn origins(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let allowed = origin.filter(|origin| origin.to_str().is_ok_and(|text| app.config.origins.allow(text)));
    let asks = request.method() == Method::OPTIONS;
    let mut response = if asks { StatusCode::OK.into_response() } else { next.run(request).await };
    if let Some(origin) = allowed {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("Origin"));
        if asks {
            let fixed = [
                (header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true"),
                (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE, OPTIONS"),
                (header::ACCESS_CONTROL_ALLOW_HEADERS, "*"),
            ];
            headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
        }
    }
    response
}

/// Lets through who has a key, if keys are needed.
pub(super) async fn keys(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response {
    let keys = &app.config.api_keys;
    let public = super::routes::is_public(&app, request.uri().path());
    if keys.is_empty()
        || public
        || given(request.headers()).is_some_and(|key| keys.iter().any(|one| same(one, key)))
    {
        return next.run(request).await;
    }
    ApiError::authentication().into_response()
}

fn given(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    text("x-api-key").or_else(|| {
        let bearer = text("authorization")?;
        bearer.get(.."bearer ".len()).filter(|word| word.eq_ignore_ascii_case("bearer "))?;
        bearer.get("bearer ".len()..)
    })
}

/// Takes as long for a key that is wrong at the end as for one that is wrong at the beginning.
fn same(key: &str, given: &str) -> bool {
    let differ = key.bytes().zip(given.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
    key.len() == given.len() && differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_of_this_machine() {
        let local = Origins::parse("localhost");
        for origin in [
            "http://localhost",
            "http://localhost:8080",
            "http://127.0.0.1:3000",
            "http://[::1]",
            "https://[::1]:3",
        ] {
            assert!(local.allow(origin), "{origin}");
        }
        for origin in [
            "http://web.mydomain.fr",
            "http://notlocalhost",
            "http://localhost.evil.com",
            "localhost",
            "http://[evil]",
        ] {
            assert!(!local.allow(origin), "{origin}");
        }
        assert!(Origins::parse("*").allow("x"));
        let some = Origins::parse("https://a.b, https://c.d");
        assert!(some.allow("https://c.d") && !some.allow("https://e.f"));
    }

    #[test]
    fn keys_are_given_in_two_ways() {
        let headers = |name: &'static str, value: &'static str| {
            HeaderMap::from_iter([(header::HeaderName::from_static(name), HeaderValue::from_static(value))])
        };
        assert_eq!(given(&headers("authorization", "Bearer abc")), Some("abc"));
        assert_eq!(given(&headers("authorization", "bearer abc")), Some("abc"));
        assert_eq!(given(&headers("x-api-key", "abc")), Some("abc"));
        assert_eq!(given(&headers("authorization", "Basic abc")), None);
        assert!(same("abc", "abc") && !same("abc", "abd") && !same("abc", "ab") && !same("ab", "abc"));
    }
}
