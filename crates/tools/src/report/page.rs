//! The page around pictures: a heading, tables, where it all comes from, and the data to take along.

use std::fmt::{self, Write};

use super::escape::Escaped;

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:15px/1.45 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;max-width:800px;margin:2em auto;padding:0 1em;\
background:#fff;color:#222}\
h1{font-size:1.5em;line-height:1.2;overflow-wrap:anywhere}h2{font-size:1.15em;margin-top:2em}\
.wide{overflow-x:auto}.wide svg{display:block;width:100%;height:auto;min-width:680px}\
.alert{border-left:4px solid #cf5400;padding:.3em .8em;background:#cf54001a}\
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}\
th,td{padding:.2em .6em;text-align:right;border-bottom:1px solid #8884;white-space:nowrap}th{vertical-align:bottom}\
.text{text-align:left}\
.about{border:1px solid #8886;border-radius:6px;padding:.4em 1em;font-size:13px;margin:1em 0}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15em 1em}dt{font-weight:600}dd{margin:0;overflow-wrap:anywhere}\
@media(max-width:500px){dl{grid-template-columns:1fr}dd{margin-bottom:.4em}}\
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}a{color:#8ab8ff}}";

/// A table; columns of text keep to the left.
#[derive(Default)]
pub struct Table {
    pub head: Vec<Head>,
    pub rows: Vec<Vec<String>>,
}

pub struct Head {
    pub name: String,
    /// For who points at it.
    pub meaning: String,
    pub is_text: bool,
}

impl Head {
    pub fn text(name: &str) -> Self {
        Head { name: name.into(), meaning: String::new(), is_text: true }
    }

    pub fn number(name: &str, meaning: &str) -> Self {
        Head { name: name.into(), meaning: meaning.into(), is_text: false }
    }
}

/// A file that comes with the page.
pub struct Data {
    pub file: String,
    pub csv: String,
}

#[derive(Default)]
pub struct Page {
    pub title: String,
    /// What must not be overlooked.
    pub alerts: Vec<String>,
    pub intro: String,
    /// SVG.
    pub figure: String,
    /// Of the figure and the table.
    pub notes: Vec<String>,
    pub table: Table,
    /// Whose it is, if there are several, and what is known of it.
    pub about: Vec<(String, Vec<(String, String)>)>,
    pub data: Vec<Data>,
}

impl Page {
    pub fn html(&self) -> String {
        let mut out = String::new();
        self.write(&mut out).expect("writing to a string");
        out
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let title = Escaped(&self.title);
        // Every element is closed, so that the page is read by whatever reads XML, too.
        writeln!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>"
        )?;
        for alert in &self.alerts {
            writeln!(out, "<p class=\"alert\">{}</p>", Escaped(alert))?;
        }
        if !self.intro.is_empty() {
            writeln!(out, "<p>{}</p>", Escaped(&self.intro))?;
        }
        writeln!(out, "<div class=\"wide\">\n{}</div>", self.figure)?;
        for note in &self.notes {
            writeln!(out, "<p>{}</p>", Escaped(note))?;
        }
        writeln!(out, "<h2>Numbers</h2>")?;
        self.links(out)?;
        self.table.write(out)?;
        writeln!(out, "<h2>Where this comes from</h2>")?;
        for (whose, lines) in &self.about {
            writeln!(out, "<div class=\"about\">")?;
            if !whose.is_empty() {
                writeln!(out, "<b>{}</b>", Escaped(whose))?;
            }
            writeln!(out, "<dl>")?;
            for (name, value) in lines {
                writeln!(out, "<dt>{}</dt><dd>{}</dd>", Escaped(name), Escaped(value))?;
            }
            writeln!(out, "</dl></div>")?;
        }
        writeln!(out, "</body>\n</html>")
    }

    fn links(&self, out: &mut String) -> fmt::Result {
        if self.data.is_empty() {
            return Ok(());
        }
        let link = |data: &Data| {
            format!(
                "<a download=\"{0}\" href=\"data:text/csv;charset=utf-8,{1}\">{0}</a>",
                Escaped(&data.file),
                percent(&data.csv)
            )
        };
        let links: Vec<String> = self.data.iter().map(link).collect();
        writeln!(out, "<p>As CSV: {}</p>", links.join(", "))
    }
}

impl Table {
    fn write(&self, out: &mut String) -> fmt::Result {
        let class = |head: &Head| if head.is_text { " class=\"text\"" } else { "" };
        writeln!(out, "<div class=\"wide\"><table>\n<thead><tr>")?;
        for head in &self.head {
            let title = match &head.meaning[..] {
                "" => String::new(),
                meaning => format!(" title=\"{}\"", Escaped(meaning)),
            };
            writeln!(out, "<th{}{title}>{}</th>", class(head), Escaped(&head.name))?;
        }
        writeln!(out, "</tr></thead>\n<tbody>")?;
        for row in &self.rows {
            out.push_str("<tr>");
            for (head, cell) in std::iter::zip(&self.head, row) {
                write!(out, "<td{}>{}</td>", class(head), Escaped(cell))?;
            }
            out.push_str("</tr>\n");
        }
        writeln!(out, "</tbody></table></div>")
    }
}

/// As an address has bytes that mean nothing there.
fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b',' | b':' => {
                out.push(char::from(byte));
            }
            _ => write!(out, "%{byte:02X}").expect("writing to a string"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_leave_its_address() {
        assert_eq!(percent("a,1\n\"é<#%"), "a,1%0A%22%C3%A9%3C%23%25");
    }
}
