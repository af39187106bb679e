//! A plot's axes, and marks at numbers.

use std::fmt::{self, Write};

/// Where on the picture the plot lies, and which numbers it spans.
pub struct Frame {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
    pub x: (f64, f64),
    pub y: (f64, f64),
}

impl Frame {
    pub fn at_x(&self, x: f64) -> f64 {
        self.left + (x - self.x.0) / (self.x.1 - self.x.0) * self.width
    }

    pub fn at_y(&self, y: f64) -> f64 {
        self.top + self.height - (y - self.y.0) / (self.y.1 - self.y.0) * self.height
    }

    pub fn axes(&self, out: &mut String, title: &str, x_label: &str, y_label: &str) -> fmt::Result {
        let Frame { left, top, width, height, .. } = *self;
        let (right, bottom) = (left + width, top + height);
        writeln!(out, "<text class=\"title\" x=\"{left}\" y=\"{}\">{title}</text>", top - 20.0)?;
        writeln!(out, "<text x=\"{left}\" y=\"{}\">{y_label}</text>", top - 5.0)?;
        writeln!(
            out,
            "<text class=\"middle\" x=\"{}\" y=\"{}\">{x_label}</text>",
            left + width / 2.0,
            bottom + 34.0
        )?;
        for tick in ticks(self.y) {
            let y = self.at_y(tick);
            writeln!(out, "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>")?;
            let (x, y) = (left - 6.0, y + 4.0);
            writeln!(out, "<text class=\"end\" x=\"{x}\" y=\"{y:.1}\">{}</text>", number(tick))?;
        }
        for tick in ticks(self.x) {
            let x = self.at_x(tick);
            let y = bottom + 18.0;
            writeln!(out, "<text class=\"middle\" x=\"{x:.1}\" y=\"{y}\">{}</text>", number(tick))?;
        }
        Ok(())
    }

    pub fn dot(
        &self,
        out: &mut String,
        class: &str,
        radius: f64,
        (x, y): (f64, f64),
        title: &str,
    ) -> fmt::Result {
        let (x, y) = (self.at_x(x), self.at_y(y));
        write!(out, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"")?;
        match title {
            "" => out.push_str("/>\n"),
            title => writeln!(out, "><title>{}</title></circle>", Escaped(title))?,
        }
        Ok(())
    }

    pub fn line(
        &self,
        out: &mut String,
        class: &str,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> fmt::Result {
        write!(out, "<polyline class=\"{class}\" points=\"")?;
        for (x, y) in points {
            write!(out, "{:.1},{:.1} ", self.at_x(x), self.at_y(y))?;
        }
        out.push_str("\"/>\n");
        Ok(())
    }

    /// Marks with their names beside the plot, by class.
    pub fn legend(&self, out: &mut String, entries: &[(&str, &str)]) -> fmt::Result {
        for (i, (class, name)) in entries.iter().enumerate() {
            let (x, y) = (self.left + self.width + 16.0, self.top + 18.0 * i as f64 + 8.0);
            if class.starts_with("line") {
                writeln!(out, "<polyline class=\"{class}\" points=\"{x},{y} {},{y}\"/>", x + 20.0)?;
            } else {
                writeln!(out, "<circle class=\"{class}\" cx=\"{}\" cy=\"{y}\" r=\"5\"/>", x + 10.0)?;
            }
            self.note(out, i, name)?;
        }
        Ok(())
    }

    /// A line of text at a place of the legend.
    pub fn note(&self, out: &mut String, line: usize, text: &str) -> fmt::Result {
        let (x, y) = (self.left + self.width + 42.0, self.top + 18.0 * line as f64 + 12.0);
        writeln!(out, "<text x=\"{x}\" y=\"{y}\">{}</text>", Escaped(text))
    }
}

/// Round numbers, four to ten of them.
fn ticks((low, high): (f64, f64)) -> Vec<f64> {
    let rough = (high - low) / 8.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|&s| s >= rough).unwrap_or(rough);
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(|i| i as f64 * step).collect()
}

fn number(x: f64) -> String {
    let text = format!("{x:.3}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Text that may hold anything, inside an element.
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks((0.0, 1.0)), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks((-0.5, 15.5)), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]);
        assert_eq!(number(0.6000000000000001), "0.6");
        assert_eq!(number(10.0), "10");
    }

    #[test]
    fn text_cannot_leave_its_element() {
        assert_eq!(Escaped("a<b>&\"c").to_string(), "a&lt;b&gt;&amp;&quot;c");
    }
}
