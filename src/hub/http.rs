//! Requests: redirects, the token and who may see it, and what is worth another try.

use std::{fs, io::Read, thread, time::Duration};

use ureq::{
    Agent, Body, Timeout,
    http::{Response, StatusCode, Uri, header},
    tls::{PemItem, RootCerts, TlsConfig, parse_pem},
};

use super::{Settings, names::is_hex};
use crate::{Error, Result, quoted::squeezed};

const MOST_REDIRECTS: usize = 10;
/// Tries in a row of which none got any further.
const TRIES: u32 = 4;
const CONNECT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const LARGEST_LISTING: u64 = 64 << 20;

/// Why a request failed.
pub enum Failure {
    /// Another try would fail alike.
    Final(Error),
    /// The server said no: the status, and its word for why.
    Refused(StatusCode, Option<String>),
    /// The server asks to come again, after a while if it says so.
    Busy(StatusCode, Option<Duration>),
    /// No connection.
    Unreachable(String),
    /// A connection that broke off.
    Broken(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Final(error)
    }
}

impl Failure {
    /// As an error of `what`, which is an address or a file's name.
    pub fn into_error(self, what: &str) -> Error {
        match self {
            Failure::Final(error) => error,
            Failure::Refused(status, None) => Error::Hub(format!("{what}: the server says {status}")),
            Failure::Refused(status, Some(why)) => {
                Error::Hub(format!("{what}: the server says {status}, {why}"))
            }
            Failure::Busy(status, _) => {
                Error::Hub(format!("{what}: the server says {status}; try again later"))
            }
            Failure::Unreachable(why) | Failure::Broken(why) => Error::Hub(format!("{what}: {why}")),
        }
    }

    /// How long to wait before another try, after `tries` in a row; `None` if that is no use.
    fn pause(&self, tries: u32, contact: Contact) -> Option<Duration> {
        let doubling = Duration::from_secs(1 << (tries - 1));
        match self {
            _ if tries >= TRIES => None,
            Failure::Final(_) | Failure::Refused(..) => None,
            Failure::Unreachable(_) if contact == Contact::First => None,
            Failure::Busy(_, asked) => Some(asked.unwrap_or(doubling).min(LONGEST_WAIT)),
            Failure::Unreachable(_) | Failure::Broken(_) => Some(doubling),
        }
    }
}

/// Who cannot be reached to begin with is most likely not there: nobody shall wait for that.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Contact {
    First,
    Later,
}

/// Tries again while that may help. `attempt` says with its failure whether it got further than the one before.
pub fn persist<T>(
    contact: Contact,
    mut attempt: impl FnMut() -> Result<T, (Failure, bool)>,
) -> Result<T, Failure> {
    let mut tries = 0;
    loop {
        let (failure, further) = match attempt() {
            Ok(value) => return Ok(value),
            Err(failed) => failed,
        };
        tries = if further { 1 } else { tries + 1 };
        let Some(pause) = failure.pause(tries, contact) else { return Err(failure) };
        thread::sleep(pause);
    }
}

/// Scheme, host and port: what the token is bound to.
#[derive(PartialEq, Eq)]
struct Origin(String, String, u16);

impl Origin {
    fn of(uri: &Uri) -> Option<Self> {
        let scheme = uri.scheme_str()?;
        let usual = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return None,
        };
        let host = uri.host()?.to_ascii_lowercase();
        Some(Origin(scheme.into(), host, uri.port_u16().unwrap_or(usual)))
    }
}

fn parse(address: &str) -> Result<(Uri, Origin)> {
    let uri = address.parse::<Uri>().ok();
    uri.and_then(|uri| Origin::of(&uri).map(|origin| (uri, origin)))
        .ok_or_else(|| Error::Hub(format!("{address:?}: not an address of the form https://HOST/PATH")))
}

/// The address that `location` stands for at `base`.
fn resolve(base: &Uri, location: &str) -> String {
    let authority = |base: &Uri| base.authority().map_or(String::new(), |a| a.as_str().to_string());
    let scheme = base.scheme_str().unwrap_or("https");
    if location.split_once("://").is_some_and(|(s, _)| s.bytes().all(|b| b.is_ascii_alphanumeric())) {
        location.into()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{}{location}", authority(base))
    } else {
        let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{}{folder}/{location}", authority(base))
    }
}

/// An answer, and what was said on the way to it.
pub struct Answer {
    pub response: Response<Body>,
    /// The SHA-256 that the hub names for a file which lies elsewhere.
    pub sha256: Option<String>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    pub fn status(&self) -> StatusCode {
        self.response.status()
    }
}

/// What is asked for beyond the address: bytes from a place on, if the file is still the one with this ETag.
#[derive(Clone, Copy, Default)]
pub struct Start<'a> {
    pub byte: u64,
    pub etag: Option<&'a str>,
}

pub struct Client {
    agent: Agent,
    endpoint: Origin,
    token: Option<String>,
}

