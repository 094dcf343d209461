//! Kafka bytes and their meaning.
//!
//! This crate promises three things: it never reads past the bytes it was given, it never allocates
//! more than the bytes that are left could fill, and it knows no clock, no socket and no file.
//!
//! | file      | what it knows                                                              |
//! |-----------|----------------------------------------------------------------------------|
//! | `ids`     | a type for every number with a meaning                                     |
//! | `codec`   | integers, varints, strings, arrays, tagged fields                          |
//! | `batch`   | record batches: walk, check, rewrite in place, build                       |
//! | `record`  | records of an uncompressed batch, control records                          |
//! | `fetch`   | the Fetch API: requests, a walk over responses, skeletons of responses     |
//! | `error`   | why bytes were refused, and where                                          |
//! | `message` | turns the table of a message into a struct, its reader and its writer      |
//! | `api`     | the messages themselves, one file per API; keys, versions, error codes     |
//! | `frame`   | sizes and headers of requests and answers                                  |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod api;
pub mod batch;
pub mod codec;
pub mod error;
pub mod fetch;
pub mod frame;
pub mod ids;
mod message;
pub mod record;

pub use error::WireError;
