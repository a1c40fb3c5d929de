//! Registers that hold several AES blocks, as values: four blocks with AVX-512,
//! two with AVX2. A value of such a type, like its [`Vector::Proof`], exists
//! only where the CPU was found to have the instructions, so using one is safe.

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_loadu_si128, _mm_maskz_loadu_epi32, _mm_set_epi64x,
    _mm_storeu_si128, _mm_xor_si128, _mm256_aesenc_epi128, _mm256_aesenclast_epi128,
    _mm256_and_si256, _mm256_blend_epi32, _mm256_broadcastsi128_si256, _mm256_castsi256_si128,
    _mm256_clmulepi64_epi128, _mm256_extracti128_si256, _mm256_loadu_si256,
    _mm256_permute2x128_si256, _mm256_set_epi32, _mm256_shuffle_epi8, _mm256_shuffle_epi32,
    _mm256_storeu_si256, _mm256_xor_si256, _mm256_zextsi128_si256, _mm512_add_epi32,
    _mm512_aesenc_epi128, _mm512_aesenclast_epi128, _mm512_broadcast_i32x4, _mm512_castsi512_si256,
    _mm512_clmulepi64_epi128, _mm512_extracti64x4_epi64, _mm512_loadu_si512, _mm512_mask_mov_epi64,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_maskz_mov_epi8,
    _mm512_maskz_set1_epi32, _mm512_set_epi32, _mm512_shuffle_epi8, _mm512_shuffle_epi32,
    _mm512_shuffle_i64x2, _mm512_storeu_si512, _mm512_xor_si512, _mm512_zextsi128_si512,
};

/// Octets of an AES block.
pub(super) const BLOCK: usize = 16;

/// Several blocks, worked on at once.
///
/// Everything is inlined into a function that enables the instructions, without
/// which a call for each instruction would remain.
pub(super) trait Vector: Copy {
    /// That the CPU has the instructions.
    type Proof: Copy;
    /// Blocks.
    const LANES: usize;
    /// Octets.
    const OCTETS: usize = Self::LANES * BLOCK;

    /// The first [`Vector::OCTETS`] of `octets`.
    fn load(proof: Self::Proof, octets: &[u8]) -> Self;
    /// All of `octets`, at most [`Vector::OCTETS`], then zeros.
    fn load_short(proof: Self::Proof, octets: &[u8]) -> Self;
    /// Fills `octets`, at most [`Vector::OCTETS`], and touches nothing behind them.
    fn store(self, octets: &mut [u8]);
    /// `block` in every lane.
    fn splat(proof: Self::Proof, block: &[u8; BLOCK]) -> Self;
    /// `block`, its first octet the lowest, in every lane.
    fn splat_word(proof: Self::Proof, block: u128) -> Self;
    /// `block` in the first lane, zeros in the others.
    fn first(proof: Self::Proof, block: u128) -> Self;
    /// The nonce in every lane, the last word zero.
    fn nonce(proof: Self::Proof, nonce: &[u8; 12]) -> Self;
    /// Zero but for the last word of each lane: `first` plus the number of the lane, big-endian.
    fn counters(proof: Self::Proof, first: u32) -> Self;
    /// Lane by lane, each from its own register of `lanes`; all lanes from one if it is the only one.
    fn blend(lanes: &[Self]) -> Self;
    /// In each lane the exclusive or of all lanes of its register of `lanes`;
    /// of one register, in the first lane.
    fn fold_all(lanes: &[Self]) -> Self;
    /// The first `octets`, then zeros.
    fn keep(self, octets: usize) -> Self;
    /// Exclusive or.
    fn xor(self, other: Self) -> Self;
    /// A round of AES.
    fn round(self, key: Self) -> Self;
    /// The last round of AES.
    fn last_round(self, key: Self) -> Self;
    /// Carry-less product of the halves of each lane that `HALVES` names: bit 0
    /// for the high one of `self`, bit 4 for that of `other`.
    fn product<const HALVES: i32>(self, other: Self) -> Self;
    /// The halves of each lane exchanged.
    fn swap_halves(self) -> Self;
    /// The octets of each lane in reverse.
    fn reverse(self) -> Self;
    /// Exclusive or of all lanes, in the first one; the others are zero.
    fn fold(self) -> Self;
    /// The first lane.
    fn first_lane(self) -> u128;
}

/// That the CPU has AVX-512 (F, BW, VL), VAES and VPCLMULQDQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proof512(());

impl Proof512 {
    /// Asks the CPU (and by it the operating system).
    pub(super) fn find() -> Option<Self> {
        (Proof256::find().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl"))
        .then_some(Self(()))
    }
}

/// That the CPU has AVX2, VAES and VPCLMULQDQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proof256(());

impl Proof256 {
    /// Asks the CPU (and by it the operating system).
    pub(super) fn find() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("vaes")
            && is_x86_feature_detected!("vpclmulqdq"))
        .then_some(Self(()))
    }
}

