//! The stages of a chain: their names, and their order.

use crate::{Error, Result};

/// A stage between the logits and the draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Recent tokens become less likely.
    Penalties,
    /// Tokens that would continue a repetition become less likely.
    Dry,
    /// Cuts by distance from the best, in standard deviations.
    TopNSigma,
    /// Keeps the best.
    TopK,
    /// Keeps tokens whose surprise is close to the expected one.
    TypicalP,
    /// Keeps the best tokens that together have enough probability.
    TopP,
    /// Keeps tokens that are likely enough compared with the best.
    MinP,
    /// Now and then removes all likely tokens but the least likely of them.
    Xtc,
    /// Sharpens or flattens.
    Temperature,
}

impl Stage {
    /// llama.cpp's order.
    pub const ALL: [Stage; 9] = [
        Stage::Penalties,
        Stage::Dry,
        Stage::TopNSigma,
        Stage::TopK,
        Stage::TypicalP,
        Stage::TopP,
        Stage::MinP,
        Stage::Xtc,
        Stage::Temperature,
    ];

    /// Whether it makes single tokens more or less likely.
    pub(super) fn changes_logits(self) -> bool {
        matches!(self, Stage::Penalties | Stage::Dry)
    }

    /// llama.cpp's name.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Penalties => "penalties",
            Stage::Dry => "dry",
            Stage::TopNSigma => "top_n_sigma",
            Stage::TopK => "top_k",
            Stage::TypicalP => "typ_p",
            Stage::TopP => "top_p",
            Stage::MinP => "min_p",
            Stage::Xtc => "xtc",
            Stage::Temperature => "temperature",
        }
    }

    /// llama.cpp's letter.
    pub fn letter(self) -> char {
        match self {
            Stage::Penalties => 'e',
            Stage::Dry => 'd',
            Stage::TopNSigma => 's',
            Stage::TopK => 'k',
            Stage::TypicalP => 'y',
            Stage::TopP => 'p',
            Stage::MinP => 'm',
            Stage::Xtc => 'x',
            Stage::Temperature => 't',
        }
    }

    /// A list as of `--samplers`: names with `;` between them, also with `-` or nothing for `_`.
    pub fn of_names(names: &str) -> Result<Vec<Stage>> {
        names.split(';').map(str::trim).filter(|name| !name.is_empty()).map(Stage::of_name).collect()
    }

    /// One name of such a list.
    pub fn of_name(name: &str) -> Result<Stage> {
        let plain = |name: &str| name.to_lowercase().replace(['_', '-'], "");
        let wanted = plain(name);
        let stage = match wanted.as_str() {
            "nucleus" => Some(Stage::TopP),
            "temp" => Some(Stage::Temperature),
            "typ" => Some(Stage::TypicalP),
            _ => Stage::ALL.into_iter().find(|stage| plain(stage.name()) == wanted),
        };
        stage.ok_or_else(|| {
            let known = Stage::ALL.map(Stage::name).join(";");
            Error::Usage(format!("`samplers`: there is no sampler `{name}`; those of `{known}` can be named"))
        })
    }

    /// A list as of `--sampling-seq`: a letter for each.
    pub fn of_letters(letters: &str) -> Result<Vec<Stage>> {
        let stage = |letter: char| {
            Stage::ALL.into_iter().find(|stage| stage.letter() == letter).ok_or_else(|| {
                let known: String = Stage::ALL.map(Stage::letter).into_iter().collect();
                Error::Usage(format!(
                    "`sampling_seq`: no sampler has the letter `{letter}`; those of `{known}` can be used"
                ))
            })
        };
        letters.chars().map(stage).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_there() {
        let names = Stage::ALL.map(Stage::name).join(";");
        assert_eq!(Stage::of_names(&names).unwrap(), Stage::ALL);
        let others = "top-k; TopP;nucleus;temp;typ;minp;top-n-sigma;;";
        let expected = [
            Stage::TopK,
            Stage::TopP,
            Stage::TopP,
            Stage::Temperature,
            Stage::TypicalP,
            Stage::MinP,
            Stage::TopNSigma,
        ];
        assert_eq!(Stage::of_names(others).unwrap(), expected);
        assert_eq!(Stage::of_letters("edskypmxt").unwrap(), Stage::ALL);
        assert_eq!((Stage::of_names("").unwrap(), Stage::of_letters("").unwrap()), (Vec::new(), Vec::new()));
        for (error, part) in [(Stage::of_names("top_k;infill"), "`infill`"), (Stage::of_letters("kz"), "`z`")]
        {
            assert!(error.unwrap_err().to_string().contains(part));
        }
    }
}
