//! What of a conversation the model is given where the context cannot hold all of it: the oldest turns are left out. A turn is
//! what a user says and what follows, up to what a user says next.

use std::collections::BTreeMap;

use crate::{Result, chat::Message, words::count};

/// What there is room for.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Tokens of a text, prompt and answer together.
    pub all: usize,
    /// Of these, for an answer.
    pub answer: usize,
}

impl Room {
    /// An answer may have a quarter of the text, or as many tokens as it is allowed to have.
    pub fn new(all: usize, most: Option<usize>) -> Self {
        let quarter = all / 4;
        Room { all, answer: most.map_or(quarter, |most| most.min(quarter)).max(1) }
    }
}

/// How many turns can be left out: never what was said last, which is to be answered.
pub fn most_left_out(messages: &[Message]) -> usize {
    begins(messages).count().saturating_sub(1)
}

/// A conversation without its oldest turns, and how many messages that leaves out. System messages stay.
pub fn without(messages: &[Message], turns: usize) -> (Vec<Message>, usize) {
    let begin = if turns == 0 { 0 } else { begins(messages).nth(turns).unwrap_or(0) };
    let stays = |(i, message): &(usize, &Message)| *i >= begin || is_system(message);
    let left: Vec<Message> =
        messages.iter().enumerate().filter(stays).map(|(_, message)| message.clone()).collect();
    let left_out = messages.len() - left.len();
    (left, left_out)
}

fn begins(messages: &[Message]) -> impl Iterator<Item = usize> {
    messages.iter().enumerate().filter(|(_, message)| message.role == "user").map(|(i, _)| i)
}

fn is_system(message: &Message) -> bool {
    matches!(message.role.as_str(), "system" | "developer")
}

/// Chooses how many turns to leave out, `least` to `most` of them, and says what the model is then given. `given` makes that
/// for a number of turns, and says how many tokens it has: fewer for more turns.
///
/// Where all fits with room for an answer, `least` are. Where nothing gives so much room, `most` are.
pub fn choose<T>(
    least: usize,
    most: usize,
    room: Room,
    mut given: impl FnMut(usize) -> Result<(usize, T)>,
) -> Result<T> {
    let mut known: BTreeMap<usize, (usize, T)> = BTreeMap::new();
    let mut tokens = |turns: usize| -> Result<usize> {
        if let Some((tokens, _)) = known.get(&turns) {
            return Ok(*tokens);
        }
        let made = given(turns)?;
        let tokens = made.0;
        known.insert(turns, made);
        Ok(tokens)
    };
    let Room { all, answer } = room;
    let mut chosen = least.min(most);
    if tokens(chosen)? + answer > all {
        chosen = first(chosen, most, |turns| Ok(tokens(turns)? + answer <= all))?;
        // With room for a second answer the next message need not leave out more, whereupon all of the rest would be
        // evaluated again. But that is not worth most of what is there.
        let ample = first(chosen, most, |turns| Ok(tokens(turns)? + 2 * answer <= all))?;
        let left = tokens(ample)?;
        if left + 2 * answer <= all && left >= all / 3 {
            chosen = ample;
        }
    }
    Ok(known.remove(&chosen).expect("it was looked at").1)
}

/// The first number behind `low` for which it holds, if `low` is not it; `high` if it holds for none before.
fn first(mut low: usize, mut high: usize, mut holds: impl FnMut(usize) -> Result<bool>) -> Result<usize> {
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    // The caller asks for what was looked at.
    holds(high)?;
    Ok(high)
}

/// Says that the oldest messages were left out; `when`, if it was not before the answer.
pub fn told(all: usize, left_out: usize, messages: &[Message], when: &str) -> String {
    let which = match left_out {
        1 => "the oldest message was left out".to_owned(),
        n => format!("the {} were left out", count(n, "oldest message")),
    };
    let stays = match messages.iter().filter(|message| is_system(message)).count() {
        0 => "",
        1 => "; the system message stays",
        _ => "; the system messages stay",
    };
    format!("the context is full (-c {all}){when}: {which}{stays}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk(roles: &str) -> Vec<Message> {
        let message = |(i, role): (usize, char)| {
            let role = match role {
                's' => "system",
                'u' => "user",
                't' => "tool",
                _ => "assistant",
            };
            Message::new(role, i.to_string())
        };
        roles.chars().enumerate().map(message).collect()
    }

    fn left(roles: &str, turns: usize) -> String {
        let (left, left_out) = without(&talk(roles), turns);
        assert_eq!(left.len() + left_out, roles.len());
        left.iter().map(|message| message.content.text("")).collect()
    }

    #[test]
    fn turns_go_as_a_whole_and_system_messages_stay() {
        assert_eq!(left("suauau", 0), "012345");
        assert_eq!(left("suauau", 1), "0345");
        assert_eq!(left("suauau", 2), "05");
        assert_eq!(left("suatauasu", 1), "05678");
        // What comes before anybody said something goes with the first turn.
        assert_eq!(left("auau", 1), "3");
        assert_eq!(left("asuasu", 1), "145");
        assert_eq!(most_left_out(&talk("suauau")), 2);
        assert_eq!(most_left_out(&talk("u")), 0);
        assert_eq!(most_left_out(&talk("s")), 0);
    }

    /// Turns of so many tokens, the oldest first, and how many are left out of them.
    fn chosen(turns: &[usize], least: usize, room: Room) -> usize {
        let given = |n: usize| Ok((turns[n..].iter().sum(), n));
        choose(least, turns.len() - 1, room, given).unwrap()
    }

    #[test]
    fn as_many_turns_go_as_an_answer_needs() {
        let room = Room::new(100, None);
        assert_eq!((room.answer, Room::new(100, Some(12)).answer, Room::new(3, Some(0)).answer), (25, 12, 1));
        assert_eq!(chosen(&[25, 25, 25], 0, room), 0);
        assert_eq!(chosen(&[25, 25, 26], 0, room), 1);
        // What was left out before stays out.
        assert_eq!(chosen(&[5, 5, 5], 1, room), 1);
        assert_eq!(chosen(&[5, 5, 5], 7, room), 2);
        // Small turns: half is free then, so that the next message leaves out nothing.
        assert_eq!(chosen(&[10; 8], 0, room), 3);
        // Large ones: not most of what there is.
        assert_eq!(chosen(&[20, 50, 10], 0, room), 1);
        // No number of turns gives the room; what was said last stays.
        assert_eq!(chosen(&[10, 10, 90], 0, room), 2);
        assert_eq!(chosen(&[200], 0, room), 0);
    }

    #[test]
    fn a_line_says_what_was_left_out() {
        assert_eq!(
            told(512, 2, &talk("suau"), ""),
            "the context is full (-c 512): the 2 oldest messages were left out; the system message stays"
        );
        assert_eq!(
            told(64, 1, &talk("uu"), " in the middle of the answer"),
            "the context is full (-c 64) in the middle of the answer: the oldest message was left out"
        );
    }
}
