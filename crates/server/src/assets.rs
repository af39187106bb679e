//! The page that browsers are given at `/`: its files are part of the program.

use super::http::Asset;

/// The header that keeps the page to this server.
pub const POLICY: &str = include_str!("page/policy.txt");

macro_rules! assets {
    ($($path:literal: $kind:literal,)*) => {
        /// All of it: path, type and bytes.
        pub static PAGE: &[Asset] = &[$(($path, $kind, include_bytes!(concat!("page/", $path))),)*];
    };
}

assets! {
    "answer.js": "text/javascript",
    "chat.js": "text/javascript",
    "dom.js": "text/javascript",
    "drafted.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "index.html": "text/html; charset=utf-8",
    "main.js": "text/javascript",
    "manifest.webmanifest": "application/manifest+json",
    "markdown.js": "text/javascript",
    "message.js": "text/javascript",
    "server.js": "text/javascript",
    "settings.js": "text/javascript",
    "sidebar.js": "text/javascript",
    "speed.js": "text/javascript",
    "sse.js": "text/javascript",
    "store.js": "text/javascript",
    "style.css": "text/css",
    "sw.js": "text/javascript",
    "thread.js": "text/javascript",
    "transfer.js": "text/javascript",
    "tree.js": "text/javascript",
    "vendor/marked.js": "text/javascript",
    "vendor/purify.js": "text/javascript",
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lies in the folder is served, but for what is for people.
    #[test]
    fn nothing_of_the_page_is_missing() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/src/page");
        let mut folders = vec![std::path::PathBuf::from(root)];
        let mut found = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
                let is_told = name.ends_with(".md") || name.ends_with("-LICENSE") || name == "policy.txt";
                match path.is_dir() {
                    true => folders.push(path),
                    false if is_told => (),
                    false => {
                        assert!(PAGE.iter().any(|(known, ..)| *known == name), "{name}");
                        found += 1;
                    }
                }
            }
        }
        assert_eq!(found, PAGE.len());
    }
}
