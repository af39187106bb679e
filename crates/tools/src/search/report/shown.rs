//! The masks as a report has them: each once, under all of its names.

use crate::search::{Member, SearchOutcome};

pub struct Shown<'a> {
    /// `bold 2 = exit 4` where a member of the family is a baseline too.
    pub name: String,
    pub member: &'a Member,
    /// One that the family has to beat, and is not part of it.
    pub is_baseline: bool,
}

/// The family, best first, then the baselines that are not in it.
pub fn shown(outcome: &SearchOutcome) -> Vec<Shown<'_>> {
    let mut all: Vec<Shown> = Vec::new();
    for (members, is_baseline) in [(&outcome.family, false), (&outcome.baselines, true)] {
        for member in members {
            match all.iter_mut().find(|shown| shown.member.candidate == member.candidate) {
                Some(shown) => shown.name += &format!(" = {}", member.name),
                None => all.push(Shown { name: member.name.clone(), member, is_baseline }),
            }
        }
    }
    all
}
