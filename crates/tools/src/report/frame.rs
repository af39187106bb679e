//! A plot's axes, and marks at numbers.

use super::{
    escape::{Escaped, shortened, width},
    figure::SIZE,
    labels::{Taken, spread},
    scale::Scale,
    svg::Svg,
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
    pub fn head(&self, out: &mut Svg, title: &str, y_label: &str) {
        let (left, top) = (self.left, self.top);
        out.text("title", (left, top - 26.0), title);
        out.text("small", (left, top - 9.0), y_label);
    }

    pub fn y_axis(&self, out: &mut Svg) {
        let (left, right) = (self.left, self.right());
        for (tick, text) in self.y.ticks((self.height / 32.0) as usize) {
            let y = self.at_y(tick);
            out.line("grid", (left, y), (right, y));
            out.text("end", (left - 7.0, y + 4.0), &text);
        }
    }

    /// `whole`: the axis counts something.
    pub fn x_axis(&self, out: &mut Svg, label: &str, whole: bool) {
        let (left, right, bottom) = (self.left, self.right(), self.bottom());
        out.line("axis", (left, bottom), (right, bottom));
        let most = (self.width / if self.width < 300.0 { 40.0 } else { 55.0 }) as usize;
        let ticks = if whole { self.x.whole_ticks(most) } else { self.x.ticks(most) };
        for (tick, text) in ticks {
            let x = self.at_x(tick);
            out.line("axis", (x, bottom), (x, bottom + 4.0));
            out.text("middle", (x, bottom + 17.0), &text);
        }
        let x = left + self.width / 2.0;
        out.text("middle", (x, bottom + 34.0), label);
    }

    /// The whole of it.
    pub fn axes(&self, out: &mut Svg, title: &str, x: (&str, bool), y_label: &str) {
        self.head(out, title, y_label);
        self.y_axis(out);
        self.x_axis(out, x.0, x.1);
    }

    /// A dashed line across at a number.
    pub fn reference(&self, out: &mut Svg, y: f64) {
        let (left, right, y) = (self.left, self.right(), self.at_y(y));
        out.line("reference", (left, y), (right, y));
    }

    /// A mark; an open one is hollow.
    pub fn point(&self, out: &mut Svg, class: &str, point: &Point, open: bool) {
        let (x, y) = (self.at_x(point.at.0) + point.aside, self.at_y(point.at.1));
        out.add(format_args!("<g class=\"point\"><title>{}</title>", Escaped(point.title)));
        match point.error {
            Some((low, high)) if point.lying => {
                let (low, high) = (self.at_x(low), self.at_x(high));
                out.line(&format!("error {class}"), (low, y), (high, y));
                let (up, down) = (y - CAP, y + CAP);
                out.add(format_args!("<path class=\"error {class}\" d=\"M{low:.2},{up:.2}V{down:.2}M{high:.2},{up:.2}V{down:.2}\"/>"
                ));
            }
            Some((low, high)) => {
                let (low, high) = (self.at_y(low), self.at_y(high));
                out.line(&format!("error {class}"), (x, low), (x, high));
                let (left, right) = (x - CAP, x + CAP);
                out.add(format_args!("<path class=\"error {class}\" d=\"M{left:.2},{low:.2}H{right:.2}M{left:.2},{high:.2}H{right:.2}\"/>"
                ));
            }
            None => {}
        }
        let (kind, radius) = (if open { "open" } else { "dot" }, self.radius);
        out.add(format_args!(
            "<circle class=\"{class} {kind}\" cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"{radius:.1}\"/></g>"
        ));
    }

    /// A line through marks that stand `aside`.
    pub fn line(&self, out: &mut Svg, class: &str, aside: f64, points: impl IntoIterator<Item = (f64, f64)>) {
        let coordinates = |(x, y)| format!("{:.1},{:.1}", self.at_x(x) + aside, self.at_y(y));
        let places: Vec<String> = points.into_iter().map(coordinates).collect();
        out.add(format_args!("<polyline class=\"{class}\" points=\"{}\"/>", places.join(" ")));
    }

    /// Names in a column to the right of the plot, each beside the end of what it names or led to by a thin line.
    pub fn labels(&self, out: &mut Svg, labels: &[Label], most_chars: usize) {
        let wanted: Vec<f64> = labels.iter().map(|label| self.at_y(label.at.1)).collect();
        let places = spread(&wanted, LINE, (self.top + 4.0, self.bottom()));
        let x = self.right() + 8.0;
        for (label, y) in std::iter::zip(labels, places) {
            let from = (self.at_x(label.at.0) + RADIUS + 1.5, self.at_y(label.at.1));
            if (from.1 - y).abs() > 3.0 || x - from.0 > 22.0 {
                let before = x - 3.0;
                out.add(format_args!(
                    "<path class=\"leader\" d=\"M{:.1},{:.1}L{before:.1},{y:.1}\"/>",
                    from.0, from.1
                ));
            }
            out.titled_text(
                &format!("name {}", label.class),
                (x, y + 4.0),
                &shortened(label.name, most_chars),
                label.name,
            );
        }
    }

    /// Names beside marks within the plot, as many as there is room for; gives those that found none. Marks and `taken` stay
    /// free.
    pub fn names<'a>(
        &self,
        out: &mut Svg,
        labels: &[Label<'a>],
        most_chars: usize,
        mut taken: Taken,
    ) -> Vec<Label<'a>> {
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
                    out.titled_text(&format!("name {class}"), (x, y), &name, label.name);
                }
                None => left.push(*label),
            }
        }
        left
    }
}
