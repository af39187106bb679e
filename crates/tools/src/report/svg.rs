//! The elements of a picture, one a line. Texts are escaped; an empty class is none.

use std::fmt::{Arguments, Write};

use super::escape::Escaped;

#[derive(Default)]
pub struct Svg {
    pub elements: String,
}

impl Svg {
    /// An element that has no function of its own here.
    pub fn add(&mut self, element: Arguments) {
        writeln!(self.elements, "{element}").expect("writing to a string");
    }

    pub fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let text = Escaped(text);
        self.add(format_args!("<text{} x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>", of(class)));
    }

    /// With what is shown where the pointer is.
    pub fn titled_text(&mut self, class: &str, (x, y): (f64, f64), text: &str, title: &str) {
        let (text, title) = (Escaped(text), Escaped(title));
        let class = of(class);
        self.add(format_args!("<text{class} x=\"{x:.1}\" y=\"{y:.1}\"><title>{title}</title>{text}</text>"));
    }

    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let class = of(class);
        self.add(format_args!("<line{class} x1=\"{x1:.2}\" x2=\"{x2:.2}\" y1=\"{y1:.2}\" y2=\"{y2:.2}\"/>"));
    }

    pub fn circle(&mut self, class: &str, (x, y): (f64, f64), radius: f64) {
        self.add(format_args!("<circle{} cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"{radius:.1}\"/>", of(class)));
    }

    /// A rectangle with a corner there; `title` is shown where the pointer is, if there is one.
    pub fn rect(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64), title: &str) {
        let title = match title {
            "" => String::new(),
            title => format!("<title>{}</title>", Escaped(title)),
        };
        self.add(format_args!(
            "<rect{} x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\">{title}</rect>",
            of(class)
        ));
    }
}

fn of(class: &str) -> String {
    if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") }
}
