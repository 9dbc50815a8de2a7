//! Redisson's limiter: its steps, its object, what it stores, who waits for it, what misbehaves,
//! and its twin.

mod faults;
mod model;
mod object;
mod state;
mod steps;
mod twin;
mod waiting;
