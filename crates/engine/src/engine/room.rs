//! What happens when a text has no more room: it drops a part of itself, or ends.

use super::{Stop, TextState};
use crate::{Context, Result, batch::SeqId, kv::TAKEN_BACK};

impl TextState {
    /// Makes room for the text's last token, or ends the text. `is_alone`: no other text will make room for it.
    pub fn make_room(&mut self, context: &mut Context, is_alone: bool) -> Result<()> {
        let kv = context.kv();
        // The last token has no cell yet.
        if kv.len(self.spec.seq) + 1 < self.spec.most_cells && !(is_alone && kv.room() == 0) {
            return Ok(());
        }
        let shifted = match self.spec.request.shift_keep {
            Some(keep) => shift(context, self.spec.seq, keep)?,
            None => false,
        };
        match shifted {
            true => self.shifted = true,
            false => self.stop = Some(Stop::ContextFull),
        }
        Ok(())
    }
}

/// Shifts the context, if there is something to drop and the rest can be computed from what stays.
fn shift(context: &mut Context, seq: SeqId, keep: usize) -> Result<bool> {
    let len = context.kv().len(seq);
    let drop = dropped(len.saturating_sub(keep), context.model().plan.widest_window());
    if drop == 0 || !context.kv().can_shift() {
        return Ok(false);
    }
    context.shift(seq, keep, drop)?;
    Ok(true)
}

/// How many tokens to drop: half of those that may be dropped. Fewer where the rest would not fill a window, so that rows do not
/// see tokens from long before. But if the window is nearly as long as the text, half: else it would be shifted all the time.
fn dropped(text: usize, window: Option<u32>) -> usize {
    let left = window.map_or(0, |window| window as usize + TAKEN_BACK);
    let least = if left <= text / 4 * 3 { left } else { 0 };
    (text / 2).min(text - least)
}
