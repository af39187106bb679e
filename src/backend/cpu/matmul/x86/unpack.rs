//! 32 weights of a block as signed bytes in a register, by AVX2 instructions; the same numbers as
//! `Codec::integers`.

use std::arch::x86_64::*;

use crate::quant::{
    iq4_nl::BlockIq4Nl, iq4_nl::KVALUES, iq4_xs::BlockIq4Xs, mxfp4::BlockMxfp4, mxfp4::VALUES, q2_k::BlockQ2K,
    q3_k::BlockQ3K, q4_0::BlockQ4_0, q4_1::BlockQ4_1, q4_k::BlockQ4K, q5_0::BlockQ5_0, q5_1::BlockQ5_1,
    q5_k::BlockQ5K, q6_k::BlockQ6K, q8_0::BlockQ8_0,
};

pub trait Unpack {
    /// # Safety
    /// The machine has AVX2.
    unsafe fn unpack(&self, sub: usize) -> __m256i;
}

// SAFETY of all blocks: the caller has AVX2; slices are bounds-checked before their pointers are used.

#[inline(always)]
unsafe fn load32(bytes: &[u8]) -> __m256i {
    let bytes = &bytes[..32];
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// Byte `mask` of every lane.
#[inline(always)]
unsafe fn masked(v: __m256i, mask: i8) -> __m256i {
    unsafe { _mm256_and_si256(v, _mm256_set1_epi8(mask)) }
}

/// Shifts sixteen-bit lanes; the bits that cross a byte are masked off by the caller.
#[inline(always)]
unsafe fn shifted_right(v: __m256i, by: usize) -> __m256i {
    unsafe { _mm256_srl_epi16(v, _mm_cvtsi32_si128(by as i32)) }
}

#[inline(always)]
unsafe fn less(v: __m256i, offset: i8) -> __m256i {
    unsafe { _mm256_sub_epi8(v, _mm256_set1_epi8(offset)) }
}

/// Sixteen low nibbles, then sixteen high ones.
#[inline(always)]
unsafe fn nibbles(qs: &[u8; 16]) -> __m256i {
    unsafe {
        let bytes = _mm_loadu_si128(qs.as_ptr().cast());
        masked(_mm256_set_m128i(_mm_srli_epi16::<4>(bytes), bytes), 15)
    }
}

/// Bit j of `bits` as 16 in byte j.
#[inline(always)]
unsafe fn fifth_bits(bits: u32) -> __m256i {
    unsafe {
        let spread = _mm256_setr_epi64x(
            0,
            0x0101_0101_0101_0101,
            0x0202_0202_0202_0202,
            0x0303_0303_0303_0303,
        );
        let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), spread);
        let each = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
        masked(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, each), each), 16)
    }
}

#[inline(always)]
unsafe fn looked_up(indices: __m256i, table: &[i8; 16]) -> __m256i {
    unsafe {
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
        _mm256_shuffle_epi8(table, indices)
    }
}

macro_rules! unpack {
    ($($block:ident($self:ident, $sub:ident) $body:expr;)*) => { $(
        impl Unpack for $block {
            #[inline(always)]
            unsafe fn unpack(&$self, $sub: usize) -> __m256i {
                let _ = $sub;
                unsafe { $body }
            }
        }
    )* };
}

unpack! {
    BlockQ4_0(self, sub) less(nibbles(&self.qs), 8);
    BlockQ4_1(self, sub) nibbles(&self.qs);
    BlockQ5_0(self, sub) less(_mm256_or_si256(nibbles(&self.qs), fifth_bits(self.fifth_bits())), 16);
    BlockQ5_1(self, sub) _mm256_or_si256(nibbles(&self.qs), fifth_bits(self.fifth_bits()));
    BlockQ8_0(self, sub) _mm256_loadu_si256(self.qs.as_ptr().cast());
    BlockIq4Nl(self, sub) looked_up(nibbles(&self.qs), &KVALUES);
    BlockMxfp4(self, sub) looked_up(nibbles(&self.qs), &VALUES);
    BlockIq4Xs(self, sub) {
        looked_up(nibbles(self.qs[16 * sub..][..16].try_into().expect("sixteen")), &KVALUES)
    };
    BlockQ2K(self, sub) masked(shifted_right(load32(&self.qs[sub / 4 * 32..]), sub % 4 * 2), 3);
    BlockQ3K(self, sub) {
        let low = masked(shifted_right(load32(&self.qs[sub / 4 * 32..]), sub % 4 * 2), 3);
        let third = masked(shifted_right(load32(&self.hmask), sub), 1);
        less(_mm256_or_si256(low, _mm256_slli_epi16::<2>(third)), 4)
    };
    BlockQ4K(self, sub) masked(shifted_right(load32(&self.qs[sub / 2 * 32..]), sub % 2 * 4), 15);
    BlockQ5K(self, sub) {
        let low = masked(shifted_right(load32(&self.qs[sub / 2 * 32..]), sub % 2 * 4), 15);
        let fifth = masked(shifted_right(load32(&self.qh), sub), 1);
        _mm256_or_si256(low, _mm256_slli_epi16::<4>(fifth))
    };
    BlockQ6K(self, sub) {
        let (half, quarter) = (sub / 4, sub % 4);
        let low = load32(&self.ql[half * 64 + quarter % 2 * 32..]);
        let low = masked(shifted_right(low, quarter / 2 * 4), 15);
        let high = masked(shifted_right(load32(&self.qh[half * 32..]), quarter * 2), 3);
        less(_mm256_or_si256(low, _mm256_slli_epi16::<4>(high)), 32)
    };
}