/// Exchanges nothing but the octets of the last word of a lane.
const COUNTER: [i8; BLOCK] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 14, 13, 12];
const REVERSE: [i8; BLOCK] = [15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0];

#[inline(always)]
fn block(octets: &[u8; BLOCK]) -> __m128i {
    // SAFETY: sixteen octets are there to be read; SSE2 is part of x86-64.
    unsafe { _mm_loadu_si128(octets.as_ptr().cast()) }
}

#[inline(always)]
fn indices(octets: &[i8; BLOCK]) -> __m128i {
    // SAFETY: sixteen octets are there to be read; SSE2 is part of x86-64.
    unsafe { _mm_loadu_si128(octets.as_ptr().cast()) }
}

#[inline(always)]
fn word(block: u128) -> __m128i {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_set_epi64x((block >> 64) as i64, block as i64) }
}

#[inline(always)]
fn number(block: __m128i) -> u128 {
    let mut octets = [0; BLOCK];
    // SAFETY: sixteen octets are there to be written; SSE2 is part of x86-64.
    unsafe { _mm_storeu_si128(octets.as_mut_ptr().cast(), block) };
    u128::from_le_bytes(octets)
}

/// Four blocks.
#[derive(Clone, Copy)]
pub(super) struct Wide512(__m512i);

impl Vector for Wide512 {
    type Proof = Proof512;
    const LANES: usize = 4;

    #[inline(always)]
    fn load(_: Proof512, octets: &[u8]) -> Self {
        let octets = &octets[..64];
        // SAFETY: 64 octets are there to be read; the proof says that the CPU can.
        Self(unsafe { _mm512_loadu_si512(octets.as_ptr().cast()) })
    }

    #[inline(always)]
    fn load_short(_: Proof512, octets: &[u8]) -> Self {
        assert!(octets.len() <= 64, "no more than a register holds");
        // SAFETY: the mask admits the octets of the slice and no other; the proof says that the CPU can.
        Self(unsafe { _mm512_maskz_loadu_epi8(mask(octets.len()), octets.as_ptr().cast()) })
    }

    #[inline(always)]
    fn store(self, octets: &mut [u8]) {
        assert!(octets.len() <= 64, "no more than a register holds");
        if octets.len() == 64 {
            // SAFETY: 64 octets are there to be written; a value of this type says that the CPU can.
            unsafe { _mm512_storeu_si512(octets.as_mut_ptr().cast(), self.0) };
        } else {
            let mask = mask(octets.len());
            // SAFETY: the mask admits the octets of the slice and no other; a value of this
            // type says that the CPU can.
            unsafe { _mm512_mask_storeu_epi8(octets.as_mut_ptr().cast(), mask, self.0) };
        }
    }

    #[inline(always)]
    fn splat(_: Proof512, octets: &[u8; BLOCK]) -> Self {
        // SAFETY: the proof says that the CPU can.
        Self(unsafe { _mm512_broadcast_i32x4(block(octets)) })
    }

    #[inline(always)]
    fn splat_word(_: Proof512, block: u128) -> Self {
        // SAFETY: the proof says that the CPU can.
        Self(unsafe { _mm512_broadcast_i32x4(word(block)) })
    }

    #[inline(always)]
    fn first(_: Proof512, block: u128) -> Self {
        // SAFETY: the proof says that the CPU can.
        Self(unsafe { _mm512_zextsi128_si512(word(block)) })
    }

    #[inline(always)]
    fn nonce(_: Proof512, nonce: &[u8; 12]) -> Self {
        // SAFETY: the mask admits the twelve octets and no other; the proof says that the CPU can.
        Self(unsafe {
            _mm512_broadcast_i32x4(_mm_maskz_loadu_epi32(0b0111, nonce.as_ptr().cast()))
        })
    }

    #[inline(always)]
    fn counters(_: Proof512, first: u32) -> Self {
        // SAFETY: the proof says that the CPU can.
        Self(unsafe {
            let lanes = _mm512_set_epi32(3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0);
            let first = _mm512_maskz_set1_epi32(0x8888, first.cast_signed());
            let sum = _mm512_add_epi32(lanes, first);
            _mm512_shuffle_epi8(sum, _mm512_broadcast_i32x4(indices(&COUNTER)))
        })
    }

