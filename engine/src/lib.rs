//! farspan, the library.
