//! Hash slots: the part of a Cluster's keys that a lock belongs to.

/// How many slots a Cluster has.
pub(crate) const SLOTS: u16 = 16384;

/// A hash slot. Its keys move between servers together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(u16);

impl Slot {
    /// The slot of a name: of a lock, and of each of its keys and channels.
    pub(crate) fn of(name: &str) -> Self {
        let name = name.as_bytes();
        Self(crc16(hash_tag(name).unwrap_or(name)) % SLOTS)
    }

    pub(crate) fn number(self) -> u16 {
        self.0
    }
}

/// CRC-16/XMODEM: the polynomial 0x1021, from 0, the highest bit first. It is counted once a command, and only in a Cluster.
fn crc16(bytes: &[u8]) -> u16 {
    let bits = |crc: u16, _| match crc & 0x8000 {
        0 => crc << 1,
        _ => (crc << 1) ^ 0x1021,
    };
    let byte = |crc, byte: &u8| (0..8).fold(crc ^ u16::from(*byte) << 8, bits);
    bytes.iter().fold(0, byte)
}

/// The text between the first `{` and the next `}`, unless it is empty.
pub(super) fn hash_tag(name: &[u8]) -> Option<&[u8]> {
    let begin = name.iter().position(|byte| *byte == b'{')? + 1;
    let length = name[begin..].iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &name[begin..begin + length])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected slots are the answers of Redis 7 to `CLUSTER KEYSLOT`.
    #[test]
    fn a_slot_is_that_of_the_hash_tag() {
        for (name, slot) in [
            ("", 0),
            ("foo", 12182),
            ("123456789", 12739),
            ("{foo}bar", 12182),
            ("a{foo}b{c}", 12182),
            ("{user1000}.following", 3443),
            ("{user1000}.followers", 3443),
            ("foo{}{bar}", 8363),
            ("foo{{bar}}zap", 4015),
        ] {
            assert_eq!(Slot::of(name).number(), slot, "{name}");
        }
    }
}