    #[inline(always)]
    fn blend(lanes: &[Self]) -> Self {
        let &[a, b, c, d] = lanes else {
            return lanes[0];
        };
        // SAFETY: values of this type say that the CPU can.
        Self(unsafe {
            let ab = _mm512_mask_mov_epi64(a.0, 0b0000_1100, b.0);
            let cd = _mm512_mask_mov_epi64(c.0, 0b1100_0000, d.0);
            _mm512_mask_mov_epi64(ab, 0b1111_0000, cd)
        })
    }

    #[inline(always)]
    fn fold_all(lanes: &[Self]) -> Self {
        let &[a, b, c, d] = lanes else {
            return lanes[0].fold();
        };
        // SAFETY: values of this type say that the CPU can.
        Self(unsafe {
            // Halves of a and b, of c and d: each pair's in the lanes where it belongs.
            let halves = |a: __m512i, b: __m512i| {
                _mm512_xor_si512(
                    _mm512_mask_mov_epi64(a, 0xf0, b),
                    _mm512_shuffle_i64x2::<0b01_00_11_10>(a, b),
                )
            };
            let (ab, cd) = (halves(a.0, b.0), halves(c.0, d.0));
            _mm512_xor_si512(
                _mm512_shuffle_i64x2::<0b10_00_10_00>(ab, cd),
                _mm512_shuffle_i64x2::<0b11_01_11_01>(ab, cd),
            )
        })
    }

