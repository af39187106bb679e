//! Finds an entry of a list by its name in constant time, without a second copy of the names.

use std::hash::{BuildHasher, RandomState};

const FREE: u32 = u32::MAX;

/// An open-addressed table of positions in a list that is kept elsewhere. The hash is seeded, so a file
/// cannot be made to collide.
#[derive(Clone, Debug, Default)]
pub struct NameIndex {
    hasher: RandomState,
    slots: Box<[u32]>,
}

impl NameIndex {
    /// Indexes the names at positions `0..len`; of two equal names, the later position comes back as error.
    pub fn new<'a>(len: usize, name: impl Fn(usize) -> &'a str) -> Result<Self, usize> {
        let slots = vec![FREE; (len * 2).next_power_of_two()].into();
        let mut index = NameIndex { hasher: RandomState::new(), slots };
        for i in 0..len {
            match index.probe(name(i), |other| name(other)) {
                Ok(_) => return Err(i),
                Err(slot) => index.slots[slot] = i as u32,
            }
        }
        Ok(index)
    }

    /// `name_of` gives the name at a position that was indexed.
    pub fn find<'a>(&self, name: &str, name_of: impl Fn(usize) -> &'a str) -> Option<usize> {
        if self.slots.is_empty() { None } else { self.probe(name, name_of).ok() }
    }

    /// The position of `name`, or else the slot where it belongs. Half the slots stay free, so this ends.
    fn probe<'a>(&self, name: &str, name_of: impl Fn(usize) -> &'a str) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let mut slot = self.hasher.hash_one(name) as usize & mask;
        loop {
            match self.slots[slot] {
                FREE => return Err(slot),
                i if name_of(i as usize) == name => return Ok(i as usize),
                _ => slot = (slot + 1) & mask,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_every_name_and_no_other() {
        let names: Vec<String> = (0..1000).map(|i| format!("blk.{i}")).collect();
        let index = NameIndex::new(names.len(), |i| &names[i]).unwrap();
        for (i, name) in names.iter().enumerate() {
            assert_eq!(index.find(name, |i| &names[i]), Some(i));
        }
        assert_eq!(index.find("blk.1000", |i| &names[i]), None);
        assert_eq!(index.find("", |i| &names[i]), None);
    }

    #[test]
    fn an_empty_list_holds_nothing() {
        let index = NameIndex::new(0, |_| unreachable!()).unwrap();
        assert_eq!(index.find("a", |_| unreachable!()), None);
        assert_eq!(NameIndex::default().find("a", |_| unreachable!()), None);
    }

    #[test]
    fn the_second_of_two_equal_names_is_reported() {
        let names = ["a", "b", "c", "b", "a"];
        assert_eq!(NameIndex::new(names.len(), |i| names[i]).unwrap_err(), 3);
    }
}
