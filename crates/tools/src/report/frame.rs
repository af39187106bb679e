//! A plot's axes, and marks at numbers.

use std::fmt::{self, Write};

use super::{
    escape::{Escaped, shortened, width},
    figure::SIZE,
    labels::{Taken, spread},
    scale::Scale,
};

/// Between labels below each other.
const LINE: f64 = 14.0;
/// Half of an error bar's ends.
const CAP: f64 = 2.5;
const RADIUS: f64 = 3.2;
/// Where marks are close to each other.
const LEAST_RADIUS: f64 = 1.7;

/// Where on the picture the plot lies, and which numbers it spans.
pub struct Frame {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
    pub x: Scale,
    pub y: Scale,
    /// Of marks.
    pub radius: f64,
}

/// How large marks may be that stand so far apart.
pub fn radius(apart: f64) -> f64 {
    (0.4 * apart).clamp(LEAST_RADIUS, RADIUS)
}

/// A mark with what is known of how far off it may be, in numbers of the axes.
pub struct Point<'a> {
    pub at: (f64, f64),
    /// The ends of its error bar.
    pub error: Option<(f64, f64)>,
    /// The bar goes across, not up.
    pub lying: bool,
    /// To the right, in pixels, beside marks at the same number.
    pub aside: f64,
    /// Shown where the pointer is.
    pub title: &'a str,
}

/// A name that stands beside what it names.
#[derive(Clone, Copy)]
pub struct Label<'a> {
    pub class: &'a str,
    pub name: &'a str,
    /// What it names, in numbers of the axes.
    pub at: (f64, f64),
}

impl Frame {
    pub fn at_x(&self, x: f64) -> f64 {
        self.left + self.x.share(x) * self.width
    }

    pub fn at_y(&self, y: f64) -> f64 {
        self.top + self.height - self.y.share(y) * self.height
    }

    pub fn right(&self) -> f64 {
        self.left + self.width
    }

    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// What stands above the plot: a title, and what goes up in it.
    pub fn head(&self, out: &mut String, title: &str, y_label: &str) -> fmt::Result {
        let (left, top) = (self.left, self.top);
        writeln!(
            out,
            "<text class=\"title\" x=\"{left}\" y=\"{:.1}\">{}</text>",
            top - 26.0,
            Escaped(title)
        )?;
        writeln!(out, "<text class=\"small\" x=\"{left}\" y=\"{:.1}\">{}</text>", top - 9.0, Escaped(y_label))
    }

    pub fn y_axis(&self, out: &mut String) -> fmt::Result {
        let (left, right) = (self.left, self.right());
        for (tick, text) in self.y.ticks((self.height / 32.0) as usize) {
            let y = self.at_y(tick);
            writeln!(out, "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>")?;
            writeln!(out, "<text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>", left - 7.0, y + 4.0)?;
        }
        Ok(())
    }

    /// `whole`: the axis counts something.
    pub fn x_axis(&self, out: &mut String, label: &str, whole: bool) -> fmt::Result {
        let (left, right, bottom) = (self.left, self.right(), self.bottom());
        writeln!(out, "<line class=\"axis\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>")?;
        let most = (self.width / if self.width < 300.0 { 40.0 } else { 55.0 }) as usize;
        let ticks = if whole { self.x.whole_ticks(most) } else { self.x.ticks(most) };
        for (tick, text) in ticks {
            let x = self.at_x(tick);
            writeln!(
                out,
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{}\"/>",
                bottom + 4.0
            )?;
            writeln!(out, "<text class=\"middle\" x=\"{x:.1}\" y=\"{}\">{text}</text>", bottom + 17.0)?;
        }
        let x = left + self.width / 2.0;
        writeln!(
            out,
            "<text class=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            bottom + 34.0,
            Escaped(label)
        )
    }

    /// The whole of it.
    pub fn axes(&self, out: &mut String, title: &str, x: (&str, bool), y_label: &str) -> fmt::Result {
        self.head(out, title, y_label)?;
        self.y_axis(out)?;
        self.x_axis(out, x.0, x.1)
    }

    /// A dashed line across at a number.
    pub fn reference(&self, out: &mut String, y: f64) -> fmt::Result {
        let (left, right, y) = (self.left, self.right(), self.at_y(y));
        writeln!(out, "<line class=\"reference\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>")
    }

