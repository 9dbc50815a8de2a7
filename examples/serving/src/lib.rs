//! What the example programs share: files that are read again when they change, the counts that
//! Prometheus reads, and errors with their causes.

pub mod causes;
pub mod metrics;
pub mod reload;
