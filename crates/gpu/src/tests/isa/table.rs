//! Figures of kernels as a table in the repository: a figure may fall, not rise.

use std::{fmt::Write, path::Path};

/// What is known of a kernel.
pub type Figures = Vec<Figure>;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    pub name: &'static str,
    pub value: f64,
    pub may: May,
}

/// How far a figure may go without anybody's word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum May {
    Stay,
    Fall,
    /// Be zero and nothing else, whatever the table says.
    BeZero,
    /// Rise by this part of it or this much, whichever is more: compilers deal registers and order instructions anew
    /// after any change.
    Rise(f64, f64),
}

impl Figure {
    fn allows(&self, was: f64) -> bool {
        // The table has two digits.
        let most = match self.may {
            May::Stay => return (self.value - was).abs() < 0.01,
            May::BeZero => return self.value == 0.0,
            May::Fall => was,
            May::Rise(share, count) => (was * (1.0 + share)).max(was + count),
        };
        self.value < most + 0.01
    }
}

pub struct Table {
    /// Which driver it is of.
    pub driver: String,
    rows: Vec<(String, Vec<f64>)>,
    columns: Vec<String>,
}

impl Table {
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut lines = text.lines();
        let driver = lines.next().and_then(|line| line.strip_prefix("# ")).ok_or("its driver is missing")?;
        let columns = lines.next().ok_or("its columns are missing")?.split(',').skip(1).map(String::from);
        let rows = lines.map(|line| {
            let mut cells = line.split(',');
            let name = cells.next().unwrap_or_default().to_string();
            let numbers = cells.map(|cell| cell.parse().map_err(|_| format!("{name}: {cell}")));
            numbers.collect::<Result<_, String>>().map(|numbers| (name.clone(), numbers))
        });
        Ok(Table {
            driver: driver.into(),
            columns: columns.collect(),
            rows: rows.collect::<Result<_, String>>()?,
        })
    }

    pub fn write(path: &Path, driver: &str, kernels: &[(String, Figures)]) -> std::io::Result<()> {
        let mut text = format!("# {driver}\nkernel");
        for figure in kernels.first().into_iter().flat_map(|(_, figures)| figures) {
            text += &format!(",{}", figure.name);
        }
        for (name, figures) in kernels {
            text += &format!("\n{name}");
            for figure in figures {
                let digits = if figure.value.fract() == 0.0 { 0 } else { 2 };
                write!(text, ",{:.digits$}", figure.value).expect("a string has scratch");
            }
        }
        std::fs::write(path, text + "\n")
    }

    /// What is worse than it was, in words; and how many kernels are better in something.
    pub fn compare(&self, kernels: &[(String, Figures)]) -> (Vec<String>, usize) {
        let mut worse = Vec::new();
        let mut better = 0;
        for (name, figures) in kernels {
            let Some((_, row)) = self.rows.iter().find(|(known, _)| known == name) else {
                worse.push(format!("{name}: it is not in the table"));
                continue;
            };
            let was = |figure: &Figure| {
                let column = self.columns.iter().position(|column| column == figure.name)?;
                row.get(column).copied()
            };
            for figure in figures {
                match was(figure) {
                    None => worse.push(format!("{name}: {} is not in the table", figure.name)),
                    Some(was) if figure.allows(was) => {}
                    Some(_) if figure.may == May::BeZero => {
                        worse.push(format!("{name}: {} is {}, must be 0", figure.name, figure.value))
                    }
                    Some(was) => {
                        worse.push(format!("{name}: {} is {}, was {was}", figure.name, figure.value))
                    }
                }
            }
            better += usize::from(figures.iter().any(|x| was(x).is_some_and(|was| x.value < was - 0.01)));
        }
        for (name, _) in &self.rows {
            if kernels.iter().all(|(known, _)| known != name) {
                worse.push(format!("{name}: it is in the table, and no kernel any more"));
            }
        }
        (worse, better)
    }
}

#[test]
fn a_figure_may_fall_and_not_rise() {
    let figures = |waits, registers, together| {
        vec![
            Figure { name: "waits", value: waits, may: May::Fall },
            Figure { name: "registers", value: registers, may: May::Rise(0.05, 4.0) },
            Figure { name: "together", value: together, may: May::Stay },
            Figure { name: "spills", value: 0.0, may: May::BeZero },
        ]
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.csv");
    Table::write(&path, "a driver", &[("one".into(), figures(4.25, 200.0, 64.0))]).unwrap();
    let table = Table::read(&path).unwrap();
    assert_eq!(table.driver, "a driver");
    let judged = |waits, registers, together| {
        let (worse, better) = table.compare(&[("one".into(), figures(waits, registers, together))]);
        (worse.len(), better)
    };
    assert_eq!(judged(4.25, 200.0, 64.0), (0, 0));
    assert_eq!(judged(4.0, 210.0, 64.0), (0, 1));
    assert_eq!(judged(4.5, 211.0, 32.0), (3, 1));
    let mut spilling = figures(4.25, 200.0, 64.0);
    spilling[3].value = 715.0;
    Table::write(&path, "a driver", &[("one".into(), spilling.clone())]).unwrap();
    let (worse, _) = Table::read(&path).unwrap().compare(&[("one".into(), spilling)]);
    assert_eq!(worse, ["one: spills is 715, must be 0"]);
    let (worse, _) = table.compare(&[("two".into(), figures(1.0, 1.0, 1.0))]);
    assert_eq!(worse, ["two: it is not in the table", "one: it is in the table, and no kernel any more"]);
}