    /// A mark; an open one is hollow.
    pub fn point(&self, out: &mut String, class: &str, point: &Point, open: bool) -> fmt::Result {
        let (x, y) = (self.at_x(point.at.0) + point.aside, self.at_y(point.at.1));
        writeln!(out, "<g class=\"point\"><title>{}</title>", Escaped(point.title))?;
        match point.error {
            Some((low, high)) if point.lying => {
                let (low, high) = (self.at_x(low), self.at_x(high));
                writeln!(
                    out,
                    "<line class=\"error {class}\" x1=\"{low:.2}\" x2=\"{high:.2}\" y1=\"{y:.2}\" y2=\"{y:.2}\"/>"
                )?;
                let (up, down) = (y - CAP, y + CAP);
                writeln!(
                    out,
                    "<path class=\"error {class}\" d=\"M{low:.2},{up:.2}V{down:.2}M{high:.2},{up:.2}V{down:.2}\"/>"
                )?;
            }
            Some((low, high)) => {
                let (low, high) = (self.at_y(low), self.at_y(high));
                writeln!(
                    out,
                    "<line class=\"error {class}\" x1=\"{x:.2}\" x2=\"{x:.2}\" y1=\"{low:.2}\" y2=\"{high:.2}\"/>"
                )?;
                let (left, right) = (x - CAP, x + CAP);
                writeln!(
                    out,
                    "<path class=\"error {class}\" d=\"M{left:.2},{low:.2}H{right:.2}M{left:.2},{high:.2}H{right:.2}\"/>"
                )?;
            }
            None => {}
        }
        let (kind, radius) = (if open { "open" } else { "dot" }, self.radius);
        writeln!(out, "<circle class=\"{class} {kind}\" cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"{radius:.1}\"/></g>")
    }

    /// A line through marks that stand `aside`.
    pub fn line(
        &self,
        out: &mut String,
        class: &str,
        aside: f64,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> fmt::Result {
        let mut text = String::new();
        for (x, y) in points {
            write!(text, "{:.1},{:.1} ", self.at_x(x) + aside, self.at_y(y))?;
        }
        writeln!(out, "<polyline class=\"{class}\" points=\"{}\"/>", text.trim_end())
    }

    /// Names in a column to the right of the plot, each beside the end of what it names or led to by a thin line.
    pub fn labels(&self, out: &mut String, labels: &[Label], most_chars: usize) -> fmt::Result {
        let wanted: Vec<f64> = labels.iter().map(|label| self.at_y(label.at.1)).collect();
        let places = spread(&wanted, LINE, (self.top + 4.0, self.bottom()));
        let x = self.right() + 8.0;
        for (label, y) in std::iter::zip(labels, places) {
            let from = (self.at_x(label.at.0) + RADIUS + 1.5, self.at_y(label.at.1));
            if (from.1 - y).abs() > 3.0 || x - from.0 > 22.0 {
                let before = x - 3.0;
                writeln!(
                    out,
                    "<path class=\"leader\" d=\"M{:.1},{:.1}L{before:.1},{y:.1}\"/>",
                    from.0, from.1
                )?;
            }
            writeln!(
                out,
                "<text class=\"name {}\" x=\"{x:.1}\" y=\"{:.1}\"><title>{}</title>{}</text>",
                label.class,
                y + 4.0,
                Escaped(label.name),
                Escaped(&shortened(label.name, most_chars))
            )?;
        }
        Ok(())
    }

    /// Names beside marks within the plot, as many as there is room for; gives those that found none. Marks and `taken` stay
    /// free.
    pub fn names<'a>(
        &self,
        out: &mut String,
        labels: &[Label<'a>],
        most_chars: usize,
        mut taken: Taken,
    ) -> Result<Vec<Label<'a>>, fmt::Error> {
        let mut left = Vec::new();
        let places: Vec<(f64, f64)> =
            labels.iter().map(|label| (self.at_x(label.at.0), self.at_y(label.at.1))).collect();
        for (x, y) in &places {
            taken.take((x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS));
        }
        for (label, (x, y)) in std::iter::zip(labels, places) {
            let name = shortened(label.name, most_chars);
            let wide = width(&name, SIZE);
            let at = |left: f64, top: f64| (left, top, left + wide, top + LINE - 1.0);
            let around = [
                at(x - wide / 2.0, y - 19.0),
                at(x + 4.0, y - 18.0),
                at(x - wide / 2.0, y + 6.0),
                at(x + 4.0, y + 5.0),
                at(x - 4.0 - wide, y - 18.0),
                at(x - 4.0 - wide, y + 5.0),
                at(x + 6.0, y - 7.0),
                at(x - 6.0 - wide, y - 7.0),
            ];
            let inside = around.into_iter().filter(|area| {
                area.0 > self.left
                    && area.2 < self.right() + 60.0
                    && area.1 > self.top - 8.0
                    && area.3 < self.bottom()
            });
            match taken.first_free(inside) {
                Some(area) => {
                    let (x, y) = (area.0, area.3 - 2.0);
                    let class = label.class;
                    writeln!(
                        out,
                        "<text class=\"name {class}\" x=\"{x:.1}\" y=\"{y:.1}\"><title>{}</title>{}</text>",
                        Escaped(label.name),
                        Escaped(&name)
                    )?;
                }
                None => left.push(*label),
            }
        }
        Ok(left)
    }
}
