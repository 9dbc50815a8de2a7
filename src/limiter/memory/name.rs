//! The name of a key in the store.

use std::num::NonZeroU8;

/// The longest name that is stored in place: IPv4 addresses and most user ids fit.
const MAX_IN_PLACE: usize = 23;

/// The name of a key. A short one is part of the entry, so that a decision finds it in the memory
/// that it reads anyway.
pub(super) enum Name {
    InPlace { length: NonZeroU8, bytes: [u8; MAX_IN_PLACE] },
    Boxed(Box<[u8]>),
}

impl Name {
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Name::InPlace { length, bytes } => &bytes[..usize::from(length.get())],
            Name::Boxed(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for Name {
    fn from(name: &[u8]) -> Self {
        let length = u8::try_from(name.len()).ok().and_then(NonZeroU8::new);
        match length {
            Some(length) if name.len() <= MAX_IN_PLACE => {
                let mut bytes = [0; MAX_IN_PLACE];
                bytes[..name.len()].copy_from_slice(name);
                Name::InPlace { length, bytes }
            }
            _ => Name::Boxed(name.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_kept_as_it_was() {
        for length in 0..70 {
            let name = vec![b'x'; length];
            assert_eq!(Name::from(&*name).as_bytes(), name);
        }
    }

    #[test]
    fn a_short_name_takes_no_more_than_its_bytes_and_its_length() {
        assert_eq!(size_of::<Name>(), MAX_IN_PLACE + 1);
    }
}