impl Client {
    pub fn new(settings: &Settings) -> Result<Self> {
        let config = Agent::config_builder()
            .user_agent(concat!("spec-run/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(settings.timeout))
            .timeout_per_read(Some(settings.timeout));
        let config = match &settings.certificates {
            Some(path) => config.tls_config(TlsConfig::builder().root_certs(certificates(path)?).build()),
            None => config,
        };
        let sound = |token: &str| token.bytes().all(|b| b.is_ascii_graphic());
        if !settings.token.as_deref().is_none_or(sound) {
            return Err(Error::Hub("the hub's token has characters that no token has: see HF_TOKEN".into()));
        }
        let (_, endpoint) = parse(&settings.endpoint)?;
        Ok(Client { agent: config.build().new_agent(), endpoint, token: settings.token.clone() })
    }

    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Follows redirects; the token goes to the hub and nowhere else.
    pub fn get(&self, address: &str, from: Start) -> Result<Answer, Failure> {
        let mut address = address.to_string();
        let mut sha256 = None;
        for _ in 0..=MOST_REDIRECTS {
            let (uri, origin) = parse(&address)?;
            let mut request = self.agent.get(&address);
            if let Some(token) = self.token.as_ref().filter(|_| origin == self.endpoint) {
                request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
            }
            if from.byte > 0 {
                request = request.header(header::RANGE, format!("bytes={}-", from.byte));
                if let Some(etag) = from.etag {
                    request = request.header(header::IF_RANGE, etag);
                }
            }
            let host = &origin.1;
            let response = request.call().map_err(|e| broken(host, &e))?;
            let answer = Answer { response, sha256: None };
            let linked =
                answer.header("x-linked-etag").map(|etag| etag.trim_matches('"').to_ascii_lowercase());
            sha256 = sha256.or(linked.filter(|hash| is_hex(hash, 64)));
            let status = answer.status();
            if status.is_redirection()
                && let Some(location) = answer.header("location")
            {
                let next = resolve(&uri, location);
                if origin.0 == "https" && !next.to_ascii_lowercase().starts_with("https://") {
                    let what = format!("{address}: leads to {next}, which is not encrypted; not followed");
                    return Err(Error::Hub(what).into());
                }
                address = next;
                continue;
            }
            return match status.as_u16() {
                200 | 206 | 416 => Ok(Answer { sha256, ..answer }),
                429 | 500 | 502 | 503 | 504 => {
                    let seconds = answer.header("retry-after").and_then(|text| text.trim().parse().ok());
                    Err(Failure::Busy(status, seconds.map(Duration::from_secs)))
                }
                _ => {
                    let why =
                        answer.header("x-error-message").or(answer.header("x-error-code")).map(squeezed);
                    Err(Failure::Refused(status, why))
                }
            };
        }
        Err(Error::Hub(format!("{address}: more than {MOST_REDIRECTS} redirects")).into())
    }

    /// A text in full; and where the list goes on, if it does.
    pub fn text(&self, address: &str) -> Result<(String, Option<String>), Failure> {
        persist(Contact::First, || {
            let answer = self.get(address, Start::default()).map_err(|failure| (failure, false))?;
            let next = answer.header("link").and_then(next_page);
            let mut text = String::new();
            let mut body = answer.response.into_body();
            let read = body.as_reader().take(LARGEST_LISTING).read_to_string(&mut text);
            read.map_err(|e| (Failure::Broken(squeezed(&e.to_string())), false))?;
            Ok((text, next))
        })
    }

    /// Whether the token would go to this address.
    pub fn is_hub(&self, address: &str) -> bool {
        parse(address).is_ok_and(|(_, origin)| origin == self.endpoint)
    }
}

fn broken(host: &str, error: &ureq::Error) -> Failure {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    let why = format!("{host}: {}", squeezed(&error.to_string()));
    match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => Failure::Unreachable(why),
        ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => Failure::Unreachable(why),
        ureq::Error::Io(e)
            if [ConnectionRefused, HostUnreachable, NetworkUnreachable].contains(&e.kind()) =>
        {
            Failure::Unreachable(why)
        }
        _ => Failure::Broken(why),
    }
}

/// `<https://...>; rel="next"`
fn next_page(link: &str) -> Option<String> {
    let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    Some(next.split_once('<')?.1.split_once('>')?.0.to_string())
}

fn certificates(path: &std::path::Path) -> Result<RootCerts> {
    let pem = fs::read(path).map_err(|e| Error::io(path, e))?;
    let found: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        return Err(Error::Hub(format!("{}: no certificate in it: see SSL_CERT_FILE", path.display())));
    }
    Ok(found.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_resolved() {
        let base: Uri = "https://hub.example:8443/a/b?x=1".parse().unwrap();
        for (location, address) in [
            ("https://cdn.example/x?u=http://y", "https://cdn.example/x?u=http://y"),
            ("//cdn.example/x", "https://cdn.example/x"),
            ("/x?y=https://z", "https://hub.example:8443/x?y=https://z"),
            ("x", "https://hub.example:8443/a/x"),
        ] {
            assert_eq!(resolve(&base, location), address);
        }
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let same = |a: &str, b: &str| Origin::of(&a.parse().unwrap()) == Origin::of(&b.parse().unwrap());
        assert!(same("https://Hub.example/a", "https://hub.example:443/b"));
        assert!(!same("https://hub.example", "http://hub.example"));
        assert!(!same("https://hub.example", "https://hub.example:8443"));
        assert!(!same("https://hub.example", "https://hub.example.evil"));
        // What stands before the @ is no host.
        assert!(!same("https://hub.example", "https://hub.example@evil.example"));
        assert!(parse("file:///etc/passwd").is_err());
        assert!(parse("hub.example/x").is_err());
    }

    #[test]
    fn lists_say_where_they_go_on() {
        let link = "<https://h/first>; rel=\"first\", <https://h/x?cursor=1>; rel=\"next\"";
        assert_eq!(next_page(link).as_deref(), Some("https://h/x?cursor=1"));
        assert_eq!(next_page("<https://h/x>; rel=\"prev\""), None);
    }
}
