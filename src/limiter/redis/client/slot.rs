//! The hash slots of a cluster: each key has one, and each slot is on one server.

/// The number of hash slots.
pub(crate) const HASH_SLOTS: u16 = 16_384;

/// The number of a partition: the slots whose calls share a connection to a cluster.
pub(crate) type Partition = usize;

/// Returns the hash slot of the key `name`. Only the text in its first braces counts, if any.
pub(crate) fn hash_slot(name: &str) -> u16 {
    let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(name);
    let sum = hashed
        .bytes()
        .fold(0_u16, |sum, byte| sum << 8 ^ CRC_16[usize::from(sum >> 8 ^ u16::from(byte))]);
    sum % HASH_SLOTS
}

/// The CRC-16 of each byte, as XMODEM computes it.
const CRC_16: [u16; 256] = {
    let (mut sums, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let (mut sum, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            sum = if sum >> 15 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 };
            bit += 1;
        }
        sums[byte] = sum;
        byte += 1;
    }
    sums
};

#[cfg(test)]
mod tests {
    use super::*;

    // Case 36.
    #[test]
    fn slots_are_those_of_a_cluster() {
        // The answers of CLUSTER KEYSLOT.
        assert_eq!(hash_slot("123456789"), 12_739);
        assert_eq!(hash_slot("sluice:api:tb1:{foo}"), 12_182);
        assert_eq!(hash_slot("foo"), 12_182);
    }
}
