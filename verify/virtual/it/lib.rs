//! Only its tests are something.
