//! Owns the score of a member for a shard: a fixed 64-bit hash, the same on every machine and with every version of Rust.
//!
//! The hash is FNV-1a (64 bits) of the name in UTF-8 and of the shard's number as eight bytes, the lowest first, followed by the
//! finalizer of SplitMix64. FNV-1a alone mixes the last bytes badly; the finalizer spreads them over all bits. Members of
//! different versions must agree on the score, so it never changes.

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
