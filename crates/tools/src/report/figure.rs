//! A picture of several panels, one below the other.

use super::{escape::Escaped, svg::Svg};

/// Of all figures, so that the letters of all have one size.
pub const WIDTH: f64 = 760.0;
/// Of the letters.
pub const SIZE: f64 = 12.0;
/// Colours that can be told apart, and so runs in one picture.
pub const COLORS: usize = 8;

// By classes and without variables, as programs that make PDFs of SVGs know no others.
const STYLE: &str = "\
svg.figure{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;background:#fff;color:#222}\
.figure text{fill:currentColor}.figure .title{font-size:14px;font-weight:600}\
.figure .end{text-anchor:end}.figure .middle{text-anchor:middle}.figure .small{font-size:11px;fill-opacity:.75}\
.figure .grid{stroke:currentColor;stroke-opacity:.13}.figure .axis{stroke:currentColor;stroke-opacity:.55}\
.figure .reference{stroke:currentColor;stroke-opacity:.6;stroke-dasharray:5 4;fill:none}\
.figure .leader{stroke:currentColor;stroke-opacity:.3;fill:none}\
.figure .line{fill:none;stroke-width:1.6;stroke-opacity:.55}.figure .error{stroke-width:1.3;fill:none}\
.figure .dot{stroke:#fff;stroke-width:1}.figure .open{fill:#fff;stroke-width:1.8}\
.figure .cloud{fill:none;stroke:currentColor;stroke-opacity:.35}\
.figure .cell{stroke:none}.figure .kept{fill:currentColor;fill-opacity:.09}\
.figure .missing{fill:none;stroke:currentColor;stroke-opacity:.25}.figure text.on{font-size:10px}\
.figure .s0{fill:#0068ad;stroke:#0068ad}.figure .s1{fill:#cf5400;stroke:#cf5400}.figure .s2{fill:#00825f;stroke:#00825f}\
.figure .s3{fill:#a8437f;stroke:#a8437f}.figure .s4{fill:#7a6000;stroke:#7a6000}.figure .s5{fill:#2b8bbd;stroke:#2b8bbd}\
.figure .s6{fill:#6a5acd;stroke:#6a5acd}.figure .s7{fill:#5b6570;stroke:#5b6570}\
.figure .bar{stroke:none;fill-opacity:.8}.figure .dot{stroke:#fff}.figure .line{fill:none}.figure .open{fill:#fff}\
.figure tspan.name{stroke:none}.figure text.name{stroke:#fff;stroke-width:3px;paint-order:stroke;font-weight:500}\
@media(prefers-color-scheme:dark){svg.figure{background:#161616;color:#ddd}\
.figure .dot{stroke:#161616}.figure .open{fill:#161616}\
.figure .s0{fill:#58a6e8;stroke:#58a6e8}.figure .s1{fill:#f28a45;stroke:#f28a45}.figure .s2{fill:#3cc29a;stroke:#3cc29a}\
.figure .s3{fill:#e189be;stroke:#e189be}.figure .s4{fill:#cdb04a;stroke:#cdb04a}.figure .s5{fill:#8fd0f5;stroke:#8fd0f5}\
.figure .s6{fill:#a99cf2;stroke:#a99cf2}.figure .s7{fill:#aab4be;stroke:#aab4be}\
.figure .dot{stroke:#161616}.figure .line{fill:none}.figure .open{fill:#161616}.figure tspan.name{stroke:none}.figure text.name{stroke:#161616}}";

/// The class of the run, the line or the kind with this number.
pub fn color(i: usize) -> String {
    format!("s{}", i % COLORS)
}

/// Panels so far.
#[derive(Default)]
pub struct Figure {
    body: Svg,
    height: f64,
}

impl Figure {
    /// Adds a panel of this height; `draw` gets where it begins.
    pub fn panel(&mut self, height: f64, draw: impl FnOnce(&mut Svg, f64)) {
        draw(&mut self.body, self.height);
        self.height += height;
    }

    /// The picture by itself; `about` goes into its metadata.
    pub fn svg(&self, title: &str, about: &[(String, String)]) -> String {
        let lines: String = about.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        let metadata = match about {
            [] => String::new(),
            _ => format!("<metadata>\n{}</metadata>", Escaped(&lines)),
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"figure\" viewBox=\"0 0 {WIDTH} {0:.0}\" width=\"{WIDTH}\" \
             height=\"{0:.0}\" role=\"img\"><title>{1}</title>{metadata}<style>{STYLE}</style>\n{2}</svg>\n",
            self.height,
            Escaped(title),
            self.body.elements
        )
    }
}
