//! Owns the score of a member for a shard: a fixed 64-bit hash, the same on every machine and with every version of Rust.
//!
//! The hash is FNV-1a (64 bits) of the name in UTF-8 and of the shard's number as eight bytes, the lowest first, followed by the
//! finalizer of SplitMix64. FNV-1a alone mixes the last bytes badly; the finalizer spreads them over all bits. Members of
//! different versions must agree on the score, so it never changes.
//!
//! Where members have different weights, a score becomes a [`cost`]: its negative logarithm, divided by the weight. Of two
//! members, the one with twice the weight then has the lower cost for two of three shards. The logarithm is computed in integers,
//! because floating-point logarithms differ between systems.

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// A hashed name, to be scored for many shards.
#[derive(Clone, Copy)]
pub(crate) struct Hashed(u64);

impl Hashed {
    pub(crate) fn new(name: &str) -> Self {
        Self(fnv(FNV_OFFSET, name.as_bytes()))
    }

    /// The score for this shard. The larger score wins.
    pub(crate) fn score(self, shard: u32) -> u64 {
        finalize(fnv(self.0, &u64::from(shard).to_le_bytes()))
    }
}

/// The cost of a shard with this score for a member of this weight. The smaller cost wins.
pub(crate) fn cost(score: u64, weight: u32) -> u64 {
    minus_log2(score) * 10_000 / u64::from(weight.max(1))
}

/// The binary logarithm of 2^64 / score, in units of 2^-32, rounded up. It never grows with the score.
fn minus_log2(score: u64) -> u64 {
    let score = score.max(1);
    let zeros = score.leading_zeros();
    // `mantissa` / 2^63 is from 1 to 2. Squaring doubles its logarithm, whose next binary digit is 1 if the square is 2 or more.
    let (mut mantissa, mut digits) = (score << zeros, 0);
    for _ in 0..32 {
        let square = u128::from(mantissa) * u128::from(mantissa);
        let digit = square >> 127;
        mantissa = u64::try_from(square >> (63 + digit)).unwrap_or(u64::MAX);
        digits = digits << 1 | u64::try_from(digit).unwrap_or_default();
    }
    (u64::from(zeros + 1) << 32) - digits
}

fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

/// The finalizer of SplitMix64: every bit of the input changes about half of the bits of the output.
fn finalize(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published values: FNV-1a of "a" and "foobar", and the first output of SplitMix64 with the seed 0.
    #[test]
    fn functions_are_the_published_ones() {
        assert_eq!(fnv(FNV_OFFSET, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(FNV_OFFSET, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv(FNV_OFFSET, b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(finalize(0x9e37_79b9_7f4a_7c15), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn logarithm_is_that_of_floating_point() {
        let mut random = fastrand::Rng::with_seed(47);
        let scores =
            (0..10_000).map(|_| random.u64(..) >> random.u32(..64)).chain([0, 1, 2, u64::MAX, u64::MAX - 1]);
        let mut scores: Vec<_> = scores.collect();
        for &score in &scores {
            let exact = (64.0 - (score.max(1) as f64).log2()) * 2f64.powi(32);
            assert!((minus_log2(score) as f64 - exact).abs() <= 2.0, "{score}: {} {exact}", minus_log2(score));
        }
        scores.sort_unstable();
        assert!(scores.windows(2).all(|two| minus_log2(two[0]) >= minus_log2(two[1])));
    }

    #[test]
    fn costs_stay_what_they_are() {
        let costs = [(SCORES[0], 100), (SCORES[1], 100), (SCORES[2], 50), (SCORES[3], 10_000), (u64::MAX, 10_000)];
        assert_eq!(costs.map(|(score, weight)| cost(score, weight)), COSTS);
    }

    const COSTS: [u64; 5] = [19_996_883_000, 1_666_633_670_700, 342_510_127_800, 12_241_845_593, 1];

    /// Members of an older version compute the same scores.
    #[test]
    fn scores_stay_what_they_are() {
        let scores = [("orders-0", 0), ("orders-0", 1), ("orders-1", 0), ("", 4_095)];
        let scores = scores.map(|(name, shard)| Hashed::new(name).score(shard));
        assert_eq!(scores, SCORES);
    }

    const SCORES: [u64; 4] = [
        17_860_931_533_246_738_472,
        1_252_543_223_195_395_558,
        13_992_288_391_642_317_892,
        2_558_002_196_980_897_920,
    ];
}
