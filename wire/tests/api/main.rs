//! Every message in every version: against another codec, against bytes made by Kafka's own, and
//! against bytes that nobody should have sent.

mod golden;
mod headers;
mod hostile;
mod oracle;
mod sample;
