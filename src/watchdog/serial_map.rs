//! A map by serial number.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(super) type SerialMap<T> = HashMap<u64, T, BuildHasherDefault<SerialHasher>>;

/// Spreads consecutive numbers over all bits.
#[derive(Default)]
pub(super) struct SerialHasher(u64);

impl Hasher for SerialHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0.rotate_left(8) ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, serial: u64) {
        self.0 = serial.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
