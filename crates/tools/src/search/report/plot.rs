//! Points in a grid of characters.

/// What lies where, in the order of drawing: later marks cover earlier ones.
pub struct Plot {
    pub width: usize,
    pub height: usize,
    pub x: (f64, f64),
    pub y: (f64, f64),
    pub points: Vec<(f64, f64, char)>,
}

impl Plot {
    /// Lines from the top; `label` stands beside the axes.
    pub fn draw(&self, x_label: &str, y_label: &str) -> String {
        let mut grid = vec![vec![' '; self.width]; self.height];
        let place = |value: f64, (low, high): (f64, f64), cells: usize| {
            let share = (value - low) / (high - low).max(f64::MIN_POSITIVE);
            (share * (cells - 1) as f64).round().clamp(0.0, (cells - 1) as f64) as usize
        };
        for &(x, y, mark) in &self.points {
            let (column, row) = (place(x, self.x, self.width), place(y, self.y, self.height));
            grid[self.height - 1 - row][column] = mark;
        }
        let mut out = format!("{y_label}\n");
        for (i, row) in grid.iter().enumerate() {
            let share = 1.0 - i as f64 / (self.height - 1) as f64;
            let at = self.y.0 + share * (self.y.1 - self.y.0);
            let tick = if i % 4 == 0 { format!("{at:5.2}") } else { " ".repeat(5) };
            let line: String = row.iter().collect();
            out += &format!("{tick} |{}\n", line.trim_end());
        }
        let (left, right) = (format!("{:.2}", self.x.0), format!("{:.2}", self.x.1));
        let gap = self.width.saturating_sub(left.len() + right.len() + x_label.len()) / 2;
        out += &format!("      +{}\n", "-".repeat(self.width));
        out += &format!("       {left}{0}{x_label}{0}{right}\n", " ".repeat(gap));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corners_are_where_they_belong() {
        let plot = Plot {
            width: 11,
            height: 5,
            x: (0.0, 1.0),
            y: (0.0, 1.0),
            points: vec![(0.0, 0.0, 'a'), (1.0, 1.0, 'b'), (0.5, 0.5, 'c'), (0.5, 0.5, 'd'), (2.0, 0.0, 'e')],
        };
        let lines: Vec<String> = plot.draw("x", "y").lines().map(String::from).collect();
        assert_eq!(lines[0], "y");
        assert_eq!(lines[1], " 1.00 |          b");
        assert_eq!(lines[3], "      |     d");
        assert_eq!(lines[5], " 0.00 |a         e");
    }
}
