//! The layer in frameworks that are too large for the check: see `tests/`.
