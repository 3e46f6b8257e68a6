//! Tests of the judges: each violation beside a similar correct history, and random histories against a naive twin.

mod by_hand;
mod journal;
mod random;
mod recording;
mod script;
mod simulation;
mod twin;
