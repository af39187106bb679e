//! What the products need to know of a format. Formats that they cannot tell apart share a kind, and with it the functions
//! that the compiler makes.

/// What a format has besides integers and a scale per 32.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Plain,
    Minimum,
    SubScale,
    SubScales,
    SubScalesAndMinimums,
    /// Either half has a scale.
    HalfScales,
}

pub trait Kind {
    const SHAPE: Shape;
    /// Weights use (nearly) all 256 values, and only then are they given to the panel signed.
    const WIDE: bool = false;
    /// What the panel's integers are too large by. Where 32 weights have one scale: 0, 12, or a power of two.
    const OFFSET: i16 = 0;
    /// The largest integer in the panel, or the largest magnitude if signed.
    const LARGEST: u8;
}

pub struct Wide;
pub struct Plain<const OFFSET: i16, const LARGEST: u8>;
pub struct SubScale<const OFFSET: i16, const LARGEST: u8>;
pub struct SubScales<const OFFSET: i16, const LARGEST: u8>;
pub struct HalfScales<const OFFSET: i16, const LARGEST: u8>;
pub struct Minimum<const LARGEST: u8>;
pub struct SubScalesAndMinimums<const LARGEST: u8>;

impl Kind for Wide {
    const SHAPE: Shape = Shape::Plain;
    const WIDE: bool = true;
    const LARGEST: u8 = 128;
}

macro_rules! with_offset {
    ($($Shape:ident),*) => {$(
        impl<const OFFSET: i16, const LARGEST: u8> Kind for $Shape<OFFSET, LARGEST> {
            const SHAPE: Shape = Shape::$Shape;
            const OFFSET: i16 = OFFSET;
            const LARGEST: u8 = LARGEST;
        }
    )*};
}
with_offset!(Plain, SubScale, SubScales, HalfScales);

macro_rules! from_zero {
    ($($Shape:ident),*) => {$(
        impl<const LARGEST: u8> Kind for $Shape<LARGEST> {
            const SHAPE: Shape = Shape::$Shape;
            const LARGEST: u8 = LARGEST;
        }
    )*};
}
from_zero!(Minimum, SubScalesAndMinimums);
