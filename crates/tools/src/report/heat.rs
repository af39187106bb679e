//! A map of numbers over two lists of layers.

use super::{escape::Escaped, figure::WIDTH, scale::Scale, svg::Svg};

const LEFT: f64 = 64.0;
const HEAD: f64 = 50.0;
const FOOT: f64 = 56.0;
/// For the bar of colours.
const RIGHT: f64 = 120.0;
const WIDEST: f64 = 38.0;
const HIGHEST: f64 = 24.0;
/// A cell of that width has room for its number.
const NUMBER: f64 = 31.0;
const NUMBERS: usize = 20;
/// Steps of the bar of colours.
const STEPS: usize = 48;
/// From little to much, each lighter than the one before, so that it can be printed grey.
const COLORS: [[f64; 3]; 5] =
    [[68.0, 1.0, 84.0], [59.0, 82.0, 139.0], [33.0, 145.0, 140.0], [94.0, 201.0, 98.0], [253.0, 231.0, 37.0]];

pub struct Cell {
    /// Across and down, as indices into the lists.
    pub at: (usize, usize),
    pub number: f64,
    /// Not told apart from 0 by what was measured.
    pub unsure: bool,
    pub title: String,
}

pub struct Heat<'a> {
    pub title: &'a str,
    pub about: &'a str,
    /// What is written along both edges, and what these are.
    pub across: (&'a [String], &'a str),
    pub down: (&'a [String], &'a str),
    pub cells: &'a [Cell],
    pub colors: Scale,
}

impl Heat<'_> {
    fn cell_size(&self) -> (f64, f64) {
        let n = self.across.0.len().max(self.down.0.len()).max(1);
        let wide = ((WIDTH - LEFT - RIGHT) / n as f64).min(WIDEST);
        (wide, wide.min(HIGHEST))
    }

    pub fn height(&self) -> f64 {
        HEAD + self.cell_size().1 * self.down.0.len() as f64 + FOOT
    }

    pub fn draw(&self, out: &mut Svg, top: f64) {
        let (wide, high) = self.cell_size();
        let (columns, rows) = (self.across.0.len(), self.down.0.len());
        out.text("title", (LEFT, top + 20.0), self.title);
        out.text("small", (LEFT, top + 37.0), self.about);
        let top = top + HEAD;
        for cell in self.cells {
            let (x, y) = (LEFT + wide * cell.at.0 as f64, top + high * cell.at.1 as f64);
            self.cell(out, cell, (x, y), (wide, high));
        }
        let (right, bottom) = (LEFT + wide * columns as f64, top + high * rows as f64);
        for i in (0..columns).step_by(columns.div_ceil(NUMBERS)) {
            let x = LEFT + wide * (i as f64 + 0.5);
            let name = &self.across.0[i];
            out.text("middle", (x, bottom + 14.0), name);
        }
        for i in (0..rows).step_by(rows.div_ceil(NUMBERS)) {
            let y = top + high * (i as f64 + 0.5) + 4.0;
            let name = &self.down.0[i];
            out.text("end", (LEFT - 6.0, y), name);
        }
        let middle = ((LEFT + right) / 2.0, (top + bottom) / 2.0);
        out.text("middle", (middle.0, bottom + 32.0), self.across.1);
        out.add(format_args!(
            "<text class=\"middle\" transform=\"translate({:.1} {:.1}) rotate(-90)\">{}</text>",
            LEFT - 36.0,
            middle.1,
            Escaped(self.down.1)
        ));
        self.bar(out, right + 24.0, (top, bottom))
    }

    fn cell(&self, out: &mut Svg, cell: &Cell, (x, y): (f64, f64), (wide, high): (f64, f64)) {
        let title = Escaped(&cell.title);
        let gap = if wide > 4.0 { 0.6 } else { 0.0 };
        let bounds =
            format!("x=\"{x:.2}\" y=\"{y:.2}\" width=\"{:.2}\" height=\"{:.2}\"", wide - gap, high - gap);
        if !cell.number.is_finite() {
            return out
                .add(format_args!("<rect class=\"heat missing\" {bounds}><title>{title}</title></rect>"));
        }
        let color = color(self.colors.share(cell.number));
        out.add(format_args!(
            "<rect class=\"heat\" {bounds} fill=\"{}\"><title>{title}</title></rect>",
            hex(color)
        ));
        let ink = if luminance(color) > 0.5 { "#111" } else { "#fff" };
        if wide >= NUMBER {
            out.add(format_args!(
                "<text class=\"middle on\" style=\"fill:{ink}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + wide / 2.0,
                y + high / 2.0 + 3.5,
                short(cell.number)
            ));
        }
        if cell.unsure {
            let (x, y, radius) = match wide >= NUMBER {
                true => (x + wide - 5.0, y + high - 5.0, 1.6),
                false => (x + wide / 2.0, y + high / 2.0, (wide / 6.0).min(1.6)),
            };
            out.add(format_args!("<circle class=\"unsure\" style=\"fill:{ink}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/>"
            ));
        }
    }

    /// Which colour is how much.
    fn bar(&self, out: &mut Svg, x: f64, (top, bottom): (f64, f64)) {
        let height = (bottom - top).clamp(60.0, 220.0);
        let step = height / STEPS as f64;
        for i in 0..STEPS {
            let share = 1.0 - (i as f64 + 0.5) / STEPS as f64;
            out.add(format_args!(
                "<rect x=\"{x:.1}\" y=\"{:.2}\" width=\"12\" height=\"{:.2}\" fill=\"{}\"/>",
                top + step * i as f64,
                if i + 1 < STEPS { step * 1.6 } else { step },
                hex(color(share))
            ));
        }
        for (tick, text) in self.colors.ticks((height / 32.0) as usize) {
            let y = top + height * (1.0 - self.colors.share(tick));
            out.text("", (x + 18.0, y + 4.0), &text);
        }
    }
}

fn color(share: f64) -> [f64; 3] {
    let at = share.clamp(0.0, 1.0) * (COLORS.len() - 1) as f64;
    let i = (at as usize).min(COLORS.len() - 2);
    let part = at - i as f64;
    std::array::from_fn(|c| COLORS[i][c] + part * (COLORS[i + 1][c] - COLORS[i][c]))
}

fn luminance([r, g, b]: [f64; 3]) -> f64 {
    (0.299 * r + 0.587 * g + 0.114 * b) / 255.0
}

fn hex([r, g, b]: [f64; 3]) -> String {
    format!("#{:02x}{:02x}{:02x}", r.round() as u8, g.round() as u8, b.round() as u8)
}

/// In at most five letters or so.
fn short(number: f64) -> String {
    let text = match number.abs() {
        n if n >= 9999.5 => format!("{number:.0e}"),
        n if n >= 99.95 => format!("{number:.0}"),
        n if n >= 9.995 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    };
    // What rounds to nothing has no sign.
    if text == "-0.00" { "0.00".into() } else { text.replace('-', "\u{2212}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_get_lighter_and_numbers_stay_short() {
        let light: Vec<f64> = (0..=20).map(|i| luminance(color(f64::from(i) / 20.0))).collect();
        assert_eq!(short(-0.001), "0.00");
        assert!(light.windows(2).all(|w| w[0] < w[1]), "{light:?}");
        for number in [0.0, -0.123456, 12.345, 123.45, 1234.5, 98765.4] {
            assert!(short(number).chars().count() <= 5, "{}", short(number));
        }
    }
}
