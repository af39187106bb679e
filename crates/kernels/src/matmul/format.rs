//! What the file of a format in [`quant`](crate::quant) names: the traits that it has to implement, and what implementations
//! share. Helpers of `words` are for one row, those of `vectors` for as many as there are lanes.

pub use std::{mem::offset_of, ops::Range};

pub(crate) use super::{
    packed::{
        Low, Packable,
        formats::{self as words, layout, word},
        split::*,
    },
    vector::{
        formats::{self as vectors, Format, bits, byte, put_all, put_wide, row_by_row, two_halves},
        kinds::{self, Kind},
        lanes::Lanes,
        packed_formats::{
            LowFormat, PackedFormat, head_of_one_half, head_of_two_halves, head_word, head_words,
            put_one_scale,
        },
        panel::{Panel, Scales},
        points::{Eights, Fours},
        rows::Rows,
    },
};