    #[inline(always)]
    fn keep(self, octets: usize) -> Self {
        // SAFETY: a value of this type says that the CPU can.
        Self(unsafe { _mm512_maskz_mov_epi8(mask(octets), self.0) })
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: a value of this type says that the CPU can.
        Self(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn round(self, key: Self) -> Self {
        // SAFETY: a value of this type says that the CPU can.
        Self(unsafe { _mm512_aesenc_epi128(self.0, key.0) })
    }

    #[inline(always)]
    fn last_round(self, key: Self) -> Self {
        // SAFETY: a value of this type says that the CPU can.
        Self(unsafe { _mm512_aesenclast_epi128(self.0, key.0) })
    }

    #[inline(always)]
    fn product<const HALVES: i32>(self, other: Self) -> Self {
        // SAFETY: a value of this type says that the CPU can.
        Self(unsafe { _mm512_clmulepi64_epi128::<HALVES>(self.0, other.0) })
    }

    #[inline(always)]
    fn swap_halves(self) -> Self {
        // SAFETY: a value of this type says that the CPU can.
        Self(unsafe { _mm512_shuffle_epi32::<0x4e>(self.0) })
    }

    #[inline(always)]
    fn reverse(self) -> Self {
        // SAFETY: a value of this type says that the CPU can.
        Self(unsafe { _mm512_shuffle_epi8(self.0, _mm512_broadcast_i32x4(indices(&REVERSE))) })
    }

    #[inline(always)]
    fn fold(self) -> Self {
        // SAFETY: a value of this type says that the CPU can.
        Self(unsafe {
            let low = _mm512_castsi512_si256(self.0);
            let half = _mm256_xor_si256(low, _mm512_extracti64x4_epi64::<1>(self.0));
            let low = _mm256_castsi256_si128(half);
            _mm512_zextsi128_si512(_mm_xor_si128(low, _mm256_extracti128_si256::<1>(half)))
        })
    }

    #[inline(always)]
    fn first_lane(self) -> u128 {
        // SAFETY: a value of this type says that the CPU can.
        number(unsafe { _mm256_castsi256_si128(_mm512_castsi512_si256(self.0)) })
    }
}

/// One bit for each of the first `octets`, which are at most 64.
#[inline(always)]
fn mask(octets: usize) -> u64 {
    if octets == 0 {
        0
    } else {
        u64::MAX >> (64 - octets)
    }
}

/// Two blocks.
#[derive(Clone, Copy)]
pub(super) struct Wide256(__m256i);

impl Vector for Wide256 {
    type Proof = Proof256;
    const LANES: usize = 2;

    #[inline(always)]
    fn load(_: Proof256, octets: &[u8]) -> Self {
        let octets = &octets[..32];
        // SAFETY: 32 octets are there to be read; the proof says that the CPU can.
        Self(unsafe { _mm256_loadu_si256(octets.as_ptr().cast()) })
    }

    #[inline(always)]
    fn load_short(proof: Proof256, octets: &[u8]) -> Self {
        if octets.len() == 32 {
            return Self::load(proof, octets);
        }
        let mut whole = [0; 32];
        whole[..octets.len()].copy_from_slice(octets);
        Self::load(proof, &whole)
    }

    #[inline(always)]
    fn store(self, octets: &mut [u8]) {
        let mut whole = [0; 32];
        let short = octets.len() < 32;
        let to = if short { &mut whole } else { &mut octets[..] };
        let to = &mut to[..32];
        // SAFETY: 32 octets are there to be written; a value of this type says that the CPU can.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), self.0) };
        if short {
            let length = octets.len();
            octets.copy_from_slice(&whole[..length]);
        }
    }

    #[inline(always)]
    fn splat(_: Proof256, octets: &[u8; BLOCK]) -> Self {
        // SAFETY: the proof says that the CPU can.
        Self(unsafe { _mm256_broadcastsi128_si256(block(octets)) })
    }

    #[inline(always)]
    fn splat_word(_: Proof256, block: u128) -> Self {
        // SAFETY: the proof says that the CPU can.
        Self(unsafe { _mm256_broadcastsi128_si256(word(block)) })
    }

    #[inline(always)]
    fn first(_: Proof256, block: u128) -> Self {
        // SAFETY: the proof says that the CPU can.
        Self(unsafe { _mm256_zextsi128_si256(word(block)) })
    }

    #[inline(always)]
    fn nonce(proof: Proof256, nonce: &[u8; 12]) -> Self {
        let mut low = [0; 8];
        let mut high = [0; 4];
        low.copy_from_slice(&nonce[..8]);
        high.copy_from_slice(&nonce[8..]);
        let high = u128::from(u32::from_le_bytes(high));
        Self::splat_word(proof, u128::from(u64::from_le_bytes(low)) | high << 64)
    }

    #[inline(always)]
    fn counters(_: Proof256, first: u32) -> Self {
        let next = first.wrapping_add(1).swap_bytes().cast_signed();
        let first = first.swap_bytes().cast_signed();
        // SAFETY: the proof says that the CPU can.
        Self(unsafe { _mm256_set_epi32(next, 0, 0, 0, first, 0, 0, 0) })
    }

    #[inline(always)]
    fn blend(lanes: &[Self]) -> Self {
        let &[a, b] = lanes else {
            return lanes[0];
        };
        // SAFETY: values of this type say that the CPU can.
        Self(unsafe { _mm256_blend_epi32::<0b1111_0000>(a.0, b.0) })
    }

    #[inline(always)]
    fn fold_all(lanes: &[Self]) -> Self {
        let &[a, b] = lanes else {
            return lanes[0].fold();
        };
        // SAFETY: values of this type say that the CPU can.
        Self(unsafe {
            _mm256_xor_si256(
                _mm256_blend_epi32::<0b1111_0000>(a.0, b.0),
                _mm256_permute2x128_si256::<0x21>(a.0, b.0),
            )
        })
    }

    #[inline(always)]
    fn keep(self, octets: usize) -> Self {
        // Ones, then zeros: what is read of it begins with as many ones as octets are kept.
        static ONES: [u8; 64] = {
            let mut ones = [0; 64];
            let mut i = 0;
            while i < 32 {
                ones[i] = 0xff;
                i += 1;
            }
            ones
        };
        let mask = &ONES[32 - octets..][..32];
        // SAFETY: 32 octets are there to be read; a value of this type says that the CPU can.
        Self(unsafe { _mm256_and_si256(self.0, _mm256_loadu_si256(mask.as_ptr().cast())) })
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: a value of this type says that the CPU can.
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    fn round(self, key: Self) -> Self {
        // SAFETY: a value of this type says that the CPU can.
        Self(unsafe { _mm256_aesenc_epi128(self.0, key.0) })
    }

    #[inline(always)]
    fn last_round(self, key: Self) -> Self {
        // SAFETY: a value of this type says that the CPU can.
        Self(unsafe { _mm256_aesenclast_epi128(self.0, key.0) })
    }

    #[inline(always)]
    fn product<const HALVES: i32>(self, other: Self) -> Self {
        // SAFETY: a value of this type says that the CPU can.
        Self(unsafe { _mm256_clmulepi64_epi128::<HALVES>(self.0, other.0) })
    }

    #[inline(always)]
    fn swap_halves(self) -> Self {
        // SAFETY: a value of this type says that the CPU can.
        Self(unsafe { _mm256_shuffle_epi32::<0x4e>(self.0) })
    }

    #[inline(always)]
    fn reverse(self) -> Self {
        // SAFETY: a value of this type says that the CPU can.
        Self(unsafe { _mm256_shuffle_epi8(self.0, _mm256_broadcastsi128_si256(indices(&REVERSE))) })
    }

    #[inline(always)]
    fn fold(self) -> Self {
        // SAFETY: a value of this type says that the CPU can.
        Self(unsafe {
            let low = _mm256_castsi256_si128(self.0);
            _mm256_zextsi128_si256(_mm_xor_si128(low, _mm256_extracti128_si256::<1>(self.0)))
        })
    }

    #[inline(always)]
    fn first_lane(self) -> u128 {
        // SAFETY: a value of this type says that the CPU can.
        number(unsafe { _mm256_castsi256_si128(self.0) })
    }
}
